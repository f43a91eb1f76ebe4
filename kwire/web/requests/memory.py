"""The memory that request bodies and answers of the HTTP port hold, under one bound: `kwire.http.memory.bytes`.

A body is counted before it is received: its declared length, or step by step where none is declared. A large answer
counts what is read ahead of the client. A lease that does not fit waits in the order of arrival, at most
`kwire.http.memory.wait.ms` and together with at most WAITERS_MAX others; then the request is answered 503 with
Retry-After. Leases of at most SMALL_BYTES do not wait behind larger ones and may use all of the memory, larger ones may
use three quarters: ordinary requests are served while large ones wait.

Bodies and answers of at most UNCOUNTED_BYTES are not counted; connections are bounded, and so are these.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kwire.web.errors import Refusal

UNCOUNTED_BYTES = 16 * 1024
SMALL_BYTES = 64 * 1024
# Requests that wait for memory at once. Each may hold what the operating system delivered with its head.
WAITERS_MAX = 128


class MemoryExhausted(Refusal):
    """Bodies and answers hold all the memory that they may hold."""

    status = 503
    code = "MemoryExhausted"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            f"bodies and answers of the HTTP port hold all of kwire.http.memory.bytes ({bytes_max}): "
            "send the request again later",
            limit=bytes_max,
        )


class _Waiter:
    """A lease that waits for `count` more bytes."""

    __slots__ = ("count", "granted")

    def __init__(self, count: int) -> None:
        self.count = count
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class HttpMemory:
    """The bytes in use, and the leases that wait for some."""

    def __init__(self, bytes_max: int, wait_ms: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        # All that was ever given back.
        self.freed_bytes = 0
        self.refused = 0
        self._wait_s = wait_ms / 1000
        self._large_bytes_max = large_bytes_max(bytes_max)
        self._small: deque[_Waiter] = deque()
        self._large: deque[_Waiter] = deque()
        self._hurries: set[Callable[[], None]] = set()

    @property
    def waiting(self) -> int:
        return len(self._small) + len(self._large)

    @property
    def is_short(self) -> bool:
        return bool(self._small or self._large)

    def lease(self) -> "Lease":
        return Lease(self)

    def try_take(self, count: int) -> bool:
        """Take bytes if nobody of the same kind waits and they fit."""
        is_small = count <= SMALL_BYTES
        if self._small if is_small else self._large:
            return False
        if self.used_bytes + count > (self.bytes_max if is_small else self._large_bytes_max):
            return False
        self.used_bytes += count
        return True

    async def take(self, count: int) -> None:
        """Take bytes, after those that wait already; raises MemoryExhausted."""
        if self.try_take(count):
            return
        if self.waiting >= WAITERS_MAX:
            raise self.exhausted()
        was_short = self.is_short
        waiter = _Waiter(count)
        queue = self._small if count <= SMALL_BYTES else self._large
        queue.append(waiter)
        if not was_short:
            for hurry in tuple(self._hurries):
                hurry()
        try:
            async with asyncio.timeout(self._wait_s):
                await waiter.granted
        except BaseException as error:
            if waiter in queue:
                queue.remove(waiter)
                # Those behind it may need less.
                self._grant()
            elif waiter.granted.done() and not waiter.granted.cancelled():
                self.give(count)
            if isinstance(error, TimeoutError):
                raise self.exhausted() from None
            raise

    def give(self, count: int) -> None:
        self.used_bytes -= count
        self.freed_bytes += count
        if self._small or self._large:
            self._grant()

    def exhausted(self) -> MemoryExhausted:
        """The refusal, counted."""
        self.refused += 1
        return MemoryExhausted(self.bytes_max)

    @contextmanager
    def hurrying(self, hurry: Callable[[], None]) -> Iterator[None]:
        """While a body is being received: `hurry` is called when others begin to wait for memory."""
        self._hurries.add(hurry)
        try:
            yield
        finally:
            self._hurries.discard(hurry)

    def _grant(self) -> None:
        for queue, bytes_max in ((self._small, self.bytes_max), (self._large, self._large_bytes_max)):
            while queue and self.used_bytes + queue[0].count <= bytes_max:
                waiter = queue.popleft()
                if not waiter.granted.done():
                    self.used_bytes += waiter.count
                    waiter.granted.set_result(None)


class Lease:
    """What one request holds."""

    __slots__ = ("memory", "size_bytes")

    def __init__(self, memory: HttpMemory) -> None:
        self.memory = memory
        self.size_bytes = 0

    async def hold(self, size_bytes: int) -> None:
        """Hold this many bytes from now on, no longer those before; raises MemoryExhausted."""
        if size_bytes > self.size_bytes:
            await self.memory.take(size_bytes - self.size_bytes)
            self.size_bytes = size_bytes
        else:
            self._shrink(size_bytes)

    def try_hold(self, size_bytes: int) -> bool:
        """As `hold`, but without waiting; where it fails nothing changes."""
        if size_bytes <= self.size_bytes:
            self._shrink(size_bytes)
            return True
        if not self.memory.try_take(size_bytes - self.size_bytes):
            return False
        self.size_bytes = size_bytes
        return True

    def release(self) -> None:
        self._shrink(0)

    def _shrink(self, size_bytes: int) -> None:
        freed, self.size_bytes = self.size_bytes - size_bytes, size_bytes
        if freed:
            self.memory.give(freed)


def large_bytes_max(bytes_max: int) -> int:
    """What leases above SMALL_BYTES may use together."""
    return bytes_max // 4 * 3
