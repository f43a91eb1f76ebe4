"""Whose turn it is: live events first, then those who read history, a bounded amount of each per turn of the loop.

There is no task and no timer per subscriber. One call per loop turn serves whoever has work; one timer looks after
those who take nothing and those who are due a checkpoint, and runs only while there are any.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kwire.clock import Clock

log = logging.getLogger("kwire.broker")

# One unit is an event decoded, or half a portion handed to one subscriber: some microseconds each.
LIVE_UNITS_PER_TURN = 1000
HISTORY_UNITS_PER_TURN = 500
# What a look at a tail or a reader costs although it had nothing to say.
UNITS_PER_LOOK = 2
# Tails that are asked in one turn whether time has brought something.
LOOKS_PER_TURN = 1000
LOOK_MS_MAX = 100
LOOK_MS_MIN = 5


class Timer(Protocol):
    def cancel(self) -> None: ...


CallSoon = Callable[[Callable[[], None]], object]
CallLater = Callable[[float, Callable[[], None]], Timer]


class LiveWork(Protocol):
    """A tail: it delivers what is new."""

    is_queued: bool

    def step(self, units_max: int) -> int:
        """Do some of it; how much it was."""
        ...

    @property
    def has_more(self) -> bool: ...

    def look(self) -> bool:
        """See to what time brings; False when there is nothing more to wait for."""
        ...


class HistoryWork(Protocol):
    """A subscription that reads at its own pace."""

    is_queued: bool

    def step(self) -> int:
        """Read one portion; it asks for its next turn itself. How much it was."""
        ...


class DeliveryTurns:
    """Called from the event loop. `call_soon` runs a function in the loop's next turn, `call_later` after seconds."""

    def __init__(self, clock: Clock, call_soon: CallSoon, call_later: CallLater, look_ms: int) -> None:
        self.clock = clock
        self._call_soon = call_soon
        self._call_later = call_later
        self._look_seconds = min(max(look_ms, LOOK_MS_MIN), LOOK_MS_MAX) / 1000
        self._live: deque[LiveWork] = deque()
        self._history: deque[HistoryWork] = deque()
        self._watched: dict[LiveWork, None] = {}
        # Those of them that are still to be looked at this time.
        self._to_look_at: list[LiveWork] = []
        self._is_called = False
        self._timer: Timer | None = None
        self._is_closed = False

    def add_live(self, tail: LiveWork) -> None:
        """It has something to deliver."""
        if not tail.is_queued:
            tail.is_queued = True
            self._live.append(tail)
            if not self._is_called:
                self._call()

    def add_history(self, reader: HistoryWork) -> None:
        """It can read on."""
        if not reader.is_queued:
            reader.is_queued = True
            self._history.append(reader)
            if not self._is_called:
                self._call()

    def look_later(self, tail: LiveWork) -> None:
        """Somebody in it waits for time to pass."""
        if tail not in self._watched:
            self._watched[tail] = None
            self._look_again()

    def forget(self, tail: LiveWork) -> None:
        self._watched.pop(tail, None)
        if not self._watched:
            self._stop_looking()

    def close(self) -> None:
        self._is_closed = True
        self._live.clear()
        self._history.clear()
        self._watched.clear()
        self._stop_looking()

    def _call(self) -> None:
        if not self._is_closed:
            self._is_called = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._is_called = False
        try:
            self._serve()
        finally:
            if (self._live or self._history) and not self._is_called:
                self._call()

    def _serve(self) -> None:
        units = LIVE_UNITS_PER_TURN
        # Each has one go: who has more stands behind the others.
        for _ in range(len(self._live)):
            if units <= 0 or not self._live:
                break
            tail = self._live.popleft()
            tail.is_queued = False
            units -= tail.step(units) + UNITS_PER_LOOK
            if tail.has_more:
                self.add_live(tail)
        units = HISTORY_UNITS_PER_TURN
        for _ in range(len(self._history)):
            if units <= 0 or not self._history:
                break
            reader = self._history.popleft()
            reader.is_queued = False
            units -= reader.step() + UNITS_PER_LOOK

    # --- what time brings

    def _look_again(self) -> None:
        if self._timer is None and not self._to_look_at and not self._is_closed:
            self._timer = self._call_later(self._look_seconds, self._look)

    def _stop_looking(self) -> None:
        self._to_look_at = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        self._to_look_at = list(self._watched)
        self._look_at_some()

    def _look_at_some(self) -> None:
        some, self._to_look_at = self._to_look_at[:LOOKS_PER_TURN], self._to_look_at[LOOKS_PER_TURN:]
        for tail in some:
            try:
                is_over = not tail.look()
            except Exception:  # the others wait for time to pass too
                log.exception("a tail could not be looked at")
                is_over = True
            if is_over:
                self._watched.pop(tail, None)
        if self._to_look_at:
            self._call_soon(self._look_at_some)
        elif self._watched:
            self._look_again()
