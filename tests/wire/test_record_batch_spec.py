"""The specification of a record batch and the code that stores batches agree, in both directions."""

from typing import Any

import pytest
from construct import ConstructError
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import asdict

from kwire.wire.record_batch_spec import ControlKeySpec, RecordBatchSpec, RecordSpec, Varint, checksum, records_spec
from kwire.wire.spec import BatchHeaderSpec
from storage.batch.compression import compress, decompress
from storage.batch.record_batch import Record, build_batch, parse_header, read_records
from storage.errors import CorruptBatch

BUDGET_BYTES = 1024 * 1024

DATA = st.none() | st.binary(max_size=200)
# Deltas between them stay inside 64 bits, as a real clock's do.
TIMESTAMPS = st.integers(-1, 2**61)
RECORDS = st.builds(
    Record,
    key=DATA,
    value=DATA,
    timestamp_ms=TIMESTAMPS,
    headers=st.lists(st.tuples(st.text(max_size=10), DATA), max_size=4),
)
FACTS = st.fixed_dictionaries(
    {
        "base_offset": st.integers(0, 2**62),
        "producer_id": st.integers(-1, 2**63 - 1),
        "producer_epoch": st.integers(-1, 2**15 - 1),
        "base_sequence": st.integers(-1, 2**31 - 1),
        "compression": st.integers(0, 4),
        "is_control": st.booleans(),
        "is_transactional": st.booleans(),
        "partition_leader_epoch": st.integers(-1, 2**31 - 1),
        "timestamp_type": st.integers(0, 1),
    }
)


def body_of(batch: Any) -> bytes:
    codec = batch.header.compression
    payload: bytes = batch.payload
    return decompress(codec, payload, BUDGET_BYTES) if codec else payload


def as_record(header: Any, plain: Any) -> Record:
    timestamp_ms = header.max_timestamp if header.timestamp_type else header.base_timestamp + plain.timestamp_delta
    headers = [(entry.key, entry.value) for entry in plain.headers]
    return Record(plain.key, plain.value, timestamp_ms, headers, header.base_offset + plain.offset_delta)


@given(st.lists(RECORDS, min_size=1, max_size=20), FACTS)
@example([Record(None, None)], {})
def test_what_storage_builds_is_parsed_to_the_same_values(records: list[Record], facts: dict[str, Any]) -> None:
    data = bytes(build_batch(records, **facts))
    batch = RecordBatchSpec.parse(data)
    header = parse_header(data)
    assert batch.is_intact
    assert {name: batch.header[name] for name in header.__struct_fields__} == asdict(header)
    for name in ("compression", "timestamp_type", "is_transactional", "is_control"):
        assert batch.header[name] == getattr(header, name)
    plain = records_spec(header.record_count).parse(body_of(batch))
    assert [as_record(batch.header, record) for record in plain] == list(read_records(data, BUDGET_BYTES))


@given(st.lists(RECORDS, min_size=1, max_size=20), FACTS)
def test_what_the_specification_builds_is_what_storage_builds(records: list[Record], facts: dict[str, Any]) -> None:
    base_timestamp = records[0].timestamp_ms
    body = records_spec(len(records)).build(
        [
            {
                "attributes": 0,
                "timestamp_delta": record.timestamp_ms - base_timestamp,
                "offset_delta": number,
                "key": record.key,
                "value": record.value,
                "headers": [{"key": key, "value": value} for key, value in record.headers],
            }
            for number, record in enumerate(records)
        ]
    )
    codec = facts["compression"]
    attributes = codec | facts["timestamp_type"] << 3 | facts["is_transactional"] << 4 | facts["is_control"] << 5
    header = {
        **{name: value for name, value in facts.items() if name in BatchHeaderSpec.parse(bytes(61))},
        "attributes": attributes,
        "last_offset_delta": len(records) - 1,
        "base_timestamp": base_timestamp,
        "max_timestamp": max(record.timestamp_ms for record in records),
        "record_count": len(records),
    }
    payload = compress(codec, body) if codec else body
    assert RecordBatchSpec.build({"header": header, "payload": payload}) == bytes(build_batch(records, **facts))


