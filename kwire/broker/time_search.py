"""Looking for a time in a log, made so that a thread can do it while the loop goes on appending.

The thread gets a log of its own: the same files as far as they are written now, behind descriptors and maps that
nobody else closes. Of what the loop holds it shares only indexes that are not on file yet, which anybody may read.
"""

from collections.abc import Callable

from storage.epochs import LeaderEpochs
from storage.files import Files
from storage.log import Log, LogState, TimestampAndOffset
from storage.producers import ProducerStates
from storage.segment import LogSegment

Search = Callable[[], TimestampAndOffset | None]

_FILES = Files()


def search_time(log: Log, timestamp_ms: int) -> Search:
    """What finds the first record of this time or later. Made on the loop, run once and in any thread."""
    return _search(log, lambda copy: copy.offset_for_timestamp(timestamp_ms))


def search_largest_time(log: Log) -> Search:
    """What finds the record with the largest time."""
    return _search(log, lambda copy: copy.max_timestamp_offset())


def _search(log: Log, look: Callable[[Log], TimestampAndOffset | None]) -> Search:
    segments = [_copy(log, segment) for segment in log.segments()]
    state = LogState(segments, log.log_start_offset, log.log_end_offset, LeaderEpochs(), ProducerStates())
    copy = Log(log.directory, _FILES, _no_work, log.settings, state=state)

    def search() -> TimestampAndOffset | None:
        try:
            return look(copy)
        finally:
            for segment in segments:
                segment.close()

    return search


def _copy(log: Log, segment: LogSegment) -> LogSegment:
    """The segment as it is now: what is appended later lies behind its end."""
    copy = LogSegment.existing(
        log.directory,
        segment.base_offset,
        _FILES,
        _no_work,
        limit_bytes=log.settings.segment_bytes,
        index_interval_bytes=log.settings.index_interval_bytes,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        is_sealed=True,
    )
    if not segment.is_sealed or segment.is_seal_pending:
        copy.adopt(segment.index, segment.max_timestamp)
    return copy


def _no_work(work: Callable[[], None]) -> None:
    raise AssertionError("a search leaves nothing to do")
