"""A real server with a listener with SASL beside an open one, and its users."""

import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from kwire.testing.ports import unused_port
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.messages.api_versions import ApiVersionsRequest
from kwire.wire.messages.metadata import MetadataRequest
from kwire.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kwire.wire.schema import message_of
from tests.support.clients_raw import TIMEOUT_S, RawConnection, frame
from tests.support.server import HOST, KwireProcess
from tests.support.users import plain_token

DEADLINE_S = 30.0
SECRET = "hunter2-is-not-stored"


class SaslServer:
    """The process, `open` for administration, and `bootstrap` for clients that log in."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.open_port, self.sasl_port = unused_port(), unused_port()
        listeners = f"OPEN://{HOST}:{self.open_port},SASL://{HOST}:{self.sasl_port}"
        self.process = KwireProcess(
            directory,
            kafka_port=None,
            settings={
                "listeners": listeners,
                "listener.security.protocol.map": "OPEN:PLAINTEXT,SASL:SASL_PLAINTEXT",
                **(settings or {}),
            },
        )
        self.open = f"{HOST}:{self.open_port}"
        self.bootstrap = f"{HOST}:{self.sasl_port}"
        self.address = (HOST, self.sasl_port)
        self._admin: Any = None

    @property
    def admin(self) -> Any:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.open})
        return self._admin

    def set_password(self, user: str, password: str = SECRET) -> None:
        """As Kafka's protocol has it: one mechanism per request."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            self._alter(UserScramCredentialUpsertion(user, info, password.encode()))

    def delete(self, user: str) -> None:
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            self._alter(UserScramCredentialDeletion(user, mechanism))

    def _alter(self, change: Any) -> None:
        for future in self.admin.alter_user_scram_credentials([change]).values():
            future.result(DEADLINE_S)

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.process.http_url}/metrics") as response:
            for line in response.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.split()[-1])
        raise AssertionError(f"no metric {name}")

    def authentications(self, outcome: str) -> int:
        return int(self.metric(f'kwire_server_authentications_total{{outcome="{outcome}"}}'))

    def connect(self, timeout_s: float = TIMEOUT_S) -> "SaslSocket":
        return SaslSocket(self.address, timeout_s)


@contextmanager
def running_sasl_server(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[SaslServer]:
    server = SaslServer(directory, settings)
    server.process.start()
    try:
        server.process.ready()
        yield server
        assert server.process.stop() == 0
    finally:
        server.process.kill()


class SaslSocket:
    """A raw connection that takes the steps of a login one by one."""

    def __init__(
        self, address: tuple[str, int], timeout_s: float = TIMEOUT_S, tls: ssl.SSLContext | None = None
    ) -> None:
        self.raw = RawConnection(address, timeout_s, tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.raw.close()

    def ask(self, request: Any, version: int) -> bytes:
        """The body of the answer."""
        self.send(request, version)
        return self.raw.receive_frame()[4:]

    def send(self, request: Any, version: int) -> None:
        declared = message_of(type(request))
        body = encode_message(request, version)
        if version in declared.flexible:
            body = b"\0" + body
        self.raw.send_bytes(frame(declared.key, version, body))

    def handshake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        answer = self.ask(SaslHandshakeRequest(mechanism=mechanism), version)
        decoded: SaslHandshakeResponse = decode_message(SaslHandshakeResponse, version, answer)
        return decoded

    def authenticate(self, token: bytes, version: int = 1) -> SaslAuthenticateResponse:
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), version)
        decoded: SaslAuthenticateResponse = decode_message(SaslAuthenticateResponse, version, answer)
        return decoded

    def log_in(self, user: str = "alice", password: str = SECRET) -> SaslAuthenticateResponse:
        assert self.handshake("PLAIN").error_code == 0
        return self.authenticate(plain_token(user, password))

    def api_versions(self) -> bytes:
        return self.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 0)

    def metadata(self) -> bytes:
        return self.ask(MetadataRequest(topics=[]), 1)

    def closed_after(self, timeout_s: float = TIMEOUT_S) -> float:
        """Seconds until the server closes the connection."""
        began = time.monotonic()
        assert self.raw.is_closed(timeout_s), f"still open after {timeout_s} s"
        return time.monotonic() - began
