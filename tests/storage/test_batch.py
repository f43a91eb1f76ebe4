"""Batches: what a client may send is let through, everything else is told apart, and records survive the round trip."""

import struct
from contextlib import suppress
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from msgspec.structs import replace

from storage.batch.format import CREATE_TIME, GZIP, HEADER, LOG_APPEND_TIME, LZ4, NONE, SNAPPY, ZSTD
from storage.batch.record_batch import (
    BatchHeader,
    Record,
    build_batch,
    check_batch,
    is_intact,
    parse_header,
    read_records,
    stamp_append_time,
)
from storage.errors import (
    BudgetExceeded,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    UnsupportedCompression,
    UnsupportedMagic,
)
from tests.support.batches import NOW_MS, make_batch
from tests.support.effort import examples

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
BUDGET_BYTES = 1024 * 1024

texts = st.text(st.characters(codec="utf-8"), max_size=8)
optional_bytes = st.none() | st.binary(max_size=40)
records = st.builds(
    Record,
    key=optional_bytes,
    value=optional_bytes,
    timestamp_ms=st.integers(0, 2**45),
    headers=st.lists(st.tuples(texts, optional_bytes), max_size=3),
)


def sealed(batch: bytearray | memoryview, **changes: int) -> memoryview:
    """The batch with header fields changed and its CRC made right again."""
    view = memoryview(bytearray(batch))
    header = replace(parse_header(view), **changes)
    view[: HEADER.size] = header.pack()
    struct.pack_into(">I", view, 17, crc32c(view[21:]))
    return view


def plain(record: Record) -> tuple[Any, ...]:
    return (record.key, record.value, record.timestamp_ms, [tuple(header) for header in record.headers])


def test_the_header_is_61_bytes() -> None:
    assert HEADER.size == 61


def test_a_client_batch_is_let_through() -> None:
    batch = make_batch(3, producer_id=5, producer_epoch=2, base_sequence=9, compression=ZSTD)
    header = check_batch(batch)
    assert header == parse_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.record_count, header.last_offset_delta, header.last_offset) == (3, 2, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 9)
    assert (header.compression, header.timestamp_type) == (ZSTD, CREATE_TIME)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS + 2)
    assert not header.is_control
    assert not header.is_transactional


def test_checking_does_not_copy_or_change_the_bytes() -> None:
    batch = make_batch(3)
    before = bytes(batch)
    check_batch(batch)
    assert bytes(batch) == before


def test_every_cut_of_a_batch_is_corrupt() -> None:
    batch = make_batch(2)
    for size in range(len(batch)):
        with pytest.raises(CorruptBatch):
            check_batch(batch[:size])
        assert not is_intact(batch[:size])
    assert is_intact(batch)


def test_bytes_behind_a_batch_are_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        check_batch(memoryview(bytearray(make_batch()) + b"\0"))
    with pytest.raises(CorruptBatch):
        check_batch(memoryview(bytearray(make_batch()) * 2))


def test_every_flipped_bit_behind_the_epoch_is_noticed() -> None:
    batch = make_batch(2)
    for position in (*range(8, 12), *range(16, len(batch))):
        for bit in range(8):
            changed = memoryview(bytearray(batch))
            changed[position] ^= 1 << bit
            with pytest.raises((CorruptBatch, InvalidBatch)):
                check_batch(changed)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"magic": 0}, UnsupportedMagic),
        ({"magic": 1}, UnsupportedMagic),
        ({"record_count": 0, "last_offset_delta": -1}, InvalidBatch),
        ({"record_count": -1, "last_offset_delta": -2}, InvalidBatch),
        ({"record_count": 3}, InvalidBatch),
        ({"last_offset_delta": 0}, InvalidBatch),
        ({"record_count": 1000, "last_offset_delta": 999}, InvalidBatch),
        ({"attributes": 0x20}, InvalidBatch),
        ({"attributes": 0x08}, InvalidTimestamp),
        ({"attributes": 5}, UnsupportedCompression),
        ({"attributes": 7}, UnsupportedCompression),
        ({"producer_id": 1}, InvalidBatch),
    ],
)
def test_what_a_client_may_not_send_is_refused(changes: dict[str, int], error: type[Exception]) -> None:
    with pytest.raises(error):
        check_batch(sealed(make_batch(2), **changes))


