"""A Kafka connection with nothing in between: frames in, frames out, in the order of the wire.

The messages are encoded and decoded by kafka-python's protocol classes, so that the server is never checked by its own
codec.
"""

import select
import socket
import ssl
import struct
import time
from types import TracebackType
from typing import Any, Self

from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

CLIENT_ID = "raw"
TIMEOUT_S = 20.0
LATEST = -1
EARLIEST = -2

NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
INVALID_TOPIC = 17
INVALID_REQUIRED_ACKS = 21
UNSUPPORTED_VERSION = 35
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100


def frame(api_key: int, version: int, body: bytes = b"", correlation_id: int = 1) -> bytes:
    """A frame with the plain request header, whatever the body holds."""
    client_id = CLIENT_ID.encode()
    header = struct.pack(">hhih", api_key, version, correlation_id, len(client_id)) + client_id
    return struct.pack(">i", len(header) + len(body)) + header + body


def encode(request: Any, version: int, correlation_id: int = 1) -> bytes:
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=CLIENT_ID)
    return bytes(request.encode(header=True, framed=True))


class RawConnection:
    """One socket. `send` returns the correlation id, `receive` the next response with its correlation id."""

    def __init__(
        self, address: tuple[str, int], timeout_s: float = TIMEOUT_S, tls: ssl.SSLContext | None = None
    ) -> None:
        self.timeout_s = timeout_s
        self.socket = socket.create_connection(address, timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._next_correlation_id = 1
        self._expected: dict[int, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, request: Any, version: int) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self.send_bytes(encode(request, version, correlation_id))
        self._expected[correlation_id] = request.header.get_response_class()
        return correlation_id

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, timeout_s: float | None = None) -> tuple[int, Any]:
        data = self.receive_frame(timeout_s)
        (correlation_id,) = struct.unpack_from(">i", data)
        response = self._expected.pop(correlation_id)
        return correlation_id, response.decode(data, header=True)

    def receive_frame(self, timeout_s: float | None = None) -> bytes:
        """The bytes of one response, correlation id first."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        (size,) = struct.unpack(">i", self._read(4, deadline))
        return self._read(size, deadline)

    def call(self, request: Any, version: int) -> Any:
        sent = self.send(request, version)
        received, response = self.receive()
        assert received == sent
        return response

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError(f"closed by the server after {len(data)} of {size} bytes")
            data += part
        return bytes(data)

    def has_data(self, timeout_s: float) -> bool:
        """Whether anything, the end of the stream included, can be read within this time."""
        # Not select: it knows no descriptors above a thousand, and a long test run may have that many.
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        readable = poll.poll(timeout_s * 1000)
        return bool(readable)

    def is_closed(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Whether the server ends the connection within this time; what it still sends before that is passed over."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                if not self.socket.recv(65536):
                    return True
            except ConnectionError:
                return True
            except TimeoutError:
                return False
        return False


def batch(
    *values: bytes,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """An uncompressed record batch as a producer sends it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=is_transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=1 << 30,
    )
    for offset, value in enumerate(values):
        builder.append(offset, int(time.time() * 1000), None, value, [])
    return bytearray(builder.build())


def metadata_request(*topics: str, allow_auto_create: bool = False) -> Any:
    """Metadata of the topics named, or of every topic."""
    names = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics] if topics else None
    return MetadataRequest(topics=names, allow_auto_topic_creation=allow_auto_create)


def produce_request(
    topic: str,
    records: bytes | bytearray | None,
    *,
    acks: int = -1,
    partition: int = 0,
    transactional_id: str | None = None,
) -> Any:
    part = ProduceRequest.TopicProduceData.PartitionProduceData(
        index=partition, records=None if records is None else bytes(records)
    )
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=[data])


def fetch_request(
    topic: str,
    offset: int,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    partition: int = 0,
) -> Any:
    part = FetchRequest.FetchTopic.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])],
        forgotten_topics_data=[],
        rack_id="",
    )


def list_offsets_request(topic: str, timestamp: int, partition: int = 0) -> Any:
    part = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=-1, timestamp=timestamp
    )
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
    )


def produced(response: Any) -> Any:
    """The answer for the one partition of a produce request."""
    return response.responses[0].partition_responses[0]


def fetched(response: Any) -> Any:
    """The answer for the one partition of a fetch request."""
    return response.responses[0].partitions[0]
