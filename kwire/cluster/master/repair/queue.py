"""The repairs that a master has begun or has to look at. A new master has no memory of them, and begins anew."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from kwire.cluster.core.messages import SegmentId

# The maximum number of segments, and of replicas to drop, that one round looks at.
SEGMENTS_PER_ROUND_MAX: Final = 100
DROPS_PER_ROUND_MAX: Final = 100
# A new store that has not made a copy in this number of attempts is replaced by another one.
COPY_ATTEMPTS_MAX: Final = 3


class Flight(NamedTuple):
    """A copy that was ordered."""

    deadline_ms: int
    attempts: int


class RepairQueue:
    """Sealed segments that may lack copies, copies under way, and replicas to drop."""

    def __init__(self) -> None:
        self._segments: dict[SegmentId, None] = {}
        self._flights: dict[SegmentId, dict[str, Flight]] = {}
        self._drops: dict[tuple[str, SegmentId], None] = {}

    # --- segments

    def add(self, segments: Iterable[SegmentId]) -> None:
        self._segments.update(dict.fromkeys(segments))

    def next_segments(self) -> list[SegmentId]:
        """The segments that have waited longest. They go to the end of the queue."""
        portion = list(self._segments)[:SEGMENTS_PER_ROUND_MAX]
        for segment in portion:
            del self._segments[segment]
            self._segments[segment] = None
        return portion

    def settle(self, segment: SegmentId) -> None:
        """The segment needs nothing now."""
        self._segments.pop(segment, None)
        self._flights.pop(segment, None)

    # --- copies

    def begin_copy(self, segment: SegmentId, store: str, deadline_ms: int) -> None:
        flights = self._flights.setdefault(segment, {})
        attempts = flights[store].attempts if store in flights else 0
        flights[store] = Flight(deadline_ms, attempts + 1)

    def end_copy(self, segment: SegmentId, store: str) -> None:
        flights = self._flights.get(segment)
        if flights is not None:
            flights.pop(store, None)

    def is_copying(self, segment: SegmentId, store: str, now: int) -> bool:
        flight = self._flights.get(segment, {}).get(store)
        return flight is not None and now < flight.deadline_ms

    def copy_count(self, now: int) -> int:
        return sum(now < one.deadline_ms for flights in self._flights.values() for one in flights.values())

    def has_tried(self, segment: SegmentId, store: str) -> bool:
        return store in self._flights.get(segment, {})

    def try_again(self, segment: SegmentId) -> None:
        """Forget the attempts, because no store is left."""
        self._flights.pop(segment, None)

    def given_up(self, segment: SegmentId) -> set[str]:
        """The stores that have not made the copy in COPY_ATTEMPTS_MAX attempts."""
        return {store for store, one in self._flights.get(segment, {}).items() if one.attempts >= COPY_ATTEMPTS_MAX}

    def copies_by_store(self, stream: str) -> Counter[str]:
        """How many copies of segments of the stream each store makes."""
        return Counter(
            store for segment, flights in self._flights.items() if segment.stream == stream for store in flights
        )

    # --- replicas to drop

    def add_drops(self, store: str, segments: Iterable[SegmentId]) -> None:
        self._drops.update(dict.fromkeys((store, segment) for segment in segments))

    def next_drops(self) -> list[tuple[str, SegmentId]]:
        portion = list(self._drops)[:DROPS_PER_ROUND_MAX]
        for one in portion:
            del self._drops[one]
        return portion
