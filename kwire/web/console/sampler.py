"""The sampler reads the counters of the process every INTERVAL_MS, for GET /overview.

A reading takes about a tenth of a millisecond. The values that take longer, or that wait for a disk or for a cluster,
are measured by a task of their own, every SLOW_INTERVALS intervals. There is no thread.
"""

import asyncio
import logging
import resource
from contextlib import suppress
from typing import Generic, Protocol

from kwire.web.console.samples import INTERVAL_MS, AnySample, Gauges, Reading, SampleRing, sample_between

log = logging.getLogger("kwire.web")

# The slow values are measured once in this many intervals.
SLOW_INTERVALS = 5
PAGE_BYTES = resource.getpagesize()


class LoadSource(Protocol):
    """Reads the load of a process."""

    def reading(self) -> Reading: ...

    def gauges(self) -> Gauges: ...

    async def measure(self) -> None:
        """Measure the slow values. If it raises an error, they stay as they were."""
        ...


class Sampler(Generic[AnySample]):
    """Fills a ring with samples of a kind. `close` stops it."""

    def __init__(self, kind: type[AnySample], source: LoadSource) -> None:
        self.ring = SampleRing(kind)
        self._source = source
        self._task: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        for task in (self._task, self._measuring):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        self._task = self._measuring = None

    async def _run(self) -> None:
        source = self._source
        before = source.reading()
        number = 0
        while True:
            if number % SLOW_INTERVALS == 0 and (self._measuring is None or self._measuring.done()):
                self._measuring = asyncio.get_running_loop().create_task(self._measure())
            number += 1
            await asyncio.sleep(INTERVAL_MS / 1000)
            now = source.reading()
            self.ring.add(sample_between(self.ring.kind, before, now, source.gauges()))
            before = now

    async def _measure(self) -> None:
        try:
            await self._source.measure()
        except Exception:
            log.exception("some values of the overview cannot be measured")


def memory_bytes() -> tuple[int | None, int | None]:
    """Return the resident memory of the process, with and without mapped files."""
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):  # this is not Linux, or no file descriptor is free
        return None, None
    return resident * PAGE_BYTES, (resident - shared) * PAGE_BYTES
