"""The requests of the classic group protocol, encoded by hand as in `benchmark/wire.py`.

They have the newest versions that are not flexible. Both servers support them. A `Reader` decodes a response.
"""

import struct
from collections.abc import Mapping, Sequence

from benchmark.wire import request_frame

OFFSET_COMMIT, OFFSET_COMMIT_VERSION = 8, 7
FIND_COORDINATOR, FIND_COORDINATOR_VERSION = 10, 2
JOIN_GROUP, JOIN_GROUP_VERSION = 11, 5
HEARTBEAT, HEARTBEAT_VERSION = 12, 3
LEAVE_GROUP, LEAVE_GROUP_VERSION = 13, 2
SYNC_GROUP, SYNC_GROUP_VERSION = 14, 3

NO_ERROR = 0
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
# The coordinator is not available yet: retry later.
COME_BACK = frozenset({COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 22, 25, 27, 79

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 300_000
PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
NULL = struct.pack(">h", -1)
ANSWER_AT = 4 + 4  # After the length and the correlation id.
ERROR_AT = ANSWER_AT + 4  # After the throttle time.


class Reader:
    """Decodes a response field by field."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def int16(self) -> int:
        return int(self._take(">h", 2))

    def int32(self) -> int:
        return int(self._take(">i", 4))

    def string(self) -> str:
        """Return the next string, or "" if it is null."""
        return self._cut(max(0, self.int16())).decode()

    def data(self) -> bytes:
        return self._cut(max(0, self.int32()))

    def _take(self, layout: str, size: int) -> int:
        (value,) = struct.unpack_from(layout, self._data, self.at)
        self.at += size
        return int(value)

    def _cut(self, size: int) -> bytes:
        piece = self._data[self.at : self.at + size]
        self.at += size
        return piece


def string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def find_coordinator(group: str) -> bytes:
    return request_frame(FIND_COORDINATOR, FIND_COORDINATOR_VERSION, string(group) + b"\0")


def join_group(group: str, member_id: str, topic: str) -> bytes:
    subscription = struct.pack(">hi", 0, 1) + string(topic) + struct.pack(">i", -1)
    body = string(group) + struct.pack(">ii", SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS)
    body += string(member_id) + NULL + string(PROTOCOL_TYPE)
    body += struct.pack(">i", 1) + string(PROTOCOL) + _bytes(subscription)
    return request_frame(JOIN_GROUP, JOIN_GROUP_VERSION, body)


def sync_group(
    group: str, generation: int, member_id: str, topic: str, assignments: Mapping[str, Sequence[int]]
) -> bytes:
    body = string(group) + struct.pack(">i", generation) + string(member_id) + NULL
    body += struct.pack(">i", len(assignments))
    for assigned_id, partitions in assignments.items():
        body += string(assigned_id) + _bytes(_assignment(topic, partitions))
    return request_frame(SYNC_GROUP, SYNC_GROUP_VERSION, body)


def _assignment(topic: str, partitions: Sequence[int]) -> bytes:
    indexes = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + string(topic) + indexes + struct.pack(">i", -1)


def assigned_partitions(assignment: bytes) -> list[int]:
    """Return the assigned partitions of the only topic. The assignment of a member without partitions may be empty."""
    if not assignment:
        return []
    reader = Reader(assignment, 2 + 4)
    reader.string()
    return [reader.int32() for _ in range(reader.int32())]


def heartbeat(group: str, generation: int, member_id: str) -> bytes:
    body = string(group) + struct.pack(">i", generation) + string(member_id) + NULL
    return request_frame(HEARTBEAT, HEARTBEAT_VERSION, body)


def leave_group(group: str, member_id: str) -> bytes:
    return request_frame(LEAVE_GROUP, LEAVE_GROUP_VERSION, string(group) + string(member_id))


def offset_commit(group: str, generation: int, member_id: str, topic: str, offset: int) -> bytes:
    """Return a commit of partition 0, without metadata."""
    body = string(group) + struct.pack(">i", generation) + string(member_id) + NULL
    body += struct.pack(">i", 1) + string(topic) + struct.pack(">iiqi", 1, 0, offset, -1) + string("")
    return request_frame(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, body)
