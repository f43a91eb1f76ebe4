"""The records of `__consumer_offsets` that this coordinator writes and reads; `kwire.wire.records` has their formats.

Types 0 and 1 are a committed offset (0 is what old brokers wrote), type 2 is a classic group; those of a consumer
group are in `consumer/records.py`. Other types are left alone.
"""

import struct
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from kwire.broker.internal_records import KeyValue
from kwire.coordinator.group.consumer.records import ConsumerGroupRecord, decode_consumer_record
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.errors import WireError
from kwire.wire.records.classic_group import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from kwire.wire.records.offsets import OffsetCommitKey, OffsetCommitValue
from kwire.wire.types import ZERO_UUID
from kwire.wire.varint import encode_uvarint

__all__ = [
    "GroupMetadataRecord",
    "GroupMetadataValue",
    "MemberMetadata",
    "OffsetCommitKey",
    "OffsetCommitRecord",
    "OffsetCommitValue",
    "decode_record",
    "encode_committed_offset",
    "encode_group_metadata",
    "encode_offset_commit",
]

LEGACY_OFFSET_COMMIT = 0
OFFSET_COMMIT = 1
GROUP_METADATA = 2

# Kafka 4.3 writes these. An offset with its own expiry time (OffsetCommit 2-4) is the one case that needs version 1.
OFFSET_COMMIT_VALUE_VERSION = 4
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_METADATA_VALUE_VERSION = 3

# Keys of committed offsets that are remembered, unless their names are longer than this.
REMEMBERED_KEYS_MAX = 10_000
REMEMBERED_NAME_CHARACTERS_MAX = 256

V = TypeVar("V")

_PREFIX = struct.Struct(">h")

# The parts of a committed offset's record between its strings: type and the length of the group; the length of the
# topic; the partition. Then of its value: version, offset and leader epoch; the time of the commit.
_pack_type_and_length = struct.Struct(">hh").pack
_pack_length = struct.Struct(">h").pack
_pack_partition = struct.Struct(">i").pack
_pack_position = struct.Struct(">hqi").pack
_pack_time = struct.Struct(">q").pack
# One tagged field: tag 0, 16 bytes.
_TOPIC_ID_TAG = b"\x01\x00\x10"
_NO_TAGS = b"\x00"


class OffsetCommitRecord(Struct, frozen=True):
    key: OffsetCommitKey
    value: OffsetCommitValue | None


class GroupMetadataRecord(Struct, frozen=True):
    group_id: str
    value: GroupMetadataValue | None


def encode_offset_commit(key: OffsetCommitKey, value: OffsetCommitValue | None) -> KeyValue:
    head = _PREFIX.pack(OFFSET_COMMIT) + encode_message(key, 0)
    if value is None:
        return head, None
    has_expiry = value.expire_timestamp >= 0
    version = OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY if has_expiry else OFFSET_COMMIT_VALUE_VERSION
    return head, _PREFIX.pack(version) + encode_message(value, version)


def encode_committed_offset(
    group_id: str,
    topic: str,
    partition: int,
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp_ms: int,
    topic_id: bytes,
) -> KeyValue:
    """The record of an offset without an expiry of its own, as `encode_offset_commit` writes it.

    Every commit of every consumer writes one, so it is written out here, which takes a third of the time; a property
    test keeps the two equal.
    """
    if len(group_id) + len(topic) <= REMEMBERED_NAME_CHARACTERS_MAX:
        key = _remembered_key(group_id, topic, partition)
    else:
        key = _committed_offset_key(group_id, topic, partition)
    text = metadata.encode()
    value = (
        _pack_position(OFFSET_COMMIT_VALUE_VERSION, offset, leader_epoch)
        + encode_uvarint(len(text) + 1)
        + text
        + _pack_time(commit_timestamp_ms)
        + (_NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id)
    )
    return key, value


def _committed_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return (
        _pack_type_and_length(OFFSET_COMMIT, len(group))
        + group
        + _pack_length(len(name))
        + name
        + _pack_partition(partition)
    )


_remembered_key = lru_cache(REMEMBERED_KEYS_MAX)(_committed_offset_key)


def encode_group_metadata(group_id: str, value: GroupMetadataValue | None) -> KeyValue:
    head = _PREFIX.pack(GROUP_METADATA) + encode_message(GroupMetadataKey(group=group_id), 0)
    if value is None:
        return head, None
    version = GROUP_METADATA_VALUE_VERSION
    return head, _PREFIX.pack(version) + encode_message(value, version)


def decode_record(
    key: bytes, value: bytes | None
) -> OffsetCommitRecord | GroupMetadataRecord | ConsumerGroupRecord | None:
    """The record, or None if its type belongs to somebody else. Raises WireError."""
    kind, body = _split(key)
    if kind in (LEGACY_OFFSET_COMMIT, OFFSET_COMMIT):
        return OffsetCommitRecord(
            decode_message(OffsetCommitKey, 0, body),
            None if value is None else _decode_value(OffsetCommitValue, value),
        )
    if kind == GROUP_METADATA:
        return GroupMetadataRecord(
            decode_message(GroupMetadataKey, 0, body).group,
            None if value is None else _decode_value(GroupMetadataValue, value),
        )
    return decode_consumer_record(kind, body, value)


def _decode_value(cls: type[V], value: bytes) -> V:
    version, body = _split(value)
    return decode_message(cls, version, body)


def _split(data: bytes) -> tuple[int, memoryview]:
    if len(data) < _PREFIX.size:
        raise WireError("a coordinator record is too short to name its type")
    return _PREFIX.unpack_from(data)[0], memoryview(data)[_PREFIX.size :]
