"""Crash recovery at the start: events that are in the journal but not in their topics are appended to the topics.

Recovery runs before event topics are read. It reads the journal from the sync checkpoint on. If a topic is damaged at
offsets that the journal also contains, recovery first truncates the topic at the damage. If a topic ends below the base
offset of its first part in that range of the journal, older events are missing too. Then recovery reads the whole
journal for that topic.
"""

import asyncio
import logging
from typing import NamedTuple

from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topics
from kwire.errors import KafkaError
from kwire.streams.event_store.journal import JournalPart, batches_from, commits_in
from storage.batch.record_batch import build_batch, parse_header, read_records
from storage.errors import CorruptBatch, StorageError
from storage.log.producers import add_sequence

log = logging.getLogger("kwire.broker")

# Largest decompressed size of a batch that is rebuilt without its first records.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
# Journal batches between two yields to the event loop. No clients are connected yet, but syncs are running.
BATCHES_PER_TURN = 100


class RecoveryResult(NamedTuple):
    """The number of events added to topics, and the reasons why topics could not be completed, by topic id."""

    event_count: int
    incomplete: dict[bytes, str]


async def recover_topics(topics: Topics, journal: Partition, checkpoint: int) -> RecoveryResult:
    """Append to the event topics all events that they lack and that the journal has from position `checkpoint` on.

    All events below `checkpoint` are durable in their topics. Raises StorageError if the journal cannot be read.
    """
    found = _RecoveryPass(topics)
    await found.read(journal, checkpoint)
    too_short = {
        topic_id: found.incomplete.pop(topic_id) for topic_id in found.too_short if topic_id in found.incomplete
    }
    if too_short and journal.log_start_offset < checkpoint:
        again = _RecoveryPass(topics, only=frozenset(too_short))
        await again.read(journal, journal.log_start_offset)
        found.event_count += again.event_count
        found.incomplete |= again.incomplete
    else:
        found.incomplete |= too_short
    for topic_id, reason in found.incomplete.items():
        log.error("topic %s cannot be completed from the event journal: %s", _name(topics, topic_id), reason)
    if found.event_count:
        log.warning("%d events were added to their topics from the event journal", found.event_count)
    return RecoveryResult(found.event_count, found.incomplete)


class _RecoveryPass:
    """One pass over the journal. With `only`, parts of other topics are ignored."""

    def __init__(self, topics: Topics, only: frozenset[bytes] | None = None) -> None:
        self._topics = topics
        self._only = only
        # The partition of each topic id found in the journal so far; None if the topic is deleted.
        self._partitions: dict[bytes, Partition | None] = {}
        self.event_count = 0
        self.incomplete: dict[bytes, str] = {}
        # Topics that end before the base offset of a part.
        self.too_short: set[bytes] = set()

    async def read(self, journal: Partition, position: int) -> None:
        for number, batch in enumerate(batches_from(journal, position), start=1):
            try:
                for commit in commits_in(batch):
                    for part in commit.parts:
                        self._apply(part)
            except CorruptBatch as error:
                log.error("the event journal is damaged at position %d: %s", parse_header(batch).base_offset, error)
            if number % BATCHES_PER_TURN == 0:
                await asyncio.sleep(0)
        for partition in self._partitions.values():
            if partition is not None:
                partition.commit_all()

    def _apply(self, part: JournalPart) -> None:
        topic_id = part.topic_id
        if topic_id in self.incomplete or (self._only is not None and topic_id not in self._only):
            return
        try:
            if topic_id not in self._partitions:
                self._partitions[topic_id] = self._partition(part)
            partition = self._partitions[topic_id]
            if partition is not None:
                self._append(partition, part)
        except (StorageError, KafkaError) as error:
            self.incomplete[topic_id] = str(error)

    def _partition(self, part: JournalPart) -> Partition | None:
        """Return the partition of a part; None if its topic is deleted.

        If the partition is damaged at or after the base offset of the part, it is truncated at the damage.
        """
        topic = self._topics.get_by_id(part.topic_id)
        if topic is None or not topic.settings.is_event_topic:
            return None
        partition = topic.partitions[0]
        damage = partition.damage
        if damage is not None and damage.offset >= part.base_offset:
            log.warning("topic %s is damaged at offset %d and is truncated there", topic.name, damage.offset)
            self._topics.cut_damaged_end(partition)
        damaged = [one.start_offset for one in partition.quarantined if one.end_offset > part.base_offset]
        if damaged and min(damaged) >= part.base_offset:
            log.warning("topic %s is damaged at offset %d and is truncated there", topic.name, min(damaged))
            partition.maintenance().truncate(min(damaged))
        return partition

    def _append(self, partition: Partition, part: JournalPart) -> None:
        batch = memoryview(part.batch)
        header = parse_header(batch)
        end = partition.log_end_offset
        part_end = part.base_offset + header.last_offset_delta + 1
        if part_end <= end:
            return
        if part.base_offset > end:
            self.too_short.add(part.topic_id)
            raise CorruptBatch(f"it ends at offset {end}, and the journal continues at {part.base_offset}")
        if part.base_offset < end:
            # The first records of this batch were deleted, so the empty log starts (and ends) inside the batch.
            batch = _without_beginning(batch, end)
            header = parse_header(batch)
        appended = partition.append_journaled(batch, header, max(header.max_timestamp, 0))
        if appended.is_duplicate or appended.last_offset + 1 != part_end:
            raise CorruptBatch(f"the batch for offset {part.base_offset} was appended at {appended.base_offset}")
        self.event_count += part_end - end


def _without_beginning(batch: memoryview, from_offset: int) -> memoryview:
    header = parse_header(batch)
    records = [one for one in read_records(batch, DECOMPRESSED_BYTES_MAX) if one.offset >= from_offset]
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = add_sequence(sequence, header.record_count - len(records))
    made = build_batch(
        records,
        base_offset=from_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=sequence,
        compression=header.compression,
        partition_leader_epoch=header.partition_leader_epoch,
        timestamp_type=header.timestamp_type,
    )
    return memoryview(made)


def _name(topics: Topics, topic_id: bytes) -> str:
    return topics.catalogue.name_of(topic_id) or topic_id.hex()
