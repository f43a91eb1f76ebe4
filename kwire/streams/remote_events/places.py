"""Places: at which offsets of a log the events with certain numbers are. Pure, bounded, and never wrong.

A place (number, offset) says: all events from this number on are at this offset or after it. Events before this number
are usually before this offset, which is a hint where to search.
"""

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

# If more places are known, every second one is forgotten.
PLACES_MAX: Final = 250


class Place(NamedTuple):
    """`event_count` events from `number` on are known to be in the batch at `offset`."""

    number: int
    offset: int
    event_count: int = 0


class Places:
    """Places in ascending order."""

    def __init__(self) -> None:
        self._places: list[Place] = [Place(0, 0)]

    def add(self, number: int, offset: int, event_count: int = 0) -> None:
        places = self._places
        at = bisect_left(places, (number, -1))
        before = places[at - 1] if at else None
        if before is not None and number < before.number + before.event_count:
            return
        # A batch that is known is better than all places inside it.
        end = at + 1 if at < len(places) and places[at].number == number else at
        while event_count and end < len(places) and places[end].number < number + event_count:
            end += 1
        if end == at + 1 and (places[at].offset, places[at].event_count) > (offset, event_count):
            return
        places[at:end] = [Place(number, offset, event_count)]
        if len(places) > PLACES_MAX:
            # The first and the last ones stay.
            del places[1:-1:2]

    def before(self, number: int) -> Place:
        """Return the last place at or before a number."""
        return self._places[bisect_right(self._places, number, key=lambda one: one.number) - 1]

    def after(self, number: int) -> Place | None:
        """Return the first place after a number."""
        at = bisect_right(self._places, number, key=lambda one: one.number)
        return self._places[at] if at < len(self._places) else None

    def first_from(self, offset: int) -> Place | None:
        """Return the first place that is not before an offset."""
        at = bisect_left(self._places, offset, key=lambda one: one.offset)
        return self._places[at] if at < len(self._places) else None
