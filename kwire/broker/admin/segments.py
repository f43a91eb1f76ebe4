"""Describes the segments of a partition: their offsets, files, timestamps and quarantined ranges."""

from typing import NamedTuple

from kwire.broker.topics.topics import Topics
from kwire.concurrency.disk_lanes import Lane
from storage.disk.files import Files
from storage.log.quarantine import Quarantine
from storage.segment.facts import SegmentFacts, SegmentSurvey

# Reading the facts of a segment takes about fifty microseconds if the operating system has them in memory.
SEGMENTS_PER_JOB = 100


class DescribedSegment(NamedTuple):
    """A segment, and the ranges of it that are quarantined."""

    facts: SegmentFacts
    quarantined: tuple[Quarantine, ...]


class SegmentPage(NamedTuple):
    """Some segments of a partition in the order of their offsets. `segment_count` is the number of all segments.

    `next_after` is the argument `after` for the next page; None on the last page.
    """

    segments: list[DescribedSegment]
    segment_count: int
    next_after: int | None


class Segments:
    """Describes segments. Use it only in the event loop's thread; the files are read in `lane`."""

    def __init__(self, topics: Topics, lane: Lane, files: Files) -> None:
        self._topics = topics
        self._lane = lane
        self._files = files

    async def describe(self, name: str, index: int, after: int, count_max: int) -> SegmentPage:
        """Return up to `count_max` segments whose base offsets are above `after`.

        Segments that are removed meanwhile are left out. Raises StorageError, or KafkaError if there is no such topic.
        """
        opened = self._topics.leader_of(name, index).maintenance()
        surveys = opened.survey(after, count_max + 1, self._files)
        is_last = len(surveys) <= count_max
        del surveys[count_max:]
        quarantined, segment_count = opened.quarantined, opened.segment_count
        found: list[DescribedSegment] = []
        for first in range(0, len(surveys), SEGMENTS_PER_JOB):
            some = surveys[first : first + SEGMENTS_PER_JOB]
            for facts in await self._lane.run(_read, some):
                ranges = tuple(one for one in quarantined if one.segment_base == facts.base_offset)
                found.append(DescribedSegment(facts, ranges))
        return SegmentPage(found, segment_count, None if is_last else surveys[-1].base_offset)


def _read(surveys: list[SegmentSurvey]) -> list[SegmentFacts]:
    """Read the facts of segments that still exist. Runs in a thread."""
    return [facts for one in surveys if (facts := one.read()) is not None]
