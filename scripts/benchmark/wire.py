"""The Kafka frames of the load generator and the latency prober, encoded by hand.

The benchmark must not use kwire's codec, because an error of the codec could then remain undetected. Each request is
built once and sent many times, because the time to build a frame per request would be measured, too. Of a response,
only fields at fixed positions are read. Produce 7 and Fetch 11 are the versions used: they are not flexible, and both
servers support them.
"""

import socket
import struct
from dataclasses import dataclass
from typing import Protocol

import crc32c

PRODUCE, PRODUCE_VERSION = 0, 7
FETCH, FETCH_VERSION = 1, 11
CLIENT_ID = b"kwire-bench"
CORRELATION_ID = 1  # A connection has one request in flight, so all requests can have the same id.

ACKS_ALL = -1
REQUEST_TIMEOUT_MS = 10_000
FETCH_MAX_BYTES = 1 << 20
SKIPPED_BYTES = 256 * 1024

FRAME_LENGTH = struct.Struct(">i")
OFFSET = struct.Struct(">q")
ERROR_CODE = struct.Struct(">h")


class WireError(Exception):
    """The server answered with an error code, closed the connection or sent something else than expected."""


def request_frame(api_key: int, api_version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, api_version, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID
    return FRAME_LENGTH.pack(len(header) + len(body)) + header + body


def record_batch(value: bytes, timestamp_ms: int) -> bytes:
    """Return a version 2 batch of a non-idempotent producer, with one uncompressed record without key and headers."""
    fields = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    record = varint(len(fields)) + fields
    checked = struct.pack(">hiqqqhii", 0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1) + record
    protected = struct.pack(">ibI", -1, 2, crc32c.crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(protected)) + protected


def varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


class RepeatedCall(Protocol):
    """A request that is sent many times, and whose responses all have the same size."""

    @property
    def frame(self) -> bytes: ...

    @property
    def reply_size(self) -> int: ...

    @property
    def error_at(self) -> int: ...

    def check(self, reply: bytes) -> None:
        """Raise WireError if the response is not the expected one."""


@dataclass(frozen=True)
class ProduceCall:
    """A Produce request to one partition, and the positions of fields in its response."""

    frame: bytes
    reply_size: int
    error_at: int
    base_offset_at: int

    @classmethod
    def build(cls, topic: str, batch: bytes, partition: int = 0) -> "ProduceCall":
        name = topic.encode()
        body = struct.pack(">hhiih", -1, ACKS_ALL, REQUEST_TIMEOUT_MS, 1, len(name)) + name
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        # length, correlation id, topic count, name, partition count, index | error |
        # base offset, append time, log start | throttle
        error_at = 4 + 4 + 4 + 2 + len(name) + 4 + 4
        return cls(request_frame(PRODUCE, PRODUCE_VERSION, body), error_at + 2 + 24 + 4, error_at, error_at + 2)

    def check(self, reply: bytes) -> None:
        self.base_offset(reply)

    def base_offset(self, reply: bytes) -> int:
        if len(reply) != self.reply_size:
            raise WireError(f"Produce answer of {len(reply)} bytes, expected {self.reply_size}")
        raise_for_error("Produce", reply, self.error_at)
        (offset,) = OFFSET.unpack_from(reply, self.base_offset_at)
        return int(offset)


@dataclass(frozen=True)
class FetchCall:
    """A Fetch request for one partition, without a fetch session. Only the offset changes between calls."""

    before_offset: bytes
    after_offset: bytes
    error_at: int
    records_at: int

    @classmethod
    def build(cls, topic: str, max_wait_ms: int, partition: int = 0) -> "FetchCall":
        name = topic.encode()
        body = struct.pack(">iiiibii", -1, max_wait_ms, 1, FETCH_MAX_BYTES, 0, 0, -1)
        body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iii", 1, partition, -1)
        frame = request_frame(FETCH, FETCH_VERSION, body + bytes(8) + struct.pack(">qiih", -1, FETCH_MAX_BYTES, 0, 0))
        offset_at = len(frame) - 8 - 18
        # length, correlation id, throttle, error, session, topic count, name, partition count, index | error |
        # high watermark, last stable offset, log start, aborted (null or none), preferred replica | records
        error_at = 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(name) + 4 + 4
        return cls(frame[:offset_at], frame[offset_at + 8 :], error_at, error_at + 2 + 24 + 4 + 4)

    def frame(self, offset: int) -> bytes:
        return self.before_offset + OFFSET.pack(offset) + self.after_offset

    def check(self, reply: bytes, offset: int) -> None:
        """Check that the response begins with the record at `offset`. Each record of the prober has its own batch."""
        base_offset = self.base_offset(reply, offset)
        if base_offset != offset:
            raise WireError(f"Fetch of offset {offset} answered offset {base_offset}")

    def base_offset(self, reply: bytes, offset: int) -> int:
        """Return the base offset of the first batch in the response."""
        raise_for_error("Fetch", reply, self.error_at)
        (size,) = FRAME_LENGTH.unpack_from(reply, self.records_at)
        if size <= 0:
            raise WireError(f"Fetch of offset {offset} came back empty")
        (base_offset,) = OFFSET.unpack_from(reply, self.records_at + 4)
        return int(base_offset)


def raise_for_error(api: str, reply: bytes, error_at: int) -> None:
    (code,) = ERROR_CODE.unpack_from(reply, error_at)
    if code:
        raise WireError(f"{api} answered error code {code}")


def connect(address: tuple[str, int], timeout_seconds: int, from_host: str = "") -> socket.socket:
    """Return a blocking connection whose calls time out after `timeout_seconds`. `from_host` is its local address.

    The timeout is a socket option of the kernel. Python's timeout would add a poll call to every send and receive.
    """
    connection = socket.create_connection(address, timeout_seconds, (from_host, 0) if from_host else None)
    connection.settimeout(None)
    bound = struct.pack("ll", timeout_seconds, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def skip_frame(connection: socket.socket) -> None:
    """Read a complete frame and discard it, with little CPU time."""
    head = connection.recv(FRAME_LENGTH.size, socket.MSG_WAITALL)
    if len(head) < FRAME_LENGTH.size:
        raise WireError("the server closed the connection")
    (left,) = FRAME_LENGTH.unpack(head)
    buffer = memoryview(bytearray(SKIPPED_BYTES))
    while left > 0:
        count = connection.recv_into(buffer[:left])
        if not count:
            raise WireError("the server closed the connection")
        left -= count


def read_frame(connection: socket.socket, received: bytes = b"") -> bytes:
    """Read the rest of the frame that begins with `received`. Return the frame with its length prefix."""
    while len(received) < 4 or len(received) < 4 + FRAME_LENGTH.unpack_from(received)[0]:
        piece = connection.recv(FETCH_MAX_BYTES)
        if not piece:
            raise WireError("the server closed the connection")
        received += piece
    return received
