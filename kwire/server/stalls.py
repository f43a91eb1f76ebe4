"""A watch on the event loop: a timer that should fire every 20 milliseconds, and how late it is.

On a busy machine a timer is late without anybody's fault: the kernel ran something else, or the machine is a virtual
one and its host ran something else. Linux tells how long this thread was ready but not running (schedstat) and how much
processor time the host has taken (steal), so those parts are counted apart and are not called a stall.
"""

import asyncio
import os
import threading
import time

from kwire.metrics import LoopMetrics

# Each look wakes the process: often enough to see a stall, seldom enough to cost nothing.
INTERVAL_SECONDS = 0.02
STALL_SECONDS = 0.05
# Ticks between looks at what the host has taken: that is a long file. A machine without a host needs none of them.
STEAL_TICKS = 5

_STEAL_COLUMN = 8


class StallProbe:
    def __init__(self, metrics: LoopMetrics) -> None:
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        self._schedstat = os.open(path, os.O_RDONLY) if os.path.exists(path) else -1
        self._waited = self._run_queue_wait()
        self._ran = time.thread_time()
        self._ticks = 0
        self._last = time.monotonic()
        self._look_at_steal(self._last)
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self._tick)

    def close(self) -> None:
        self._timer.cancel()
        if self._schedstat >= 0:
            os.close(self._schedstat)
            self._schedstat = -1

    def _tick(self) -> None:
        metrics = self._metrics
        now, waited, ran = time.monotonic(), self._run_queue_wait(), time.thread_time()
        late = now - self._last - INTERVAL_SECONDS
        kept_waiting = waited - self._waited
        if late - kept_waiting > INTERVAL_SECONDS / 2:
            # While we ran nothing was taken from us.
            kept_waiting += min(self._stolen(now), max(0.0, late - kept_waiting - (ran - self._ran)))
        self._last, self._waited, self._ran = now, waited, ran
        stall = late - kept_waiting
        if stall > INTERVAL_SECONDS / 2:
            # It began anywhere between two looks: on average half an interval before the timer was due.
            stall += INTERVAL_SECONDS / 2
        metrics.run_queue_wait_seconds += kept_waiting
        if kept_waiting > metrics.run_queue_wait_seconds_max:
            metrics.run_queue_wait_seconds_max = kept_waiting
        if stall > metrics.stall_seconds_max:
            metrics.stall_seconds_max = stall
        if stall > STALL_SECONDS:
            metrics.stalls += 1
        self._ticks += 1
        if not self._ticks % STEAL_TICKS and any(self._steal):
            self._look_at_steal(now)
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self._tick)

    def _run_queue_wait(self) -> float:
        """Seconds this thread has been ready to run without a processor, since it began."""
        if self._schedstat < 0:
            return 0.0
        return int(os.pread(self._schedstat, 64, 0).split()[1]) / 1e9

    def _look_at_steal(self, now: float) -> None:
        self._steal, self._steal_at = _steal_by_processor(), now

    def _stolen(self, now: float) -> float:
        """Seconds the host has taken from one processor in this interval; it is not known which one was ours.

        They are told since the last look, so the interval gets its share of them.
        """
        before, before_at = self._steal, self._steal_at
        self._look_at_steal(now)
        taken = max((then - once for then, once in zip(self._steal, before, strict=False)), default=0.0)
        return max(0.0, taken) * (now - self._last) / (now - before_at)


def _steal_by_processor() -> list[float]:
    try:
        with open("/proc/stat", "rb") as file:
            lines = [line.split() for line in file if line.startswith(b"cpu")]
        ticks_per_second = os.sysconf("SC_CLK_TCK")
        # The first line is the sum.
        return [int(columns[_STEAL_COLUMN]) / ticks_per_second for columns in lines[1:]]
    except (OSError, IndexError, ValueError):  # another system, or an older one
        return []
