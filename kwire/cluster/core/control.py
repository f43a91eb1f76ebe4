"""Messages between clients, stores and the master."""

from enum import StrEnum

from msgspec import Struct

from kwire.cluster.core.entries import FIRST_POSITION, Position
from kwire.cluster.core.messages import Incarnation, Member, SegmentId


class SegmentState(StrEnum):
    """OPEN takes entries, SEALING is in recovery, SEALED has its final content."""

    OPEN = "open"
    SEALING = "sealing"
    SEALED = "sealed"


class SegmentRecord(Struct, frozen=True):
    """A segment in the metadata of its stream.

    `base` is the number of entries in all segments before it; it is known when they are sealed, and None before.
    `end_index` is the index of the bridge of a sealed segment.
    """

    number: int
    state: SegmentState
    copy_set: tuple[Member, ...]
    write_quorum: int
    opened_by_epoch: int
    base: int | None = None
    end_index: int | None = None
    end_epoch: int | None = None


# --- from a client


class Heartbeat(Struct, frozen=True, gc=False):
    """A client is alive. With `epoch` 0 it is a candidate, otherwise it renews its lease as the leader.

    `candidacy` grows with each candidacy of a client, also over its restarts. A repeated heartbeat of the candidacy
    that was elected gets the same epoch again, one of an earlier candidacy gets none. With candidacy 0, each heartbeat
    of a candidate that was elected gets another epoch. `store` is the store on the machine of the candidate, if any.
    `sent_at` is the time of the client's clock. The answer repeats it, and means nothing else to the master.
    """

    stream: str
    client: str
    epoch: int
    sent_at: int = 0
    candidacy: int = 0
    store: str = ""


class OpenSegment(Struct, frozen=True, gc=False):
    """Create the segment `number`. The master chooses its copy set, without the stores in `avoid` if it can."""

    stream: str
    epoch: int
    number: int
    avoid: tuple[str, ...] = ()


class BeginRecovery(Struct, frozen=True, gc=False):
    """Record that the leader recovers this segment."""

    stream: str
    epoch: int
    number: int


class CloseSegment(Struct, frozen=True, gc=False):
    """Record the segment as sealed, with its bridge at `end_index`."""

    stream: str
    epoch: int
    number: int
    end_index: int


class TrimStream(Struct, frozen=True, gc=False):
    """Record that entries before entry `first` of segment `number` are no longer needed: the stream starts there.

    All of them are acknowledged.
    """

    stream: str
    epoch: int
    number: int
    first: int


class Describe(Struct, frozen=True, gc=False):
    """Return the segments of a stream from number `first` on. An answer has at most 1,000 of them."""

    stream: str
    first: int = 1


# --- to a client


class Granted(Struct, frozen=True, gc=False):
    """The client is the leader. Its lease lasts `ttl_ms` from `sent_at` on, when it sent the heartbeat.

    `segments` are the last ones, at most 1,000. All unsealed segments are among them. `candidacy` is that of the
    heartbeat. A client ignores the answer to an earlier candidacy: it may have led with this epoch before.
    """

    stream: str
    epoch: int
    ttl_ms: int
    sent_at: int
    segments: tuple[SegmentRecord, ...]
    candidacy: int = 0


class Renewed(Struct, frozen=True, gc=False):
    """The lease was renewed. `must_roll`: a store of the open segment has failed or drains; open another segment."""

    stream: str
    epoch: int
    ttl_ms: int
    sent_at: int
    must_roll: bool


class NotLeader(Struct, frozen=True, gc=False):
    """The client does not lead the stream, or no longer. `epoch` is the newest epoch."""

    stream: str
    epoch: int


class SegmentChanged(Struct, frozen=True, gc=False):
    """The answer to OpenSegment, BeginRecovery and CloseSegment: the record as it is now."""

    stream: str
    epoch: int
    record: SegmentRecord


class StreamTrimmed(Struct, frozen=True, gc=False):
    """The answer to TrimStream: the stream starts at this entry, or at a later one."""

    stream: str
    epoch: int
    number: int
    first: int


class Unavailable(Struct, frozen=True, gc=False):
    """The request can not be met now, for example because too few stores are alive. The client asks again later."""

    stream: str
    epoch: int
    reason: str


class Described(Struct, frozen=True, gc=False):
    """Segments of a stream, its newest epoch, the number of its last segment, and where it starts."""

    stream: str
    epoch: int
    segments: tuple[SegmentRecord, ...]
    last: int = 0
    start: Position = FIRST_POSITION


# --- stores


class StoreHeartbeat(Struct, frozen=True, gc=False):
    """A store is alive.

    `unclosed` are segments whose replica is not closed here: open ones, and sealed ones for which the store waits for
    Finish or Copy. `limbo` are those of them that it can not answer for. `sequence` grows with each heartbeat of an
    incarnation: the master ignores a heartbeat that a later one has overtaken.
    """

    store: str
    incarnation: Incarnation
    free_bytes: int
    unclosed: tuple[SegmentId, ...] = ()
    limbo: tuple[SegmentId, ...] = ()
    rack: str = ""
    sequence: int = 0


class StoreAccepted(Struct, frozen=True, gc=False):
    """The store belongs to the cluster. `incarnation` is that of its heartbeat; None in an answer to DrainStore."""

    store: str
    incarnation: Incarnation | None = None


class StoreRejected(Struct, frozen=True, gc=False):
    """The store may not serve under this name: its disk or its process is another one.

    `incarnation` is that of its heartbeat. A later incarnation ignores the answer: it was not meant.
    """

    store: str
    reason: str
    incarnation: Incarnation | None = None


# --- administrators


class CreateStream(Struct, frozen=True, gc=False):
    """Create a stream whose segments have `replicas` copies, of which `write_quorum` acknowledge an entry.

    With `whole_log`, each store of the copy set holds all segments, as a replica of a Kafka partition does. Otherwise
    the copy set of each segment is chosen anew, so that the stream may be larger than a store.
    """

    stream: str
    replicas: int
    write_quorum: int
    whole_log: bool = False


class StreamCreated(Struct, frozen=True, gc=False):
    """The stream exists with these settings."""

    stream: str


class StreamRefused(Struct, frozen=True, gc=False):
    """The stream can not be created."""

    stream: str
    reason: str


class DrainStore(Struct, frozen=True, gc=False):
    """Move all segments away from a store, or use it again if `is_draining` is false."""

    store: str
    is_draining: bool = True


ClientRequest = Heartbeat | OpenSegment | BeginRecovery | CloseSegment | TrimStream | Describe
ClientAnswer = Granted | Renewed | NotLeader | SegmentChanged | StreamTrimmed | Unavailable | Described
StoreRequest = StoreHeartbeat
StoreRegistration = StoreAccepted | StoreRejected
AdminRequest = CreateStream | DrainStore
AdminAnswer = StreamCreated | StreamRefused | StoreAccepted | StoreRejected
