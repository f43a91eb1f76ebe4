"""Idempotency keys: events published again under the same key are not stored again, and the response is the same.

The key is part of the commit's record in the journal, so the key is stored if and only if the events are. The newest
keys are in memory. After a start, they are loaded from the end of the journal. A key is recognised at least as long as
all of these are true:

- Its commit is within the last `KEYS_JOURNAL_BYTES` of the journal.
- Its commit is among the last `KEYS_MAX` commits with a key.
- Its entry is among the newest entries that fit in `KEYS_BYTES_MAX`.

Each entry is one bytes object. It takes a tenth of the memory that a `KeyedCommit` with its lists would take, and the
garbage collector does not have to visit it.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from kwire.access.scope import prefix_of
from kwire.errors import InvalidEvent
from kwire.streams.event_store.journal import DIGEST_BYTES, JournalCommit, commits_in
from storage.batch.record_batch import parse_header
from storage.errors import CorruptBatch

KEYS_MAX = 100_000
# Total size of all entries, including the overhead of the objects. The field `order` takes 20 kB for 10,000 events.
KEYS_BYTES_MAX = 64 * 1024 * 1024
KEY_BYTES_MAX = 256
KEYS_JOURNAL_BYTES = 16 * 1024 * 1024


# Memory overhead of an entry: two bytes objects and a dictionary slot.
_ENTRY_OVERHEAD_BYTES = 200
_HEAD = struct.Struct(f">{DIGEST_BYTES}sI")
_STORED_PART = struct.Struct(">16sqI")


class StoredPart(NamedTuple):
    """The offsets of the events that a commit stored in one topic."""

    topic_id: bytes
    base_offset: int
    event_count: int


class KeyedCommit(NamedTuple):
    """A stored commit with an idempotency key. `order` has the same meaning as in `JournalCommit`."""

    digest: bytes
    parts: Sequence[StoredPart]
    order: Sequence[int]


class IdempotencyKeys:
    """The idempotency keys in memory, newest last. The oldest are evicted when a limit is exceeded."""

    def __init__(self) -> None:
        self._packed_by_key: dict[bytes, bytes] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._packed_by_key)

    def find(self, key: bytes) -> KeyedCommit | None:
        packed = self._packed_by_key.get(key)
        return None if packed is None else _unpacked(packed)

    def add(self, key: bytes, commit: KeyedCommit) -> None:
        if key in self._packed_by_key:
            self._evict(key)
        packed = _packed(commit)
        self.size_bytes += _size_bytes(key, packed)
        self._packed_by_key[key] = packed
        while len(self._packed_by_key) > KEYS_MAX or (
            self.size_bytes > KEYS_BYTES_MAX and len(self._packed_by_key) > 1
        ):
            self._evict(next(iter(self._packed_by_key)))

    def _evict(self, key: bytes) -> None:
        self.size_bytes -= _size_bytes(key, self._packed_by_key.pop(key))

    def read_back(self, batches: Iterable[memoryview]) -> None:
        """Load the keys of the journal's last batches. Damaged batches are skipped."""
        for batch in batches:
            try:
                for commit in commits_in(batch):
                    self.restore(commit)
            except CorruptBatch:
                continue

    def restore(self, commit: JournalCommit) -> None:
        """Load the key of a commit that was read from the journal."""
        if commit.key is not None and len(commit.key) > DIGEST_BYTES:
            parts = [
                StoredPart(part.topic_id, part.base_offset, parse_header(part.batch).last_offset_delta + 1)
                for part in commit.parts
            ]
            known = KeyedCommit(commit.key[:DIGEST_BYTES], parts, commit.order)
            self.add(commit.key[DIGEST_BYTES:], known)


def key_bytes(key: str) -> bytes:
    """Encode an idempotency key; raises InvalidEvent if it is invalid. The prefix of a scope does not count."""
    try:
        raw = key.encode()
    except UnicodeEncodeError:
        raise InvalidEvent("the idempotency key is not valid Unicode text") from None
    size_bytes = len(raw) - len(prefix_of(key))
    if not 0 < size_bytes <= KEY_BYTES_MAX:
        raise InvalidEvent(f"the idempotency key must have 1 to {KEY_BYTES_MAX} bytes, got {size_bytes}")
    return raw


class Digest:
    """A hash of the events published under a key. It depends on content, length and order of all added pieces."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=DIGEST_BYTES)

    def add(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._hash.update(len(piece).to_bytes(8) + piece)

    def value(self) -> bytes:
        return self._hash.digest()


def _packed(commit: KeyedCommit) -> bytes:
    parts = [_STORED_PART.pack(*part) for part in commit.parts]
    return b"".join((_HEAD.pack(commit.digest, len(parts)), *parts, array("H", commit.order).tobytes()))


def _unpacked(packed: bytes) -> KeyedCommit:
    digest, count = _HEAD.unpack_from(packed)
    order_start = _HEAD.size + count * _STORED_PART.size
    parts = [StoredPart(*one) for one in _STORED_PART.iter_unpack(packed[_HEAD.size : order_start])]
    return KeyedCommit(digest, parts, array("H", packed[order_start:]))


def _size_bytes(key: bytes, packed: bytes) -> int:
    return _ENTRY_OVERHEAD_BYTES + len(key) + len(packed)
