"""Which files of a topic are not there though they should be: somebody removed them, or a folder of them."""

from typing import NamedTuple

from kwire.broker.store.files.layout import GROUP_EVENTS, PACKED_END, FileEvent, sequence_in
from kwire.broker.store.files.reading import names_in, packed_events, places_of_groups
from storage.files import Files

# Looked for at one start; what is behind them is found by the next one.
RANGES_MAX = 1000


class Missing(NamedTuple):
    """Events from one number to another, both included."""

    first: int
    last: int


def missing_events(files: Files, root: str, topic: str, first: int, last: int) -> list[Missing]:
    """Of the events from `first` to `last` those without a file, in order. Only names are looked at."""
    places = places_of_groups(files, root, topic)
    found: list[Missing] = []
    next_number = first
    while next_number <= last and len(found) < RANGES_MAX:
        group = (next_number - 1) // GROUP_EVENTS
        group_last = min(last, (group + 1) * GROUP_EVENTS)
        here = places.get(group)
        if here is None:
            # All up to the next group that has anything.
            behind = min((number for number in places if number > group), default=None)
            group_last = last if behind is None else min(last, behind * GROUP_EVENTS)
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


def _numbers(files: Files, root: str, topic: str, places: list[str], first: int, last: int) -> set[int]:
    loose = [place for place in places if not place.endswith(PACKED_END)]
    numbers = {
        number
        for place in loose
        for name in names_in(files, f"{root}/{place}")
        if (number := sequence_in(topic, name)) is not None and first <= number <= last
    }
    if len(numbers) <= last - first:
        for place in places:
            if place.endswith(PACKED_END):
                unpacked = packed_events(files, root, topic, place)
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
