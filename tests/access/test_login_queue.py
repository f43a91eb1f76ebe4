"""Logins of addresses that have failed too often wait, and those of other addresses and of other users pass."""

import asyncio

from kwire.access.login_limits import FAILURES_MAX, Attempt, LoginLimits, TooManyFailedLogins
from kwire.access.sasl.login_queue import OVER_BUDGET_PER_SECOND, WAITING_PER_NETWORK_MAX, LoginQueue
from tests.support.clock import ManualClock
from tests.support.node import in_loop

HOST, OTHER_HOST = "192.0.2.7", "192.0.2.8"
WAIT_S = 20.0


def exhausted_queue() -> LoginQueue:
    limits = LoginLimits(ManualClock())
    for _ in range(FAILURES_MAX):
        limits.fail(HOST)
    return LoginQueue(limits)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@in_loop
async def test_a_login_of_an_address_within_its_budget_does_not_wait() -> None:
    queue = exhausted_queue()
    assert queue.is_over_budget(HOST)
    assert not queue.is_over_budget(OTHER_HOST)
    waiting = [asyncio.ensure_future(queue.begin(HOST, "root")) for _ in range(100)]
    other = asyncio.ensure_future(queue.begin(OTHER_HOST, "alice"))
    known = asyncio.ensure_future(queue.begin(HOST, "alice", is_known=True))
    await settle()
    assert other.done(), "another address"
    assert known.done(), "a password that is known to be right"
    # If no other login waits, the first one over the budget passes, too.
    assert sum(one.done() for one in waiting) == 1
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


@in_loop
async def test_few_logins_per_second_are_admitted_over_the_budget_and_users_take_turns() -> None:
    queue = exhausted_queue()
    loop = asyncio.get_running_loop()
    began = loop.time()
    guesses = [asyncio.ensure_future(queue.begin(HOST, f"user {number % 3}")) for number in range(3_000)]
    await settle()
    login = asyncio.ensure_future(queue.begin(HOST, "alice"))
    async with asyncio.timeout(WAIT_S):
        await login
    displaced = [one for one in guesses if one.done() and one.exception() is not None]
    assert len(displaced) >= 3_000 - 2 - WAITING_PER_NETWORK_MAX
    assert all(isinstance(one.exception(), TooManyFailedLogins) for one in displaced)
    admitted = sum(one.done() for one in guesses) - len(displaced)
    assert admitted <= 5, "each other user had one turn"
    assert admitted <= 1 + (loop.time() - began) * OVER_BUDGET_PER_SECOND
    for one in guesses:
        one.cancel()
    await asyncio.gather(*guesses, return_exceptions=True)
    assert not queue._waiting.is_awaited


@in_loop
async def test_the_newest_login_of_a_user_is_next() -> None:
    queue = exhausted_queue()
    order: list[int] = []

    async def log_in(number: int) -> None:
        await queue.begin(HOST, "alice")
        order.append(number)

    logins = [asyncio.ensure_future(log_in(number)) for number in range(4)]
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*logins)
    assert order == [0, 3, 2, 1]


@in_loop
async def test_many_connections_of_a_user_that_succeed_do_not_wait_for_the_clock() -> None:
    """All clients of an address return after a restart: each success lets the next one begin."""
    queue = LoginQueue(LoginLimits(ManualClock()))
    done = 0

    async def log_in() -> None:
        nonlocal done
        attempt = await queue.begin(HOST, "alice")
        await settle()
        queue.end(attempt, is_success=True)
        done += 1

    logins = [asyncio.ensure_future(log_in()) for _ in range(500)]
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*logins)
    assert done == 500
    assert asyncio.get_running_loop().time() - began < 500 / OVER_BUDGET_PER_SECOND / 2


@in_loop
async def test_a_closed_coroutine_does_not_keep_its_place() -> None:
    """A connection may end before the task that waits for the login has begun."""
    queue = exhausted_queue()
    first: Attempt = await queue.begin(HOST, "alice")
    queue.end(first, is_success=False)
    waiting = queue.begin(HOST, "alice")
    waiting.send(None)
    assert queue._waiting.is_awaited
    waiting.close()
    assert not queue._waiting.is_awaited
