"""Batches in another codec: the same records under the same header, or a clear refusal."""

import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from msgspec.structs import replace

from storage.batch.compression import compress
from storage.batch.format import (
    CONTROL_BIT,
    CRC_START,
    GZIP,
    HEADER,
    HEADER_BYTES,
    LZ4,
    NONE,
    SNAPPY,
    TRANSACTIONAL_BIT,
    ZSTD,
)
from storage.batch.recompression import decompress_batch
from storage.batch.record_batch import (
    BatchHeader,
    Record,
    build_batch,
    check_batch,
    is_intact,
    parse_header,
    read_records,
)
from storage.errors import BudgetExceeded, CorruptBatch, DecompressionFailed, InvalidBatch
from tests.support.batches import NOW_MS, make_batch
from tests.support.effort import examples

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
BUDGET_BYTES = 1024 * 1024
ANY_BYTES = 2**31

texts = st.text(st.characters(codec="utf-8"), max_size=8)
optional_bytes = st.none() | st.binary(max_size=200)
records = st.builds(
    Record,
    key=optional_bytes,
    value=optional_bytes,
    timestamp_ms=st.integers(-1, 2**45),
    headers=st.lists(st.tuples(texts, optional_bytes), max_size=3),
)
record_lists = st.lists(records, min_size=1, max_size=80)
codecs = st.sampled_from(CODECS)


def recompressed(batch: memoryview, codec: int, level: int | None = None) -> tuple[memoryview, BatchHeader]:
    whole = decompress_batch(batch, parse_header(batch), budget_bytes=BUDGET_BYTES, record_bytes_max=ANY_BYTES)
    return whole.compress_with(codec, level)


def refused(body: bytes, count: int, codec: int = NONE, record_bytes_max: int = ANY_BYTES) -> str:
    batch = batch_of(body, count, codec)
    with pytest.raises(InvalidBatch) as caught:
        decompress_batch(batch, parse_header(batch), budget_bytes=BUDGET_BYTES, record_bytes_max=record_bytes_max)
    return str(caught.value)


def batch_of(body: bytes, count: int, codec: int = NONE) -> memoryview:
    """A batch around bytes that need not be records."""
    payload = compress(codec, body) if codec else body
    batch = bytearray(
        HEADER.pack(0, HEADER_BYTES - 12 + len(payload), -1, 2, 0, codec, count - 1, 0, 0, -1, -1, -1, count)
    )
    batch += payload
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return memoryview(batch)


def plain(record: Record) -> tuple[Any, ...]:
    return (record.offset, record.key, record.value, record.timestamp_ms, [tuple(one) for one in record.headers])


