"""Unsigned varints, beside construct's."""

import pytest
from construct import VarInt
from hypothesis import given
from hypothesis import strategies as st

from kwire.wire.errors import WireError
from kwire.wire.varint import MAX_BYTES, ONE_BYTE, decode_uvarint, encode_uvarint

BORDERS = {
    0: "00",
    1: "01",
    127: "7f",
    128: "80 01",
    300: "ac 02",
    16383: "ff 7f",
    16384: "80 80 01",
    2097151: "ff ff 7f",
    2097152: "80 80 80 01",
    268435455: "ff ff ff 7f",
    268435456: "80 80 80 80 01",
    2147483647: "ff ff ff ff 07",
    4294967295: "ff ff ff ff 0f",
}


@pytest.mark.parametrize(("value", "encoded"), BORDERS.items())
def test_known_values_are_written_and_read(value: int, encoded: str) -> None:
    assert encode_uvarint(value).hex(" ") == encoded
    assert decode_uvarint(bytes.fromhex(encoded), 0) == (value, len(bytes.fromhex(encoded)))


@given(st.integers(0, 2**32 - 1), st.binary(max_size=5), st.binary(max_size=5))
def test_a_value_is_read_back_from_any_place(value: int, before: bytes, behind: bytes) -> None:
    encoded = encode_uvarint(value)
    assert encoded == VarInt.build(value)
    assert decode_uvarint(memoryview(before + encoded + behind), len(before)) == (value, len(before) + len(encoded))


@given(st.binary(max_size=8))
def test_any_bytes_are_read_as_construct_reads_them_or_refused(data: bytes) -> None:
    try:
        value, stop = decode_uvarint(data, 0)
    except (WireError, IndexError):
        assert all(byte > 127 for byte in data[:MAX_BYTES])
    else:
        assert value == VarInt.parse(data)
        assert data[stop - 1] < 128
        assert stop <= MAX_BYTES


def test_a_varint_of_more_than_five_bytes_is_refused() -> None:
    with pytest.raises(WireError, match="five bytes"):
        decode_uvarint(b"\x80" * 5 + b"\x00", 0)


def test_a_varint_that_the_buffer_cuts_short_ends_in_an_index_error() -> None:
    """The generated decoders turn it into a WireError, once for the whole message."""
    with pytest.raises(IndexError):
        decode_uvarint(b"\x80\x80", 0)


def test_the_table_of_short_varints_holds_every_one_byte_value() -> None:
    assert [encode_uvarint(value) for value in range(128)] == list(ONE_BYTE)
