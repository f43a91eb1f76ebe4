"""Offset marks: up to which offset records of a partition may be acknowledged, durable in the metadata store.

They are reservations, like blocks of producer ids. The first block needs no entry. Before the high watermark passes the
middle of the last reserved block, the next one is committed in the background; an acknowledgement above the mark waits
for that. So a partition whose folder is lost can go on above every offset that was ever acknowledged.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from kwire.broker.catalogue import MARKS_PREFIX
from kwire.broker.partition import Partition
from kwire.broker.partition.reserved_offsets import MARK_BLOCK
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from storage.errors import StorageError

log = logging.getLogger("kwire.broker")

# If a commit takes longer, waiting callers get an error; the commit continues.
COMMIT_SECONDS_MAX = 30.0
# Calls that wait for a mark are checked for their time-outs this often.
LOOK_SECONDS = 1.0
# Topics whose marks are written by one commit.
TOPICS_PER_COMMIT_MAX = 1000


def first_mark(end_offset: int) -> int:
    """A mark for a partition of which nothing is known but that it ends here."""
    return end_offset + MARK_BLOCK


class OffsetMarks:
    """Called from the event loop; the only writer of the marks while the server runs."""

    def __init__(self, metastore: MetaStore) -> None:
        self._metastore = metastore
        self._wanted: dict[Partition, bytes] = {}
        # Partitions whose marks are being written.
        self._reserved: Mapping[Partition, bytes] = {}
        self._look: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def mark_of(self, topic_id: bytes, index: int) -> int:
        entry = self._metastore.get(MARKS_PREFIX + topic_id.hex())
        mark: int = entry.value.get(str(index), MARK_BLOCK) if entry is not None else MARK_BLOCK
        return mark

    def reserve(self, partition: Partition, topic_id: bytes) -> None:
        """Reserve the next block for a partition, soon; then its `raise_mark` or `refuse_mark` is called."""
        self._wanted[partition] = topic_id
        if self._writing is None:
            loop = asyncio.get_running_loop()
            self._writing = loop.create_task(self._write())
            self._look = loop.call_later(LOOK_SECONDS, self._look_after)

    def _look_after(self) -> None:
        for partition in (*self._reserved, *self._wanted):
            partition.give_up_overdue()
        self._look = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look_after)

    async def idle(self) -> None:
        """Wait until nothing is left to be reserved."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                self._reserved = {one: topic_id for one, topic_id in wanted.items() if not one.is_forgotten}
                await self._reserve(self._reserved)
        finally:
            self._writing, self._reserved = None, {}
            if self._look is not None:
                self._look.cancel()

    async def _reserve(self, wanted: Mapping[Partition, bytes]) -> None:
        marks = {one: first_mark(one.log_end_offset if one.is_open else one.high_watermark) for one in wanted}
        try:
            async with asyncio.timeout(COMMIT_SECONDS_MAX):
                await self.commit((topic_id, one.index, marks[one]) for one, topic_id in wanted.items())
        except (StorageError, Conflict, TimeoutError) as error:
            log.error("the offset marks of %d partitions could not be written: %s", len(wanted), error or "timed out")
            for partition in wanted:
                partition.refuse_mark(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the offset mark could not be written"))
            return
        for partition, mark in marks.items():
            try:
                partition.raise_mark(mark)
            except Exception:
                # One reader that fails when it is notified must not keep the others from it.
                log.exception("after the offset mark of %s-%d", partition.topic_name, partition.index)

    async def commit(self, marks: Iterable[tuple[bytes, int, int]]) -> None:
        """Write marks: topic id, partition and offset each."""
        by_topic: dict[bytes, dict[str, int]] = {}
        for topic_id, index, mark in marks:
            by_topic.setdefault(topic_id, {})[str(index)] = mark
        topics = list(by_topic.items())
        for start in range(0, len(topics), TOPICS_PER_COMMIT_MAX):
            changes = []
            for topic_id, of_topic in topics[start : start + TOPICS_PER_COMMIT_MAX]:
                key = MARKS_PREFIX + topic_id.hex()
                entry = self._metastore.get(key)
                known = entry.value if entry is not None else {}
                changes.append(Change(key, known | of_topic, entry.revision if entry is not None else ABSENT))
            await self._metastore.commit(changes)
