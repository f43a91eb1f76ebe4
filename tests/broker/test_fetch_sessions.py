"""Fetch sessions: which are opened, which are evicted, and the bounds on their number and size."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.broker.fetch import sessions as fetch_sessions
from kwire.broker.fetch.sessions import (
    EPOCH_MAX,
    EVICTION_MS_MIN,
    NO_SESSION,
    CachedPartition,
    FetchSession,
    FetchSessions,
)
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.messages.fetch import FetchPartition
from tests.support.clock import ManualClock

OLD_MS = EVICTION_MS_MIN + 1


def asked(index: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)


class Cache:
    """Sessions in virtual time, with readers that know their epoch."""

    def __init__(self, slots: int = 3, partitions_max: int = 1000) -> None:
        self.clock = ManualClock()
        self.sessions = FetchSessions(self.clock, slots, partitions_max=partitions_max)
        self.epochs: dict[int, int] = {}

    def create(self, size: int, *, uses_topic_ids: bool = False) -> int:
        session = self.sessions.begin(size, uses_topic_ids=uses_topic_ids)
        if session is None:
            return NO_SESSION
        session.request("t", [asked(index) for index in range(size)])
        session_id = self.sessions.add(session)
        if session_id:
            self.epochs[session_id] = 1
        return session_id

    def use(self, session_id: int, *, grow_to: int = 0, shrink_to: int | None = None) -> FetchSession:
        session = self.sessions.find(session_id, self.epochs[session_id], uses_topic_ids=False)
        session.request("t", [asked(index) for index in range(grow_to)])
        if shrink_to is not None:
            session.forget("t", [index for _, index in list(session.partitions)[shrink_to:]])
        self.sessions.advance(session)
        self.epochs[session_id] += 1
        return session

    def has(self, session_id: int) -> bool:
        return session_id in self.sessions._sessions


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


def test_ids_are_positive_and_differ() -> None:
    cache = Cache(slots=200)
    ids = [cache.create(1) for _ in range(200)]
    assert len(set(ids)) == 200
    assert all(0 < one <= 2**31 - 1 for one in ids)
    assert len(cache.sessions) == cache.sessions.partition_count == 200


def test_id_in_use_is_not_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([4, 4, 4, 9])
    monkeypatch.setattr("kwire.broker.fetch.sessions.secrets.randbelow", lambda below: next(drawn))
    cache = Cache()
    assert (cache.create(1), cache.create(1)) == (5, 10)


def test_session_goes_on_epoch_by_epoch() -> None:
    cache = Cache()
    sessions, session_id = cache.sessions, cache.create(2)
    for epoch in (1, 2, 3):
        for other in (epoch - 1, epoch + 1, -7):
            call = lambda other=other: sessions.find(session_id, other, uses_topic_ids=False)  # noqa: E731
            assert code_of(call) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        sessions.advance(sessions.find(session_id, epoch, uses_topic_ids=False))
    for unknown in (0, -1, session_id ^ 1):
        call = lambda unknown=unknown: sessions.find(unknown, 4, uses_topic_ids=False)  # noqa: E731
        assert code_of(call) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert code_of(lambda: sessions.find(session_id, 4, uses_topic_ids=True)) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    by_id = cache.create(1, uses_topic_ids=True)
    assert code_of(lambda: sessions.find(by_id, 1, uses_topic_ids=False)) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_epoch_after_the_largest_is_one() -> None:
    cache = Cache()
    session = cache.use(cache.create(1))
    session.epoch = EPOCH_MAX
    cache.sessions.advance(session)
    assert session.epoch == 1


def test_session_without_partitions_ends() -> None:
    cache = Cache()
    session_id = cache.create(2)
    cache.use(session_id, shrink_to=0)
    assert not cache.has(session_id)
    assert (len(cache.sessions), cache.sessions.partition_count, cache.sessions.eviction_count) == (0, 0, 0)


def test_closed_session_is_gone_and_closing_it_again_changes_nothing() -> None:
    cache = Cache()
    first, second = cache.create(2), cache.create(3)
    for _ in range(2):
        cache.sessions.close(first)
        assert (cache.has(first), cache.has(second), cache.sessions.partition_count) == (False, True, 3)


def test_without_slots_there_are_no_sessions() -> None:
    cache = Cache(slots=0)
    assert cache.create(5) == NO_SESSION


def test_place_that_was_taken_while_a_session_was_filled_is_not_taken_twice() -> None:
    cache = Cache(slots=1)
    session = cache.sessions.begin(5, uses_topic_ids=False)
    assert session is not None
    first = cache.create(5)
    session.request("t", [asked(index) for index in range(5)])
    assert cache.sessions.add(session) == NO_SESSION
    assert (cache.has(first), cache.sessions.partition_count) == (True, 5)


def test_young_sessions_in_use_do_not_give_way() -> None:
    cache = Cache(slots=2)
    kept = [cache.create(1), cache.create(1)]
    assert cache.create(100) == NO_SESSION
    cache.clock.advance(EVICTION_MS_MIN)
    for one in kept:
        cache.use(one)
    assert cache.create(100) == NO_SESSION
    assert all(map(cache.has, kept))
    assert cache.sessions.eviction_count == 0


def test_session_nobody_used_gives_way_to_any() -> None:
    cache = Cache(slots=2)
    stale, used = cache.create(50), cache.create(50)
    cache.clock.advance(EVICTION_MS_MIN)
    cache.use(used)
    assert cache.create(1) == NO_SESSION
    cache.clock.advance(1)
    assert cache.create(1) != NO_SESSION
    assert (cache.has(stale), cache.has(used)) == (False, True)
    assert (cache.sessions.eviction_count, cache.sessions.partition_count) == (1, 51)


def test_larger_session_displaces_the_smallest_that_is_old() -> None:
    cache = Cache(slots=3)
    small, smaller = cache.create(6), cache.create(5)
    cache.clock.advance(OLD_MS)
    cache.use(small)
    cache.use(smaller)
    young = cache.create(1)
    for size in (1, 4, 5):
        assert cache.create(size) == NO_SESSION
    assert cache.create(6) != NO_SESSION
    assert [cache.has(one) for one in (small, smaller, young)] == [True, False, True]


def test_size_that_counts_is_that_of_the_last_use() -> None:
    cache = Cache(slots=2)
    first, second = cache.create(2), cache.create(9)
    cache.clock.advance(OLD_MS)
    cache.use(first, grow_to=20)
    cache.use(second, shrink_to=3)
    assert cache.sessions.partition_count == 23
    assert cache.create(4) != NO_SESSION
    assert [cache.has(one) for one in (first, second)] == [True, False]


def test_client_with_a_session_per_poll_drives_nobody_out() -> None:
    """Those that use theirs keep it, however many are opened and left behind."""
    cache = Cache(slots=10)
    good = [cache.create(3) for _ in range(5)]
    for _ in range(500):
        cache.clock.advance(1000)
        cache.create(3)
        for one in good:
            cache.use(one)
    assert all(map(cache.has, good))
    assert len(cache.sessions) == 10


def test_partitions_of_all_sessions_are_bounded() -> None:
    cache = Cache(slots=10, partitions_max=10)
    first = cache.create(6)
    assert cache.create(5) == cache.create(11) == NO_SESSION
    second = cache.create(4)
    # A session that would grow beyond the bound ends; its reader names all partitions again, and gets none.
    assert code_of(lambda: cache.use(second, grow_to=5)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (cache.has(second), cache.sessions.partition_count) == (False, 6)
    cache.use(first, grow_to=10)
    cache.use(first)
    assert cache.create(1) == NO_SESSION
    cache.clock.advance(OLD_MS)
    assert cache.create(11) == NO_SESSION
    assert cache.has(first)
    assert cache.create(10) != NO_SESSION
    assert (cache.has(first), cache.sessions.eviction_count) == (False, 1)


def test_sessions_that_change_all_the_time_leave_nothing_behind() -> None:
    cache = Cache(slots=4)
    ids = [cache.create(1) for _ in range(4)]
    cache.clock.advance(OLD_MS)
    for number in range(1000):
        for one in ids:
            cache.use(one, grow_to=2 + number % 3, shrink_to=1 + number % 3)
    assert len(cache.sessions._evictable._heap) <= 4 * 2 + fetch_sessions._HEAP_SLACK


def test_partition_with_records_goes_to_the_end() -> None:
    session = FetchSession(1, False, 0.0)
    session.request("t", [asked(index) for index in range(3)])
    first = session.partitions["t", 0]
    session.move_to_end(first)
    assert list(session.partitions) == [("t", 1), ("t", 2), ("t", 0)]
    session.request("t", [asked(1, 7)])
    assert list(session.partitions) == [("t", 1), ("t", 2), ("t", 0)]
    assert session.partitions["t", 1].fetch_offset == 7
    session.forget("t", [0, 0, 5])
    session.forget("u", [1])
    session.move_to_end(first)
    assert list(session.partitions) == [("t", 1), ("t", 2)]


def test_error_is_news_and_so_is_its_end() -> None:
    cached = CachedPartition("t", asked(0))
    assert not cached.is_unchanged(0, 0, 0)
    cached.record_answer(5, 5, 0)
    assert cached.is_unchanged(5, 5, 0)
    assert not cached.is_unchanged(6, 5, 0)
    assert not cached.is_unchanged(5, 4, 0)
    assert not cached.is_unchanged(5, 5, 1)


def test_partition_of_a_session_is_as_small_as_the_bound_believes() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        session = FetchSession(1, False, 0.0)
        session.request("t", (asked(index, 10_000 + index) for index in range(10_000)))
        for cached in session.partitions.values():
            cached.record_answer(1000 + cached.fetch_offset, 1000 + cached.fetch_offset, 500 + cached.fetch_offset)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 10_000 < 450


class NaiveCache:
    """Kafka's rule written down as it is told, with a look at every session each time."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        # name -> [size at the last use, created, last used, use number]
        self.kept: dict[int, list[int]] = {}
        self.uses = 0

    def create(self, name: int, size: int, now_ms: int, rank: Callable[[int], int]) -> bool:
        if len(self.kept) >= self.slots and not self._evict(size, now_ms, rank):
            return False
        self.kept[name] = [size, now_ms, now_ms, self.uses]
        self.uses += 1
        return True

    def use(self, name: int, size: int, now_ms: int) -> None:
        self.kept[name][0] = size
        self.kept[name][2:] = [now_ms, self.uses]
        self.uses += 1

    def _evict(self, size: int, now_ms: int, rank: Callable[[int], int]) -> bool:
        if not self.kept:
            return False
        oldest = min(self.kept, key=lambda name: self.kept[name][3])
        if now_ms - self.kept[oldest][2] > EVICTION_MS_MIN:
            del self.kept[oldest]
            return True
        open_to_it = [name for name, (_, created, used, _) in self.kept.items() if used - created > EVICTION_MS_MIN]
        if not open_to_it:
            return False
        least = min(open_to_it, key=lambda name: (self.kept[name][0], rank(name)))
        if size <= self.kept[least][0]:
            return False
        del self.kept[least]
        return True


