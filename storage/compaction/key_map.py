"""The last offset of each key, in bounded memory: what compaction knows about the part of a log it has not cleaned yet.

A key is known by its name: itself when it is short, else its digest. MD5 is enough: who can write a key that collides
with another can as well write that other key. Names live in a dictionary, which is quick, until that has used up half
of the memory; then they move to three flat arrays in the other half, which hold six times as many.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import Final, Protocol

# Shorter keys are their own names: a digest takes longer than all the rest of a look-up.
NAME_BYTES: Final = 48
# A name (96), an offset (32) and the dictionary's own share at its worst, while it grows (about 90).
DICTIONARY_KEY_BYTES: Final = 224
SLOT_BYTES: Final = 24
# Linear probing slows down quickly beyond this.
_LOAD_PERCENT_MAX: Final = 70
_SLOTS_MIN: Final = 8
_UNKNOWN: Final = -1
_TWIN_SUFFIX: Final = b"\0"


def long_name(key: bytes) -> bytes:
    """The name of a key of 48 bytes or more: as long as no shorter key's."""
    return hashlib.md5(key, usedforsecurity=False).digest() * 3


class KeyMap(Protocol):
    """From names to offsets; a plain ``dict[bytes, int]`` is one."""

    def __len__(self) -> int: ...
    def __setitem__(self, name: bytes, offset: int, /) -> None: ...
    def get(self, name: bytes, default: int, /) -> int: ...


class DenseKeyMap:
    """Open addressing; holds at most the keys it was made for.

    A name is told by two hashes, its own and that of the name with a byte added. Both are SipHash under this process's
    secret, so together they are as good as a digest of 128 bits, in a fraction of its time.
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
        first, second = hash(name), hash(name + _TWIN_SUFFIX)
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
        first, second = hash(name), hash(name + _TWIN_SUFFIX)
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
    """How many keys can be known with this much memory."""
    return max(bytes_max // 2 // SLOT_BYTES * _LOAD_PERCENT_MAX // 100, 1)


def with_room(names: KeyMap, count: int, bytes_max: int) -> KeyMap | None:
    """The map, or one with the same content, that takes ``count`` more keys; None when the memory is used up."""
    needed = len(names) + count
    if isinstance(names, dict) and needed * DICTIONARY_KEY_BYTES <= bytes_max // 2:
        return names
    if needed > keys_max(bytes_max):
        # A single batch always fits, or a log with a large one would never get on.
        return None if len(names) else DenseKeyMap(count)
    if not isinstance(names, dict):
        return names
    dense = DenseKeyMap(keys_max(bytes_max))
    while names:
        name, offset = names.popitem()
        dense[name] = offset
    return dense
