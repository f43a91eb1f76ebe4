"""Virtual time, one queue of events, and the trace of a run. All chance comes from seeds."""

from __future__ import annotations

import heapq
import re
import zlib
from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Final

import msgspec

# How many of the last events a failure shows.
TAIL_EVENTS: Final = 80

LINE_CHARACTERS: Final = 700
_SHORTER: Final = (
    (re.compile(r"""b(['"])(?:\\.|(?!\1).)*\1"""), "-"),
    (re.compile(r"<(?:Kind|SegmentState)\.(\w+): [^>]*>"), r"\1"),
    (re.compile(r"SegmentId\(stream='(\w+)', number=(\d+)\)"), r"\1/\2"),
    (re.compile(r"Incarnation\(cookie=\d+, start=(\d+)\)"), r"start \1"),
    (re.compile(r"Entry\(index=(\d+), kind=(\w+), birth_epoch=(\d+), stamp_epoch=(\d+), payload=-\)"), r"\1:\2 \3/\4"),
    (
        re.compile(r"Run\(first=(\d+), last=(\d+), kind=(\w+), birth_epoch=(\d+), stamp_epoch=(\d+)\)"),
        r"\1-\2:\3 \4/\5",
    ),
    (re.compile(r"Member\(store='([^']*)', cookie=\d+\)"), r"\1"),
)

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
        return "\n".join(f"{time:>7} {what} {_short(detail)}" for time, what, detail in self._tail)


def _short(detail: object) -> str:
    """An event in few words: without payloads and the names of fields."""
    if detail is None:
        return ""
    text = repr(detail)
    for pattern, replacement in _SHORTER:
        text = pattern.sub(replacement, text)
    return text[:LINE_CHARACTERS]
