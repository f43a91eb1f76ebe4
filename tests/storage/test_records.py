"""The walk over the records of a batch: the same places as reading the records, and no end on bytes that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch.format import HEADER_BYTES
from storage.batch.record_batch import Record, build_batch, parse_header, read_records
from storage.batch.records import (
    INT_BYTES_MAX,
    LONG_BYTES_MAX,
    NULL,
    put_number,
    put_varint,
    read_nullable,
    read_number,
    record_heads,
    varint,
)
from storage.errors import CorruptBatch
from tests.storage.test_batch import BUDGET_BYTES, records
from tests.support.batches import NOW_MS


def signed(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_number_is_read_as_it_was_written(value: int) -> None:
    out = bytearray(b"\xff")
    put_varint(out, value)
    raw, position = read_number(bytes(out), 1)
    assert (signed(raw), position) == (value, len(out))
    again = bytearray(b"\xff")
    put_number(again, raw)
    assert again == out == b"\xff" + varint(value)


@pytest.mark.parametrize("bytes_max", [INT_BYTES_MAX, LONG_BYTES_MAX])
def test_a_number_that_is_too_long_is_refused(bytes_max: int) -> None:
    long_zero = b"\x80" * (bytes_max - 1) + b"\x00"
    assert read_number(long_zero, 0, bytes_max) == (0, bytes_max)
    with pytest.raises(CorruptBatch):
        read_number(b"\x80" + long_zero, 0, bytes_max)


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    assert read_number(b"\xff" * 9 + b"\x01", 0) == (2**64 - 1, 10)
    with pytest.raises(CorruptBatch):
        read_number(b"\xff" * 9 + b"\x02", 0)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 8191, 8192])
def test_a_field_may_be_null_but_not_of_another_negative_length(length: int) -> None:
    out = bytearray()
    put_varint(out, length)
    field = bytes(out) + b"x" * length
    assert read_nullable(field, 0, len(field)) == (b"x" * length, len(field))
    assert read_nullable(bytes((NULL,)) + field, 0, 1) == (None, 1)
    with pytest.raises(CorruptBatch):
        read_nullable(field, 0, len(field) - 1)
    with pytest.raises(CorruptBatch):
        read_nullable(b"\x03" + field, 0, len(field) + 1)


@given(st.lists(records, min_size=1, max_size=200))
def test_heads_are_those_of_the_records(given_records: list[Record]) -> None:
    batch = bytes(build_batch(given_records, base_offset=7))
    header, body = parse_header(batch), batch[HEADER_BYTES:]
    heads = list(record_heads(body, 0, len(body)))
    found = list(read_records(batch, BUDGET_BYTES))
    assert [7 + signed(offset) for _, _, _, offset, _ in heads] == [one.offset for one in found]
    assert [header.base_timestamp + signed(time) for _, _, time, _, _ in heads] == [one.timestamp_ms for one in found]
    assert [read_nullable(body, at, stop)[0] for _, stop, _, _, at in heads] == [one.key for one in found]
    assert [start for start, *_ in heads] == [0, *(stop for _, stop, *_ in heads[:-1])]
    assert heads[-1][1] == len(body)


def test_every_cut_but_one_between_records_is_noticed() -> None:
    body = bytes(build_batch([Record(b"key", b"v" * size, NOW_MS + size * 50) for size in (3, 80, 9000)]))[
        HEADER_BYTES:
    ]
    ends = [stop for _, stop, *_ in record_heads(body, 0, len(body))]
    for cut in range(1, len(body)):
        if cut in ends:
            assert len(list(record_heads(body[:cut], 0, cut))) == ends.index(cut) + 1
            continue
        for bytes_there in (body[:cut], body):
            with pytest.raises(CorruptBatch):
                list(record_heads(bytes_there, 0, cut))


@given(st.binary(max_size=300))
def test_any_bytes_are_walked_to_their_end_or_refused(body: bytes) -> None:
    position = 0
    try:
        for start, stop, _, _, at in record_heads(body, 0, len(body)):
            assert position == start < at < stop <= len(body)
            position = stop
    except CorruptBatch:
        return
    assert position == len(body)
