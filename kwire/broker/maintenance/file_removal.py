"""Files of removed segments, which stay for `file.delete.delay.ms` and then go, in a thread and a few at a time.

Nobody can read them any more; who reads just now has a map of them and needs no file. The list is in memory only: what
a stop leaves behind lies below the log start and is removed when the log is opened again. A log that was closed or
deleted meanwhile leaves its folder alone, so the files of a new topic of that name are safe.
"""

import asyncio
import heapq
import logging
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from kwire.clock import Clock
from kwire.disk_lanes import LaneFull
from storage.errors import StorageError
from storage.segment import LogSegment
from storage.settings import Background

log = logging.getLogger("kwire.broker")

# To remove a large file takes tens of milliseconds; between the portions other work gets the thread.
FILES_PER_JOB = 8
# Beyond this the oldest ones do not wait for their time, and one that cannot be deleted is left to the next start.
PENDING_MAX = 10_000
# A file that cannot be removed is tried again after the first pause, then after twice as long, up to the second.
RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 60.0


class _Pending(NamedTuple):
    due: float
    number: int
    segment: LogSegment
    # How long it waited for this try, if an earlier one has failed.
    pause_seconds: float


class Deletions:
    """Called from the event loop. `deleted_files` counts the segments whose files are gone, `failures` failed tries."""

    def __init__(self, clock: Clock, background: Background) -> None:
        self._clock = clock
        self._background = background
        self._loop = asyncio.get_running_loop()
        self._pending: list[_Pending] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._is_busy = False
        self._is_closed = False
        self.deleted_files = 0
        self.failures = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, segments: Sequence[LogSegment], delay_ms: int) -> None:
        due = self._clock.monotonic() + delay_ms / 1000
        for segment in segments:
            self._push(segment, due, 0.0)
        self.delete_due()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _push(self, segment: LogSegment, due: float, pause_seconds: float) -> None:
        heapq.heappush(self._pending, _Pending(due, next(self._numbers), segment, pause_seconds))

    def delete_due(self) -> None:
        """Delete what is due, or set the timer for what will be. The timer calls it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_busy or self._is_closed or not self._pending:
            return
        some = self._take_due()
        if not some:
            wait_seconds = max(self._pending[0].due - self._clock.monotonic(), 0.0)
            self._timer = self._loop.call_later(wait_seconds, self.delete_due)
            return
        self._is_busy = True

        def delete() -> None:
            failed = [(one, error) for one in some if (error := delete_files(one.segment)) is not None]
            with suppress(RuntimeError):  # the loop is gone: the next start removes them
                self._loop.call_soon_threadsafe(self._deleted, len(some) - len(failed), failed)

        try:
            self._background(delete)
        except LaneFull:
            self._is_busy = False
            for one in some:
                self._push(one.segment, one.due, one.pause_seconds)
            self._timer = self._loop.call_later(RETRY_SECONDS, self.delete_due)
        except RuntimeError:  # no thread any more: the server is stopping
            self._is_closed = True

    def _take_due(self) -> list[_Pending]:
        now = self._clock.monotonic()
        some: list[_Pending] = []
        while self._pending and len(some) < FILES_PER_JOB:
            first = self._pending[0]
            if first.due > now and (first.pause_seconds or len(self._pending) <= PENDING_MAX):
                break
            some.append(heapq.heappop(self._pending))
        return some

    def _deleted(self, deleted_count: int, failed: list[tuple[_Pending, StorageError]]) -> None:
        self._is_busy = False
        self.deleted_files += deleted_count
        self.failures += len(failed)
        now = self._clock.monotonic()
        for number, (one, error) in enumerate(failed):
            pause_seconds = min(one.pause_seconds * 2, RETRY_SECONDS_MAX) or RETRY_SECONDS
            if len(self._pending) < PENDING_MAX:
                self._push(one.segment, now + pause_seconds, pause_seconds)
            if not number:
                log.warning(
                    "files of %d removed segments cannot be deleted, the next try is in %d s; the first: %s",
                    len(failed),
                    pause_seconds,
                    error,
                )
        self.delete_due()


def delete_files(segment: LogSegment) -> StorageError | None:
    """Delete the files of a segment; the error if they are still there. In a thread."""
    try:
        segment.delete_files()
    except StorageError as error:
        return error
    return None