_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.none(), st.integers(1, 6)),
        st.tuples(st.just("use"), st.integers(0, 7), st.integers(1, 6)),
        st.tuples(st.just("wait"), st.sampled_from([1, 30_000, 90_000, EVICTION_MS_MIN]), st.none()),
        st.tuples(st.just("close"), st.integers(0, 7), st.none()),
    ),
    max_size=60,
)


@given(st.integers(1, 4), _EVENTS)
def test_those_that_give_way_are_those_of_the_plain_rule(slots: int, events: list[tuple[str, int, int]]) -> None:
    cache, naive, now_ms = Cache(slots), NaiveCache(slots), 0
    ids: dict[int, int] = {}
    for number, (what, which, size) in enumerate(events):
        alive = sorted(naive.kept)
        if what == "create":
            session_id = cache.create(size)
            assert bool(session_id) == naive.create(number, size, now_ms, lambda name: ids[name])
            if session_id:
                ids[number] = session_id
        elif what == "wait":
            now_ms += which
            cache.clock.advance(which)
        elif alive and what == "use":
            name = alive[which % len(alive)]
            cache.use(ids[name], grow_to=size, shrink_to=size)
            naive.use(name, size, now_ms)
        elif alive:
            name = alive[which % len(alive)]
            cache.sessions.close(ids[name])
            del naive.kept[name]
        assert {name for name in ids if cache.has(ids[name])} == set(naive.kept)
        assert cache.sessions.partition_count == sum(one[0] for one in naive.kept.values())
