"""The last offset of each key in the dirty part of a log, in bounded memory, for compaction.

A key is stored under a name. The name of a short key is the key itself, and the name of a longer key is its MD5 digest.
MD5 is sufficient. A client could forge a key that collides with an existing key, so that compaction removes the record
of the existing key. But such a client could also replace that record by writing to the existing key. The names are in a
dictionary, which is fast, until the dictionary has used half of the memory. Then the names are moved to three flat
arrays in the other half, which hold six times as many names.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import Final, Protocol

# Shorter keys are their own names, because computing a digest takes longer than the rest of a lookup.
NAME_BYTES: Final = 48
# Bytes of a name (96), an offset (32) and the largest overhead of the dictionary, while it grows (about 90).
DICTIONARY_KEY_BYTES: Final = 224
SLOT_BYTES: Final = 24
# Linear probing slows down quickly above this percentage of used slots.
_LOAD_PERCENT_MAX: Final = 70
_SLOTS_MIN: Final = 8
_UNKNOWN: Final = -1
_SECOND_HASH_SUFFIX: Final = b"\0"


def digest_name(key: bytes) -> bytes:
    """The name of a key of 48 bytes or more. It has 48 bytes, so it differs from the names of shorter keys."""
    return hashlib.md5(key, usedforsecurity=False).digest() * 3


class KeyMap(Protocol):
    """A map from names to offsets. A plain ``dict[bytes, int]`` is such a map."""

    def __len__(self) -> int: ...
    def __setitem__(self, name: bytes, offset: int, /) -> None: ...
    def get(self, name: bytes, default: int, /) -> int: ...


class DenseKeyMap:
    """A hash table with open addressing and a fixed capacity of ``keys_max`` keys.

    A name is identified by two hashes: the hash of the name, and the hash of the name with a byte added. Both are
    SipHash with this process's secret, so together they are as good as a 128-bit digest, and faster to compute.
    """

    __slots__ = ("_count", "_firsts", "_offsets", "_seconds", "_slots")

    def __init__(self, keys_max: int) -> None:
        self._slots = max(keys_max * 100 // _LOAD_PERCENT_MAX + 1, _SLOTS_MIN)
        self._firsts = array("q", bytes(8)) * self._slots
        self._seconds = array("q", bytes(8)) * self._slots
        self._offsets = array("q", [_UNKNOWN]) * self._slots
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __setitem__(self, name: bytes, offset: int) -> None:
        first, second = hash(name), hash(name + _SECOND_HASH_SUFFIX)
        firsts, seconds, offsets = self._firsts, self._seconds, self._offsets
        slot = first % self._slots
        while offsets[slot] != _UNKNOWN:
            if firsts[slot] == first and seconds[slot] == second:
                offsets[slot] = offset
                return
            slot += 1
            if slot == self._slots:
                slot = 0
        firsts[slot] = first
        seconds[slot] = second
        offsets[slot] = offset
        self._count += 1

    def get(self, name: bytes, default: int) -> int:
        first, second = hash(name), hash(name + _SECOND_HASH_SUFFIX)
        firsts, offsets = self._firsts, self._offsets
        slot = first % self._slots
        while (offset := offsets[slot]) != _UNKNOWN:
            if firsts[slot] == first and self._seconds[slot] == second:
                return offset
            slot += 1
            if slot == self._slots:
                slot = 0
        return default


def keys_max(bytes_max: int) -> int:
    """The number of keys that a compaction can map in ``bytes_max`` bytes of memory."""
    return max(bytes_max // 2 // SLOT_BYTES * _LOAD_PERCENT_MAX // 100, 1)


def with_capacity(names: KeyMap, count: int, bytes_max: int) -> KeyMap | None:
    """Return ``names``, or a map with the same content, with space for ``count`` more keys; None if memory is full."""
    needed = len(names) + count
    if isinstance(names, dict) and needed * DICTIONARY_KEY_BYTES <= bytes_max // 2:
        return names
    if needed > keys_max(bytes_max):
        # An empty map accepts a batch of any size. Otherwise a log with a very large batch could never be compacted.
        return None if len(names) else DenseKeyMap(count)
    if not isinstance(names, dict):
        return names
    dense = DenseKeyMap(keys_max(bytes_max))
    while names:
        name, offset = names.popitem()
        dense[name] = offset
    return dense