def test_the_append_time_is_stamped_on_every_record() -> None:
    batch = make_batch(3, timestamp_ms=5)
    stamp_append_time(batch, NOW_MS)
    assert is_intact(batch)
    assert parse_header(batch).timestamp_type == LOG_APPEND_TIME
    assert [record.timestamp_ms for record in read_records(batch, 0)] == [NOW_MS] * 3


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=examples(30))
@given(given_records=st.lists(records, min_size=1, max_size=8), base_offset=st.integers(0, 2**50))
def test_records_survive_the_round_trip(codec: int, given_records: list[Record], base_offset: int) -> None:
    batch = memoryview(build_batch(given_records, base_offset=base_offset, compression=codec))
    check_batch(batch)
    found = list(read_records(batch, BUDGET_BYTES))
    assert [plain(record) for record in found] == [plain(record) for record in given_records]
    assert [record.offset for record in found] == list(range(base_offset, base_offset + len(found)))


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=examples(30))
@given(given_records=st.lists(records, min_size=1, max_size=8))
def test_kafka_python_reads_what_we_build(codec: int, given_records: list[Record]) -> None:
    batch = build_batch(given_records, compression=codec, producer_id=3, producer_epoch=1, base_sequence=4)
    oracle = DefaultRecordBatch(bytes(batch))
    assert oracle.validate_crc()
    assert (oracle.producer_id, oracle.producer_epoch, oracle.base_sequence) == (3, 1, 4)
    found = [(record.key, record.value, record.timestamp, list(record.headers)) for record in oracle]
    assert found == [plain(record) for record in given_records]


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=examples(30))
@given(given_records=st.lists(records, min_size=1, max_size=8))
def test_we_read_what_kafka_python_builds(codec: int, given_records: list[Record]) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, record in enumerate(given_records):
        builder.append(offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = memoryview(bytearray(builder.build()))
    assert check_batch(batch).record_count == len(given_records)
    found = [plain(record) for record in read_records(batch, BUDGET_BYTES)]
    assert found == [plain(record) for record in given_records]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_batch_that_unfolds_too_far_is_refused(codec: int) -> None:
    batch = make_batch(value=bytes(8_000_000), compression=codec)
    assert len(batch) < 500_000
    with pytest.raises(BudgetExceeded):
        read_records(batch, BUDGET_BYTES)


@given(st.binary(max_size=120), st.integers(0, 3))
def test_random_records_are_read_or_refused(payload: bytes, count: int) -> None:
    batch = bytearray(61) + payload
    HEADER.pack_into(batch, 0, 0, len(batch) - 12, 0, 2, 0, 0, max(count - 1, 0), 0, 0, -1, -1, -1, count)
    with suppress(CorruptBatch):
        assert len(list(read_records(batch, BUDGET_BYTES))) == count


@given(st.binary(max_size=90))
def test_random_bytes_are_never_a_batch(data: bytes) -> None:
    with pytest.raises((CorruptBatch, InvalidBatch)):
        check_batch(memoryview(bytearray(data)))


@given(st.data())
def test_a_changed_record_is_read_or_refused(data: st.DataObject) -> None:
    batch = bytearray(
        build_batch([Record(b"key", b"value", 5, [("name", b"x")]), Record(None, None, 6), Record(b"", b"", 7)])
    )
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(61, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    with suppress(CorruptBatch):
        assert len(list(read_records(batch, BUDGET_BYTES))) == 3


def test_a_lying_record_count_fails_before_anything_is_built() -> None:
    batch = sealed(make_batch(2), record_count=2**31 - 1)
    with pytest.raises(CorruptBatch):
        read_records(batch, BUDGET_BYTES)


def test_a_control_batch_is_built_and_recognised() -> None:
    header = parse_header(build_batch([Record(b"\0\0\0\1", b"")], is_control=True, is_transactional=True))
    assert header.is_control
    assert header.is_transactional
    assert isinstance(header, BatchHeader)


def test_an_empty_batch_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])
