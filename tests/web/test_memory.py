"""The bound on what bodies and answers hold: who gets memory, who waits, and who is refused."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kwire.web.requests import memory as module
from kwire.web.requests.memory import SMALL_BYTES, HttpMemory, Lease, MemoryExhausted
from tests.support.node import in_loop

LARGE = SMALL_BYTES + 1
NO_HURRY_MS = 60_000


def room_for(count: int, wait_ms: int = NO_HURRY_MS) -> HttpMemory:
    """Memory for this many leases of LARGE bytes."""
    return HttpMemory(-(-count * LARGE // 3) * 4 + 4, wait_ms)


async def started(waits: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
    task = asyncio.ensure_future(waits())
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def waiting(lease: Lease, size_bytes: int = LARGE) -> "asyncio.Task[None]":
    return await started(lambda: lease.hold(size_bytes))


@in_loop
async def test_leases_are_granted_in_the_order_of_arrival() -> None:
    memory = room_for(1)
    holder, *others = [memory.lease() for _ in range(4)]
    await holder.hold(LARGE)
    tasks = [await waiting(lease) for lease in others]
    for current, task, lease in zip([holder, *others], tasks, others, strict=False):
        assert not task.done()
        current.release()
        await task
        assert lease.size_bytes == memory.used_bytes == LARGE
        assert [one.size_bytes for one in others].count(LARGE) == 1
    others[-1].release()
    assert (memory.used_bytes, memory.waiting, memory.freed_bytes) == (0, 0, 4 * LARGE)


@in_loop
async def test_small_leases_pass_large_ones_that_wait_and_use_what_these_may_not() -> None:
    memory = room_for(1)
    holder, large, small = memory.lease(), memory.lease(), memory.lease()
    await holder.hold(LARGE)
    task = await waiting(large)
    assert memory.is_short
    size_bytes = memory.bytes_max - memory.used_bytes
    assert 0 < size_bytes <= SMALL_BYTES
    assert not memory.lease().try_hold(LARGE)
    assert small.try_hold(size_bytes)
    assert not memory.lease().try_hold(1)
    holder.release()
    # Not yet: the small one left too little for it.
    await asyncio.sleep(0)
    assert not task.done()
    small.release()
    await task


@in_loop
async def test_a_lease_that_waits_too_long_is_refused() -> None:
    memory = room_for(1, wait_ms=1)
    lease = memory.lease()
    await memory.lease().hold(LARGE)
    with pytest.raises(MemoryExhausted, match=r"kwire\.http\.memory\.bytes"):
        await lease.hold(LARGE)
    assert (lease.size_bytes, memory.used_bytes, memory.refused, memory.waiting) == (0, LARGE, 1, 0)


@in_loop
async def test_a_lease_that_no_longer_waits_makes_way_for_those_after_it() -> None:
    memory = room_for(2)
    holder, large, next_one = memory.lease(), memory.lease(), memory.lease()
    await holder.hold(LARGE)
    first = await waiting(large, 2 * LARGE)
    # It would fit, and comes after one that does not.
    second = await waiting(next_one)
    first.cancel()
    await second
    assert (large.size_bytes, next_one.size_bytes, memory.used_bytes) == (0, LARGE, 2 * LARGE)
    assert memory.waiting == 0


@in_loop
async def test_the_number_of_those_who_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITERS_MAX", 2)
    memory = room_for(1)
    await memory.lease().hold(LARGE)
    tasks = [await waiting(memory.lease()) for _ in range(2)]
    with pytest.raises(MemoryExhausted):
        await memory.lease().hold(LARGE)
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (memory.waiting, memory.used_bytes) == (0, LARGE)


@in_loop
async def test_a_grant_to_somebody_who_has_just_left_is_given_back() -> None:
    memory = room_for(1)
    holder, gone, other = memory.lease(), memory.lease(), memory.lease()
    await holder.hold(LARGE)
    task = await waiting(gone)
    behind = await waiting(other)
    holder.release()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await behind
    assert (memory.used_bytes, gone.size_bytes, other.size_bytes) == (LARGE, 0, LARGE)


@in_loop
async def test_those_who_receive_are_hurried_when_somebody_begins_to_wait() -> None:
    memory = room_for(1)
    notified: list[str] = []
    await memory.lease().hold(LARGE)
    with memory.on_shortage(lambda: notified.append("a")), memory.on_shortage(lambda: notified.append("b")):
        task = await waiting(memory.lease())
        assert sorted(notified) == ["a", "b"]
    other = await waiting(memory.lease())
    assert len(notified) == 2
    for one in (task, other):
        one.cancel()
    await asyncio.gather(task, other, return_exceptions=True)


@in_loop
async def test_a_lease_grows_and_shrinks() -> None:
    memory = HttpMemory(1000, 0)
    lease = memory.lease()
    await lease.hold(700)
    await lease.hold(1000)
    with pytest.raises(MemoryExhausted):
        await lease.hold(1001)
    assert not lease.try_hold(1001)
    assert (lease.size_bytes, memory.used_bytes) == (1000, 1000)
    assert lease.try_hold(10)
    assert (lease.size_bytes, memory.used_bytes) == (10, 10)
    lease.release()
    lease.release()
    assert memory.used_bytes == 0


@in_loop
async def test_a_large_lease_that_grows_in_small_steps_leaves_the_part_for_small_leases() -> None:
    memory = HttpMemory(16 * SMALL_BYTES, 0)
    waits, never_waits = memory.lease(), memory.lease()
    for number in range(1, 13):
        await waits.hold(number * SMALL_BYTES)
    with pytest.raises(MemoryExhausted):
        await waits.hold(13 * SMALL_BYTES)
    assert waits.size_bytes == memory.used_bytes == 12 * SMALL_BYTES
    waits.release()
    grown = [number for number in range(1, 17) if never_waits.try_hold(number * SMALL_BYTES)]
    assert grown == list(range(1, 13))
    assert all(memory.lease().try_hold(SMALL_BYTES) for _ in range(4))
