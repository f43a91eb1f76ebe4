"""What a segment store makes durable. The storage applies writes in order and syncs before the answers leave."""

from msgspec import Struct

from kwire.cluster.core.entries import Entry, Range, Run
from kwire.cluster.core.messages import SegmentId


class SetSealedEpoch(Struct, frozen=True, gc=False):
    """The replica refuses smaller epochs. Creates the replica if there is none."""

    segment: SegmentId
    epoch: int


class PutEntries(Struct, frozen=True, gc=False):
    """Store entries. An entry replaces the one at its index."""

    segment: SegmentId
    entries: tuple[Entry, ...]


class SetStamps(Struct, frozen=True, gc=False):
    """Set the stamp epoch of entries that are there."""

    segment: SegmentId
    runs: tuple[Run, ...]


class RemoveAfter(Struct, frozen=True, gc=False):
    """Remove all entries with a larger index."""

    segment: SegmentId
    index: int


class SetAcked(Struct, frozen=True, gc=False):
    """Entries up to `acked` are acknowledged. Only a hint: losing it costs time in a recovery, no data."""

    segment: SegmentId
    acked: int


class SetUnknown(Struct, frozen=True, gc=False):
    """The ranges that the replica can not answer for."""

    segment: SegmentId
    ranges: tuple[Range, ...]


class SetComplete(Struct, frozen=True, gc=False):
    """The replica equals the log of the leader of `epoch` up to its bridge."""

    segment: SegmentId
    epoch: int


class SetClosed(Struct, frozen=True, gc=False):
    """The replica is complete and ends with the bridge at `end`."""

    segment: SegmentId
    end: int


class Trim(Struct, frozen=True, gc=False):
    """The entries before `first` lose their payloads; what they were stays. A closed replica only.

    `runs` are these entries if the replica does not have them: it is copied from one that was trimmed.
    """

    segment: SegmentId
    first: int
    runs: tuple[Run, ...] = ()


class RemoveReplica(Struct, frozen=True, gc=False):
    """Remove the replica with all its entries."""

    segment: SegmentId


Write = (
    SetSealedEpoch
    | PutEntries
    | SetStamps
    | RemoveAfter
    | SetAcked
    | SetUnknown
    | SetComplete
    | SetClosed
    | Trim
    | RemoveReplica
)


class ReplicaState(Struct):
    """What the storage returns for a replica when a store starts."""

    sealed_epoch: int = 0
    acked: int = 0
    closed_end: int = 0
    complete_epoch: int = 0
    runs: tuple[Run, ...] = ()
    unknown: tuple[Range, ...] = ()
    first: int = 1
