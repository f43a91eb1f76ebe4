"""RecentEvents: keeps the newest events of a room decoded in memory, for subscribers slightly behind the head.

Only rooms with subscribers keep events. The number of events depends on the event rate of the room. The memory of each
room, and of all rooms together, is bounded.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from kwire.clock import Clock
from kwire.streams.events.event import Event

# Pairs of (events per minute, capacity). The first pair whose rate is above the rate of the room sets the capacity of
# the room. If there is no such pair, the capacity is BUSIEST_EVENTS.
TIERS = ((100, 1_000), (1_000, 10_000))
BUSIEST_EVENTS = 100_000
MINUTE_SECONDS = 60.0
# Memory of the Python objects of one event, besides its bytes.
EVENT_OVERHEAD_BYTES = 600
ROOM_BYTES_MAX = 16 * 1024 * 1024
ALL_ROOMS_BYTES_MAX = 128 * 1024 * 1024
# Trimmed events are removed from the list when their number exceeds 1/WASTE_SHARE of the number of kept events. Until
# then they use memory.
WASTE_SHARE = 8

_offset_of = attrgetter("offset")


def capacity_for(events_per_minute: float) -> int:
    """Return the maximum number of events that a room with this rate keeps decoded."""
    for below, capacity in TIERS:
        if events_per_minute < below:
            return capacity
    return BUSIEST_EVENTS


class RecentBytes:
    """The memory that the recent events of all rooms use together."""

    __slots__ = ("bytes_max", "used")

    def __init__(self, bytes_max: int = ALL_ROOMS_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.used = 0


class RecentEvents:
    """All events from `start_offset` up to, but not including, `next_offset`."""

    __slots__ = (
        "_all_bytes",
        "_bytes",
        "_clock",
        "_count",
        "_counting_since",
        "_events",
        "_events_max",
        "_first",
        "_rate",
        "next_offset",
        "start_offset",
    )

    def __init__(self, offset: int, clock: Clock, events_max: int, all_bytes: RecentBytes) -> None:
        self.start_offset = self.next_offset = offset
        self._clock = clock
        self._events_max = events_max
        self._all_bytes = all_bytes
        self._events: list[Event] = []
        # Events before this index have been trimmed; they are removed from the list later.
        self._first = 0
        self._bytes = 0
        self._count = 0
        self._counting_since = clock.monotonic()
        self._rate = 0.0

    def __len__(self) -> int:
        return len(self._events) - self._first

    @property
    def size_bytes(self) -> int:
        return self._bytes

    @property
    def capacity(self) -> int:
        """The maximum number of kept events. It depends on the rate of the last minute and the configured maximum."""
        return min(capacity_for(max(self._rate, self._count)), self._events_max)

    def add(self, events: Sequence[Event], next_offset: int) -> None:
        """Append the next events, up to `next_offset`."""
        self._measure_rate(len(events))
        size = _bytes_of(events)
        self._events += events
        self._bytes += size
        self._all_bytes.used += size
        self.next_offset = next_offset
        excess = len(self) - self.capacity
        if excess > 0 or self._bytes > ROOM_BYTES_MAX or self._all_bytes.used > self._all_bytes.bytes_max:
            self._trim(excess)

    def restart_at(self, offset: int) -> None:
        """Drop all events and continue at `offset`."""
        self._all_bytes.used -= self._bytes
        self._events, self._first, self._bytes = [], 0, 0
        self.start_offset = self.next_offset = offset

    def since(self, offset: int, count_max: int, bytes_max: int) -> tuple[Sequence[Event], int]:
        """Return events from `offset` on, at least one if there is one, and the offset at which to continue."""
        at = bisect_left(self._events, offset, lo=self._first, key=_offset_of)
        some = self._events[at : at + count_max]
        size = 0
        for number, event in enumerate(some):
            size += event.size_bytes
            if size > bytes_max and number:
                del some[number:]
                break
        if at + len(some) == len(self._events):
            return some, self.next_offset
        return some, some[-1].offset + 1

    def _measure_rate(self, count: int) -> None:
        now = self._clock.monotonic()
        elapsed = now - self._counting_since
        if elapsed >= MINUTE_SECONDS:
            self._rate = self._count * MINUTE_SECONDS / elapsed
            self._count = 0
            self._counting_since = now
        self._count += count

    def _trim(self, excess: int) -> None:
        events, first, freed = self._events, self._first, 0
        end = len(events)
        over = max(self._bytes - ROOM_BYTES_MAX, self._all_bytes.used - self._all_bytes.bytes_max)
        while first < end and (excess > 0 or freed < over):
            freed += events[first].size_bytes + EVENT_OVERHEAD_BYTES
            first += 1
            excess -= 1
        self._bytes -= freed
        self._all_bytes.used -= freed
        self.start_offset = events[first - 1].offset + 1 if first < end else self.next_offset
        self._first = first
        if first * WASTE_SHARE > end - first:
            del events[:first]
            self._first = 0


def _bytes_of(events: Sequence[Event]) -> int:
    size = len(events) * EVENT_OVERHEAD_BYTES
    for event in events:
        size += event.size_bytes
    return size
