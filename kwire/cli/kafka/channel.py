"""A connection to one broker on which several requests may wait for their responses.

Responses come in the order of their requests. The versions of the requests are the newest that the broker and this
client both know, up to the versions that have topic ids instead of names.
"""

import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from kwire.kafka_client.frames import correlation_id_of, decode_response, encode_request
from kwire.wire.errors import WireError
from kwire.wire.messages.fetch import FETCH
from kwire.wire.messages.find_coordinator import FIND_COORDINATOR
from kwire.wire.messages.metadata import METADATA
from kwire.wire.messages.offset_commit import OFFSET_COMMIT
from kwire.wire.messages.offset_fetch import OFFSET_FETCH
from kwire.wire.messages.produce import PRODUCE
from kwire.wire.schema import Api

# Bound of one response. A fetched batch may be as large as the topic's max.message.bytes, whatever the request says.
RESPONSE_BYTES_MAX = 1024 * 1024 * 1024
# Buffers of one sendmsg call; the kernel's bound (IOV_MAX) is 1024.
_PARTS_MAX = 512

# The last versions with names of topics, or with one group per request.
_VERSIONS_MAX = {
    PRODUCE.key: 12,
    FETCH.key: 12,
    METADATA.key: 9,
    OFFSET_COMMIT.key: 9,
    OFFSET_FETCH.key: 7,
    FIND_COORDINATOR.key: 3,
}

_SIZE = struct.Struct(">i")
_CORRELATION_ID_BYTES = 4


class Transport(Protocol):
    """A socket that is connected and logged in, the versions of its server, and the error that names its address."""

    address: str

    @property
    def raw_socket(self) -> socket.socket: ...

    def version_of(self, api: Api, *, version_max: int | None) -> int: ...

    def unreachable(self, error: OSError) -> Exception: ...


Connect = Callable[[str, int], Transport]


class Channel:
    """Sends requests to a broker and receives their responses. Raises what `Transport.unreachable` returns."""

    def __init__(self, transport: Transport) -> None:
        self.address = transport.address
        self._transport = transport
        self._socket = transport.raw_socket
        self._correlation_id = 0
        self._awaited: deque[tuple[int, Api, int]] = deque()
        self._versions: dict[int, int] = {}

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_data(self) -> bool:
        """Whether bytes are buffered above the socket, where `select` does not see them (TLS)."""
        pending = getattr(self._socket, "pending", None)
        return bool(pending and pending())

    @property
    def awaited_count(self) -> int:
        """The number of requests without a response."""
        return len(self._awaited)

    def close(self) -> None:
        self._socket.close()

    def request(self, api: Api, message: Any, timeout_seconds: float | None = None) -> Any:
        """Send a request and return its response. No other request may wait for its response."""
        assert not self._awaited
        self.send(api, message)
        return self.receive(timeout_seconds)

    def send(self, api: Api, message: Any, *, has_response: bool = True) -> None:
        version = self._versions.get(api.key)
        if version is None:
            version = self._transport.version_of(api, version_max=_VERSIONS_MAX.get(api.key))
            self._versions[api.key] = version
        self._send(api, version, message, has_response)

    def receive(self, timeout_seconds: float | None = None) -> Any:
        """Return the response of the oldest request that has none yet. By default the timeout is the socket's own."""
        correlation_id, api, version = self._awaited.popleft()
        usual = self._socket.gettimeout()
        if timeout_seconds is not None:
            self._socket.settimeout(timeout_seconds)
        try:
            response = self._read_frame()
        except OSError as error:
            raise self._transport.unreachable(error) from error
        finally:
            if timeout_seconds is not None:
                self._socket.settimeout(usual)
        if correlation_id_of(response) != correlation_id:
            raise self._transport.unreachable(OSError("the server answered another request"))
        try:
            return decode_response(api, version, memoryview(response))
        except WireError as error:
            raise self._transport.unreachable(OSError(f"it does not answer as a Kafka server does: {error}")) from error

    def _send(self, api: Api, version: int, message: Any, has_response: bool) -> None:
        self._correlation_id = self._correlation_id + 1 & 0x7FFF_FFFF
        parts = encode_request(api, version, self._correlation_id, message)
        try:
            self._send_all(parts)
        except OSError as error:
            raise self._transport.unreachable(error) from error
        if has_response:
            self._awaited.append((self._correlation_id, api, version))

    def _send_all(self, parts: list[Any]) -> None:
        if len(parts) > _PARTS_MAX or not hasattr(self._socket, "sendmsg") or hasattr(self._socket, "pending"):
            # A TLS socket has sendmsg, but refuses it.
            self._socket.sendall(b"".join(parts))
            return
        sent = self._socket.sendmsg(parts)
        for part in parts:
            if sent >= len(part):
                sent -= len(part)
            else:
                self._socket.sendall(memoryview(part)[sent:])
                sent = 0

    def _read_frame(self) -> bytearray:
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        if not _CORRELATION_ID_BYTES <= size <= RESPONSE_BYTES_MAX:
            raise OSError(f"a frame of {size} bytes is not an answer of a Kafka server")
        return self._read(size)

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise OSError("the server closed the connection")
            view = view[count:]
        return data
