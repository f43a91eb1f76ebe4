"""Repair at the start, before anybody reads: every event topic is completed from the journal behind its own end.

The journal is read from the mark on, where a topic may be behind it. A topic that is damaged there is cut first. If a
topic ends before the first part that was found for it, the journal is read from its beginning for that topic.
"""

import asyncio
import logging
from typing import NamedTuple

from kwire.broker.partition import Partition
from kwire.broker.store.journal import JournalPart, batches_from, commits_in
from kwire.broker.topics import Topics
from kwire.errors import KafkaError
from storage.batch import build_batch, parse_header, read_records
from storage.errors import CorruptBatch, StorageError
from storage.producers import add_sequence

log = logging.getLogger("kwire.broker")

# What a batch may unfold to when its end is needed without its beginning.
UNFOLDED_BYTES_MAX = 64 * 1024 * 1024
# Others have their turn after so many batches of the journal; no client is there yet, but syncs are.
BATCHES_PER_TURN = 100


class Repaired(NamedTuple):
    """`event_count` events were added; `broken` are topics that could not be completed, and why."""

    event_count: int
    broken: dict[bytes, str]


async def repair(topics: Topics, journal: Partition, mark: int) -> Repaired:
    """Everything below the mark is safe in the topics themselves. Raises StorageError if the journal cannot be read."""
    found = _Repair(topics)
    await found.read(journal, mark)
    short = {topic_id: found.broken.pop(topic_id) for topic_id in found.short if topic_id in found.broken}
    if short and journal.log_start_offset < mark:
        again = _Repair(topics, only=frozenset(short))
        await again.read(journal, journal.log_start_offset)
        found.event_count += again.event_count
        found.broken |= again.broken
    else:
        found.broken |= short
    for topic_id, reason in found.broken.items():
        log.error("topic %s cannot be completed from the event journal: %s", _name(topics, topic_id), reason)
    if found.event_count:
        log.warning("%d events were added to their topics from the event journal", found.event_count)
    return Repaired(found.event_count, found.broken)


class _Repair:
    """One pass over the journal."""

    def __init__(self, topics: Topics, only: frozenset[bytes] | None = None) -> None:
        self._topics = topics
        self._only = only
        # The topics met so far; None for those that are gone.
        self._met: dict[bytes, Partition | None] = {}
        self.event_count = 0
        self.broken: dict[bytes, str] = {}
        # Those that end before what was found for them.
        self.short: set[bytes] = set()

    async def read(self, journal: Partition, position: int) -> None:
        for number, batch in enumerate(batches_from(journal, position), start=1):
            try:
                for commit in commits_in(batch):
                    for part in commit.parts:
                        self._complete(part)
            except CorruptBatch as error:
                log.error("the event journal is damaged at position %d: %s", parse_header(batch).base_offset, error)
            if number % BATCHES_PER_TURN == 0:
                await asyncio.sleep(0)
        for partition in self._met.values():
            if partition is not None:
                partition.commit_all()

    def _complete(self, part: JournalPart) -> None:
        topic_id = part.topic_id
        if topic_id in self.broken or (self._only is not None and topic_id not in self._only):
            return
        try:
            if topic_id not in self._met:
                self._met[topic_id] = self._partition(part)
            partition = self._met[topic_id]
            if partition is not None:
                self._append(partition, part)
        except (StorageError, KafkaError) as error:
            self.broken[topic_id] = str(error)

    def _partition(self, part: JournalPart) -> Partition | None:
        """The partition, opened and rid of damage that the journal makes good; None if the topic is gone."""
        topic = self._topics.get_by_id(part.topic_id)
        if topic is None or not topic.settings.is_event_topic:
            return None
        partition = topic.partitions[0]
        damage = partition.damage
        if damage is not None and damage.offset >= part.base_offset:
            log.warning("%s is cut at offset %d, where it is damaged", topic.name, damage.offset)
            self._topics.cut_damaged_end(partition)
        harmed = [one.start_offset for one in partition.quarantined if one.end_offset > part.base_offset]
        if harmed and min(harmed) >= part.base_offset:
            log.warning("%s is cut at offset %d, where it is damaged", topic.name, min(harmed))
            partition.maintenance().truncate(min(harmed))
        return partition

    def _append(self, partition: Partition, part: JournalPart) -> None:
        batch = memoryview(part.batch)
        header = parse_header(batch)
        end = partition.log_end_offset
        behind = part.base_offset + header.last_offset_delta + 1
        if behind <= end:
            return
        if part.base_offset > end:
            self.short.add(part.topic_id)
            raise CorruptBatch(f"it ends at offset {end}, and the journal goes on at {part.base_offset}")
        if part.base_offset < end:
            # Its beginning was deleted, and the log begins in the middle of it.
            batch = _without_beginning(batch, end)
            header = parse_header(batch)
        appended = partition.append_journaled(batch, header, max(header.max_timestamp, 0))
        if appended.is_duplicate or appended.last_offset + 1 != behind:
            raise CorruptBatch(f"offset {part.base_offset} would be at {appended.base_offset}")
        self.event_count += behind - end


def _without_beginning(batch: memoryview, from_offset: int) -> memoryview:
    header = parse_header(batch)
    records = [one for one in read_records(batch, UNFOLDED_BYTES_MAX) if one.offset >= from_offset]
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
