"""The specification on its own: its plain form, the batch header, and where it may be imported."""

import struct
import subprocess
import sys
from typing import Any

import pytest
from construct import ConstructError, Container

from kwire.wire.errors import WireError
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.wire.messages.heartbeat import HeartbeatRequest
from kwire.wire.messages.metadata import MetadataRequest
from kwire.wire.spec import BatchHeaderSpec, from_plain, spec, to_plain
from tests.wire.cases import Inner, Sample, sample
from tests.wire.test_malformed import TAG_SECTIONS

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m", group_instance_id=None)


def test_a_message_becomes_dictionaries_lists_and_scalars_and_back() -> None:
    partition = FetchPartition(partition=1, fetch_offset=2, partition_max_bytes=3)
    request = FetchRequest(max_wait_ms=1, min_bytes=2, topics=[FetchTopic(topic="t", partitions=[partition])])
    plain = to_plain(request)
    assert plain["topics"][0]["partitions"][0]["fetch_offset"] == 2
    assert plain["replica_state"] == {"replica_id": -1, "replica_epoch": -1}
    assert from_plain(FetchRequest, plain) == request


def test_records_become_bytes() -> None:
    plain = to_plain(sample(records=memoryview(b"abc"), nullable_records=bytearray(b"def")))
    assert (plain["records"], plain["nullable_records"]) == (b"abc", b"def")
    assert {type(plain["records"]), type(plain["nullable_records"])} == {bytes}


def test_what_a_version_does_not_carry_is_not_parsed_and_keeps_its_default() -> None:
    encoded = spec(HeartbeatRequest, 0).build(to_plain(HEARTBEAT))
    parsed = spec(HeartbeatRequest, 0).parse(encoded)
    assert parsed == Container(group_id="g", generation_id=3, member_id="m")
    assert from_plain(HeartbeatRequest, parsed) == HEARTBEAT


def test_what_is_parsed_can_be_built_again() -> None:
    described = spec(Sample, 1)
    encoded = described.build(to_plain(sample(inners=[Inner(hidden=5)], tagged_text="told", uuids=[b"u" * 16])))
    assert described.build(described.parse(encoded)) == encoded


def test_the_plain_rules_are_as_documented() -> None:
    """int16 lengths of text, int32 counts, -1 for null."""
    assert spec(HeartbeatRequest, 3).build(to_plain(HEARTBEAT)).hex(" ") == "00 01 67 00 00 00 03 00 01 6d ff ff"
    assert spec(MetadataRequest, 1).build({"topics": None}).hex(" ") == "ff ff ff ff"


def test_the_compact_rules_are_as_documented() -> None:
    """Lengths and counts one larger, 0 for null, tags behind every struct."""
    assert spec(HeartbeatRequest, 4).build(to_plain(HEARTBEAT)).hex(" ") == "02 67 00 00 00 03 02 6d 00 00"
    topics = to_plain(MetadataRequest(topics=[]))
    assert spec(MetadataRequest, 9).build(topics).hex(" ") == "01 01 00 00 00"


@pytest.mark.parametrize("section", TAG_SECTIONS.values(), ids=TAG_SECTIONS)
def test_a_wrong_tag_section_is_refused(section: str) -> None:
    encoded = spec(Sample, 1).build(to_plain(sample()))
    with pytest.raises(ConstructError):
        spec(Sample, 1).parse(encoded[:-1] + bytes.fromhex(section))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("name", ["string", "data", "records", "inners", "numbers"])
def test_null_is_not_built_where_a_field_cannot_be_null(name: str, version: int) -> None:
    with pytest.raises(ConstructError):
        spec(Sample, version).build({**to_plain(sample()), name: None})


@pytest.mark.parametrize("version", [-1, 5])
def test_a_version_that_is_not_declared_has_no_spec(version: int) -> None:
    with pytest.raises(WireError, match="HeartbeatRequest has no version"):
        spec(HeartbeatRequest, version)


def header(**changes: Any) -> dict[str, Any]:
    fields = {
        "base_offset": 100,
        "batch_length": 60,
        "partition_leader_epoch": 7,
        "magic": 2,
        "crc": 0xFFFFFFFE,
        "attributes": 0,
        "last_offset_delta": 4,
        "base_timestamp": 1_700_000_000_000,
        "max_timestamp": 1_700_000_000_009,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": 5,
    }
    return {**fields, **changes}


def test_a_batch_header_takes_sixty_one_bytes_in_the_documented_order() -> None:
    assert BatchHeaderSpec.sizeof() == 61
    assert BatchHeaderSpec.build(header()) == struct.pack(">qiibIhiqqqhii", *header().values())


@pytest.mark.parametrize(
    ("attributes", "compression", "timestamp_type", "is_transactional", "is_control", "has_delete_horizon"),
    [
        (0, 0, 0, False, False, False),
        (0b100, 4, 0, False, False, False),
        (0b1011, 3, 1, False, False, False),
        (0b110000, 0, 0, True, True, False),
        (0b1000000, 0, 0, False, False, True),
    ],
)
def test_the_attributes_of_a_batch_are_told_apart(
    attributes: int,
    compression: int,
    timestamp_type: int,
    is_transactional: bool,
    is_control: bool,
    has_delete_horizon: bool,
) -> None:
    parsed = BatchHeaderSpec.parse(BatchHeaderSpec.build(header(attributes=attributes)))
    assert (parsed.compression, parsed.timestamp_type) == (compression, timestamp_type)
    assert (parsed.is_transactional, parsed.is_control) == (is_transactional, is_control)
    assert parsed.has_delete_horizon is has_delete_horizon


def test_the_codec_does_not_load_construct() -> None:
    """It costs a server's start some sixty milliseconds and is needed by tests and tools only."""
    program = "import sys, kwire.wire.codec, kwire.wire.messages; sys.exit('construct' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
