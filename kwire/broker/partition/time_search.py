"""Looking for a time in a log, made so that a thread can do it while the loop goes on appending.

The thread gets copies of the segments (`storage/copies.py`): the same files as far as they are written now.

Retention and compaction may take the files away or put others in their place while the thread reads. What it finds
then is worth nothing: who has waited for it asks :meth:`TimeSearch.is_outdated` first, and looks again.
"""

from collections.abc import Callable

from storage.copies import copy_segment
from storage.files import Files
from storage.log import Log
from storage.segment import LogSegment
from storage.times import TimestampAndOffset, first_at_or_after, largest

_FILES = Files()


class TimeSearch:
    """Made on the loop, run once and in any thread. It finds records from the log start up to `upto`."""

    __slots__ = ("_is_exchanged", "_look", "_sealed", "_segments", "_start", "_upto")

    def __init__(self, log: Log, upto: int, look: Callable[[list[LogSegment], int, int], TimestampAndOffset | None]):
        self._look = look
        originals = list(log.segments())
        self._segments = [copy_segment(segment, log.directory, _FILES, log.settings) for segment in originals]
        # Their files are cut to their sizes, so another size is another file.
        self._sealed = [
            copy
            for copy, segment in zip(self._segments, originals, strict=True)
            if segment.is_sealed and not segment.is_seal_pending
        ]
        self._start = log.log_start_offset
        self._upto = upto
        self._is_exchanged = False

    def __call__(self) -> TimestampAndOffset | None:
        try:
            return self._look(self._segments, self._start, self._upto)
        finally:
            for segment in self._segments:
                segment.close()
            # Files are exchanged a moment before the log on the loop knows of it.
            self._is_exchanged = any(_size_of(segment.path) != segment.size_bytes for segment in self._sealed)

    def is_outdated(self, log: Log) -> bool:
        """Whether the files of the log are others than those the search began with, or fewer. Asked on the loop."""
        if self._is_exchanged:
            return True
        now = {segment.base_offset: segment for segment in log.segments()}
        for number, copy in enumerate(self._segments, start=1):
            segment = now.get(copy.base_offset)
            is_last = number == len(self._segments)
            if segment is None or segment.size_bytes < copy.size_bytes:
                return True
            if segment.size_bytes != copy.size_bytes and not is_last:
                return True
        return False


def search_time(log: Log, timestamp_ms: int, upto: int) -> TimeSearch:
    """What finds the first record of this time or later."""
    return TimeSearch(log, upto, lambda segments, start, end: first_at_or_after(segments, timestamp_ms, start, end))


def search_largest_time(log: Log, upto: int) -> TimeSearch:
    """What finds the record with the largest time."""
    return TimeSearch(log, upto, largest)


def _size_of(path: str) -> int:
    try:
        return _FILES.size_of(path)
    except OSError:
        return -1
