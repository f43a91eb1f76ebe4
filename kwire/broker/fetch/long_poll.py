"""Long polls: a fetch that found too few bytes waits until enough bytes can be read, or until its timeout."""

import asyncio
from collections.abc import Callable, Iterable

from kwire.broker.partition import Partition


class LongPoll:
    """Watches partitions until enough new bytes can be read, or until `max_wait_ms` has passed. Then calls `done` once.

    `done` is called in a later loop iteration. So a request that appends to several partitions wakes a reader of these
    partitions only once.

    With `is_committed` (isolation level `read_committed`), appended records cannot be read while an earlier transaction
    is open. When that transaction ends, all of these records become readable, but their size is not known without a
    read. The poll then ends with `is_guess` set. If the reader finds too few bytes, it starts another poll.
    """

    __slots__ = ("_blocked", "_done", "_is_over", "_known", "_loop", "_missing_bytes", "_stable", "_timer", "is_guess")

    def __init__(
        self,
        partitions: Iterable[Partition],
        missing_bytes: int,
        max_wait_ms: float,
        done: Callable[[], None],
        *,
        is_committed: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.is_guess = False
        # get_running_loop() makes a system call (getpid), so callers that already have the event loop pass it.
        self._loop = loop or asyncio.get_running_loop()
        self._missing_bytes = missing_bytes
        self._done = done
        self._is_over = False
        self._known = known = {partition: partition.readable_bytes for partition in partitions}
        # With `is_committed`: the last stable offsets, and the partitions in which an open transaction makes later
        # records unreadable.
        self._stable = {partition: partition.last_stable_offset for partition in known} if is_committed else None
        self._blocked = {partition for partition in known if _is_blocked(partition)} if is_committed else set()
        rose = self._on_rise
        for partition in known:
            partition.watch(rose)
        self._timer: asyncio.Handle = self._loop.call_later(max_wait_ms / 1000, self._finish)

    def cancel(self) -> None:
        """Stop waiting. `done` is not called."""
        self._timer.cancel()
        if not self._is_over:
            self._is_over = True
            rose = self._on_rise
            for partition in self._known:
                partition.unwatch(rose)

    def _on_rise(self, partition: Partition) -> None:
        known, readable_bytes = self._known, partition.readable_bytes
        gained = readable_bytes - known[partition]
        known[partition] = readable_bytes
        if self._stable is not None and gained:
            stable_offset = partition.last_stable_offset
            if stable_offset == self._stable[partition]:
                self._blocked.add(partition)
                return
            self._stable[partition] = stable_offset
            if partition in self._blocked or _is_blocked(partition):
                self.is_guess = True
                self._finish()
                return
        self._missing_bytes -= gained
        # A notification without new bytes reports another change, such as a deletion. The reader has to read again.
        if self._missing_bytes <= 0 or not gained:
            self._finish()

    def _finish(self) -> None:
        if not self._is_over:
            self.cancel()
            self._timer = self._loop.call_soon(self._done)


def _is_blocked(partition: Partition) -> bool:
    return partition.is_unstable and partition.last_stable_offset < partition.high_watermark
