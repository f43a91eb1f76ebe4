"""Records of transactions have Kafka's bytes."""

import pytest

from kwire.coordinator.transaction.records import decode_record, encode_record
from kwire.coordinator.transaction.states import State, TransactionMetadata
from kwire.wire.errors import WireError

KEY = bytes.fromhex("0000" + "000b6f76343930333139303532")
NAME = "ov490319052"
START_MS = 1_794_865_389_680

# As Apache Kafka 4.3.1 wrote them: a new producer, the end of a transaction whose producer goes on with another id.
EMPTY = TransactionMetadata(
    state=State.EMPTY,
    producer_id=7,
    producer_epoch=0,
    previous_producer_id=7,
    timeout_ms=60_000,
    update_ms=1_794_865_339_838,
)
PREPARED = TransactionMetadata(
    state=State.PREPARE_COMMIT,
    producer_id=297,
    producer_epoch=32_767,
    previous_producer_id=297,
    next_producer_id=298,
    timeout_ms=60_000,
    partitions=frozenset({("t", 0)}),
    start_ms=START_MS,
    update_ms=START_MS + 1,
    version=2,
)
COMPLETE = TransactionMetadata(
    state=State.COMPLETE_COMMIT,
    producer_id=298,
    producer_epoch=0,
    previous_producer_id=297,
    timeout_ms=60_000,
    start_ms=START_MS,
    update_ms=START_MS + 1,
    version=2,
)
BY_KAFKA = [
    (EMPTY, "0001000000000000000700000000ea600000000001a1e64f9dbeffffffffffffffff0100080000000000000007"),
    (
        PREPARED,
        "000100000000000001297fff0000ea6002020274020000000000000001a1e6506071000001a1e6506070"
        "03000800000000000001290108000000000000012a02020002",
    ),
    (
        COMPLETE,
        "0001000000000000012a00000000ea600401000001a1e6506071000001a1e6506070020008000000000000012902020002",
    ),
]


@pytest.mark.parametrize(("metadata", "value"), BY_KAFKA, ids=lambda one: str(getattr(one, "state", "")))
def test_records_are_those_of_kafka(metadata: TransactionMetadata, value: str) -> None:
    assert encode_record(NAME, metadata, 2) == (KEY, bytes.fromhex(value))
    record = decode_record(KEY, bytes.fromhex(value))
    assert record is not None
    assert (record.transactional_id, record.metadata) == (NAME, metadata)


def test_before_version_one_what_tagged_fields_hold_is_not_stored() -> None:
    key, value = encode_record(NAME, PREPARED, 0)
    assert value is not None
    assert value[:2] == b"\x00\x00"
    record = decode_record(key, value)
    assert record is not None
    assert record.metadata is not None
    assert record.metadata.partitions == PREPARED.partitions
    assert (record.metadata.previous_producer_id, record.metadata.next_producer_id, record.metadata.version) == (
        -1,
        -1,
        0,
    )


def test_partitions_are_stored_by_topic() -> None:
    metadata = TransactionMetadata(
        state=State.ONGOING,
        producer_id=1,
        producer_epoch=0,
        timeout_ms=1,
        partitions=frozenset({("b", 2), ("a", 1), ("b", 0)}),
        update_ms=1,
    )
    record = decode_record(*encode_record("x", metadata, 2))
    assert record is not None
    assert record.metadata == metadata


def test_tombstone_forgets_the_id() -> None:
    key, value = encode_record(NAME, None, 2)
    assert (key, value) == (KEY, None)
    record = decode_record(key, value)
    assert record is not None
    assert record.metadata is None


def test_record_of_an_unknown_type_is_left_alone() -> None:
    assert decode_record(b"\x00\x01whatever", b"") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00", None),
        (KEY, b"\x00"),
        (KEY, b"\x00\x02"),
        # A state that Kafka never writes.
        (KEY, bytes.fromhex("0001000000000000000700000000ea600600000001a1e64f9dbeffffffffffffffff00")),
    ],
)
def test_damaged_record_is_told(key: bytes, value: bytes | None) -> None:
    with pytest.raises(WireError):
        decode_record(key, value)