@given(st.lists(RECORDS, min_size=1, max_size=5), FACTS)
def test_what_is_parsed_can_be_built_again(records: list[Record], facts: dict[str, Any]) -> None:
    data = bytes(build_batch(records, **facts))
    batch = RecordBatchSpec.parse(data)
    assert RecordBatchSpec.build(batch) == data
    body = body_of(batch)
    described = records_spec(batch.header.record_count)
    assert described.build(described.parse(body)) == body


@given(st.binary(min_size=7, max_size=60))
@example(bytes.fromhex("0e 00 00 00 01 01 02 00 01"))  # a header with an empty key and no value
@example(bytes.fromhex("0c 00 00 00 01 01 02 01"))  # a header without a key
@example(bytes.fromhex("0c 00 00 00 03 01 00"))  # a key of -2 bytes
def test_both_take_and_refuse_the_same_records(body: bytes) -> None:
    batch = RecordBatchSpec.build({"header": HEADER, "payload": body})
    try:
        read = list(read_records(batch, BUDGET_BYTES))
    except CorruptBatch:
        with pytest.raises(ConstructError):
            records_spec(1).parse(body)
        return
    parsed = records_spec(1).parse(body)
    assert [as_record(RecordBatchSpec.parse(batch).header, record) for record in parsed] == read


HEADER = {
    "base_offset": 0,
    "partition_leader_epoch": -1,
    "attributes": 0,
    "last_offset_delta": 0,
    "base_timestamp": 0,
    "max_timestamp": 0,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
    "record_count": 1,
}


def test_a_changed_byte_behind_the_checksum_is_seen_and_one_before_it_is_not() -> None:
    data = build_batch([Record(b"k", b"v")])
    for position in range(len(data)):
        if position in range(8, 12) or position == 16:
            continue  # the length and the magic: not a batch at all
        changed = bytes(data[:position]) + bytes([data[position] ^ 1]) + bytes(data[position + 1 :])
        assert RecordBatchSpec.parse(changed).is_intact is (position < 16), position


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_are_not_parsed(magic: int) -> None:
    data = build_batch([Record(b"k", b"v")])
    data[16] = magic
    with pytest.raises(ConstructError):
        RecordBatchSpec.parse(bytes(data))


def test_a_batch_that_is_cut_short_is_not_parsed() -> None:
    data = bytes(build_batch([Record(b"k", b"v")]))
    for size in range(len(data)):
        with pytest.raises(ConstructError):
            RecordBatchSpec.parse(data[:size])


def test_a_record_looks_as_documented() -> None:
    record = {"attributes": 0, "timestamp_delta": -1, "offset_delta": 70, "key": None, "value": b"v"}
    encoded = RecordSpec.build({**record, "headers": [{"key": "h", "value": None}]})
    assert encoded.hex(" ") == "16 00 01 8c 01 01 02 76 02 02 68 01"


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    assert Varint.parse(bytes.fromhex("ff ff ff ff ff ff ff ff ff 01")) == -(2**63)
    with pytest.raises(ConstructError):
        Varint.parse(bytes.fromhex("ff ff ff ff ff ff ff ff ff 7f"))


def test_a_number_of_more_than_ten_bytes_is_refused() -> None:
    assert Varint.parse(bytes.fromhex("84 80 80 80 80 80 80 80 80 00")) == 2
    with pytest.raises(ConstructError):
        Varint.parse(bytes.fromhex("84 80 80 80 80 80 80 80 80 80 00"))


def test_the_checksum_does_not_cover_where_the_batch_is_placed() -> None:
    placed = {**HEADER, "base_offset": 7, "partition_leader_epoch": 3, "batch_length": 49, "magic": 2, "crc": 0}
    assert checksum(placed, b"") == checksum({**placed, "base_offset": 8, "partition_leader_epoch": 4}, b"")


def test_the_key_of_a_control_record_names_its_type() -> None:
    parsed = ControlKeySpec.parse(bytes.fromhex("00 00 00 01"))
    assert (parsed.version, parsed.type, parsed.rest) == (0, 1, b"")
