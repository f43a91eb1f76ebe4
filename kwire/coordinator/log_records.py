"""Records that a coordinator reads from its internal topic: plain records, pending records and transaction ends."""

from typing import NamedTuple

from msgspec import Struct

KeyValue = tuple[bytes, bytes | None]


class ProducerIdAndEpoch(NamedTuple):
    """Identifies a producer's transaction. A producer has at most one transaction at a time."""

    producer_id: int
    producer_epoch: int


class PendingRecord(Struct, frozen=True, gc=False):
    """A record that takes effect only if its producer's transaction is committed."""

    producer_id: int
    key: bytes
    value: bytes | None


class TransactionEnd(Struct, frozen=True, gc=False):
    """The end of a producer's transaction. The pending records take effect (commit) or are dropped (abort)."""

    producer_id: int
    is_commit: bool


class Paused(Struct, frozen=True):
    """Yielded by a replay while the next records are read from disk. The caller continues the iteration later."""


PAUSED = Paused()

# Plain records are tuples rather than objects, because a replay yields very many of them.
Replayed = KeyValue | PendingRecord | TransactionEnd
