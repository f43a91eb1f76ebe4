"""Offset marks: upper bounds in the metadata store. A partition acknowledges no offset at or above its mark.

Offsets are reserved in blocks, like producer ids. The first block needs no entry in the metadata store. When the high
watermark reaches the middle of the last reserved block, the next block is reserved in the background. Acknowledgements
above the mark wait until the new mark is durable. If the folder of a partition is lost, the partition can therefore
continue above every offset that was ever acknowledged.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from kwire.broker.partition import Partition
from kwire.broker.partition.reserved_offsets import MARK_BLOCK
from kwire.broker.topics.catalogue import MARKS_PREFIX
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore, batches
from kwire.metastore.interface import ABSENT
from storage.errors import StorageError

log = logging.getLogger("kwire.broker")

# If a commit takes longer, the calls that wait for it get an error. The commit itself continues.
COMMIT_SECONDS_MAX = 30.0
# The interval of the check for timeouts of calls that wait for a mark.
TIMEOUT_CHECK_SECONDS = 1.0


def first_mark(end_offset: int) -> int:
    """Return the mark to write for a partition with this log end offset: one block above it."""
    return end_offset + MARK_BLOCK


class OffsetMarks:
    """Reads and writes offset marks. Use it only in the event loop's thread.

    While the server runs, no other code writes marks.
    """

    def __init__(self, metastore: MetaStore) -> None:
        self._metastore = metastore
        self._wanted: dict[Partition, bytes] = {}
        # Partitions whose marks are being written.
        self._reserved: Mapping[Partition, bytes] = {}
        self._timeout_timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def mark_of(self, topic_id: bytes, index: int) -> int:
        entry = self._metastore.get(MARKS_PREFIX + topic_id.hex())
        mark: int = entry.value.get(str(index), MARK_BLOCK) if entry is not None else MARK_BLOCK
        return mark

    def reserve(self, partition: Partition, topic_id: bytes) -> None:
        """Reserve the next block for a partition in the background.

        Afterwards the partition's `raise_mark` is called, or its `refuse_mark` if the mark could not be written.
        """
        self._wanted[partition] = topic_id
        if self._writing is None:
            loop = asyncio.get_running_loop()
            self._writing = loop.create_task(self._write())
            self._timeout_timer = loop.call_later(TIMEOUT_CHECK_SECONDS, self._check_timeouts)

    def _check_timeouts(self) -> None:
        for partition in (*self._reserved, *self._wanted):
            partition.give_up_overdue()
        self._timeout_timer = asyncio.get_running_loop().call_later(TIMEOUT_CHECK_SECONDS, self._check_timeouts)

    async def idle(self) -> None:
        """Wait until no reservation is pending."""
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
            if self._timeout_timer is not None:
                self._timeout_timer.cancel()

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
                # `raise_mark` runs callbacks of waiting calls. If one raises, the other partitions still get their
                # marks.
                log.exception("a callback of %s-%d failed after a new mark", partition.topic_name, partition.index)

    async def commit(self, marks: Iterable[tuple[bytes, int, int]]) -> None:
        """Write marks durably. Each mark is a tuple of topic id, partition index and offset.

        The marks of many topics take several commits. If one fails, earlier ones stay: a higher mark is always valid.
        """
        by_topic: dict[bytes, dict[str, int]] = {}
        for topic_id, index, mark in marks:
            by_topic.setdefault(topic_id, {})[str(index)] = mark
        for batch in batches([self._change(topic_id, of_topic)] for topic_id, of_topic in by_topic.items()):
            await self._metastore.commit(batch)

    def _change(self, topic_id: bytes, marks: dict[str, int]) -> Change:
        key = MARKS_PREFIX + topic_id.hex()
        entry = self._metastore.get(key)
        known = entry.value if entry is not None else {}
        return Change(key, known | marks, entry.revision if entry is not None else ABSENT)
