"""TLS of a real server process: client certificates, https, wss, changed certificates, floods.

Kafka clients are in test_secured_clients.py.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from websockets.asyncio.client import connect

from kwire.descriptors import raise_limit
from tests.support.certificates import HOSTS, Authority, pem, replace_file
from tests.support.clients import unique_name
from tests.support.java import JavaTools
from tests.support.node import in_loop
from tests.support.room_sockets import RoomSocket
from tests.support.secured_clients.login import Login
from tests.support.server import KwireProcess, anonymous_memory_bytes, wait_until

WAIT_S = 30.0
FLOOD = 5000


class Secured:
    """A server with two listeners, SSL and MTLS (client certificates required), and https."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.authority = Authority(directory)
        self.key_store = self.authority.server()
        self.client = self.authority.client()
        self.process = KwireProcess(
            directory / "kwire",
            kafka_port=None,
            settings={
                "listeners": "SSL://127.0.0.1:0,MTLS://127.0.0.1:0",
                "listener.security.protocol.map": "SSL:SSL,MTLS:SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.key_store),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.path),
                "listener.name.mtls.ssl.client.auth": "required",
                "kwire.http.tls": "true",
            },
        )
        self.process.start()
        self.process.ready()
        ports = re.findall(r"127\.0\.0\.1:(\d+)", self.process.ready_line)
        self.ssl_port, self.mtls_port, self.http_port = map(int, ports)

    def context(self, key_store: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.path))
        if key_store is not None:
            context.load_cert_chain(key_store)
        return context

    def open(self, port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
        """A connection that has done its handshake and got an answer. Raises OSError."""
        plain = socket.create_connection(("127.0.0.1", port), WAIT_S)
        client = context.wrap_socket(plain, server_hostname="localhost")
        try:
            api_versions(client)
        except BaseException:
            client.close()
            raise
        return client

    def certificate(self, port: int) -> bytes:
        """The certificate that the server shows to a new connection. It is not verified."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", port), WAIT_S) as plain,
            context.wrap_socket(plain) as client,
        ):
            return client.getpeercert(binary_form=True) or b""

    def metric(self, name: str) -> dict[str, float]:
        """The values of a metric by the text of its labels."""
        lines = self.get("/metrics").decode().splitlines()
        found = (re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line) for line in lines)
        return {one[1] or "": float(one[2]) for one in found if one}

    def get(self, path: str) -> bytes:
        import urllib.request

        url = f"https://localhost:{self.http_port}{path}"
        with urllib.request.urlopen(url, timeout=WAIT_S, context=self.context()) as answer:
            content: bytes = answer.read()
            return content


def api_versions(client: ssl.SSLSocket) -> None:
    """Send ApiVersions (version 0) and read the answer."""
    body = (18).to_bytes(2, "big") + bytes(2) + (7).to_bytes(4, "big") + (0xFFFF).to_bytes(2, "big")
    client.sendall(len(body).to_bytes(4, "big") + body)
    head = client.recv(4)
    if not head:
        raise ConnectionResetError
    left = int.from_bytes(head, "big")
    while left:
        left -= len(client.recv(left))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    server = Secured(tmp_path_factory.mktemp("secured"))
    try:
        yield server
        assert server.process.stop() == 0
    finally:
        server.process.kill()


@pytest.mark.needs_java
@pytest.mark.needs_mvn
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("kafka-tools")
def test_javas_tools_work_with_pem_files(secured: Secured, java: JavaTools, tmp_path: Path) -> None:
    topic = unique_name("tls-java")
    bootstrap = f"localhost:{secured.mtls_port}"
    login = Login(bootstrap, "SSL", ca=secured.authority.path, key_store=secured.client)
    server = ("--bootstrap-server", bootstrap, "--command-config", str(login.write_properties(tmp_path)))
    java.run("TopicCommand", *server, "--create", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in java.run("TopicCommand", *server, "--describe", "--topic", topic)


def test_a_client_needs_a_certificate_of_the_trusted_ca(secured: Secured, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").client("mallory")
    late = secured.authority.client("late", is_expired=True)
    secured.open(secured.ssl_port, secured.context()).close()
    secured.open(secured.mtls_port, secured.context(secured.client)).close()
    for context in (secured.context(), secured.context(stranger), secured.context(late)):
        with pytest.raises(OSError):  # noqa: PT011
            secured.open(secured.mtls_port, context)


@in_loop
async def test_https_and_wss(secured: Secured) -> None:
    room = unique_name("tls-room")
    url = f"https://localhost:{secured.http_port}"
    socket_url = f"wss://localhost:{secured.http_port}/ws"
    context = secured.context()
    sent = [{"n": number, "text": "x" * 200_000} for number in range(20)]
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        connect(socket_url, ssl=context, max_size=None) as reading,
        connect(socket_url, ssl=context, max_size=None) as writing,
        asyncio.timeout(WAIT_S),
    ):
        reader, writer = RoomSocket(reading), RoomSocket(writing)
        async with session.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        await writer.result("stream.publish", room=room, event_type="t", data=sent[0])
        await reader.result("stream.subscribe", room=room, from_offset=0)
        for data in sent[1:]:
            await writer.result("stream.publish", room=room, event_type="t", data=data)
        seen: list[object] = []
        while len(seen) < len(sent):
            message = await reader.next()
            if "data" in message:
                seen.append(message["data"])
        assert seen == sent
        path = f"{url}/rooms/{room}/subscribe?from_offset=0"
        async with session.get(path, headers={"Accept": "text/event-stream"}) as answer:
            assert answer.status == 200
            text = b""
            while text.count(b'"text":"') < len(sent):
                text += await answer.content.readany()


def test_new_certificates_and_trust_are_used_while_an_old_connection_goes_on(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    try:
        _check_reload(secured, tmp_path)
    finally:
        secured.process.kill()


def _check_reload(secured: Secured, tmp_path: Path) -> None:
    old_context = secured.context(secured.client)
    old = secured.open(secured.mtls_port, old_context)
    before = secured.certificate(secured.mtls_port)
    other = Authority(tmp_path, "other")
    newcomer = other.client("newcomer")
    with pytest.raises(OSError):  # noqa: PT011
        secured.open(secured.mtls_port, secured.context(newcomer))

    replace_file(secured.key_store, b"-----BEGIN nonsense")
    reloads = "kwire_tls_reloads_total"
    wait_until(
        lambda: secured.metric(reloads).get('fate="failed",listener="MTLS"') == 1, "the failed reload is counted"
    )
    assert secured.certificate(secured.mtls_port) == before
    assert "the old certificates stay in use" in secured.process.output_tail()

    replace_file(secured.key_store, pem(secured.authority.issue(*HOSTS)))
    wait_until(lambda: secured.certificate(secured.mtls_port) != before, "the new certificate is shown")
    wait_until(lambda: secured.metric(reloads).get('fate="loaded",listener="MTLS"') == 1, "the reload is counted")
    replace_file(secured.authority.path, other.path.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(newcomer)

    def is_welcome() -> bool:
        try:
            secured.open(secured.mtls_port, context).close()
        except OSError:
            return False
        return True

    wait_until(is_welcome, "the new trust store accepts the new client")
    with pytest.raises(OSError):  # noqa: PT011
        secured.open(secured.mtls_port, old_context)
    # The connection of the client that is no longer trusted was made before, and goes on.
    api_versions(old)
    old.close()


def test_the_expiry_of_the_certificate_is_a_metric(secured: Secured) -> None:
    expiry = secured.metric("kwire_tls_certificate_expiry_timestamp_seconds")
    assert set(expiry) == {'listener="SSL"', 'listener="MTLS"', 'listener="http"'}
    assert len(set(expiry.values())) == 1


def test_a_flood_of_silent_connections_is_bounded(tmp_path: Path) -> None:
    raise_limit()
    secured = Secured(tmp_path)
    flood: list[socket.socket] = []
    try:
        before = anonymous_memory_bytes(secured.process.pid)
        for _ in range(FLOOD):
            one = socket.socket()
            one.connect(("127.0.0.1", secured.ssl_port))
            flood.append(one)
        secured.open(secured.ssl_port, secured.context()).close()
        pending = secured.metric("kwire_tls_handshakes_pending")['listener="SSL"']
        assert pending <= 1000
        assert anonymous_memory_bytes(secured.process.pid) - before < 64 * 1024 * 1024
        stalls = secured.metric("kwire_loop_stall_seconds_max")[""]
        assert stalls < 0.5
    finally:
        for one in flood:
            one.close()
        secured.process.kill()


def test_a_bad_file_ends_the_start_with_a_message(tmp_path: Path) -> None:
    process = KwireProcess(
        tmp_path,
        kafka_port=None,
        settings={"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM", "ssl.keystore.location": "/none.pem"},
    )
    process.start()
    assert process.exit_code() == 1
    assert "ssl.keystore.location=/none.pem cannot be read: No such file or directory" in process.output_tail()
