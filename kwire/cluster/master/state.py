"""The metadata of the master: one key for the master, each stream, each segment and each store."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from kwire.cluster.core.control import SegmentRecord
from kwire.cluster.core.entries import FIRST_POSITION, Position
from kwire.cluster.core.messages import Incarnation, SegmentId
from kwire.metastore.interface import ABSENT, Change, Condition, Entry

# The maximum number of streams and of stores.
STREAMS_MAX: Final = 100_000
STORES_MAX: Final = 1_000
# The maximum size of the name of a stream, a store, a client or a rack. Every entry is far below COMMIT_BYTES_MAX.
NAME_BYTES_MAX: Final = 255
# The maximum number of copies of a segment that a stream can ask for.
REPLICAS_MAX: Final = 15
# The maximum number of segments in one answer.
SEGMENTS_PER_ANSWER_MAX: Final = 1_000
# The maximum number of unsealed segments of a stream.
UNSEALED_MAX: Final = 2
# The maximum number of members of a copy set while a segment is repaired.
COPY_SET_MAX: Final = 2 * REPLICAS_MAX + 2
# The maximum number of outsiders that the entry of a segment names. Those without a Drop are forgotten first: such a
# store may keep a replica that is of no use.
OUTSIDERS_MAX: Final = 16
# The maximum number of stores that a leader can avoid. Further ones are ignored.
AVOIDED_MAX: Final = 32
# Epochs are leader epochs of Kafka, which have 32 bits.
EPOCH_MAX: Final = 2**31 - 1

MASTER_KEY: Final = "cluster/master"
STREAM_PREFIX: Final = "cluster/streams/"
SEGMENT_PREFIX: Final = "cluster/segments/"
STORE_PREFIX: Final = "cluster/stores/"


def stream_key(stream: str) -> str:
    return STREAM_PREFIX + stream


def segment_key(segment: SegmentId) -> str:
    return f"{SEGMENT_PREFIX}{segment.stream}/{segment.number}"


def store_key(store: str) -> str:
    return STORE_PREFIX + store


def is_valid_name(name: str) -> bool:
    return 0 < len(name.encode()) <= NAME_BYTES_MAX


class MasterEntry(Struct, frozen=True):
    """The master that may commit now. `term` grows when a master takes over."""

    name: str
    term: int


class Leader(Struct, frozen=True):
    """The leader of the newest epoch. `ttl_ms` is the time of its lease."""

    client: str
    candidacy: int
    ttl_ms: int


class StreamEntry(Struct, frozen=True):
    """A stream: its settings, its newest epoch with the leader, the numbers of its segments, and where it starts.

    The entries before `start` are trimmed. It only grows.
    """

    name: str
    replicas: int
    write_quorum: int
    whole_log: bool
    epoch: int = 0
    leader: Leader | None = None
    last: int = 0
    unsealed: tuple[int, ...] = ()
    start: Position = FIRST_POSITION

    @property
    def sealed_count(self) -> int:
        return self.last - len(self.unsealed)

    def start_of(self, record: SegmentRecord) -> int:
        """Return the first entry of a segment that is not trimmed. Of a segment before the start only its bridge is."""
        if record.number < self.start.segment_number:
            return record.end_index or 1
        return self.start.entry_index if record.number == self.start.segment_number else 1

    def is_done(self, number: int) -> bool:
        """Whether no store needs the segment any more. A whole log needs every bridge: it is written in order."""
        return number < self.start.segment_number and not self.whole_log


class Report(Struct, frozen=True):
    """The digest that a store has reported for its complete copy of a sealed segment, from entry `start` on.

    A report with another start than the segment has now does not count.
    """

    store: str
    digest: int
    start: int = 1


class Outsider(Struct, frozen=True):
    """A store outside the copy set that may have a replica: it was a member, or it was ordered to make a copy.

    `incarnation` is that of the store to which Drop number `removal` was sent. It is None if none was sent, or if
    a copy was ordered after it. Reports of copies that were ordered before that Drop do not count.
    """

    store: str
    incarnation: Incarnation | None = None
    removal: int = 0


class SegmentEntry(Struct, frozen=True):
    """A segment with what the master knows of its copies.

    `avoided` are the stores that the leader did not want. `reports` and `outsiders` are of a sealed segment, and
    `removals` is the number of Drops that were ordered for it.
    """

    stream: str
    record: SegmentRecord
    avoided: tuple[str, ...] = ()
    reports: tuple[Report, ...] = ()
    outsiders: tuple[Outsider, ...] = ()
    removals: int = 0

    @property
    def id(self) -> SegmentId:
        return SegmentId(self.stream, self.record.number)

    def from_start(self, stream: StreamEntry) -> "SegmentEntry":
        """The entry with the reports that count: digests with different starts can not be compared."""
        start = stream.start_of(self.record)
        reports = tuple(one for one in self.reports if one.start == start)
        return self if reports == self.reports else msgspec.structs.replace(self, reports=reports)


class StoreEntry(Struct, frozen=True):
    """A store that has registered: its disk, its last start, and whether it is being emptied."""

    name: str
    incarnation: Incarnation
    rack: str = ""
    is_draining: bool = False


T = TypeVar("T", MasterEntry, StreamEntry, SegmentEntry, StoreEntry)


class Versioned(Struct, Generic[T], frozen=True):
    """An entry with its key, and its revision as it was read."""

    key: str
    value: T
    revision: int

    def changed(self, value: T) -> Change:
        return Change(self.key, msgspec.to_builtins(value), self.revision)

    def unchanged(self) -> Condition:
        return Condition(self.key, self.revision)


def created(key: str, value: MasterEntry | StreamEntry | SegmentEntry | StoreEntry) -> Change:
    """The change that creates an entry. It is refused if the key exists."""
    return Change(key, msgspec.to_builtins(value), ABSENT)


class Metadata:
    """The entries of a metadata store as they are now."""

    def __init__(self, get: Callable[[str], Entry | None]) -> None:
        self._get = get

    def master(self) -> Versioned[MasterEntry] | None:
        return self._read(MASTER_KEY, MasterEntry)

    def stream(self, name: str) -> Versioned[StreamEntry] | None:
        return self._read(stream_key(name), StreamEntry)

    def segment(self, segment: SegmentId) -> Versioned[SegmentEntry] | None:
        return self._read(segment_key(segment), SegmentEntry)

    def store(self, name: str) -> Versioned[StoreEntry] | None:
        return self._read(store_key(name), StoreEntry)

    def last_segment(self, stream: StreamEntry) -> Versioned[SegmentEntry] | None:
        return self.segment(SegmentId(stream.name, stream.last)) if stream.last else None

    def records(self, stream: StreamEntry, first: int) -> tuple[SegmentRecord, ...]:
        """The records of the segments from `first` on, at most SEGMENTS_PER_ANSWER_MAX."""
        first = max(first, 1)
        last = min(stream.last, first + SEGMENTS_PER_ANSWER_MAX - 1)
        found = (self.segment(SegmentId(stream.name, number)) for number in range(first, last + 1))
        return tuple(one.value.record for one in found if one is not None)

    def last_records(self, stream: StreamEntry) -> tuple[SegmentRecord, ...]:
        return self.records(stream, stream.last - SEGMENTS_PER_ANSWER_MAX + 1)

    def _read(self, key: str, kind: type[T]) -> Versioned[T] | None:
        entry = self._get(key)
        return Versioned(key, msgspec.convert(entry.value, kind), entry.revision) if entry is not None else None
