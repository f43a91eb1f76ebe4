"""Waiting for data: a reader that found too little is told when enough has been appended, or when its time is up."""

import asyncio
from collections.abc import Callable, Iterable

from kwire.broker.partition import Partition


class LongPoll:
    """Watches some partitions until they have gained enough bytes. Calls `done` once, in a later loop turn.

    The later turn lets one request that appends to several partitions wake a reader of all of them just once.
    """

    __slots__ = ("_done", "_is_over", "_known", "_loop", "_missing_bytes", "_timer")

    def __init__(self, partitions: Iterable[Partition], missing_bytes: int, max_wait_ms: int, done: Callable[[], None]):
        self._loop = asyncio.get_running_loop()
        self._missing_bytes = missing_bytes
        self._done = done
        self._is_over = False
        self._known = {partition: partition.readable_bytes for partition in partitions}
        for partition in self._known:
            partition.watch(self._rose)
        self._timer: asyncio.Handle = self._loop.call_later(max_wait_ms / 1000, self._finish)

    def cancel(self) -> None:
        """Nobody is interested any more; `done` is not called."""
        self._timer.cancel()
        if not self._is_over:
            self._is_over = True
            for partition in self._known:
                partition.unwatch(self._rose)

    def _rose(self, partition: Partition) -> None:
        gained = partition.readable_bytes - self._known[partition]
        self._known[partition] += gained
        self._missing_bytes -= gained
        # A rise without bytes means that something else has changed: look again.
        if self._missing_bytes <= 0 or not gained:
            self._finish()

    def _finish(self) -> None:
        if not self._is_over:
            self.cancel()
            self._timer = self._loop.call_soon(self._done)
