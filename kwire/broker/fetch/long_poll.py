"""Waiting for data: a reader that found too little is told when enough has been appended, or when its time is up."""

import asyncio
from collections.abc import Callable, Iterable

from kwire.broker.partition import Partition


class LongPoll:
    """Watches some partitions until they have gained enough bytes. Calls `done` once, in a later loop turn.

    The later turn lets one request that appends to several partitions wake a reader of all of them just once.

    A reader of committed data gains nothing while a transaction is open in front of what is appended, and with its end
    it gains what has waited behind it: how much that is only a look can tell, and `is_guess` says so. If it was not
    enough after all, the reader goes on waiting with another poll.
    """

    __slots__ = ("_done", "_held_up", "_is_over", "_known", "_loop", "_missing_bytes", "_stable", "_timer", "is_guess")

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
        # Python asks the system which process this is before it names the running loop, so who knows it tells it.
        self._loop = loop or asyncio.get_running_loop()
        self._missing_bytes = missing_bytes
        self._done = done
        self._is_over = False
        self._known = known = {partition: partition.readable_bytes for partition in partitions}
        # For who waits for committed data: how far it goes, and where a transaction keeps it from going further.
        self._stable = {partition: partition.last_stable_offset for partition in known} if is_committed else None
        self._held_up = {partition for partition in known if _is_held_up(partition)} if is_committed else set()
        rose = self._rose
        for partition in known:
            partition.watch(rose)
        self._timer: asyncio.Handle = self._loop.call_later(max_wait_ms / 1000, self._finish)

    def cancel(self) -> None:
        """Nobody is interested any more; `done` is not called."""
        self._timer.cancel()
        if not self._is_over:
            self._is_over = True
            rose = self._rose
            for partition in self._known:
                partition.unwatch(rose)

    def _rose(self, partition: Partition) -> None:
        known, readable_bytes = self._known, partition.readable_bytes
        gained = readable_bytes - known[partition]
        known[partition] = readable_bytes
        if self._stable is not None and gained:
            stable_offset = partition.last_stable_offset
            if stable_offset == self._stable[partition]:
                self._held_up.add(partition)
                return
            self._stable[partition] = stable_offset
            if partition in self._held_up or _is_held_up(partition):
                self.is_guess = True
                self._finish()
                return
        self._missing_bytes -= gained
        # A rise without bytes means that something else has changed: look again.
        if self._missing_bytes <= 0 or not gained:
            self._finish()

    def _finish(self) -> None:
        if not self._is_over:
            self.cancel()
            self._timer = self._loop.call_soon(self._done)


def _is_held_up(partition: Partition) -> bool:
    return partition.is_unstable and partition.last_stable_offset < partition.high_watermark
