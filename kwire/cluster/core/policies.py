"""Replication policies: the choices of a stream that the core supports behind one interface."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from kwire.cluster.core.quorum import Quorum


class Gaps(StrEnum):
    """What a recovery does with a slot that was never acknowledged and that an entry follows.

    REFUSED: the segment ends before the slot, so that no event follows an empty slot. Kafka's idempotent producers need
    this. FILLED: the slot becomes a hole entry, and the entries after it stay.
    """

    REFUSED = "refused"
    FILLED = "filled"


class Path(StrEnum):
    """SERIAL: a new segment is opened after the earlier ones are sealed. PARALLEL: while one of them is recovered."""

    SERIAL = "serial"
    PARALLEL = "parallel"


class Topology(StrEnum):
    """STAR: the leader sends entries to all replicas. CHAIN: to the first, and each replica to the next one."""

    STAR = "star"
    CHAIN = "chain"


class Policy(Struct, frozen=True):
    """How a stream is replicated. Chain replication acknowledges an entry when the whole chain has it: W = N."""

    quorum: Quorum
    gaps: Gaps = Gaps.REFUSED
    path: Path = Path.SERIAL
    topology: Topology = Topology.STAR

    @classmethod
    def chain(cls, replicas: int) -> "Policy":
        return cls(Quorum(replicas, replicas), topology=Topology.CHAIN)


class Limits(Struct, frozen=True):
    """Bounds and times of the core. Times are in milliseconds."""

    # One message to a replica, and all messages that it has not answered.
    batch_bytes: int = 256 * 1024
    window_bytes: int = 4 * 1024 * 1024
    # Entries that are not acknowledged: above this, appends are refused.
    unacked_bytes: int = 16 * 1024 * 1024
    # Acknowledged entries that the leader keeps for slow replicas. Older ones are read from another replica.
    kept_bytes: int = 16 * 1024 * 1024
    # A replica drops entries that are further than this after its matched index.
    pending_entries: int = 10_000
    # One answer with entries.
    read_bytes: int = 1024 * 1024
    retry_ms: int = 200
    # A recovery that finds an entry on no replica for this time begins again with another epoch.
    lacking_ms: int = 5_000
    # An idle leader spreads its acked index after this time.
    idle_ms: int = 100
    heartbeat_ms: int = 1000
    # A segment is closed when it has this size.
    segment_bytes: int = 256 * 1024 * 1024
    segment_entries: int = 1_000_000


def no_partitions(stream: str) -> bool:
    """All streams are plain ones: none is a partition, whose entries a store writes in order, into one log."""
    return False


# The overhead of an entry beyond its payload, for the bounds in bytes.
ENTRY_BYTES: Final = 32
