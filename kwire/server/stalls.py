"""The stall probe measures the delay of a timer of the event loop that is due every 20 milliseconds.

On a busy machine, the timer is also delayed while the kernel runs other processes, or while the host of a virtual
machine runs other machines. Linux reports the time that this thread was ready but not running (schedstat), and the
processor time that the host has taken (steal). These times are counted as run queue waits, not as stalls.
"""

import asyncio
import logging
import os
import threading
import time

from kwire.metrics import LoopMetrics

log = logging.getLogger("kwire.server")

# Each tick wakes the process. This interval is short enough to detect stalls, and long enough to need little processor
# time.
INTERVAL_SECONDS = 0.02
STALL_SECONDS = 0.05
# Longer stalls are logged. Clients notice them.
LOGGED_STALL_SECONDS = 1.0
# The steal time is read only every STEAL_TICKS ticks, because its file (/proc/stat) is long. While the file shows no
# steal time, it is not read periodically.
STEAL_TICKS = 5

_STEAL_COLUMN = 8


class StallProbe:
    """Measures the stalls of the running event loop."""

    def __init__(self, metrics: LoopMetrics) -> None:
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        self._schedstat = os.open(path, os.O_RDONLY) if os.path.exists(path) else -1
        self._waited = self._run_queue_wait()
        self._ran = time.thread_time()
        self._ticks = 0
        self._last = time.monotonic()
        self._read_steal(self._last)
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
            # The time in which this thread ran cannot be steal time.
            kept_waiting += min(self._stolen(now), max(0.0, late - kept_waiting - (ran - self._ran)))
        self._last, self._waited, self._ran = now, waited, ran
        stall = late - kept_waiting
        if stall > INTERVAL_SECONDS / 2:
            # A stall begins at a random time between two ticks, on average half an interval before the timer is due.
            stall += INTERVAL_SECONDS / 2
        metrics.run_queue_wait_seconds += kept_waiting
        if kept_waiting > metrics.run_queue_wait_seconds_max:
            metrics.run_queue_wait_seconds_max = kept_waiting
        if stall > metrics.stall_seconds_max:
            metrics.stall_seconds_max = stall
        if stall > metrics.recent_stall_seconds:
            metrics.recent_stall_seconds = stall
        if stall > STALL_SECONDS:
            metrics.stalls += 1
            if stall > LOGGED_STALL_SECONDS:
                log.warning("the server was blocked for %.1f s: all clients waited meanwhile", stall)
        self._ticks += 1
        if not self._ticks % STEAL_TICKS and any(self._steal):
            self._read_steal(now)
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self._tick)

    def _run_queue_wait(self) -> float:
        """Return the total time, in seconds, for which this thread was ready to run but had no processor."""
        if self._schedstat < 0:
            return 0.0
        return int(os.pread(self._schedstat, 64, 0).split()[1]) / 1e9

    def _read_steal(self, now: float) -> None:
        self._steal, self._steal_at = _steal_by_processor(), now

    def _stolen(self, now: float) -> float:
        """Return the estimated steal time of this interval, in seconds.

        It is not known on which processor this thread ran, so the processor with the most steal time is used. Of its
        steal time since the last read, this interval gets a part in proportion to its length.
        """
        before, before_at = self._steal, self._steal_at
        self._read_steal(now)
        taken = max((then - once for then, once in zip(self._steal, before, strict=False)), default=0.0)
        return max(0.0, taken) * (now - self._last) / (now - before_at)


def _steal_by_processor() -> list[float]:
    try:
        with open("/proc/stat", "rb") as file:
            lines = [line.split() for line in file if line.startswith(b"cpu")]
        ticks_per_second = os.sysconf("SC_CLK_TCK")
        # The first line is the sum of all processors.
        return [int(columns[_STEAL_COLUMN]) / ticks_per_second for columns in lines[1:]]
    except (OSError, IndexError, ValueError):  # this is not Linux, or the kernel does not report steal time
        return []
