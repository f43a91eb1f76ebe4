"""The newest events in memory: how many stay, and what is found among them."""

import pytest

from kwire.streams.events.event import Event
from kwire.streams.subscriptions.recent_events import (
    EVENT_OVERHEAD_BYTES,
    ROOM_BYTES_MAX,
    RecentBytes,
    RecentEvents,
    capacity_for,
)
from tests.support.clock import ManualClock

MINUTE_MS = 60_000


def events(start: int, count: int, size_bytes: int = 10) -> list[Event]:
    return [Event(offset, "evt", "t", b"{}", 0, {}, None, size_bytes) for offset in range(start, start + count)]


def recent(events_max: int = 1_000_000, bytes_max: int = 2**40) -> tuple[RecentEvents, ManualClock, RecentBytes]:
    clock, all_bytes = ManualClock(), RecentBytes(bytes_max)
    return RecentEvents(0, clock, events_max, all_bytes), clock, all_bytes


@pytest.mark.proves("S0-46")
def test_busy_rooms_keep_more() -> None:
    assert [capacity_for(rate) for rate in (0, 99, 100, 999, 1000, 10**6)] == [
        *(1_000, 1_000),
        *(10_000, 10_000),
        *(100_000, 100_000),
    ]


@pytest.mark.proves("S0-46")
def test_capacity_follows_the_events_of_a_minute_both_ways() -> None:
    kept, clock, _ = recent()
    kept.add(events(0, 99), 99)
    assert kept.capacity == 1_000
    kept.add(events(99, 1), 100)
    assert kept.capacity == 10_000
    kept.add(events(100, 5_000), 5_100)
    assert kept.capacity == 100_000
    clock.advance(MINUTE_MS)
    kept.add([], 5_100)
    assert kept.capacity == 100_000
    assert len(kept) == 5_100
    clock.advance(60 * MINUTE_MS)
    kept.add(events(5_100, 1), 5_101)
    assert kept.capacity == 1_000
    assert (len(kept), kept.start_offset, kept.next_offset) == (1_000, 4_101, 5_101)


@pytest.mark.proves("S0-46")
def test_the_oldest_go_one_by_one_when_it_is_full() -> None:
    kept, _, all_bytes = recent(events_max=3)
    for offset in range(10):
        kept.add(events(offset, 1), offset + 1)
        assert len(kept) == min(offset + 1, 3)
        assert kept.start_offset == max(offset - 2, 0)
    assert all_bytes.used == kept.size_bytes == 3 * (10 + EVENT_OVERHEAD_BYTES)


def test_found_from_any_offset_also_where_some_are_missing() -> None:
    kept, _, _ = recent()
    kept.add([*events(0, 2), *events(5, 2)], 9)
    for offset in range(9):
        some, behind = kept.since(offset, 100, 10**6)
        assert [event.offset for event in some] == [one for one in (0, 1, 5, 6) if one >= offset]
        assert behind == 9
    some, behind = kept.since(1, 2, 10**6)
    assert ([event.offset for event in some], behind) == ([1, 5], 6)
    some, behind = kept.since(0, 100, 25)
    assert ([event.offset for event in some], behind) == ([0, 1], 2)
    some, behind = kept.since(0, 100, 1)
    assert ([event.offset for event in some], behind) == ([0], 1)


def test_bytes_of_a_room_are_bounded() -> None:
    kept, _, _ = recent()
    for offset in range(40):
        kept.add(events(offset, 1, 1_000_000), offset + 1)
        assert kept.size_bytes <= ROOM_BYTES_MAX
    assert 10 < len(kept) < 20
    kept.add(events(40, 1, 2 * ROOM_BYTES_MAX), 41)
    assert (len(kept), kept.start_offset, kept.size_bytes) == (0, 41, 0)


def test_bytes_of_all_rooms_are_bounded() -> None:
    all_bytes = RecentBytes(100_000)
    rooms = [RecentEvents(0, ManualClock(), 10**6, all_bytes) for _ in range(10)]
    for offset in range(100):
        for room in rooms:
            room.add(events(offset, 1, 1000), offset + 1)
            assert all_bytes.used <= 100_000
    for room in rooms:
        room.restart_at(7)
    assert all_bytes.used == 0


def test_what_is_gone_takes_little_memory() -> None:
    kept, _, _ = recent(events_max=800)
    for offset in range(5_000):
        kept.add(events(offset, 1), offset + 1)
        assert len(kept._events) <= 1000
