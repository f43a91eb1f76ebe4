"""The memory of request bodies and answers of the HTTP port, limited by `kwire.http.memory.bytes`.

The declared length of a body is counted before the body is received. A body without a declared length is counted step
by step. The memory of a large answer is counted until the answer is sent. For an answer in parts, only the memory of
one part is counted. A lease is the memory that is counted for one request or answer. If a lease needs more bytes than
are free, its request waits for at most `kwire.http.memory.wait.ms`, in the order of arrival. At most WAITERS_MAX
requests wait at the same time. If the wait is too long, or if no further request may wait, the request is answered with
status 503 and Retry-After.

A lease of at most SMALL_BYTES may use all of the memory, and does not wait for larger leases. A larger lease gets its
bytes only if the total use stays within three quarters of the memory. This is also true if it grows in small steps. So
small requests are served while large requests wait.

Bodies and answers of at most UNCOUNTED_BYTES are not counted. The limit on the number of connections limits their
memory.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kwire.web.answers.errors import Refusal

UNCOUNTED_BYTES = 16 * 1024
SMALL_BYTES = 64 * 1024
# The maximum number of requests that wait for memory at the same time. The number is limited because each waiting
# request may occupy the bytes that were received together with its head.
WAITERS_MAX = 128


class MemoryExhausted(Refusal):
    """Request bodies and answers use all of `kwire.http.memory.bytes`."""

    status = 503
    code = "MemoryExhausted"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            f"request bodies and answers use all of kwire.http.memory.bytes ({bytes_max}): send the request later",
            limit=bytes_max,
        )


class _Waiter:
    """A lease that waits for `count` more bytes."""

    __slots__ = ("count", "granted")

    def __init__(self, count: int) -> None:
        self.count = count
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class HttpMemory:
    """Counts the memory in use, and has the queues of the leases that wait for free memory."""

    def __init__(self, bytes_max: int, wait_ms: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        # The total number of bytes released since the start.
        self.freed_bytes = 0
        self.refused = 0
        self._wait_s = wait_ms / 1000
        self._large_bytes_max = large_bytes_max(bytes_max)
        self._small: deque[_Waiter] = deque()
        self._large: deque[_Waiter] = deque()
        self._shortage_callbacks: set[Callable[[], None]] = set()

    @property
    def waiting(self) -> int:
        return len(self._small) + len(self._large)

    @property
    def is_short(self) -> bool:
        return bool(self._small or self._large)

    def lease(self) -> "Lease":
        return Lease(self)

    def try_take(self, count: int, lease_bytes: int) -> bool:
        """Take `count` bytes for a lease that then has `lease_bytes`. The bytes are taken only if they are free and no
        lease of the same kind (small: at most SMALL_BYTES, or large) waits. Return whether they were taken."""
        is_small = lease_bytes <= SMALL_BYTES
        if self._small if is_small else self._large:
            return False
        if self.used_bytes + count > (self.bytes_max if is_small else self._large_bytes_max):
            return False
        self.used_bytes += count
        return True

    async def take(self, count: int, lease_bytes: int) -> None:
        """Take `count` bytes for a lease that then has `lease_bytes`. If they are not free, wait until earlier waiting
        leases have got their bytes and `count` bytes are free. Raises MemoryExhausted."""
        if self.try_take(count, lease_bytes):
            return
        if self.waiting >= WAITERS_MAX:
            raise self.exhausted()
        was_short = self.is_short
        waiter = _Waiter(count)
        queue = self._small if lease_bytes <= SMALL_BYTES else self._large
        queue.append(waiter)
        if not was_short:
            for callback in tuple(self._shortage_callbacks):
                callback()
        try:
            async with asyncio.timeout(self._wait_s):
                await waiter.granted
        except BaseException as error:
            if waiter in queue:
                queue.remove(waiter)
                # The next lease in the queue may need fewer bytes and can perhaps be granted now.
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
        """Count a refusal and return its exception."""
        self.refused += 1
        return MemoryExhausted(self.bytes_max)

    @contextmanager
    def on_shortage(self, callback: Callable[[], None]) -> Iterator[None]:
        """While the context is active, call `callback` when requests start to wait for memory."""
        self._shortage_callbacks.add(callback)
        try:
            yield
        finally:
            self._shortage_callbacks.discard(callback)

    def _grant(self) -> None:
        for queue, bytes_max in ((self._small, self.bytes_max), (self._large, self._large_bytes_max)):
            while queue and self.used_bytes + queue[0].count <= bytes_max:
                waiter = queue.popleft()
                if not waiter.granted.done():
                    self.used_bytes += waiter.count
                    waiter.granted.set_result(None)


class Lease:
    """The memory that is counted for one request or answer."""

    __slots__ = ("memory", "size_bytes")

    def __init__(self, memory: HttpMemory) -> None:
        self.memory = memory
        self.size_bytes = 0

    async def hold(self, size_bytes: int) -> None:
        """Resize the lease to `size_bytes`. Wait for free memory if necessary. Raises MemoryExhausted."""
        if size_bytes > self.size_bytes:
            await self.memory.take(size_bytes - self.size_bytes, size_bytes)
            self.size_bytes = size_bytes
        else:
            self._shrink(size_bytes)

    def try_hold(self, size_bytes: int) -> bool:
        """Resize the lease to `size_bytes` without waiting. Return False, and change nothing, if the memory is not
        free."""
        if size_bytes <= self.size_bytes:
            self._shrink(size_bytes)
            return True
        if not self.memory.try_take(size_bytes - self.size_bytes, size_bytes):
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
    """Return the total use up to which leases above SMALL_BYTES may grow. The rest is for small leases only."""
    return bytes_max // 4 * 3
