"""A blocking connection to the Kafka port with kwire's own codec: TLS, login, and one request at a time.

kafka-python, which other commands use, does not have all of Kafka's APIs, drops the error messages of some, and tries
for half a minute to connect to a server that is down or refuses the login.
"""

import socket
import ssl
import struct
from typing import Any, Self

from kwire.cli.client_settings import PLAIN, ClientSettings, Login
from kwire.errors import ErrorCode
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.messages.metadata import METADATA, MetadataRequest
from kwire.wire.messages.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from kwire.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from kwire.wire.schema import Api

CLIENT_ID = b"kwire"
TIMEOUT_SECONDS = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
HANDSHAKE_VERSION = AUTHENTICATE_VERSION = 1
METADATA_VERSION = 4

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")


class Unreachable(ConnectionError):
    """The server does not answer. The message names its address."""


class LoginRefused(ValueError):
    """The server did not accept the user, the password, or the mechanism. The message names its address."""


class KafkaConnection:
    """A connection to one server. It is logged in if the settings have a user."""

    def __init__(self, settings: ClientSettings) -> None:
        """Connect and log in. If the settings name several servers, the first is used.

        Raises Unreachable or LoginRefused.
        """
        self.address = settings.bootstrap_server.split(",")[0].strip()
        host, colon, port = self.address.rpartition(":")
        if not colon or not port.isdecimal():
            raise ValueError(f"--bootstrap-server takes HOST:PORT, not {self.address!r}")
        # Servers that expect TLS or a login close connections without it.
        self._hint = "" if settings.login else "; if it expects TLS or a login, name them with --command-config"
        self._correlation_id = 0
        self._socket = self._connected(host.strip("[]"), int(port), settings.tls)
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

    def check(self) -> None:
        """Make a request that needs a login if the server wants one. Raises Unreachable."""
        self.request(METADATA, METADATA_VERSION, MetadataRequest(topics=[], allow_auto_topic_creation=False))

    def request(self, api: Api, version: int, message: Any) -> Any:
        """Send a request and return the response. Raises Unreachable."""
        self._correlation_id += 1
        is_flexible = version >= api.first_flexible
        head = _HEAD.pack(api.key, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        body = head + (b"\x00" if is_flexible else b"") + encode_message(message, version)
        try:
            self._socket.sendall(_SIZE.pack(len(body)) + body)
            answer = self._answer()
        except OSError as error:
            raise self._unreachable(error) from error
        # The header of a flexible response ends with the number of tagged fields, which is 0.
        return decode_message(api.response, version, answer[_CORRELATION_ID.size + is_flexible :])

    def _connected(self, host: str, port: int, tls: ssl.SSLContext | None) -> socket.socket:
        try:
            plain = socket.create_connection((host, port), TIMEOUT_SECONDS)
        except OSError as error:
            raise self._unreachable(error) from error
        if tls is None:
            return plain
        try:
            return tls.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            plain.close()
            raise self._unreachable(error) from error

    def _answer(self) -> bytes:
        (size,) = _SIZE.unpack(self._received(_SIZE.size))
        if not _CORRELATION_ID.size <= size <= ANSWER_BYTES_MAX:
            raise OSError(f"a frame of {size} bytes is not an answer of a Kafka server")
        return self._received(size)

    def _received(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise OSError("the server closed the connection")
            data += more
        return bytes(data)

    # Login

    def _log_in(self, mechanism: str, login: Login) -> None:
        handshake = SaslHandshakeRequest(mechanism=mechanism)
        offered = self.request(SASL_HANDSHAKE, HANDSHAKE_VERSION, handshake)
        if offered.error_code:
            known = ", ".join(offered.mechanisms)
            raise LoginRefused(f"{self.address} does not offer {mechanism}, but {known}: set sasl.mechanism")
        if mechanism == PLAIN:
            self._authenticate(login.user, f"\0{login.user}\0{login.password}".encode())
        else:
            self._log_in_with_scram(mechanism, login)

    def _log_in_with_scram(self, mechanism: str, login: Login) -> None:
        # Imported here, because most commands connect without a login.
        from scramp import ScramClient, ScramException

        try:
            client = ScramClient([mechanism], login.user, login.password)
            client.set_server_first(self._authenticate(login.user, client.get_client_first().encode()).decode())
            client.set_server_final(self._authenticate(login.user, client.get_client_final().encode()).decode())
        except (ScramException, UnicodeDecodeError):
            # The cause is not shown: it may contain parts of the password's hash.
            raise LoginRefused(f"{self.address} gave a wrong answer to the login of user {login.user}") from None

    def _authenticate(self, user: str, data: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=data)
        response = self.request(SASL_AUTHENTICATE, AUTHENTICATE_VERSION, request)
        if response.error_code:
            reason = response.error_message or ErrorCode(response.error_code).name
            raise LoginRefused(f"{self.address} refused the login of user {user}: {reason}")
        return bytes(response.auth_bytes)

    # Errors

    def _unreachable(self, error: OSError) -> Unreachable:
        return Unreachable(f"no answer from {self.address}: {self._reason(error)}")

    def _reason(self, error: OSError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {error.verify_message}; check ssl.truststore.location"
        if isinstance(error, ssl.SSLError):
            reason = error.reason or str(error)
            return f"TLS failed: {reason}; check security.protocol, and that the server expects TLS on this port"
        if isinstance(error, ConnectionRefusedError):
            return "connection refused; is the server running?"
        return f"{error.strerror or error}{self._hint}"
