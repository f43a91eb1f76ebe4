"""Batches that the client encodes and decodes in bulk, beside those of `storage.batch`, which go record by record."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.cli.kafka.batch_decoding import batch_body, batches_in, read_records, read_values
from kwire.cli.kafka.batch_encoding import (
    RECORD_OVERHEAD_BYTES_MAX,
    VALUE_OVERHEAD_BYTES_MAX,
    build,
    encode_bodies,
    encode_values,
)
from storage.batch.builder import encode_record_body, header_bytes
from storage.batch.format import GZIP, HEADER_BYTES, LZ4, NONE, SNAPPY, ZSTD
from storage.batch.record_batch import Record, build_batch, check_batch, parse_header
from storage.batch.record_batch import read_records as storage_records
from storage.errors import CorruptBatch
from tests.support.effort import examples

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
# An offset delta takes another byte from each of these on, and counts above 4096 are not in the table of varints.
COUNTS = (1, 2, 63, 64, 65, 4095, 4096, 4097, 8191, 8192, 8193)
BUDGET = 1 << 30

values = st.binary(max_size=300) | st.integers(0, 20_000).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=4)
records = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=200),
        st.none() | values,
        st.integers(-1, 2**62),
        headers,
    ),
    min_size=1,
    max_size=30,
)


def built_with_bodies(given_records: list[Record], codec: int = NONE) -> bytes:
    bodies = [
        encode_record_body(
            record.key,
            record.value,
            len(record.headers),
            b"".join(header_bytes(name.encode(), value) for name, value in record.headers),
        )
        for record in given_records
    ]
    timestamps = [record.timestamp_ms for record in given_records]
    return build(
        encode_bodies(bodies, timestamps),
        len(bodies),
        timestamps[0],
        max(timestamps),
        producer_id=7,
        producer_epoch=1,
        base_sequence=42,
        codec=codec,
    )


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(values, min_size=1, max_size=200))
def test_values_are_encoded_as_storage_encodes_them(some: list[bytes]) -> None:
    expected = build_batch([Record(None, value, 5) for value in some])
    assert encode_values(some) == expected[HEADER_BYTES:]


@pytest.mark.parametrize("count", COUNTS)
def test_values_of_many_records_are_encoded_as_storage_encodes_them(count: int) -> None:
    rng = random.Random(count)
    some = [rng.randbytes(rng.choice((0, 1, 63, 64, 100))) for _ in range(count)]
    encoded = encode_values(some)
    assert encoded == build_batch([Record(None, value, 5) for value in some])[HEADER_BYTES:]
    assert read_values(encoded, count) == some
    assert len(encoded) <= sum(map(len, some)) + count * VALUE_OVERHEAD_BYTES_MAX


@settings(max_examples=examples(200), deadline=None)
@given(records)
def test_records_are_encoded_as_storage_encodes_them(some: list[Record]) -> None:
    expected = build_batch(some, producer_id=7, producer_epoch=1, base_sequence=42)
    assert built_with_bodies(some) == expected


@settings(max_examples=examples(100), deadline=None)
@given(records, st.sampled_from(CODECS))
def test_a_batch_reads_back_as_what_was_encoded(some: list[Record], codec: int) -> None:
    batch = built_with_bodies(some, codec)
    header = check_batch(memoryview(bytearray(batch)))
    body = batch_body(header, memoryview(batch))
    assert read_values(body, header.record_count) == [record.value for record in some]
    expected = [
        (
            record.offset,
            record.timestamp_ms,
            record.key,
            record.value,
            tuple((name.encode(), value) for name, value in record.headers),
        )
        for record in storage_records(batch, BUDGET)
    ]
    assert read_records(body, header) == expected
    assert [one[2:4] for one in expected] == [(record.key, record.value) for record in some]
    size = sum(len(encode_record_body(one.key, one.value, 0, b"")) for one in some)
    assert len(body) >= size
    assert len(encode_bodies([b""], [0])) <= RECORD_OVERHEAD_BYTES_MAX


def test_append_time_replaces_the_timestamps_of_records() -> None:
    batch = build_batch([Record(None, b"a", 5), Record(None, b"b", 9)], timestamp_type=1)
    header = parse_header(batch)
    found = read_records(batch_body(header, memoryview(batch)), header)
    assert [record[1] for record in found] == [9, 9]


def test_a_batch_that_was_cut_off_is_left_out() -> None:
    first = bytes(build_batch([Record(None, b"a", 5)]))
    second = bytes(build_batch([Record(None, b"b", 5)], base_offset=1))
    for size in range(len(second)):
        found = [header.base_offset for header, _ in batches_in(memoryview(first + second[:size]))]
        assert found == [0]
    assert len(list(batches_in(memoryview(first + second)))) == 2


def test_a_damaged_batch_is_refused() -> None:
    batch = bytearray(build_batch([Record(b"key", b"value", 5)] * 3))
    header = parse_header(batch)
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        batch_body(header, memoryview(batch))


def test_damaged_records_raise_no_other_error() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    some = [Record(b"key", rng.randbytes(rng.choice((0, 5, 200))), 5, [("h", b"x")]) for _ in range(10)]
    batch = build_batch(some)
    header, body = parse_header(batch), bytes(batch[HEADER_BYTES:])
    for _ in range(examples(2000)):
        damaged = bytearray(body)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        for read in (lambda data: read_values(data, header.record_count), lambda data: read_records(data, header)):
            try:
                read(bytes(damaged[: rng.choice((len(damaged), rng.randrange(len(damaged))))]))
            except CorruptBatch:
                continue
