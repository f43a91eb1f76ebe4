"""Messages between the leader of a stream, readers and segment stores.

Every request of a leader carries its epoch. A store that has accepted a higher epoch answers with Stale, whatever the
request is. Requests other than Seal also carry the incarnation of the replica that the leader knows: a store that has
started again answers with Restarted, and the leader seals it anew.
"""

from typing import NamedTuple

from msgspec import Struct

from kwire.cluster.core.entries import Entry, Range, Run


class SegmentId(NamedTuple):
    """A segment of a stream. The first segment has number 1."""

    stream: str
    number: int


class Incarnation(NamedTuple):
    """One life of a store: the random cookie of its disk, and the number of its starts with this disk."""

    cookie: int
    start: int


class Member(NamedTuple):
    """A store in a copy set, with the cookie of its disk at that time."""

    store: str
    cookie: int


class Hop(NamedTuple):
    """A later store of a chain, with what the leader knows of its replica."""

    store: str
    incarnation: Incarnation
    matched: int


class Message(Struct, frozen=True, gc=False):
    """A message body with its sender and its receiver: the names of stores, clients, readers or the master."""

    source: str
    target: str
    body: "Body"


# --- from the leader of a stream to a store


class Seal(Struct, frozen=True, gc=False):
    """Refuse all smaller epochs from now on and report what is there. Creates the replica if the store has none.

    `cookie` is that of the copy set. A store with another disk refuses.
    """

    segment: SegmentId
    epoch: int
    cookie: int


class Store(Struct, frozen=True, gc=False):
    """Store entries with the leader's stamp.

    The replica equals the leader's log up to `matched`: the leader compared the runs of this incarnation. `restamped`
    are runs of which the replica has the content already; it only changes their stamp. All entries up to `acked` are
    acknowledged, and the leader's log ends at `last`. In chain replication the store sends the message on to the first
    of `forward`. `leader` gets the answer.
    """

    segment: SegmentId
    epoch: int
    incarnation: Incarnation
    matched: int
    acked: int
    last: int
    entries: tuple[Entry, ...] = ()
    restamped: tuple[Run, ...] = ()
    forward: tuple[Hop, ...] = ()
    leader: str = ""


class Read(Struct, frozen=True, gc=False):
    """Return entries for a recovery, acknowledged or not."""

    segment: SegmentId
    epoch: int
    incarnation: Incarnation
    first: int
    last: int


class Close(Struct, frozen=True, gc=False):
    """The master has recorded the segment as sealed: it ends with the bridge at `end`."""

    segment: SegmentId
    epoch: int
    incarnation: Incarnation
    end: int


# --- from a store to the leader


class Sealed(Struct, frozen=True, gc=False):
    """What the replica holds. Its content in the ranges `unknown` may differ from what it once acknowledged."""

    segment: SegmentId
    epoch: int
    incarnation: Incarnation
    acked: int
    runs: tuple[Run, ...]
    unknown: tuple[Range, ...]


class Stored(Struct, frozen=True, gc=False):
    """The replica holds the leader's log up to `matched`, durably. `has_gap`: it was sent entries after a gap."""

    segment: SegmentId
    epoch: int
    incarnation: Incarnation
    matched: int
    acked: int
    has_gap: bool


class Entries(Struct, frozen=True, gc=False):
    """The answer to Read: entries from `first` on, at most as many bytes as the store sends at once."""

    segment: SegmentId
    epoch: int
    incarnation: Incarnation
    first: int
    entries: tuple[Entry, ...]


class Closed(Struct, frozen=True, gc=False):
    """The replica is complete up to the bridge and immutable from now on."""

    segment: SegmentId
    epoch: int
    incarnation: Incarnation
    end: int


class Stale(Struct, frozen=True, gc=False):
    """The request has a smaller epoch than the replica accepts."""

    segment: SegmentId
    epoch: int
    sealed_epoch: int


class Restarted(Struct, frozen=True, gc=False):
    """The request was meant for an earlier incarnation of the store."""

    segment: SegmentId
    epoch: int
    incarnation: Incarnation


