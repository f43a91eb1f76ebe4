"""The only request of the consumer protocol (KIP-848), ConsumerGroupHeartbeat 1, encoded by hand.

All its versions are flexible: a length is an unsigned varint of the length plus one, zero means null, and every
structure ends with tagged fields, which are always empty here.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.wire import CLIENT_ID, CORRELATION_ID, FRAME_LENGTH

CONSUMER_GROUP_HEARTBEAT, VERSION = 68, 1
REBALANCE_TIMEOUT_MS = 300_000
JOINING_EPOCH, LEAVING_EPOCH = 0, -1
UNCHANGED = -1
FENCED_MEMBER_EPOCH = 110

TOPIC_ID_BYTES = 16
NO_TAGS = b"\0"
NULL = b"\0"
BODY_AT = 4 + 4 + 1  # After the length, the correlation id and the header's tagged fields.


@dataclass(frozen=True)
class Owned:
    """The partitions of one topic that a member owns."""

    topic_id: bytes
    partitions: tuple[int, ...]


def consumer_heartbeat(
    group: str, member_id: str, epoch: int, subscribed: str | None = None, owned: Sequence[Owned] | None = None
) -> bytes:
    """Return a heartbeat. To join, it has `subscribed` and the rebalance timeout. None means: not changed."""
    header = struct.pack(">hhih", CONSUMER_GROUP_HEARTBEAT, VERSION, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID
    timeout_ms = UNCHANGED if subscribed is None else REBALANCE_TIMEOUT_MS
    body = _string(group) + _string(member_id) + struct.pack(">i", epoch)
    body += NULL + NULL + struct.pack(">i", timeout_ms)  # No instance id and no rack.
    body += NULL if subscribed is None else _uvarint(2) + _string(subscribed)
    body += NULL + NULL  # No topic pattern and no assignor.
    body += NULL if owned is None else _uvarint(len(owned) + 1) + b"".join(map(_owned, owned))
    frame = header + NO_TAGS + body + NO_TAGS
    return FRAME_LENGTH.pack(len(frame)) + frame


def _owned(owned: Owned) -> bytes:
    indexes = b"".join(struct.pack(">i", index) for index in owned.partitions)
    return owned.topic_id + _uvarint(len(owned.partitions) + 1) + indexes + NO_TAGS


@dataclass(frozen=True)
class ConsumerAnswer:
    """A response. `assigned` is None if the assignment has not changed."""

    error: int
    message: str
    epoch: int
    assigned: tuple[Owned, ...] | None


def read_answer(frame: bytes) -> ConsumerAnswer:
    at = BODY_AT + 4  # The throttle time.
    (error,) = struct.unpack_from(">h", frame, at)
    message, at = _read_string(frame, at + 2)
    _, at = _read_string(frame, at)
    (epoch,) = struct.unpack_from(">i", frame, at)
    at += 4 + 4  # The epoch and the heartbeat interval.
    (presence,) = struct.unpack_from(">b", frame, at)
    if presence < 0:
        return ConsumerAnswer(error, message, epoch, None)
    count, at = _read_uvarint(frame, at + 1)
    assigned = []
    for _ in range(count - 1):
        topic_id = frame[at : at + TOPIC_ID_BYTES]
        size, at = _read_uvarint(frame, at + TOPIC_ID_BYTES)
        partitions = struct.unpack_from(f">{size - 1}i", frame, at)
        at += 4 * (size - 1) + 1
        assigned.append(Owned(topic_id, partitions))
    return ConsumerAnswer(error, message, epoch, tuple(assigned))


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _uvarint(len(encoded) + 1) + encoded


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    size, at = _read_uvarint(data, at)
    end = at + max(0, size - 1)
    return data[at:end].decode(), end


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
