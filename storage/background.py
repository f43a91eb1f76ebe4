"""Threads for the work that logs do off the loop, with room for what an append will wait for.

Seals, checkpoints and removals wait for the disk for as long as it takes. Reserving the next space of a segment does
not, and is needed soon: it has a thread of its own, so that slow syncs do not bring it back to the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from storage.settings import Background

SLOW_THREADS = 2
SPACE_THREADS = 1


class BackgroundThreads:
    """Called with a job, it runs the job in one of the slow threads; :meth:`reserve_space` uses the other."""

    def __init__(self, run: Callable[[Callable[[], None]], None]) -> None:
        """``run`` calls a job in its thread and deals with what it raises."""
        self._run = run
        self._slow = ThreadPoolExecutor(SLOW_THREADS, thread_name_prefix="storage")
        self._space = ThreadPoolExecutor(SPACE_THREADS, thread_name_prefix="storage-space")

    def __call__(self, job: Callable[[], None]) -> None:
        self._slow.submit(self._run, job)

    def reserve_space(self, job: Callable[[], None]) -> None:
        self._space.submit(self._run, job)

    def close(self) -> None:
        """Wait for all jobs; from then on a job raises ``RuntimeError``."""
        self._slow.shutdown(wait=True)
        self._space.shutdown(wait=True)


def space_threads(background: Background) -> Background:
    """Where the next space of a segment is reserved: apart from slow work, if ``background`` has threads for it."""
    return background.reserve_space if isinstance(background, BackgroundThreads) else background
