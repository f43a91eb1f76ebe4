"""The hash chain of the audit log: each record has the SHA-256 hash of the record before it, as a header.

A record that was changed, removed, inserted or moved no longer fits the record after it. The hash of a record covers
its timestamp, key, value and all headers, and so also the hash of its own predecessor:

    SHA-256( timestamp as 8 bytes, then for each of key, value, and name and value of every header:
             its length as 4 bytes and its bytes; a missing one has the length 0xFFFFFFFF )

All numbers are big-endian. Offsets and batches are not covered, because they are how the log stores a record.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from storage.batch.record_batch import Record

# The header with the hash of the record before, in hexadecimal.
PREVIOUS_HEADER = "previous-sha256"
# The predecessor of the first record of a log.
NO_RECORD = bytes(32)

_NULL_LENGTH = b"\xff\xff\xff\xff"


def record_hash(record: Record) -> bytes:
    """Return the SHA-256 hash of a record."""
    hashed = hashlib.sha256(record.timestamp_ms.to_bytes(8, "big", signed=True))
    parts: list[bytes | None] = [record.key, record.value]
    for name, value in record.headers:
        parts += (name.encode("utf-8", "surrogateescape"), value)
    for part in parts:
        if part is None:
            hashed.update(_NULL_LENGTH)
        else:
            hashed.update(len(part).to_bytes(4, "big"))
            hashed.update(part)
    return hashed.digest()


def previous_hash(record: Record) -> str | None:
    """Return the hash that a record has of its predecessor, in hexadecimal; None if it has none."""
    for name, value in record.headers:
        if name == PREVIOUS_HEADER:
            return (value or b"").decode("ascii", "replace")
    return None


class ChainBreak(NamedTuple):
    """A record that does not fit the record before it. `last_offset` is the offset of that one."""

    offset: int
    last_offset: int | None
    reason: str


class ChainCheck:
    """Checks the records of an audit log, in order.

    The first record may have any predecessor, because retention deletes the oldest records. Records at the beginning
    may have no hash, because older versions of kwire wrote none.
    """

    def __init__(self) -> None:
        self.record_count = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        # The hash of the last record: a copy of it, kept elsewhere, proves that the log still ends as it did.
        self.head = NO_RECORD
        self._is_chained = False

    def check(self, records: Iterable[Record]) -> list[ChainBreak]:
        """Check the next records. After a break, the check continues with the record at which it was found."""
        found: list[ChainBreak] = []
        for record in records:
            reason = self._problem(record)
            if reason is not None:
                found.append(ChainBreak(record.offset, self.last_offset, reason))
            if self.first_offset is None:
                self.first_offset = record.offset
            self.last_offset = record.offset
            self.record_count += 1
            self.head = record_hash(record)
        return found

    def _problem(self, record: Record) -> str | None:
        previous = previous_hash(record)
        if previous is None:
            return "the record has no hash of its predecessor" if self._is_chained else None
        was_chained, self._is_chained = self._is_chained, True
        if self.last_offset is None or previous == self.head.hex():
            return None
        if not was_chained and previous == NO_RECORD.hex():
            return "the record claims to be the first one"
        return (
            f"its hash of its predecessor is not that of the record at offset {self.last_offset}: one of them was "
            f"changed, or records between them were added, removed or moved"
        )
