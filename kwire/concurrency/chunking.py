"""Cooperative chunking: long computations yield to the event loop between chunks.

A request that names a hundred thousand partitions takes a second to answer, and many connections may send such requests
at the same time. Such a computation is divided into chunks of about half a millisecond. Each event loop has one queue
of chunks, and at most one chunk runs per iteration of the loop. Therefore the delay of other requests does not depend
on the number of long computations, and all long computations make progress.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from time import perf_counter
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

A = TypeVar("A")
E = TypeVar("E")
F = TypeVar("F")

# The default number of elements per chunk. If an element takes a few microseconds, a chunk takes about half a
# millisecond.
ELEMENTS_PER_CHUNK = 100
# The number of iterations of the event loop between two chunks. Other work often takes several iterations, and should
# not be delayed by a chunk in each of them. If there is no other work, the iterations cost almost nothing.
ITERATIONS_BETWEEN = 3

# If other threads used the yielded processor for a time T, it is not yielded again for OFFER_PAUSE * T. On a busy
# machine, threads of other programs get the processor, too, and may use it for milliseconds.
OFFER_PAUSE = 10


def schedule_chunk(callback: Callable[[], None]) -> None:
    """Call `callback` in a later iteration of the event loop. No other chunk runs in that iteration."""
    _queue().add(callback)


def yield_processor_while(kernel_works: Callable[[], bool]) -> None:
    """Let `offer_processor` yield the processor if `kernel_works` returns True.

    `kernel_works` returns whether the kernel is doing work that this event loop requested. Linux does such work in a
    thread on the processor that requested it. While the loop keeps that processor busy, the kernel's thread waits for
    the next timer tick, and often for the one after it. Two ticks take 8 ms at 250 Hz.
    """
    _queue().kernel_works = kernel_works


def offer_processor() -> None:
    """Yield the processor if the kernel is doing work that this event loop requested.

    Callers are those whose callbacks follow one another without a wait. Each chunk does it.
    """
    _queue().offer_processor()


async def yield_to_loop() -> None:
    """Wait until the caller may run its next chunk.

    With `asyncio.sleep(0)`, the chunks of all waiting callers would run in the same iteration of the event loop.
    """
    future = asyncio.get_running_loop().create_future()
    schedule_chunk(lambda: None if future.done() else future.set_result(None))
    await future


async def spread(
    elements: Iterable[E], per_chunk: int = ELEMENTS_PER_CHUNK, *, weigh: Callable[[E], int] | None = None
) -> AsyncIterator[E]:
    """Iterate over `elements`, and yield to the event loop after every `per_chunk` elements.

    `weigh` returns the weight of an element. If it is given, `per_chunk` is the total weight of a chunk.
    """
    left = per_chunk
    for element in elements:
        if left <= 0:
            left = per_chunk
            await yield_to_loop()
        left -= 1 if weigh is None else weigh(element)
        yield element


async def spread_nested(parents: Iterable[E], children_of: Callable[[E], Iterable[F]]) -> AsyncIterator[tuple[E, F]]:
    """Iterate over all pairs of a parent and its child, and yield to the event loop as `spread` does.

    Parents and children are both counted as elements.
    """
    left = ELEMENTS_PER_CHUNK
    for parent in parents:
        left -= 1
        if left <= 0:
            left = ELEMENTS_PER_CHUNK
            await yield_to_loop()
        for child in children_of(parent):
            left -= 1
            if left <= 0:
                left = ELEMENTS_PER_CHUNK
                await yield_to_loop()
            yield parent, child


def eager(coroutine: Coroutine[Any, Any, A]) -> "A | Suspended[A]":
    """Run a coroutine until it first waits. Returns its result if it never waits, else an awaitable for the rest."""
    try:
        first = coroutine.send(None)
    except StopIteration as end:
        result: A = end.value
        return result
    return Suspended(coroutine, first)


class Suspended(Generic[A]):
    """A coroutine that has been started, and the awaitable that it waits for."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, A], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def close(self) -> None:
        """End the coroutine without awaiting it."""
        self._coroutine.close()

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
    """Run a generator that yields between its chunks, and return its result. The first chunk also waits its turn."""
    while True:
        await yield_to_loop()
        try:
            next(steps)
        except StopIteration as end:
            result: A = end.value
            return result


class _ChunkQueue:
    """The scheduled chunks of one event loop. ITERATIONS_BETWEEN iterations pass between two chunks."""

    __slots__ = ("__weakref__", "_callbacks", "_left", "_next_offer", "kernel_works")

    def __init__(self) -> None:
        self._callbacks: deque[Callable[[], None]] = deque()
        self._left = 0
        self._next_offer = 0.0
        self.kernel_works: Callable[[], bool] | None = None

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
        self.offer_processor()
        callback()

    def offer_processor(self) -> None:
        if self.kernel_works is None or not self.kernel_works():
            return
        began = perf_counter()
        if began >= self._next_offer:
            os.sched_yield()
            ended = perf_counter()
            self._next_offer = ended + OFFER_PAUSE * (ended - began)


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _ChunkQueue] = WeakKeyDictionary()


def _queue() -> _ChunkQueue:
    loop = asyncio.get_running_loop()
    found = _queues.get(loop)
    if found is None:
        found = _queues[loop] = _ChunkQueue()
    return found
