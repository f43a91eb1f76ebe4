"""What an internal topic gives back to its coordinator: plain records, records of transactions, and how these ended."""

from typing import NamedTuple

from msgspec import Struct

KeyValue = tuple[bytes, bytes | None]


class Transaction(NamedTuple):
    """Whose transaction records belong to. A producer has no more than one at a time."""

    producer_id: int
    producer_epoch: int


class PendingRecord(Struct, frozen=True, gc=False):
    """A record that counts only if its producer's transaction is committed."""

    producer_id: int
    key: bytes
    value: bytes | None


class TransactionEnd(Struct, frozen=True, gc=False):
    """Everything that is pending of this producer counts now, or never will."""

    producer_id: int
    is_commit: bool


class Paused(Struct, frozen=True):
    """The next records are being read from the disk: the replay goes on when it is asked again, a moment later."""


PAUSED = Paused()

# Plain records are plain pairs: a replay has very many of them.
Replayed = KeyValue | PendingRecord | TransactionEnd
