"""Cooperative chunking: long computations yield to the event loop, and share what they get of it.

A request that names a hundred thousand partitions takes a second to answer, and many connections may send such requests
at the same time. Each of them computes for a few milliseconds and then joins one queue for all of the event loop. So
the time that others wait does not depend on the number of long computations, and every one of these gets its turn.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

A = TypeVar("A")
E = TypeVar("E")
F = TypeVar("F")

# Elements that take some microseconds each: about half a millisecond of work.
ELEMENTS_PER_TURN = 100
# Iterations of the loop between two chunks, which cost nothing while there is nothing else to do. What others do takes
# several iterations, and should not meet a chunk in each of them.
ITERATIONS_BETWEEN = 3


def call_in_turn(callback: Callable[[], None]) -> None:
    """Call in a later loop iteration, in which no other callback of this queue is called."""
    _queue().add(callback)


async def next_turn() -> None:
    """Wait until the next chunk may run. Unlike `asyncio.sleep(0)`, all long computations share one turn."""
    future = asyncio.get_running_loop().create_future()
    call_in_turn(lambda: None if future.done() else future.set_result(None))
    await future


async def spread(
    elements: Iterable[E], per_turn: int = ELEMENTS_PER_TURN, *, weigh: Callable[[E], int] | None = None
) -> AsyncIterator[E]:
    """The elements, with a wait for the next turn after each `per_turn` of them; `weigh` counts one for several."""
    left = per_turn
    for element in elements:
        if left <= 0:
            left = per_turn
            await next_turn()
        left -= 1 if weigh is None else weigh(element)
        yield element


async def spread_nested(parents: Iterable[E], children_of: Callable[[E], Iterable[F]]) -> AsyncIterator[tuple[E, F]]:
    """Each child with its parent, spread likewise; a parent without children counts, too."""
    left = ELEMENTS_PER_TURN
    for parent in parents:
        left -= 1
        if left <= 0:
            left = ELEMENTS_PER_TURN
            await next_turn()
        for child in children_of(parent):
            left -= 1
            if left <= 0:
                left = ELEMENTS_PER_TURN
                await next_turn()
            yield parent, child


def eager(coroutine: Coroutine[Any, Any, A]) -> A | Awaitable[A]:
    """The result of a coroutine at once if it does not have to wait for anything, else as an awaitable."""
    try:
        first = coroutine.send(None)
    except StopIteration as end:
        result: A = end.value
        return result
    return _Suspended(coroutine, first)


class _Suspended(Generic[A]):
    """A coroutine that has been started, and what it waits for."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, A], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, A]:
        waits_for = self._waits_for
        while True:
            try:
                try:
                    sent = yield waits_for
                except BaseException as error:
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(sent)
            except StopIteration as end:
                result: A = end.value
                return result


async def run_chunks(steps: Generator[None, None, A]) -> A:
    """The result of a computation that yields between its chunks. The first of them waits for its turn, too."""
    while True:
        await next_turn()
        try:
            next(steps)
        except StopIteration as end:
            result: A = end.value
            return result


class _TurnQueue:
    """Callbacks of one event loop: one is called, and the next after ITERATIONS_BETWEEN iterations."""

    __slots__ = ("__weakref__", "_callbacks", "_left")

    def __init__(self) -> None:
        self._callbacks: deque[Callable[[], None]] = deque()
        self._left = 0

    def add(self, callback: Callable[[], None]) -> None:
        if not self._callbacks:
            asyncio.get_running_loop().call_soon(self._call_next)
        self._callbacks.append(callback)

    def _call_next(self) -> None:
        if self._left:
            self._left -= 1
            asyncio.get_running_loop().call_soon(self._call_next)
            return
        self._left = ITERATIONS_BETWEEN
        callback = self._callbacks.popleft()
        if self._callbacks:
            asyncio.get_running_loop().call_soon(self._call_next)
        callback()


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _TurnQueue] = WeakKeyDictionary()


def _queue() -> _TurnQueue:
    loop = asyncio.get_running_loop()
    found = _queues.get(loop)
    if found is None:
        found = _queues[loop] = _TurnQueue()
    return found
