"""Searches for a timestamp in a log. A thread can run them while the event loop continues to append.

The thread uses read-only copies of the segment objects (`storage/segment/read_only_copy.py`). A copy reads the same
files, up to their size when the search was created.

Retention and compaction may remove or replace the files while the thread reads. The result is then not valid. Before
callers use a result, they check :meth:`TimeSearch.is_outdated`, and repeat the search if necessary.
"""

from collections.abc import Callable

from storage.disk.files import Files
from storage.log.log import Log
from storage.segment.read_only_copy import copy_segment
from storage.segment.segment import LogSegment
from storage.segment.time_search import TimestampAndOffset, find_largest, first_at_or_after

_FILES = Files()


class TimeSearch:
    """A search from the log start offset up to `upto`.

    It is created in the event loop's thread. Then it is called once, in any thread.
    """

    __slots__ = ("_is_replaced", "_sealed", "_search", "_segments", "_start", "_upto")

    def __init__(self, log: Log, upto: int, search: Callable[[list[LogSegment], int, int], TimestampAndOffset | None]):
        self._search = search
        originals = list(log.segments())
        self._segments = [copy_segment(segment, log.directory, _FILES, log.settings) for segment in originals]
        # The file of a sealed segment has exactly the segment's size. If the size differs, the file was replaced.
        self._sealed = [
            copy
            for copy, segment in zip(self._segments, originals, strict=True)
            if segment.is_sealed and not segment.is_seal_pending
        ]
        self._start = log.log_start_offset
        self._upto = upto
        self._is_replaced = False

    def __call__(self) -> TimestampAndOffset | None:
        try:
            return self._search(self._segments, self._start, self._upto)
        finally:
            for segment in self._segments:
                segment.close()
            # Compaction replaces the files shortly before it updates the log object, so the files are checked too.
            self._is_replaced = any(_size_of(segment.path) != segment.size_bytes for segment in self._sealed)

    def is_outdated(self, log: Log) -> bool:
        """Whether files were removed or replaced since the search began. Call it in the event loop's thread."""
        if self._is_replaced:
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
    """Return a search for the first record with this timestamp or a later one."""
    return TimeSearch(log, upto, lambda segments, start, end: first_at_or_after(segments, timestamp_ms, start, end))


def search_largest_time(log: Log, upto: int) -> TimeSearch:
    """Return a search for the record with the largest timestamp."""
    return TimeSearch(log, upto, find_largest)


def _size_of(path: str) -> int:
    try:
        return _FILES.size_of(path)
    except OSError:
        return -1
