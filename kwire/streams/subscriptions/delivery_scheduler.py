"""DeliveryScheduler: runs the delivery work of all subscriptions, a bounded amount per iteration of the event loop.

Live feeds run first, then subscriptions that read history. Subscribers have no tasks and no timers of their own. One
call per iteration runs the queued work of all subscribers. One timer checks for stalled subscribers and due
checkpoints. It runs only while a feed may have one of these.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kwire.clock import Clock

log = logging.getLogger("kwire.broker")

# Limits of the work in one iteration, in units of a few microseconds. Decoding an event takes one unit. Delivering a
# batch to one subscriber takes at least two.
LIVE_UNITS_PER_ITERATION = 1000
HISTORY_UNITS_PER_ITERATION = 500
# The fixed cost of a step of a feed or subscription, in units. It is added even if the step had nothing to do.
UNITS_PER_STEP = 2
# The maximum number of feeds whose `tick` is called in one iteration.
TICKS_PER_ITERATION = 1000
TICK_MS_MAX = 100
TICK_MS_MIN = 5


class Timer(Protocol):
    def cancel(self) -> None: ...


CallSoon = Callable[[Callable[[], None]], object]
CallLater = Callable[[float, Callable[[], None]], Timer]


class LiveWork(Protocol):
    """The scheduled work of a live feed: delivery of new events."""

    is_queued: bool

    def step(self, units_max: int) -> int:
        """Do up to `units_max` units of work. Returns the units done."""
        ...

    @property
    def has_more(self) -> bool: ...

    def tick(self) -> bool:
        """Schedule checks that depend on time. Returns False if no further tick is needed."""
        ...


class HistoryWork(Protocol):
    """The scheduled work of a subscription that reads history."""

    is_queued: bool

    def step(self) -> int:
        """Read and deliver one batch, and queue the next step if there is more. Returns the units of work done."""
        ...


class DeliveryScheduler:
    """The queues of live and history work, and the timer. Use it only in the event loop's thread.

    `call_soon` runs a function in the next iteration of the event loop, `call_later` after a number of seconds.
    """

    def __init__(self, clock: Clock, call_soon: CallSoon, call_later: CallLater, tick_ms: int) -> None:
        self.clock = clock
        self._call_soon = call_soon
        self._call_later = call_later
        self._tick_seconds = min(max(tick_ms, TICK_MS_MIN), TICK_MS_MAX) / 1000
        self._live: deque[LiveWork] = deque()
        self._history: deque[HistoryWork] = deque()
        self._watched: dict[LiveWork, None] = {}
        # Watched feeds whose `tick` is still to be called in this round.
        self._pending_ticks: list[LiveWork] = []
        self._is_called = False
        self._timer: Timer | None = None
        self._is_closed = False

    def add_live(self, feed: LiveWork) -> None:
        """Queue a feed that has something to deliver."""
        if not feed.is_queued:
            feed.is_queued = True
            self._live.append(feed)
            if not self._is_called:
                self._call()

    def add_history(self, subscription: HistoryWork) -> None:
        """Queue a subscription that can continue to read."""
        if not subscription.is_queued:
            subscription.is_queued = True
            self._history.append(subscription)
            if not self._is_called:
                self._call()

    def schedule_tick(self, feed: LiveWork) -> None:
        """Call the feed's `tick` periodically, until it returns False."""
        if feed not in self._watched:
            self._watched[feed] = None
            self._start_timer()

    def forget(self, feed: LiveWork) -> None:
        self._watched.pop(feed, None)
        if not self._watched:
            self._stop_timer()

    def close(self) -> None:
        self._is_closed = True
        self._live.clear()
        self._history.clear()
        self._watched.clear()
        self._stop_timer()

    def _call(self) -> None:
        if not self._is_closed:
            self._is_called = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._is_called = False
        try:
            self._serve()
        finally:
            if (self._live or self._history) and not self._is_called:
                self._call()

    def _serve(self) -> None:
        units = LIVE_UNITS_PER_ITERATION
        # Each feed runs one step. A feed with more work is then added to the end of the queue.
        for _ in range(len(self._live)):
            if units <= 0 or not self._live:
                break
            feed = self._live.popleft()
            feed.is_queued = False
            units -= feed.step(units) + UNITS_PER_STEP
            if feed.has_more:
                self.add_live(feed)
        units = HISTORY_UNITS_PER_ITERATION
        for _ in range(len(self._history)):
            if units <= 0 or not self._history:
                break
            subscription = self._history.popleft()
            subscription.is_queued = False
            units -= subscription.step() + UNITS_PER_STEP

    # --- the timer

    def _start_timer(self) -> None:
        if self._timer is None and not self._pending_ticks and not self._is_closed:
            self._timer = self._call_later(self._tick_seconds, self._tick)

    def _stop_timer(self) -> None:
        self._pending_ticks = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        self._pending_ticks = list(self._watched)
        self._tick_some()

    def _tick_some(self) -> None:
        some, self._pending_ticks = self._pending_ticks[:TICKS_PER_ITERATION], self._pending_ticks[TICKS_PER_ITERATION:]
        for feed in some:
            try:
                is_over = not feed.tick()
            except Exception:  # the ticks of the other feeds must still run
                log.exception("the periodic check of a live feed failed")
                is_over = True
            if is_over:
                self._watched.pop(feed, None)
        if self._pending_ticks:
            self._call_soon(self._tick_some)
        elif self._watched:
            self._start_timer()
