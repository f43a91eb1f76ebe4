"""Mutates bytes: flips bits, cuts the end, writes wrong lengths, repeats pieces, inserts pieces of other messages."""

import random
import struct
from collections.abc import Callable, Sequence

CHANGES_MAX = 4
PIECE_BYTES_MAX = 64
SIZE_BYTES_MAX = 64 * 1024

# Lengths and numbers that harm a parser which does not check them, as fixed-size integers and varints.
LIES = [
    *(struct.pack(">i", number) for number in (-1, -2, 0, 1, 0x7FFF, 0xFFFF, 1_000_000, 2**31 - 1, -(2**31))),
    *(struct.pack(">h", number) for number in (-1, -2, 0, 1, 0x7FFF, -0x8000)),
    *(struct.pack(">q", number) for number in (-1, 2**63 - 1, -(2**63))),
    *(bytes.fromhex(text) for text in ("00", "01", "7f", "80", "ff", "8000", "ff7f", "808001", "ffffffff07")),
    *(bytes.fromhex(text) for text in ("ffffffff0f", "ffffffff7f", "ffffffffff01", "80" * 12, "ff" * 9 + "01")),
]


def mutated(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Return a copy with one to CHANGES_MAX random changes."""
    out = bytearray(data)
    for _ in range(chance.randint(1, CHANGES_MAX)):
        chance.choice(_WAYS)(out, chance, others)
    return bytes(out[:SIZE_BYTES_MAX])


def resized(frame: bytes) -> bytes:
    """Return the frame with a correct size field, so that the parser reads the bytes after it."""
    return struct.pack(">i", len(frame) - 4) + frame[4:] if len(frame) >= 4 else frame


def _flip(out: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    if out:
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)


def _set(out: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    if out:
        out[chance.randrange(len(out))] = chance.randrange(256)


def _lie(out: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    lie, place = chance.choice(LIES), chance.randint(0, len(out))
    out[place : place + len(lie)] = lie


def _insert_lie(out: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    place = chance.randint(0, len(out))
    out[place : place + chance.randint(0, 4)] = chance.choice(LIES)


def _cut(out: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    del out[chance.randint(0, len(out)) :]


def _leave_out(out: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    place = chance.randint(0, len(out))
    del out[place : place + chance.randint(1, PIECE_BYTES_MAX)]


def _repeat(out: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    place = chance.randint(0, len(out))
    piece = out[place : place + chance.randint(1, PIECE_BYTES_MAX)]
    out[place:place] = piece * chance.choice((1, 2, 30))


def _splice(out: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    other = chance.choice(others)
    start = chance.randint(0, len(other))
    place = chance.randint(0, len(out))
    out[place : place + chance.choice((0, PIECE_BYTES_MAX))] = other[start : start + chance.randint(1, 256)]


def _noise(out: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    place = chance.randint(0, len(out))
    noise = chance.randbytes(chance.randint(1, 16))
    out[place : place + len(noise)] = noise


_WAYS: list[Callable[[bytearray, random.Random, Sequence[bytes]], None]] = [
    *(_flip, _set, _lie, _lie, _insert_lie, _cut, _leave_out, _repeat, _splice, _noise),
]
