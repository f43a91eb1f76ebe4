"""Finds event files that should exist but do not, because files or folders were removed."""

from typing import NamedTuple

from kwire.streams.event_store.files.layout import GROUP_EVENTS, PACKED_END, FileEvent, sequence_in
from kwire.streams.event_store.files.reader import group_sources, names_in, packed_events
from storage.disk.files import Files

# The search ends after this many missing ranges. The search after the next start finds further ranges.
RANGES_MAX = 1000


class Missing(NamedTuple):
    """A range of event numbers, both ends included."""

    first: int
    last: int


def missing_events(files: Files, root: str, topic: str, first: int, last: int) -> list[Missing]:
    """Return the ranges of events from `first` to `last` that have no file, in order.

    The files of single events are not opened. The packed files of a group are read only if single files are missing.
    """
    sources = group_sources(files, root, topic)
    found: list[Missing] = []
    next_number = first
    while next_number <= last and len(found) < RANGES_MAX:
        group = (next_number - 1) // GROUP_EVENTS
        group_last = min(last, (group + 1) * GROUP_EVENTS)
        here = sources.get(group)
        if here is None:
            # All events up to the next group that exists are missing.
            next_group = min((number for number in sources if number > group), default=None)
            group_last = last if next_group is None else min(last, next_group * GROUP_EVENTS)
            missing = [Missing(next_number, group_last)]
        else:
            missing = _gaps(_numbers(files, root, topic, here, next_number, group_last), next_number, group_last)
        for one in missing:
            if found and found[-1].last + 1 == one.first:
                found[-1] = Missing(found[-1].first, one.last)
            else:
                found.append(one)
        next_number = group_last + 1
    return found


def _numbers(files: Files, root: str, topic: str, sources: list[str], first: int, last: int) -> set[int]:
    loose = [source for source in sources if not source.endswith(PACKED_END)]
    numbers = {
        number
        for source in loose
        for name in names_in(files, f"{root}/{source}")
        if (number := sequence_in(topic, name)) is not None and first <= number <= last
    }
    if len(numbers) <= last - first:
        for source in sources:
            if source.endswith(PACKED_END):
                unpacked = packed_events(files, root, topic, source)
                numbers |= {one.sequence for one in unpacked if isinstance(one, FileEvent)}
    return numbers


def _gaps(numbers: set[int], first: int, last: int) -> list[Missing]:
    gaps: list[Missing] = []
    for number in range(first, last + 1):
        if number in numbers:
            continue
        if gaps and gaps[-1].last + 1 == number:
            gaps[-1] = Missing(gaps[-1].first, number)
        else:
            gaps.append(Missing(number, number))
    return gaps