class Refused(Struct, frozen=True, gc=False):
    """The store can not serve the segment: it has another disk, does not know the segment, or its disk failed."""

    segment: SegmentId
    epoch: int
    reason: str


# --- readers


class Fetch(Struct, frozen=True, gc=False):
    """Return acknowledged entries from `first` on."""

    segment: SegmentId
    first: int


class Fetched(Struct, frozen=True, gc=False):
    """Acknowledged entries. The replica can serve entries from `start` to `limit`; those before were trimmed."""

    segment: SegmentId
    first: int
    limit: int
    entries: tuple[Entry, ...]
    start: int = 1


class Peek(Struct, frozen=True, gc=False):
    """Return all entries from `first` on, acknowledged or not: one part of a quorum read."""

    segment: SegmentId
    first: int


class Peeked(Struct, frozen=True, gc=False):
    """One replica's part of a quorum read: the runs of all its entries from `first` on, and the first entries."""

    segment: SegmentId
    first: int
    incarnation: Incarnation
    acked: int
    runs: tuple[Run, ...]
    unknown: tuple[Range, ...]
    entries: tuple[Entry, ...]


# --- repair of sealed segments: the master to a store, and stores to each other


class Copy(Struct, frozen=True, gc=False):
    """Copy a sealed segment from other stores, and report its digest. From the master.

    The copy refuses epochs below `end_epoch`, the epoch of the leader that closed the segment, as other replicas do.
    A store that is its own only source verifies its replica: it reads all entries and reports their digest. The digest
    is over the entries from `start` on: those before it, and in all earlier segments, are trimmed. `removals` is the
    number of Drops for replicas of this segment so far.
    """

    segment: SegmentId
    end: int
    end_epoch: int
    sources: tuple[str, ...]
    start: int = 1
    removals: int = 0


class Finish(Struct, frozen=True, gc=False):
    """The leader of `end_epoch` has closed the segment at `end`. From the master, if no Close has arrived.

    A replica that was complete under that leader becomes closed. Any other one needs a Copy.
    """

    segment: SegmentId
    end: int
    end_epoch: int


class Copied(Struct, frozen=True, gc=False):
    """The store has read the whole sealed segment from its disk. Stamps are not in the digest. To the master.

    The digest is over the entries from `start` on. Digests with different starts can not be compared. `removals` is
    that of the newest Copy.
    """

    segment: SegmentId
    end: int
    incarnation: Incarnation
    digest: int
    start: int = 1
    removals: int = 0


class Drop(Struct, frozen=True, gc=False):
    """Remove the replica: the copy set no longer contains this store. From the master.

    `removal` is the number of this Drop among those of the segment. A store ignores it if it was ordered a Copy after
    it, and so does another incarnation of the store: the copy set may contain it again.
    """

    segment: SegmentId
    incarnation: Incarnation
    removal: int


class TrimBefore(Struct, frozen=True, gc=False):
    """Entries of the stream before this one are no longer needed: retention or DeleteRecords has removed them.

    A store applies it to closed replicas. Others are trimmed by the Copy that verifies them.
    """

    segment: SegmentId
    first: int


class Pull(Struct, frozen=True, gc=False):
    """Return entries of a sealed segment from `first` on to a store that copies it."""

    segment: SegmentId
    first: int


class Pulled(Struct, frozen=True, gc=False):
    """Entries of a sealed segment that ends with the bridge at `end`.

    Entries before `start` were trimmed: `trimmed` has what they were.
    """

    segment: SegmentId
    first: int
    end: int
    entries: tuple[Entry, ...]
    start: int = 1
    trimmed: tuple[Run, ...] = ()


LeaderRequest = Seal | Store | Read | Close
StoreAnswer = Sealed | Stored | Entries | Closed | Stale | Restarted | Refused
RepairMessage = Copy | Copied | Finish | Drop | TrimBefore | Pull | Pulled
Body = LeaderRequest | StoreAnswer | Fetch | Fetched | Peek | Peeked | RepairMessage