@settings(max_examples=examples(100))
@given(
    given_records=record_lists,
    source=codecs,
    target=codecs,
    base_offset=st.integers(0, 2**50),
    producer=st.tuples(st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
    is_transactional=st.booleans(),
    epoch=st.integers(-1, 2**31 - 1),
)
def test_a_batch_is_the_one_a_producer_with_that_codec_would_have_sent(
    given_records: list[Record],
    source: int,
    target: int,
    base_offset: int,
    producer: tuple[int, int, int],
    is_transactional: bool,
    epoch: int,
) -> None:
    """The twin takes the records apart, one object each, and builds a batch from nothing."""
    about: dict[str, Any] = {
        "base_offset": base_offset,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "base_sequence": producer[2],
        "is_transactional": is_transactional,
        "partition_leader_epoch": epoch,
    }
    batch = memoryview(build_batch(given_records, compression=source, **about))
    as_sent = bytes(batch)
    twin = build_batch(list(read_records(batch, BUDGET_BYTES)), compression=target, **about)
    found, header = recompressed(batch, target)
    assert bytes(found) == bytes(twin)
    assert header == parse_header(found) == parse_header(twin)
    assert is_intact(found)
    assert [plain(one) for one in read_records(found, BUDGET_BYTES)] == [
        plain(one) for one in read_records(batch, BUDGET_BYTES)
    ]
    assert not found.readonly
    assert bytes(batch) == as_sent


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_kafka_python_reads_what_it_sent_in_another_codec(source: int, target: int) -> None:
    builder = DefaultRecordBatchBuilder(2, source, False, 7, 1, 40, 1 << 20)
    sent = [(f"k{number}".encode(), b"v" * number, NOW_MS + number, [("h", b"%d" % number)]) for number in range(300)]
    for offset, (key, value, timestamp, headers) in enumerate(sent):
        builder.append(offset, timestamp, key, value, headers)
    batch = memoryview(bytearray(builder.build()))
    check_batch(batch)
    found, _ = recompressed(batch, target)
    oracle = DefaultRecordBatch(bytes(found))
    assert oracle.validate_crc()
    assert (oracle.compression_type, oracle.producer_id, oracle.producer_epoch, oracle.base_sequence) == (
        target,
        7,
        1,
        40,
    )
    assert [(one.key, one.value, one.timestamp, list(one.headers)) for one in oracle] == sent


@pytest.mark.parametrize(
    ("codec", "levels"), [(GZIP, [1, 9]), (LZ4, [9, 10, 17]), (ZSTD, [-100, 1, 19])], ids=["gzip", "lz4", "zstd"]
)
def test_levels_change_the_size_and_nothing_else(codec: int, levels: list[int]) -> None:
    values = [f"{number * 7919 % 10_007} and {number * number % 977}".encode() * 5 for number in range(500)]
    batch = memoryview(build_batch([Record(None, value, NOW_MS) for value in values]))
    sizes = []
    for level in levels:
        found, header = recompressed(batch, codec, level)
        assert [record.value for record in read_records(found, BUDGET_BYTES)] == values
        assert header.compression == codec
        sizes.append(len(found))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_attributes_beside_the_codec_stay() -> None:
    batch = memoryview(
        build_batch([Record(b"k", b"v", NOW_MS)], compression=GZIP, is_transactional=True, is_control=True)
    )
    _, header = recompressed(batch, ZSTD)
    assert header.attributes == ZSTD | TRANSACTIONAL_BIT | CONTROL_BIT


def test_an_unfolded_batch_can_be_looked_at_like_any_other() -> None:
    batch = make_batch(5, compression=LZ4)
    whole = decompress_batch(batch, parse_header(batch), budget_bytes=BUDGET_BYTES, record_bytes_max=ANY_BYTES)
    view = whole.as_batch()
    assert whole.header == parse_header(view)
    assert [plain(one) for one in read_records(view, 0)] == [plain(one) for one in read_records(batch, BUDGET_BYTES)]


# --- what is put right


@pytest.mark.parametrize("deltas", [(0, 0, 0), (5, 6, 7), (2, 1, 0), (0, 1, 300), (0, 1, -1)])
def test_records_are_numbered_one_by_one(deltas: tuple[int, ...]) -> None:
    """As in Kafka: what counts is their order."""
    body = b"".join(
        record_bytes(offset_delta=delta, timestamp_delta=1000 * number, value=b"%d" % number, headers=[(b"h", b"x")])
        for number, delta in enumerate(deltas)
    )
    found, _ = recompressed(batch_of(body, len(deltas)), ZSTD)
    assert [plain(one) for one in read_records(found, BUDGET_BYTES)] == [
        (number, None, b"%d" % number, 1000 * number, [("h", b"x")]) for number in range(len(deltas))
    ]


def test_many_records_are_numbered_with_longer_numbers() -> None:
    body = b"".join(record_bytes(value=b"%d" % number) for number in range(20_000))
    found, _ = recompressed(batch_of(body, 20_000), LZ4)
    assert [(one.offset, one.value) for one in read_records(found, BUDGET_BYTES)] == [
        (number, b"%d" % number) for number in range(20_000)
    ]


def test_attributes_of_a_record_are_cleared() -> None:
    body = bytearray(record_bytes(value=b"value"))
    body[1] = 0x81
    found, _ = recompressed(batch_of(bytes(body), 1), NONE)
    assert bytes(found[HEADER_BYTES:]) == record_bytes(value=b"value")


@pytest.mark.parametrize("told", [-1, 0, NOW_MS + 10**6])
def test_the_largest_timestamp_is_that_of_the_records(told: int) -> None:
    batch = memoryview(build_batch([Record(None, b"", NOW_MS + more) for more in (5, 90, 7)], compression=SNAPPY))
    header = replace(parse_header(batch), max_timestamp=told)
    _, found = decompress_batch(batch, header, budget_bytes=BUDGET_BYTES, record_bytes_max=ANY_BYTES).compress_with(
        NONE
    )
    assert found.max_timestamp == NOW_MS + 90
    assert found.base_timestamp == NOW_MS + 5


# --- what is refused


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record_bytes(
    *,
    timestamp_delta: int = 0,
    offset_delta: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"",
    headers: list[tuple[bytes | None, bytes | None]] | None = None,
) -> bytes:
    pairs = headers or []
    inner = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + field(key) + field(value) + varint(len(pairs))
    inner += b"".join(field(name) + field(data) for name, data in pairs)
    return varint(len(inner)) + inner


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("body", "count"),
    [
        (record_bytes(), 2),
        (record_bytes() * 2, 1),
        (record_bytes() + bytes(20), 2),
        (record_bytes() + b"\x00", 1),
        (record_bytes(value=b"12345678")[:-1], 1),
        (b"\x0d" + record_bytes()[1:], 1),  # a negative length
        (b"\x0c\x00\x00\x00\x03\x01\x00", 1),  # a key of length -2
        (b"\x0c\x00\x00\x00\x7e\x01\x00", 1),  # a key longer than the record
        (b"\x0c\x00\x00\x00\x01\x7e\x00", 1),  # a value longer than the record
        (b"\x0c\x00\x00\x00\x01\x01\x7e", 1),  # headers that cannot be there
        (b"\x0c\x00\x00\x00\x01\x01\x01", 1),  # minus one header
        (record_bytes(headers=[(None, b"")]), 1),
        (b"\x0e\x00\x00\x00\x01\x01\x02\x00", 1),  # a header without a value
        (b"\x10\x00\x00\x00\x01\x01\x02\x7e\x00", 1),  # a header key longer than the record
        (b"\x10\x00\x00\x00\x01\x01\x02\x00\x03", 1),  # a header value of length -2
        (b"\x8c\x80\x80\x80\x80\x00\x00\x00\x00\x01\x01\x00", 1),  # a length of six bytes
        (b"\x20\x00" + b"\xff" * 9 + b"\x7f" + b"\x00\x01\x01\x00", 1),  # a time of more than 64 bits
        (record_bytes(), 0),
        (record_bytes(), 2**31 - 1),
    ],
)
def test_what_is_no_record_is_refused(body: bytes, count: int, codec: int) -> None:
    assert refused(body, count, codec)


