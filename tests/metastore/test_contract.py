"""What every implementation of the metadata store promises: commits, watches and leases."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.errors import ErrorCode
from kwire.metastore import Change, Condition, Conflict, Watch
from kwire.metastore.interface import (
    ABSENT,
    CHANGES_PER_COMMIT_MAX,
    COMMIT_BYTES_MAX,
    LEASE_SECONDS_MAX,
    LEASE_SECONDS_MIN,
    WATCHES_MAX,
    Commit,
    CommitTooLarge,
    Compacted,
    Entry,
    KeyChange,
    LeaseLost,
    TooManyWatches,
)
from tests.metastore.implementations import IMPLEMENTATIONS, Implementation
from tests.support.node import in_loop

WAIT_S = 10.0


@pytest.fixture(params=IMPLEMENTATIONS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Implementation]:
    made = IMPLEMENTATIONS[request.param](tmp_path)
    yield made
    made.close()


async def put(world: Implementation, key: str, value: object, lease_id: int = 0) -> int:
    entry = world.store.get(key)
    return await world.store.commit([Change(key, value, entry.revision if entry else ABSENT, lease_id)])


async def following(watch: Watch) -> Commit:
    async with asyncio.timeout(WAIT_S):
        return await anext(watch)


def keys(world: Implementation, prefix: str = "") -> list[str]:
    return sorted(key for key, _ in world.store.entries(prefix))


# --- commits


@in_loop
async def test_commit_is_read_and_survives_a_restart(world: Implementation) -> None:
    first = await world.store.commit([Change("a", {"x": [1, None, "ü"]}, ABSENT), Change("b", 1, ABSENT)])
    second = await world.store.commit([Change("b", None, first)])
    assert second > first
    for _ in range(2):
        assert world.store.get("a") == Entry({"x": [1, None, "ü"]}, first)
        assert world.store.get("b") is None
        assert world.store.revision >= second
        world.restart()


@in_loop
async def test_conditions_hold_for_changed_and_for_other_keys(world: Implementation) -> None:
    first = await put(world, "a", 1)
    with pytest.raises(Conflict) as caught:
        await world.store.commit([Change("b", 1, ABSENT), Change("a", 2, ABSENT)])
    assert caught.value.key == "a"
    for condition in (Condition("a", first + 1), Condition("a", ABSENT), Condition("missing", first)):
        with pytest.raises(Conflict) as caught:
            await world.store.commit([Change("b", 1, ABSENT)], [condition])
        assert caught.value.key == condition.key
    assert keys(world) == ["a"]
    await world.store.commit([Change("b", 1, ABSENT)], [Condition("a", first), Condition("missing", ABSENT)])
    assert keys(world) == ["a", "b"]


@in_loop
async def test_commit_that_changes_nothing_has_no_revision(world: Implementation) -> None:
    await put(world, "a", 1)
    watch = world.store.watch("", world.store.revision + 1)
    before = world.store.revision
    assert await world.store.commit([]) == before
    assert await world.store.commit([], [Condition("a", before)]) == before
    assert await world.store.commit([Change("missing", None, ABSENT)]) == before
    assert world.store.revision == before
    # Beside a real change, the removal of a missing key is not reported.
    revision = await world.store.commit([Change("missing", None, ABSENT), Change("b", 1, ABSENT)])
    assert await following(watch) == Commit(revision, (KeyChange("b", Entry(1, revision)),))


@in_loop
async def test_commit_has_at_most_100_changes_and_conditions(world: Implementation) -> None:
    assert CHANGES_PER_COMMIT_MAX == 100
    many = [Change(f"k{number}", number, ABSENT) for number in range(CHANGES_PER_COMMIT_MAX + 1)]
    with pytest.raises(CommitTooLarge) as caught:
        await world.store.commit(many)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    with pytest.raises(CommitTooLarge):
        await world.store.commit(many[:-1], [Condition("other", ABSENT)])
    assert keys(world) == []
    await world.store.commit(many[:-1])
    assert len(keys(world)) == CHANGES_PER_COMMIT_MAX


@in_loop
async def test_commit_has_at_most_1_mib(world: Implementation) -> None:
    assert COMMIT_BYTES_MAX == 1024 * 1024
    # The key counts twice, in quotes once, then a colon and the quotes of the text.
    room = COMMIT_BYTES_MAX - len("key" * 2) - len('"":""')
    with pytest.raises(CommitTooLarge):
        await world.store.commit([Change("key", "x" * (room + 1), ABSENT)])
    assert keys(world) == []
    await world.store.commit([Change("key", "x" * room, ABSENT)])
    assert keys(world) == ["key"]


@in_loop
async def test_key_is_changed_once_in_a_commit(world: Implementation) -> None:
    with pytest.raises(ValueError, match="only once"):
        await world.store.commit([Change("a", 1, ABSENT), Change("a", 2, ABSENT)])
    with pytest.raises(ValueError, match="lease"):
        await world.store.commit([Change("a", None, ABSENT, lease_id=1)])


# --- watches


@in_loop
async def test_watch_returns_the_commits_of_its_prefix_in_order(world: Implementation) -> None:
    await put(world, "topics/old", 1)
    watch = world.store.watch("topics/", world.store.revision + 1)
    first = await world.store.commit([Change("topics/a", 1, ABSENT), Change("node", 1, ABSENT)])
    await put(world, "other", 1)
    second = await world.store.commit([Change("topics/a", None, first), Change("topics/b", [2], ABSENT)])
    assert await following(watch) == Commit(first, (KeyChange("topics/a", Entry(1, first)),))
    assert await following(watch) == Commit(
        second, (KeyChange("topics/a", None), KeyChange("topics/b", Entry([2], second)))
    )
    assert watch.revision == second


@in_loop
async def test_watch_waits_for_the_next_commit(world: Implementation) -> None:
    watch = world.store.watch("a", world.store.revision + 1)
    waiting = asyncio.ensure_future(following(watch))
    await put(world, "b", 1)
    assert not waiting.done()
    revision = await put(world, "a", 1)
    assert (await waiting).revision == revision


@in_loop
async def test_watch_begins_at_an_earlier_revision(world: Implementation) -> None:
    revisions = [await put(world, "a", number) for number in range(5)]
    watch = world.store.watch("a", revisions[2])
    assert [(await following(watch)).revision for _ in range(3)] == revisions[2:]
    with pytest.raises(ValueError):  # noqa: PT011  the text is the implementation's
        world.store.watch("a", 0)


@in_loop
async def test_watch_that_fell_behind_is_told_and_the_others_are_not_disturbed(world: Implementation) -> None:
    slow, quick = (world.store.watch("", world.store.revision + 1) for _ in range(2))
    seen = []
    for number in range(60):
        await world.store.commit([await change(world, f"k{at}", number) for at in range(100)])
        seen.append(await following(quick))
    assert [len(one.changes) for one in seen] == [100] * 60
    for _ in range(2):
        with pytest.raises(Compacted) as caught:
            await following(slow)
    # From the oldest revision on, nothing is missing.
    late = world.store.watch("", caught.value.oldest_revision)
    first = await following(late)
    assert first == next(one for one in seen if one.revision >= caught.value.oldest_revision)


async def change(world: Implementation, key: str, value: object) -> Change:
    entry = world.store.get(key)
    return Change(key, value, entry.revision if entry else ABSENT)


@in_loop
async def test_watch_after_a_restart_has_no_gap(world: Implementation) -> None:
    await put(world, "a", 1)
    seen = await put(world, "a", 2)
    world.restart()
    # Either the store still has the changes, or it says that it has not.
    old = world.store.watch("a", seen)
    try:
        revision = (await following(old)).revision
    except Compacted as error:
        revision = error.revision
    assert revision == seen
    watch = world.store.watch("a", world.store.revision + 1)
    revision = await put(world, "a", 3)
    assert (await following(watch)).revision == revision


@in_loop
async def test_closed_watch_ends(world: Implementation) -> None:
    watch, other = (world.store.watch("", world.store.revision + 1) for _ in range(2))
    waiting = asyncio.ensure_future(_all(watch))
    await asyncio.sleep(0)
    watch.close()
    watch.close()
    async with asyncio.timeout(WAIT_S):
        assert await waiting == []
    await put(world, "a", 1)
    assert len((await following(other)).changes) == 1


async def _all(watch: Watch) -> list[Commit]:
    return [one async for one in watch]


@in_loop
async def test_number_of_watches_is_bounded(world: Implementation) -> None:
    watches = [world.store.watch("", 1) for _ in range(WATCHES_MAX)]
    with pytest.raises(TooManyWatches):
        world.store.watch("", 1)
    watches[0].close()
    world.store.watch("", 1)


# --- leases


@in_loop
async def test_keys_of_an_expired_lease_are_removed_and_watches_see_it(world: Implementation) -> None:
    lost: list[str] = []
    lease = await world.store.lease(10, lambda: lost.append("lease"))
    await put(world, "slots/1", "mine", lease.lease_id)
    await put(world, "slots/2", "mine", lease.lease_id)
    await put(world, "kept", 1)
    watch = world.store.watch("slots/", world.store.revision + 1)
    await world.advance(9.9)
    assert keys(world) == ["kept", "slots/1", "slots/2"]
    is_lost = [lease.is_lost]
    await world.advance(0.1)
    assert keys(world) == ["kept"]
    assert [*is_lost, lease.is_lost] == [False, True]
    assert lost == ["lease"]
    assert (await following(watch)).changes == (KeyChange("slots/1", None), KeyChange("slots/2", None))
    with pytest.raises(LeaseLost):
        await lease.keep_alive()
    with pytest.raises(LeaseLost):
        await put(world, "slots/3", 1, lease.lease_id)
    with pytest.raises(LeaseLost):
        await world.store.resume_lease(lease.lease_id)
    await lease.revoke()
    assert lost == ["lease"]


@in_loop
async def test_lease_that_is_kept_alive_stays_whatever_the_wall_clock_does(world: Implementation) -> None:
    lease = await world.store.lease(10)
    await put(world, "a", 1, lease.lease_id)
    for jump_ms in (0, 10**12, -(10**12), 3_600_000):
        world.clock.set_wall(world.clock.now_ms() + jump_ms)
        await world.advance(9)
        await lease.keep_alive()
        assert keys(world) == ["a"]
    await world.advance(10)
    assert keys(world) == []


@in_loop
async def test_keep_alive_after_the_deadline_is_too_late(world: Implementation) -> None:
    lease = await world.store.lease(10)
    world.clock.advance(10_000)
    with pytest.raises(LeaseLost):
        await lease.keep_alive()


@in_loop
async def test_revoked_lease_removes_its_keys_and_does_not_notify_its_holder(world: Implementation) -> None:
    lost: list[int] = []
    lease, other = await world.store.lease(10, lambda: lost.append(1)), await world.store.lease(10)
    await put(world, "a", 1, lease.lease_id)
    await put(world, "b", 1, other.lease_id)
    await lease.revoke()
    assert lease.is_lost
    assert keys(world) == ["b"]
    world.restart()
    assert keys(world) == ["b"]
    await lease.revoke()
    assert lost == []


@in_loop
async def test_change_without_a_lease_detaches_the_key(world: Implementation) -> None:
    first, second = await world.store.lease(10), await world.store.lease(20)
    for key in ("detached", "moved", "removed"):
        await put(world, key, 1, first.lease_id)
    await put(world, "detached", 2)
    await put(world, "moved", 2, second.lease_id)
    await put(world, "removed", None)
    await put(world, "removed", 2)
    await world.advance(10)
    assert keys(world) == ["detached", "moved", "removed"]
    await world.advance(10)
    assert keys(world) == ["detached", "removed"]


@in_loop
async def test_lease_survives_a_restart_and_its_time_begins_anew(world: Implementation) -> None:
    lease = await world.store.lease(10)
    resumed_later = await world.store.lease(10)
    await put(world, "a", 1, lease.lease_id)
    await put(world, "b", 1, resumed_later.lease_id)
    await world.advance(9)
    world.restart()
    await world.advance(9)
    lost: list[int] = []
    resumed = await world.store.resume_lease(resumed_later.lease_id, lambda: lost.append(1))
    assert (resumed.lease_id, resumed.ttl_seconds) == (resumed_later.lease_id, 10)
    await world.advance(1)
    assert keys(world) == ["b"]
    await world.advance(9)
    assert keys(world) == []
    assert lost == [1]
    world.restart()
    assert keys(world) == []
    # An id is never used again.
    assert (await world.store.lease(10)).lease_id not in (lease.lease_id, resumed_later.lease_id)


@in_loop
async def test_many_keys_of_a_lease_are_removed_in_several_commits(world: Implementation) -> None:
    lease = await world.store.lease(10)
    for start in range(0, 250, 50):
        await world.store.commit(
            [Change(f"k{number}", 1, ABSENT, lease.lease_id) for number in range(start, start + 50)]
        )
    watch = world.store.watch("k", world.store.revision + 1)
    await world.advance(10)
    assert keys(world) == []
    removed: list[str] = []
    while len(removed) < 250:
        removed += [one.key for one in (await following(watch)).changes]
    assert sorted(removed) == sorted(f"k{number}" for number in range(250))


@in_loop
async def test_holder_that_raises_does_not_keep_others_from_expiring(world: Implementation) -> None:
    def fail() -> None:
        raise RuntimeError("planted")

    lost: list[int] = []
    first, second = await world.store.lease(10, fail), await world.store.lease(10, lambda: lost.append(2))
    await put(world, "a", 1, first.lease_id)
    await put(world, "b", 1, second.lease_id)
    await world.advance(10)
    assert keys(world) == []
    assert lost == [2]


@pytest.mark.parametrize("ttl_seconds", [LEASE_SECONDS_MIN - 1, LEASE_SECONDS_MAX + 1])
@in_loop
async def test_time_of_a_lease_is_bounded(world: Implementation, ttl_seconds: int) -> None:
    with pytest.raises(ValueError, match="time to live"):
        await world.store.lease(ttl_seconds)


@in_loop
async def test_erased_history_keeps_entries_revisions_and_leases(world: Implementation) -> None:
    lease = await world.store.lease(10)
    await put(world, "a", 1)
    await put(world, "b", 2, lease.lease_id)
    before = [(key, entry) for key, entry in world.store.entries("")], world.store.revision
    await world.store.erase_history()
    assert ([(key, entry) for key, entry in world.store.entries("")], world.store.revision) == before
    await world.advance(10)
    assert keys(world) == ["a"]
