"""A blocking connection to one Kafka server with kwire's own codec: TLS, login, and one request at a time."""

import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from kwire.cli.connection.error_texts import code_text
from kwire.cli.connection.errors import LoginRefused, NotSupported, Unreachable
from kwire.cli.connection.settings import HOW_TO_LOG_IN, ClientSettings
from kwire.cli.framework.errors import UsageError
from kwire.errors import ErrorCode
from kwire.kafka_client import login as kafka_login
from kwire.kafka_client.errors import LoginRefused as RefusedByServer
from kwire.kafka_client.frames import API_VERSIONS_VERSION, correlation_id_of, decode_response, encode_request
from kwire.kafka_client.login import HANDSHAKE_VERSION, Login
from kwire.kafka_client.settings import Address
from kwire.server_addresses import nothing_listens
from kwire.wire.errors import WireError
from kwire.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from kwire.wire.schema import Api

if TYPE_CHECKING:
    import ssl

ANSWER_BYTES_MAX = 128 * 1024 * 1024
CORRELATION_ID_BYTES = 4
OPTION = "--bootstrap-server"

_SIZE = struct.Struct(">i")


class KafkaConnection:
    """A connection to one server. It is logged in if the settings have a user."""

    def __init__(self, settings: ClientSettings, addresses: Sequence[Address] | None = None) -> None:
        """Connect to the first of these addresses that accepts, and log in. By default they are the bootstrap servers.

        Raises Unreachable, LoginRefused, or UsageError if an address is not valid.
        """
        self._settings = settings
        # Servers that expect TLS or a login close connections without it.
        self._hint = (
            ""
            if settings.login
            else "; if it expects a login, add --user NAME; if it expects TLS, use a profile or --command-config"
        )
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] | None = None
        self._request_seconds = settings.timeouts.request_seconds
        deadline = time.monotonic() + settings.timeouts.connect_seconds
        self._addresses = list(addresses or addresses_of(settings.bootstrap_server))
        plain = self._connected(deadline, settings.timeouts.connect_seconds)
        self._socket = plain if settings.tls is None else self._with_tls(plain, settings.tls)
        self._socket.settimeout(self._request_seconds)
        try:
            if settings.login is not None:
                self._log_in(settings.mechanism, settings.login)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def request(
        self, api: Api, message: Any, *, version_min: int = 0, version_max: int | None = None, wait_seconds: float = 0
    ) -> Any:
        """Send a request in the highest version that both sides know, and return the response.

        With `version_min` and `version_max` the caller restricts the versions, because its message has fields that
        others do not have. `wait_seconds` is how long the server may wait before it answers.

        Raises Unreachable, LoginRefused if the server needs a login, or NotSupported if the versions do not match.
        """
        version = self.version_of(api, version_min=version_min, version_max=version_max)
        return self._exchange(api, version, message, wait_seconds)

    def version_of(self, api: Api, *, version_min: int = 0, version_max: int | None = None) -> int:
        """Return the highest version of an API that both sides know. Raises NotSupported."""
        first, last = self.versions().get(api.key, (0, -1))
        best = min(last, api.last_version if version_max is None else min(version_max, api.last_version))
        if best < max(first, api.first_version, version_min):
            offered = f"versions {first} to {last} of it" if last >= 0 else "no version of it"
            raise NotSupported(f"{self.address} cannot do this: the command needs the API {api.name}, it has {offered}")
        return best

    def versions(self) -> dict[int, tuple[int, int]]:
        """Return the first and last version of every API that the server has, by the key of the API."""
        if self._versions is None:
            from kwire import __version__

            request = ApiVersionsRequest(client_software_name="kwire", client_software_version=__version__)
            response = self._exchange(API_VERSIONS, API_VERSIONS_VERSION, request, 0)
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
                response = self._exchange(API_VERSIONS, 0, request, 0)
            if response.error_code:
                raise Unreachable(f"{self.address} refused ApiVersions: {code_text(response.error_code)}")
            self._versions = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
        return self._versions

    def _exchange(self, api: Api, version: int, message: Any, wait_seconds: float) -> Any:
        self._correlation_id += 1
        request = b"".join(encode_request(api, version, self._correlation_id, message))
        try:
            self._socket.settimeout(self._request_seconds + wait_seconds)
            self._socket.sendall(request)
            answer = self._answer()
        except OSError as error:
            raise self._unreachable(error) from error
        if correlation_id_of(answer) != self._correlation_id:
            raise Unreachable(f"{self.address} does not answer as a Kafka server does; check the port")
        try:
            return decode_response(api, version, answer)
        except WireError as error:
            raise Unreachable(f"{self.address} does not answer as a Kafka server does: {error}") from error

    def _connected(self, deadline: float, connect_seconds: float) -> socket.socket:
        """Connect to one of the addresses and remember it as `address`."""
        problems: list[tuple[Address, OSError]] = []
        for address in self._addresses:
            self.address = address
            try:
                return socket.create_connection(address, max(0.1, deadline - time.monotonic()))
            except OSError as error:
                problems.append((address, error))
        other = [one for one in problems if not isinstance(one[1], ConnectionRefusedError)]
        if not other:
            raise Unreachable(nothing_listens(", ".join(map(str, self._addresses)), OPTION))
        raise Unreachable(_connect_problem(*other[0], connect_seconds)) from other[0][1]

    def _with_tls(self, plain: socket.socket, tls: "ssl.SSLContext") -> socket.socket:
        try:
            plain.settimeout(self._request_seconds)
            return tls.wrap_socket(plain, server_hostname=self.address.host)
        except OSError as error:
            plain.close()
            raise self._unreachable(error) from error

    def _answer(self) -> memoryview:
        (size,) = _SIZE.unpack(self._received(_SIZE.size))
        if not CORRELATION_ID_BYTES <= size <= ANSWER_BYTES_MAX:
            raise OSError("it does not answer as a Kafka server does; check the port")
        return self._received(size)

    def _received(self, size: int) -> memoryview:
        view, done = memoryview(bytearray(size)), 0
        while done < size:
            count = self._socket.recv_into(view[done:])
            if not count:
                raise OSError(f"it closed the connection{self._hint}")
            done += count
        return view

    # Login

    def _log_in(self, mechanism: str, login: Login) -> None:
        exchange, response = kafka_login.log_in(str(self.address), mechanism, login), None
        try:
            while True:
                api, version, message = exchange.send(response)
                response = self._exchange(api, version, message, 0)
        except StopIteration:
            return
        except RefusedByServer as error:
            raise LoginRefused(str(error)) from None

    # For clients that have several requests in flight

    @property
    def raw_socket(self) -> "socket.socket":
        """The socket, for a client that frames requests and responses itself from now on."""
        return self._socket

    def unreachable(self, error: OSError) -> Unreachable | LoginRefused:
        """Return the error that names the address, after an error of the socket."""
        return self._unreachable(error)

    # Errors

    def _unreachable(self, error: OSError) -> Unreachable | LoginRefused:
        if not isinstance(error, TimeoutError) and self._needs_login():
            # With TLS, security.protocol is set, and without SASL in it the user has no effect.
            setting = "" if self._settings.tls is None else "set security.protocol=SASL_SSL, and "
            return LoginRefused(f"{self.address} needs credentials; {setting}{HOW_TO_LOG_IN}")
        return Unreachable(f"no answer from {self.address}: {self._reason(error)}")

    def _needs_login(self) -> bool:
        """Return whether the server answers this connection without a login only what it answers before a login.

        Kafka servers close such a connection without an error, so a connection of its own asks for the mechanisms.
        """
        if self._settings.login is not None or self._versions is None:
            return False
        from kwire.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest

        handshake = SaslHandshakeRequest(mechanism=self._settings.mechanism)
        with suppress(Unreachable), KafkaConnection(self._settings, [self.address]) as other:
            offered = other._exchange(SASL_HANDSHAKE, HANDSHAKE_VERSION, handshake, 0)
            # Other listeners answer with ILLEGAL_SASL_STATE.
            return offered.error_code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        return False

    def _reason(self, error: OSError) -> str:
        # Imported here, because it takes longer than most commands run.
        import ssl

        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {error.verify_message}; check ssl.truststore.location"
        if isinstance(error, ssl.SSLError):
            reason = error.reason or str(error)
            return f"TLS failed: {reason}; check security.protocol, and that the server expects TLS on this port"
        if isinstance(error, TimeoutError):
            return f"it did not answer within {self._request_seconds:g} s"
        return error.strerror or str(error)


def addresses_of(bootstrap_server: str) -> list[Address]:
    """Return the addresses in HOST:PORT,HOST:PORT. Raises UsageError."""
    return [_address(text.strip()) for text in bootstrap_server.split(",")]


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"{OPTION} takes HOST:PORT, not {text!r}")
    return Address(host.strip("[]"), int(port))


def _connect_problem(address: Address, error: OSError, connect_seconds: float) -> str:
    if isinstance(error, socket.gaierror):
        return f"host {address.host} is not known: {error.strerror or error}; check the name, or use {OPTION}"
    if isinstance(error, TimeoutError):
        reason = f"no connection within {connect_seconds:g} s"
    else:
        reason = error.strerror or str(error)
    return f"no answer from {address}: {reason}; check the address, or name another server with {OPTION}"