@pytest.mark.parametrize("delta", [-(2**63), -1, 0, 1, 63, 64, 8191, 8192, 2**40, 2**63 - 1])
def test_times_of_any_distance_are_kept(delta: int) -> None:
    batch = batch_of(record_bytes(timestamp_delta=delta), 1)
    found, header = recompressed(batch, NONE)
    assert header.max_timestamp == delta
    assert bytes(found[HEADER_BYTES:]) == bytes(batch[HEADER_BYTES:])


def test_times_that_do_not_fit_in_64_bits_are_refused() -> None:
    batch = batch_of(record_bytes(timestamp_delta=2**63 - 1), 1)
    header = replace(parse_header(batch), base_timestamp=1)
    with pytest.raises(InvalidBatch, match="64 bits"):
        decompress_batch(batch, header, budget_bytes=BUDGET_BYTES, record_bytes_max=ANY_BYTES)


@given(st.binary(max_size=120), st.integers(1, 4), codecs)
def test_random_bytes_are_taken_whole_or_refused(body: bytes, count: int, codec: int) -> None:
    batch = batch_of(body, count, codec)
    try:
        whole = decompress_batch(batch, parse_header(batch), budget_bytes=BUDGET_BYTES, record_bytes_max=ANY_BYTES)
    except InvalidBatch:
        return
    assert len(DefaultRecordBatch(bytes(whole.compress_with(NONE)[0]))) == count


@given(record_lists, st.data())
def test_a_damaged_record_is_refused_or_read_as_the_reader_reads_it(given_records: list[Record], data: Any) -> None:
    body = bytearray(build_batch(given_records)[HEADER_BYTES:])
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] ^= data.draw(st.integers(1, 255))
    batch = batch_of(bytes(body), len(given_records))
    try:
        found, _ = recompressed(batch, GZIP)
    except InvalidBatch:
        return
    try:
        kept = [plain(one)[1:] for one in read_records(batch, 0)]
    except CorruptBatch as error:
        if "UTF-8" not in str(error):  # in the name of a header; that is no business of codecs
            raise
        return
    assert [plain(one)[1:] for one in read_records(found, BUDGET_BYTES)] == kept


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_payload_that_is_not_compressed_is_refused(codec: int) -> None:
    batch = batch_of(record_bytes(), 1)
    header = replace(parse_header(batch), attributes=codec)
    with pytest.raises(DecompressionFailed):
        decompress_batch(batch, header, budget_bytes=BUDGET_BYTES, record_bytes_max=ANY_BYTES)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_refused_at_the_budget(codec: int) -> None:
    batch = make_batch(value=bytes(8 * BUDGET_BYTES), compression=codec)
    with pytest.raises(BudgetExceeded):
        recompressed(batch, LZ4)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_bound_on_one_record_is_exact_and_is_for_compressed_batches(codec: int) -> None:
    body = record_bytes(value=bytes(50)) + record_bytes(value=bytes(100), offset_delta=1)
    size = len(record_bytes(value=bytes(100))) - 2  # its length is written in two bytes
    assert "record 1 has" in refused(body, 2, codec, size - 1)
    for batch, limit in ((batch_of(body, 2, codec), size), (batch_of(body, 2), 0)):
        decompress_batch(batch, parse_header(batch), budget_bytes=BUDGET_BYTES, record_bytes_max=limit)
