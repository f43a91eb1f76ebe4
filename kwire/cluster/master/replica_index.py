"""The replicas of each store, by stream. The master builds it when it takes over, and changes it with each commit.

Decisions use it to find segments and to compare loads. They read the entries themselves before they change them.
"""

from collections import defaultdict
from typing import TypeVar

from kwire.cluster.core.control import SegmentState
from kwire.cluster.core.messages import SegmentId
from kwire.cluster.master.repair.digests import verified_stores
from kwire.cluster.master.state import SegmentEntry

T = TypeVar("T")


class ReplicaIndex:
    """Which segments each store holds, which of them are verified, and which have to be looked at by the repair."""

    def __init__(self) -> None:
        self._entries: dict[SegmentId, SegmentEntry] = {}
        self._numbers: dict[str, list[int]] = defaultdict(list)
        self._members: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._verified: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._outside: dict[str, set[SegmentId]] = defaultdict(set)
        self._loads: dict[str, int] = defaultdict(int)

    def put(self, entry: SegmentEntry) -> None:
        known = self._entries.get(entry.id)
        if known == entry:
            return
        if known is None:
            self._numbers[entry.stream].append(entry.record.number)
        else:
            self._count(known, -1)
        self._entries[entry.id] = entry
        self._count(entry, 1)

    def _count(self, entry: SegmentEntry, by: int) -> None:
        is_sealed = entry.record.state is SegmentState.SEALED
        for member in entry.record.copy_set:
            _change(self._members[member.store][entry.stream], entry.record.number, by)
            if not is_sealed:
                self._loads[member.store] += by
        for store in verified_stores(entry):
            _change(self._verified[store][entry.stream], entry.record.number, by)
        for outsider in entry.outsiders:
            _change(self._outside[outsider.store], entry.id, by)

    def load(self, store: str) -> int:
        return self._loads.get(store, 0)

    def streams_of(self, store: str) -> list[str]:
        """The streams of which the store holds segments."""
        return [stream for stream, numbers in self._members.get(store, {}).items() if numbers]

    def outside_replicas(self, store: str) -> list[SegmentId]:
        """The segments of which the store may have a replica outside the copy set."""
        return sorted(self._outside.get(store, ()))

    def replica_count(self, store: str, stream: str) -> int:
        return len(self._members.get(store, {}).get(stream, ()))

    def holders(self, stream: str, last: int) -> list[str]:
        """The members of segments of the stream up to number `last`."""
        return [
            store
            for store, streams in self._members.items()
            if any(number <= last for number in streams.get(stream, ()))
        ]

    def verified_numbers(self, store: str, stream: str) -> frozenset[int]:
        """The sealed segments of the stream of which the store has a verified copy."""
        return frozenset(self._verified.get(store, {}).get(stream, ()))

    def sealed(self, stream: str) -> list[SegmentEntry]:
        """The sealed segments of a stream."""
        found = (self._entries[SegmentId(stream, number)] for number in self._numbers.get(stream, ()))
        return [one for one in found if one.record.state is SegmentState.SEALED]

    def is_sealed(self, segment: SegmentId) -> bool:
        entry = self._entries.get(segment)
        return entry is not None and entry.record.state is SegmentState.SEALED

    def is_member(self, store: str, segment: SegmentId) -> bool:
        return segment.number in self._members.get(store, {}).get(segment.stream, ())


def _change(values: set[T], value: T, by: int) -> None:
    if by > 0:
        values.add(value)
    else:
        values.discard(value)
