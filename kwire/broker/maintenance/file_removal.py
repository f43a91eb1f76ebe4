"""Deletes the files of removed segments after `file.delete.delay.ms`, in a thread and at most FILES_PER_JOB at a time.

The segments are no longer part of their log. A reader of such a segment has the file mapped into memory, so it can
continue to read after the file was deleted. The list of files is only in memory. If the server stops before files are
deleted, the next opening of their log deletes those of retention, because they are below the log start offset. The
files of segments that compaction replaced already have no name, so the system frees them when they are closed. If the
log was closed or deleted in the meantime, this module deletes no file in its folder. So the files of a new topic of the
same name are safe.
"""

import asyncio
import heapq
import logging
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from kwire.clock import Clock
from kwire.concurrency.disk_lanes import LaneFull
from storage.errors import StorageError
from storage.log.settings import Background
from storage.segment.segment import LogSegment

log = logging.getLogger("kwire.broker")

# Deleting a large file takes tens of milliseconds. Between two jobs, the thread can run other jobs.
FILES_PER_JOB = 8
# If more segments are waiting, the oldest are deleted before their delay has passed. A segment that cannot be deleted
# is then not retried: the next opening of its log deletes it.
PENDING_MAX = 10_000
# A failed deletion is retried after RETRY_SECONDS. The pause doubles after each failure, up to RETRY_SECONDS_MAX.
RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 60.0


class _Pending(NamedTuple):
    due: float
    number: int
    segment: LogSegment
    # The pause before this attempt. 0 if no earlier attempt has failed.
    pause_seconds: float


class FileRemover:
    """Deletes the files of removed segments. Use it only in the event loop's thread.

    `deleted_files` is the number of segments whose files were deleted. `failures` is the number of failed attempts.
    """

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
        """Begin to delete the files that are due. If none are due, set a timer, which calls this method again."""
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
            with suppress(RuntimeError):  # the event loop is closed, so the server is stopping
                self._loop.call_soon_threadsafe(self._deleted, len(some) - len(failed), failed)

        try:
            self._background(delete)
        except LaneFull:
            self._is_busy = False
            for one in some:
                self._push(one.segment, one.due, one.pause_seconds)
            self._timer = self._loop.call_later(RETRY_SECONDS, self.delete_due)
        except RuntimeError:  # the lane is closed: the server is stopping
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
    """Delete the files of a segment. Returns the error if that failed. Runs in a thread."""
    try:
        segment.delete_files()
    except StorageError as error:
        return error
    return None
