"""Records of `__consumer_offsets` are Kafka's, byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.coordinator.group.records import (
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitRecord,
    OffsetCommitValue,
    decode_record,
    encode_committed_offset,
    encode_group_metadata,
    encode_offset_commit,
)
from kwire.wire.errors import WireError

KEY = OffsetCommitKey(group="g", topic="topic", partition=7)


def test_committed_offset_is_stored_as_version_4_with_the_topic_id_as_a_tag() -> None:
    value = OffsetCommitValue(offset=42, leader_epoch=3, metadata="m", commit_timestamp=1000, topic_id=bytes(range(16)))
    key_bytes, value_bytes = encode_offset_commit(KEY, value)
    assert key_bytes.hex(" ", 2) == "0001 0001 6700 0574 6f70 6963 0000 0007"
    assert value_bytes is not None
    assert value_bytes.hex() == "0004000000000000002a00000003026d00000000000003e8010010" + bytes(range(16)).hex()
    assert decode_record(key_bytes, value_bytes) == OffsetCommitRecord(KEY, value)


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(
    key=st.builds(OffsetCommitKey, group=TEXT, topic=TEXT, partition=INT32),
    value=st.builds(
        OffsetCommitValue,
        offset=INT64,
        leader_epoch=INT32,
        metadata=TEXT,
        commit_timestamp=INT64,
        topic_id=st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16)),
    ),
)
def test_committed_offset_is_written_as_its_declaration_says(key: OffsetCommitKey, value: OffsetCommitValue) -> None:
    written = encode_committed_offset(
        key.group,
        key.topic,
        key.partition,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.topic_id,
    )
    assert written == encode_offset_commit(key, value)


def test_committed_offset_without_a_topic_id_carries_no_tag() -> None:
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=2)
    _, value_bytes = encode_offset_commit(KEY, value)
    assert value_bytes is not None
    assert value_bytes.hex() == "00040000000000000001ffffffff01000000000000000200"


def test_committed_offset_with_its_own_expiry_is_stored_as_version_1() -> None:
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=2, expire_timestamp=9)
    key_bytes, value_bytes = encode_offset_commit(KEY, value)
    assert value_bytes is not None
    assert value_bytes.hex() == "00010000000000000001000000000000000000020000000000000009"
    assert decode_record(key_bytes, value_bytes) == OffsetCommitRecord(KEY, value)


def test_offset_that_an_old_broker_stored_is_read() -> None:
    key_bytes, _ = encode_offset_commit(KEY, None)
    legacy_key = b"\x00\x00" + key_bytes[2:]
    value = bytes.fromhex("000000000000000000050001780000000000000007")
    expected = OffsetCommitValue(offset=5, metadata="x", commit_timestamp=7)
    assert decode_record(legacy_key, value) == OffsetCommitRecord(KEY, expected)


def test_group_is_stored_as_version_3() -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=b"s",
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="t", generation=5, protocol="p", leader="m", current_state_timestamp=9, members=[member]
    )
    key_bytes, value_bytes = encode_group_metadata("g", value)
    assert key_bytes.hex() == "0002000167"
    assert value_bytes is not None
    assert value_bytes.hex() == (
        "0003" "000174" "00000005" "000170" "00016d" "0000000000000009" "00000001"
        "00016d" "000169" "000163" "00022f68" "00000001" "00000002" "0000000173" "0000000161"
    )  # fmt: skip
    assert decode_record(key_bytes, value_bytes) == GroupMetadataRecord("g", value)


def test_tombstones_have_no_value() -> None:
    assert decode_record(*encode_group_metadata("g", None)) == GroupMetadataRecord("g", None)
    assert decode_record(*encode_offset_commit(KEY, None)) == OffsetCommitRecord(KEY, None)


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x01\x00\x05ab"])
def test_garbled_key_is_refused(key: bytes) -> None:
    with pytest.raises(WireError):
        decode_record(key, None)


def test_value_of_a_version_that_does_not_exist_is_refused() -> None:
    key_bytes, _ = encode_offset_commit(KEY, None)
    with pytest.raises(WireError):
        decode_record(key_bytes, b"\x00\x05" + bytes(40))
