"""Idempotency keys: what was published under a key is not stored twice, and whoever asks again gets the same answer.

A key is part of its commit's record in the journal, so it is there exactly when its events are. The newest keys are
kept in memory; a start reads them back from the end of the journal. A key is known at least as long as its commit is
among the last `KEYS_JOURNAL_BYTES` of it, the last `KEYS_MAX` with a key, and the newest that fit in `KEYS_BYTES_MAX`.

What is known of a commit is kept as one bytes object: a tenth of what its parts and its order take as objects, and
nothing to the garbage collector.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from kwire.broker.store.journal import DIGEST_BYTES, JournalCommit, commits_in
from kwire.errors import InvalidEvent
from storage.batch import parse_header
from storage.errors import CorruptBatch

KEYS_MAX = 100_000
# All of them, with what they take around themselves. The order of a commit of 10,000 events takes 20 kB.
KEYS_BYTES_MAX = 64 * 1024 * 1024
KEY_BYTES_MAX = 256
KEYS_JOURNAL_BYTES = 16 * 1024 * 1024


# Two bytes objects and their place in a dictionary.
_AROUND_ENTRY_BYTES = 200
_HEAD = struct.Struct(f">{DIGEST_BYTES}sI")
_PLACED = struct.Struct(">16sqI")


class Placed(NamedTuple):
    """What a commit put into one topic."""

    topic_id: bytes
    base_offset: int
    event_count: int


class KnownCommit(NamedTuple):
    """A commit that had a key. `order` as in the journal."""

    digest: bytes
    parts: Sequence[Placed]
    order: Sequence[int]


class KnownKeys:
    """The newest last; the oldest go when there are too many, or they take too much."""

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: bytes) -> KnownCommit | None:
        packed = self._known.get(key)
        return None if packed is None else _unpacked(packed)

    def remember(self, key: bytes, commit: KnownCommit) -> None:
        if key in self._known:
            self._forget(key)
        packed = _packed(commit)
        self.size_bytes += _size_bytes(key, packed)
        self._known[key] = packed
        while len(self._known) > KEYS_MAX or (self.size_bytes > KEYS_BYTES_MAX and len(self._known) > 1):
            self._forget(next(iter(self._known)))

    def _forget(self, key: bytes) -> None:
        self.size_bytes -= _size_bytes(key, self._known.pop(key))

    def read_back(self, batches: Iterable[memoryview]) -> None:
        """Take the keys of the journal's last batches. Damaged batches are passed over."""
        for batch in batches:
            try:
                for commit in commits_in(batch):
                    self._read_back(commit)
            except CorruptBatch:
                continue

    def _read_back(self, commit: JournalCommit) -> None:
        if commit.key is not None and len(commit.key) > DIGEST_BYTES:
            parts = [
                Placed(part.topic_id, part.base_offset, parse_header(part.batch).last_offset_delta + 1)
                for part in commit.parts
            ]
            known = KnownCommit(commit.key[:DIGEST_BYTES], parts, commit.order)
            self.remember(commit.key[DIGEST_BYTES:], known)


def key_bytes(key: str) -> bytes:
    """Raises InvalidEvent for what is no key."""
    try:
        raw = key.encode()
    except UnicodeEncodeError:
        raise InvalidEvent("the idempotency key is no valid text") from None
    if not 0 < len(raw) <= KEY_BYTES_MAX:
        raise InvalidEvent(f"the idempotency key has {len(raw)} bytes; it needs 1 to {KEY_BYTES_MAX}")
    return raw


class Digest:
    """Of what is published under a key: the same for the same pieces in the same order, and hardly for others."""

    def __init__(self) -> None:
        self._made = blake2b(digest_size=DIGEST_BYTES)

    def add(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._made.update(len(piece).to_bytes(8) + piece)

    def value(self) -> bytes:
        return self._made.digest()


def _packed(commit: KnownCommit) -> bytes:
    parts = [_PLACED.pack(*placed) for placed in commit.parts]
    return b"".join((_HEAD.pack(commit.digest, len(parts)), *parts, array("H", commit.order).tobytes()))


def _unpacked(packed: bytes) -> KnownCommit:
    digest, count = _HEAD.unpack_from(packed)
    behind = _HEAD.size + count * _PLACED.size
    parts = [Placed(*one) for one in _PLACED.iter_unpack(packed[_HEAD.size : behind])]
    return KnownCommit(digest, parts, array("H", packed[behind:]))


def _size_bytes(key: bytes, packed: bytes) -> int:
    return _AROUND_ENTRY_BYTES + len(key) + len(packed)
