"""A deterministic environment for a coordinator: an in-memory log, and timers that a test advances."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

from kwire.coordinator.group.commands import CommittedOffset
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.group.offsets.pending import OffsetKey
from kwire.coordinator.group.records import GroupMetadataValue
from kwire.coordinator.group.settings import ConsumerSettings, GroupSettings
from kwire.coordinator.group.shard import GroupShard
from kwire.coordinator.group.topics_view import TopicShape
from kwire.coordinator.log_records import KeyValue, PendingRecord, ProducerIdAndEpoch, Replayed, TransactionEnd
from kwire.errors import ErrorCode, KafkaError
from storage.batch.record_batch import BatchHeader, check_batch, read_records
from storage.errors import DiskFailure, InvalidProducerEpoch
from tests.support.clock import ManualClock

SHARD_COUNT = 4
Durable = dict[str, GroupMetadataValue | tuple[Any, ...]]


class MemoryTopics:
    """Topics that a test makes, widens and deletes; the id of a topic is its name and when it was made."""

    def __init__(self) -> None:
        self.revision = 0
        self.shapes: dict[str, TopicShape] = {}

    def put(self, name: str, partition_count: int) -> None:
        self.revision += 1
        known = self.shapes.get(name)
        topic_id = known.topic_id if known else f"{name[:12]:.<12}{self.revision:04}".encode()
        self.shapes[name] = TopicShape(topic_id, partition_count)

    def drop(self, name: str) -> None:
        self.revision += 1
        del self.shapes[name]

    def find(self, name: str) -> TopicShape | None:
        return self.shapes.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, shape in self.shapes.items() if shape.topic_id == topic_id), None)

    def names(self) -> list[str]:
        return list(self.shapes)


class MemoryLog:
    """The internal topic: appends can be made to fail, commits can be held back."""

    def __init__(self) -> None:
        self.shards: dict[int, list[Replayed]] = {}
        self.is_failing = False
        self.is_holding = False
        self.appended: list[Replayed] = []
        # How many records each append has brought; an append of more than `largest` is refused.
        self.append_sizes: list[int] = []
        self.largest = 1_000_000
        # By shard and producer; as in a real log, nothing of an earlier one is taken.
        self._epochs: dict[tuple[int, int], int] = {}
        self._held: list[Callable[[KafkaError | None], None]] = []

    def append(self, shard: int, records: Sequence[KeyValue], now_ms: int) -> int:
        return self._append(shard, records)

    def append_batch(self, shard: int, batch: memoryview, header: BatchHeader, now_ms: int) -> tuple[int, int]:
        assert check_batch(batch) == header
        records = [(record.key or b"", record.value) for record in read_records(batch, len(batch))]
        return self._append(shard, records), self.committed_offset(shard)

    def append_pending(
        self, shard: int, transaction: ProducerIdAndEpoch, records: Sequence[KeyValue], now_ms: int
    ) -> int:
        self._take_epoch(shard, transaction)
        return self._append(shard, [PendingRecord(transaction.producer_id, key, value) for key, value in records])

    def append_marker(
        self, shard: int, transaction: ProducerIdAndEpoch, coordinator_epoch: int, is_commit: bool
    ) -> int:
        self._take_epoch(shard, transaction)
        return self._append(shard, [TransactionEnd(transaction.producer_id, is_commit)])

    def count(self) -> int:
        return sum(map(len, self.shards.values()))

    def epoch_of(self, shard: int, producer_id: int) -> int:
        return self._epochs.get((shard, producer_id), 0)

    def _take_epoch(self, shard: int, transaction: ProducerIdAndEpoch) -> None:
        producer_id, epoch = transaction
        if epoch < self._epochs.get((shard, producer_id), 0):
            raise InvalidProducerEpoch(f"producer {producer_id} came with epoch {epoch}")
        if not self.is_failing:
            self._epochs[shard, producer_id] = epoch

    def _append(self, shard: int, records: Sequence[Replayed]) -> int:
        if self.is_failing:
            raise DiskFailure("no room")
        if len(records) > self.largest:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        log = self.shards.setdefault(shard, [])
        log.extend(records)
        self.appended.extend(records)
        self.append_sizes.append(len(records))
        return len(log)

    def committed_offset(self, shard: int) -> int:
        return 0 if self.is_holding else len(self.shards.get(shard, ()))

    def on_committed(self, shard: int, offset: int, call: Callable[[KafkaError | None], None]) -> None:
        assert offset <= len(self.shards.get(shard, ()))
        if self.is_holding:
            self._held.append(call)
        else:
            call(None)

    def on_synced(self, shard: int, offset: int, call: Callable[[KafkaError | None], None]) -> None:
        self.on_committed(shard, offset, call)

    def replay(self, shard: int) -> Iterator[Replayed]:
        yield from list(self.shards.get(shard, ()))

    def release(self, error: KafkaError | None = None) -> None:
        self.is_holding = False
        held, self._held = self._held, []
        for call in held:
            call(error)


def plain(records: Iterable[Replayed]) -> Iterator[KeyValue]:
    """Those of a coordinator to which nobody writes in transactions, which are all of its records."""
    for one in records:
        assert isinstance(one, tuple)
        yield one


class ManualTimer:
    def __init__(self, at_ms: int, call: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Timers:
    """What the event loop does in production: calls at a time, in order."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, ManualTimer]] = []
        self._serial = 0

    def call_later(self, seconds: float, call: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(round((self._clock.monotonic() + seconds) * 1000), call)
        self._serial += 1
        heapq.heappush(self._heap, (timer.at_ms, self._serial, timer))
        return timer

    def live_count(self) -> int:
        return sum(timer.call is not None for _, _, timer in self._heap)

    def advance(self, milliseconds: int, calls_max: int = 10_000) -> None:
        """Let time pass, stopping at each timer. A timer that never stops coming back is a failure."""
        end_ms = round(self._clock.monotonic() * 1000) + milliseconds
        for _ in range(calls_max):
            if not self._heap or self._heap[0][0] > end_ms:
                break
            at_ms, _, timer = heapq.heappop(self._heap)
            self._clock.advance(max(0, at_ms - round(self._clock.monotonic() * 1000)))
            if timer.call is not None:
                timer.call()
        else:
            raise AssertionError("timers go round in circles")
        self._clock.advance(end_ms - round(self._clock.monotonic() * 1000))


class World:
    """One coordinator and all it touches; `restart` builds a new one on the same log."""

    def __init__(self, **settings: int) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.log = MemoryLog()
        # Without them offsets are kept whatever topics they are of.
        self.has_topics = False
        self.topics = MemoryTopics()
        # Without turns every command is appended on its own.
        self.has_turns = False
        self._turn_ends: list[Callable[[], None]] = []
        self.consumer_settings = ConsumerSettings()
        self.settings = GroupSettings(offsets_topic_num_partitions=SHARD_COUNT, **settings)
        self._fresh = 0
        self.groups = self._build()

    def _build(self) -> GroupCoordinator:
        return GroupCoordinator(
            log=self.log,
            clock=self.clock,
            call_later=self.timers.call_later,
            call_soon=self._turn_ends.append if self.has_turns else None,
            settings=self.settings,
            fresh_id=self._fresh_id,
            topics=self.topics if self.has_topics else None,
            consumer_settings=lambda group_id: self.consumer_settings,
        )

    def _fresh_id(self) -> str:
        self._fresh += 1
        return str(self._fresh)

    def with_topics(self) -> Self:
        """Let the coordinator see `topics`. Before anything is asked."""
        self.has_topics = True
        self.restart()
        return self

    def with_turns(self) -> Self:
        """Let commits of one turn share an append; `end_turn` ends one. Before anything is asked."""
        self.has_turns = True
        self.restart()
        return self

    def end_turn(self) -> None:
        calls = self._turn_ends[:]
        self._turn_ends.clear()
        for call in calls:
            call()

    @property
    def now_ms(self) -> int:
        return round(self.clock.monotonic() * 1000)

    def restart(self) -> None:
        self.groups.close()
        self.groups = self._build()

    def replayed(self) -> Durable:
        """What a coordinator that starts now would know."""
        shards = []
        for records in self.log.shards.values():
            shard = GroupShard(self.settings)
            for one in records:
                if isinstance(one, PendingRecord):
                    shard.apply_pending(one.producer_id, one.key, one.value)
                elif isinstance(one, TransactionEnd):
                    shard.end_transaction(one.producer_id, one.is_commit)
                else:
                    shard.apply(*one)
            shards.append(shard)
        return durable(shards)

    def durable(self) -> Durable:
        return durable(self.groups.shards())


def all_offsets(shard: GroupShard) -> Iterator[tuple[str, str, int, CommittedOffset]]:
    for group_id, topics in shard.offsets._by_group.items():
        for topic, by_partition in topics.items():
            for partition, committed in by_partition.items():
                yield group_id, topic, partition, committed


def all_pending(shard: GroupShard) -> Iterator[tuple[int, OffsetKey, tuple[CommittedOffset, bool]]]:
    """By producer and place, with whether a later commit has overtaken it."""
    pending = shard.offsets.pending
    for producer_id in pending.producer_ids():
        for place in pending.of_producer(producer_id):
            one = pending._at(*place)[producer_id]
            yield producer_id, place, (one.committed, one.is_superseded)


def consumer_durable(group: ConsumerGroup) -> tuple[Any, ...]:
    members = {one.member_id: (one.subscription, one.current) for one in group.members.values()}
    derived = group.owners, group.static_members, group.subscribed
    return group.group_epoch, group.metadata_hash, group.target_epoch, members, group.targets, group.resolved, derived


def durable(shards: Iterator[GroupShard] | list[GroupShard]) -> Durable:
    state: Durable = {}
    for shard in shards:
        for group in shard.groups.values():
            if isinstance(group, ConsumerGroup):
                if group.group_epoch == 0:
                    continue
                state[f"group {group.group_id}"] = consumer_durable(group)
            elif group.stored is not None:
                state[f"group {group.group_id}"] = group.stored
        for group_id, topic, partition, committed in all_offsets(shard):
            state[f"offset {group_id} {topic}-{partition}"] = (committed,)
        for producer_id, place, pending in all_pending(shard):
            state[f"pending {producer_id} {place.group_id} {place.topic}-{place.partition}"] = pending
    return state
