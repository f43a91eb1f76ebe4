"""A world for a coordinator in which nothing happens by itself: a log in memory, timers that a test moves on."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kwire.coordinator.group.commands import CommittedOffset
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.group.records import GroupMetadataValue
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.shard import GroupShard
from kwire.coordinator.runtime import KeyValue
from kwire.errors import KafkaError
from storage.errors import DiskFailure
from tests.support.clock import ManualClock

SHARD_COUNT = 4
Durable = dict[str, GroupMetadataValue | tuple[Any, ...]]


class MemoryLog:
    """The internal topic: appends can be made to fail, commits can be held back."""

    def __init__(self) -> None:
        self.shards: dict[int, list[KeyValue]] = {}
        self.is_failing = False
        self.is_holding = False
        self.appended: list[KeyValue] = []
        self._held: list[Callable[[KafkaError | None], None]] = []

    def append(self, shard: int, records: Sequence[KeyValue], now_ms: int) -> int:
        if self.is_failing:
            raise DiskFailure("no room")
        log = self.shards.setdefault(shard, [])
        log.extend(records)
        self.appended.extend(records)
        return len(log)

    def on_committed(self, shard: int, offset: int, call: Callable[[KafkaError | None], None]) -> None:
        assert offset <= len(self.shards.get(shard, ()))
        if self.is_holding:
            self._held.append(call)
        else:
            call(None)

    def replay(self, shard: int) -> Iterator[KeyValue]:
        yield from list(self.shards.get(shard, ()))

    def release(self, error: KafkaError | None = None) -> None:
        self.is_holding = False
        held, self._held = self._held, []
        for call in held:
            call(error)


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
        self.settings = GroupSettings(offsets_topic_num_partitions=SHARD_COUNT, **settings)
        self._fresh = 0
        self.groups = self._build()

    def _build(self) -> GroupCoordinator:
        return GroupCoordinator(
            log=self.log,
            clock=self.clock,
            call_later=self.timers.call_later,
            settings=self.settings,
            fresh_id=self._fresh_id,
        )

    def _fresh_id(self) -> str:
        self._fresh += 1
        return str(self._fresh)

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
            for key, value in records:
                shard.apply(key, value)
            shards.append(shard)
        return durable(shards)

    def durable(self) -> Durable:
        return durable(self.groups.shards())


def all_offsets(shard: GroupShard) -> Iterator[tuple[str, str, int, CommittedOffset]]:
    for group_id, topics in shard.offsets._by_group.items():
        for topic, by_partition in topics.items():
            for partition, committed in by_partition.items():
                yield group_id, topic, partition, committed


def durable(shards: Iterator[GroupShard] | list[GroupShard]) -> Durable:
    state: Durable = {}
    for shard in shards:
        for group in shard.groups.values():
            if group.stored is not None:
                state[f"group {group.group_id}"] = group.stored
        for group_id, topic, partition, committed in all_offsets(shard):
            state[f"offset {group_id} {topic}-{partition}"] = (committed,)
    return state
