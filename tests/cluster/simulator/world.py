"""Virtual time, one queue of events, and the trace of a run. All chance comes from seeds."""

from __future__ import annotations

import heapq
import zlib
from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Final

import msgspec

# How many of the last events a failure shows.
TAIL_EVENTS: Final = 80

_encode = msgspec.msgpack.Encoder(enc_hook=repr).encode


class World:
    """The clock, the queue and the trace. Times are in milliseconds."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0
        self.step_count = 0
        self.trace_hash = 0
        # Faults that have happened, by kind.
        self.fired: Counter[str] = Counter()
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._tail: deque[tuple[int, str, object]] = deque(maxlen=TAIL_EVENTS)

    def chance(self, purpose: str) -> Random:
        """A generator of its own for each purpose: a change of one use does not shift the others."""
        return Random(f"{self.seed} {purpose}")

    def at(self, time: int, run: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (max(time, self.now), next(self._numbers), run))

    def after(self, delay: int, run: Callable[[], None]) -> None:
        self.at(self.now + delay, run)

    def note(self, what: str, detail: object = None) -> None:
        """Add an event to the trace."""
        self._tail.append((self.now, what, detail))
        self.trace_hash = zlib.crc32(_encode((self.now, what, detail)), self.trace_hash)

    def fire(self, kind: str, detail: object = None) -> None:
        """A fault happens."""
        self.fired[kind] += 1
        self.note(f"fault {kind}", detail)

    def run_until(self, end: int, is_done: Callable[[], bool] | None = None) -> bool:
        """Run all events up to `end`, or until `is_done`. Returns whether it is done."""
        while self._queue and self._queue[0][0] <= end:
            self.now, _, run = heapq.heappop(self._queue)
            self.step_count += 1
            run()
            if is_done is not None and is_done():
                return True
        self.now = max(self.now, end)
        return is_done is not None and is_done()

    def tail(self) -> str:
        """The last events, one per line."""
        return "\n".join(f"{time:>7} {what} {'' if detail is None else detail}" for time, what, detail in self._tail)
