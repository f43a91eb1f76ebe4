"""Connection: one connection to a broker. Several requests may wait for their responses, which arrive in order."""

import asyncio
import ssl
from collections import deque
from typing import Any, Final, Self, cast

from kwire import __version__
from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.counters import ConnectionCounters
from kwire.kafka_client.errors import NotSent, Unreachable, error_code
from kwire.kafka_client.frames import (
    API_VERSIONS_VERSION,
    ResponseReader,
    Versions,
    correlation_id_of,
    decode_response,
    encode_request,
)
from kwire.kafka_client.login import log_in
from kwire.kafka_client.settings import Address, ClientSettings
from kwire.wire.errors import WireError
from kwire.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from kwire.wire.schema import Api

# Bound of the requests without a response. Callers that may exceed it wait in `Link`.
IN_FLIGHT_MAX: Final = 64
# Small parts of a request are joined, because each write costs a system call.
_JOINED_BYTES_MAX: Final = 64 * 1024


class _Pending:
    """A request without a response."""

    __slots__ = ("api", "correlation_id", "response", "timer", "version")

    def __init__(self, api: Api, version: int, correlation_id: int, response: "asyncio.Future[Any]") -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.response = response
        self.timer: asyncio.TimerHandle | None = None


class Connection(asyncio.BufferedProtocol):
    """A connection, made by `open`. A request that misses its deadline ends the connection and all its requests."""

    def __init__(self, address: Address, settings: ClientSettings, counters: ConnectionCounters) -> None:
        self.address = address
        self._counters = counters
        self._is_counted = False
        self.versions = Versions(str(address), {})
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._reader = ResponseReader()
        self._transport: asyncio.Transport | None = None
        self._pending: deque[_Pending] = deque()
        self._correlation_id = 0
        self._error: KafkaError | None = None

    @classmethod
    async def open(cls, address: Address, settings: ClientSettings, counters: ConnectionCounters) -> Self:
        """Connect to a broker, log in, and learn its versions. Raises Unreachable, LoginRefused or NotSupported."""
        loop = asyncio.get_running_loop()
        connection = cls(address, settings, counters)
        try:
            async with asyncio.timeout(settings.connect_seconds):
                await loop.create_connection(
                    lambda: connection,
                    address.host,
                    address.port,
                    ssl=settings.tls,
                    server_hostname=address.host if settings.tls is not None else None,
                )
                await connection._introduce()
        except (OSError, TimeoutError) as error:
            counters.failed_count += 1
            connection.close()
            raise NotSent(f"{address} cannot be reached: {_reason(error, settings)}") from None
        except BaseException:
            counters.failed_count += 1
            connection.close()
            raise
        return connection

    async def _introduce(self) -> None:
        settings = self._settings
        if settings.login is not None:
            exchange = log_in(str(self.address), settings.mechanism, settings.login)
            response = None
            while True:
                try:
                    api, version, message = exchange.send(response)
                except StopIteration:
                    break
                response = await self._send(api, version, message, settings.connect_seconds)
        request = ApiVersionsRequest(client_software_name="kwire", client_software_version=__version__)
        response = await self._send(API_VERSIONS, API_VERSIONS_VERSION, request, settings.connect_seconds)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await self._send(API_VERSIONS, 0, request, settings.connect_seconds)
        if response.error_code:
            raise Unreachable(f"{self.address} refused ApiVersions: {error_code(response.error_code).name}")
        self.versions = Versions.of(str(self.address), response)

    @property
    def is_open(self) -> bool:
        return self._error is None

    @property
    def in_flight_count(self) -> int:
        """The number of requests without a response."""
        return len(self._pending)

    def send(
        self, api: Api, message: Any, *, version_max: int | None = None, wait_seconds: float = 0
    ) -> "asyncio.Future[Any]":
        """Send a request in the highest version that both sides have, and return a future of the response.

        `wait_seconds` is how long the request lets the broker wait. Raises NotSupported, and NotSent if the connection
        is closed. The future raises Unreachable if the connection ends first.
        """
        version = self.versions.best(api, version_max)
        return self._send(api, version, message, self._settings.request_seconds + wait_seconds)

    def close(self, reason: str = "the connection was closed") -> None:
        """Close the connection. Requests without a response fail."""
        self._end(f"{self.address}: {reason}")

    # --- asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The classes of uvloop are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        if self._error is not None:
            self._transport.abort()
        else:
            self._is_counted = True
            self._counters.opened_count += 1
            self._counters.open_count += 1

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._counters.received_bytes += nbytes
        try:
            for frame in self._reader.received(nbytes):
                self._take(frame)
        except Unreachable as error:
            self.close(str(error))

    def eof_received(self) -> None:
        self.close("the broker closed the connection" + self._hint)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close("the broker closed the connection" if exc is None else f"the connection was lost: {exc}")

    # --- requests and responses

    @property
    def _hint(self) -> str:
        if self._settings.login is not None or self.versions.has(API_VERSIONS):
            return ""
        return "; if it expects TLS or a login, set security.protocol"

    def _send(self, api: Api, version: int, message: Any, timeout_seconds: float) -> "asyncio.Future[Any]":
        if self._error is not None or self._transport is None:
            raise NotSent(f"{self.address}: the connection is closed")
        if len(self._pending) >= IN_FLIGHT_MAX:
            raise NotSent(f"{self.address}: {IN_FLIGHT_MAX} requests wait for responses")
        self._correlation_id = self._correlation_id + 1 & 0x7FFF_FFFF
        response: asyncio.Future[Any] = self._loop.create_future()
        pending = _Pending(api, version, self._correlation_id, response)
        parts = encode_request(api, version, self._correlation_id, message)
        size_bytes = sum(map(len, parts))
        self._counters.sent_bytes += size_bytes
        if size_bytes <= _JOINED_BYTES_MAX:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)
        pending.timer = self._loop.call_later(timeout_seconds, self._expire, api, timeout_seconds)
        self._pending.append(pending)
        return response

    def _take(self, frame: memoryview) -> None:
        if not self._pending:
            raise Unreachable("a response arrived that answers no request")
        pending = self._pending.popleft()
        if pending.timer is not None:
            pending.timer.cancel()
        try:
            if correlation_id_of(frame) != pending.correlation_id:
                raise Unreachable("the response answers another request")
            response = decode_response(pending.api, pending.version, frame)
        except (WireError, Unreachable) as error:
            self._pending.appendleft(pending)
            raise Unreachable(f"{pending.api.name}: it does not answer as a Kafka server does: {error}") from None
        if not pending.response.done():
            pending.response.set_result(response)

    def _expire(self, api: Api, timeout_seconds: float) -> None:
        self.close(f"no response to {api.name} within {timeout_seconds:g} s")

    def _end(self, reason: str) -> None:
        if self._error is not None:
            return
        self._error = Unreachable(reason)
        if self._is_counted:
            self._counters.open_count -= 1
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending = self._pending, deque()
        for one in pending:
            if one.timer is not None:
                one.timer.cancel()
            if not one.response.done():
                # An error of its own for each request, because raising one adds to its traceback.
                one.response.set_exception(Unreachable(reason))
                # Callers that gave up do not look at it.
                one.response.exception()


def _reason(error: OSError, settings: ClientSettings) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}; check ssl.truststore.location"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}; check security.protocol, and that the broker expects TLS here"
    if isinstance(error, TimeoutError):
        return f"no connection within {settings.connect_seconds:g} s"
    return error.strerror or str(error)
