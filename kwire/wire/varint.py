"""Unsigned varints: seven bits per byte, lowest first. Flexible versions use them for lengths, counts and tags."""

from kwire.wire.errors import WireError
from kwire.wire.types import Buffer

MAX_BYTES = 5
ONE_BYTE = tuple(bytes((n,)) for n in range(128))


def encode_uvarint(value: int) -> bytes:
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the value at `position` and the position after it."""
    # Varints of one to three bytes (values below 2 MiB, so nearly every length) are decoded without the slower loop.
    first = buffer[position]
    if first < 128:
        return first, position + 1
    second = buffer[position + 1]
    if second < 128:
        return first & 127 | second << 7, position + 2
    third = buffer[position + 2]
    if third < 128:
        return first & 127 | (second & 127) << 7 | third << 14, position + 3
    value = 0
    for shift in range(0, 7 * MAX_BYTES, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise WireError("a varint has more than five bytes")
