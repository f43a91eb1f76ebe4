"""A watch on the event loop: a timer that should fire every 20 milliseconds, and how late it is.

On a busy machine a timer is late without anybody's fault: the kernel ran something else. Linux tells how long this
thread was ready but not running (schedstat), so that part is counted apart and is not called a stall.
"""

import asyncio
import os
import threading
import time

from kwire.metrics import LoopMetrics

# Each look wakes the process: often enough to see a stall, seldom enough to cost nothing.
INTERVAL_SECONDS = 0.02
STALL_SECONDS = 0.05


class StallProbe:
    def __init__(self, metrics: LoopMetrics) -> None:
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        self._schedstat = os.open(path, os.O_RDONLY) if os.path.exists(path) else -1
        self._waited = self._run_queue_wait()
        self._last = time.monotonic()
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self._tick)

    def close(self) -> None:
        self._timer.cancel()
        if self._schedstat >= 0:
            os.close(self._schedstat)
            self._schedstat = -1

    def _tick(self) -> None:
        metrics = self._metrics
        now, waited = time.monotonic(), self._run_queue_wait()
        late = now - self._last - INTERVAL_SECONDS
        kept_waiting = waited - self._waited
        self._last, self._waited = now, waited
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
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self._tick)

    def _run_queue_wait(self) -> float:
        """Seconds this thread has been ready to run without a processor, since it began."""
        if self._schedstat < 0:
            return 0.0
        return int(os.pread(self._schedstat, 64, 0).split()[1]) / 1e9
