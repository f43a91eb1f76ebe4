"""TLS connections over real sockets in uvloop: flow control in both directions, ends, floods of handshakes."""

import asyncio
import mmap
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kwire.access.audit.queue import AuditQueue
from kwire.config import Listener
from kwire.config.access import AuditConfig
from kwire.server.kafka.listener import KafkaListener
from kwire.server.tls import acceptor as acceptor_module
from kwire.server.tls import connection as connection_module
from kwire.server.tls.connection import TlsConnection
from tests.server.fakes import Slow, shared_of
from tests.server.tls_world import WAIT_S, Buffered, FakePort, Streamed, World, silent_socket, until, world
from tests.support.certificates import Authority
from tests.support.node import QuietNode, in_uvloop

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("make", [Buffered, Streamed])
@in_uvloop
async def test_bytes_arrive_unchanged_in_both_directions(authority: Authority, make: Callable[[], Any]) -> None:
    async with world(authority, make) as here:
        reader, writer, app = await here.connected()
        assert here.port.handshakes.total() == 0
        data = os.urandom(3 * MIB)
        for start in range(0, len(data), 300_001):
            writer.write(data[start : start + 300_001])
        await until(lambda: len(app.received) == len(data))
        assert app.received == data
        app.transport.write(data[:10])
        app.transport.writelines([data[10:20], memoryview(data)[20:100_000], b"", data[100_000:]])
        assert await reader.readexactly(len(data)) == data
        writer.close()


@in_uvloop
async def test_file_pages_are_encrypted_in_pieces_as_the_client_reads(authority: Authority, tmp_path: Path) -> None:
    size = 24 * MIB
    path = tmp_path / "segment"
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    async with world(authority) as here:
        # A receive buffer of fixed size: otherwise the kernel takes up to `tcp_rmem` for a client that reads nothing.
        reader, writer, app = await here.connected(receive_buffer=256 * 1024)
        app.transport.set_write_buffer_limits(high=MIB)
        app.transport.writelines([b"head", *(view[start : start + 5 * MIB] for start in range(0, size, 5 * MIB))])
        assert app.events == ["made", "pause"]
        unsent = app.transport.get_write_buffer_size()
        assert size - 2 * MIB < unsent <= size + MIB
        # The client reads nothing: what is encrypted stays bounded, all else are still file pages.
        await asyncio.sleep(0.2)
        assert app.transport._backlog_bytes > size - 8 * MIB
        assert await reader.readexactly(4) == b"head"
        await reader.readexactly(10 * MIB)
        await until(lambda: app.transport.get_write_buffer_size() < unsent - 5 * MIB)
        received = await reader.readexactly(size - 10 * MIB)
        assert received == view[10 * MIB :]
        await until(lambda: app.transport.get_write_buffer_size() == 0)
        assert app.events == ["made", "pause", "resume"]
        writer.close()


@in_uvloop
async def test_a_paused_connection_receives_little_and_nothing_is_lost(authority: Authority) -> None:
    async with world(authority) as here:
        _, writer, app = await here.connected()
        app.transport.pause_reading()
        data = os.urandom(16 * MIB)
        writer.write(data)
        await asyncio.sleep(0.3)
        assert app.received == b""
        assert app.transport._incoming.pending <= connection_module.RECEIVE_BYTES
        for _ in range(50):
            app.transport.resume_reading()
            await asyncio.sleep(0.001)
            app.transport.pause_reading()
        app.transport.resume_reading()
        await until(lambda: len(app.received) == len(data))
        assert app.received == data


@in_uvloop
async def test_a_small_buffer_is_filled_once_per_iteration_and_the_rest_waits_bounded(authority: Authority) -> None:
    async with world(authority) as here:
        _, writer, app = await here.connected()
        app.buffer = bytearray(1000)
        data = os.urandom(MIB)
        writer.write(data)
        most = 0
        while len(app.received) < len(data):
            most = max(most, app.transport._incoming.pending)
            await asyncio.sleep(0)
        assert app.received == data
        assert most <= connection_module.INCOMING_BYTES_MAX + connection_module.RECEIVE_BYTES


@in_uvloop
async def test_close_sends_the_rest_first_and_abort_does_not(authority: Authority) -> None:
    async with world(authority) as here:
        client, app = await blocking_client(here)
        data = os.urandom(6 * MIB)
        app.transport.write(data)
        app.transport.close()
        assert app.transport.is_closing()
        app.transport.write(b"too late")
        assert await asyncio.to_thread(read_to_end, client) == data
        await app.lost
        client.close()
        reader, _, app = await here.connected()
        app.transport.write(data)
        app.transport.abort()
        await app.lost
        assert app.events[-1] == "lost"
        with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
            await reader.readexactly(len(data))


@in_uvloop
async def test_the_end_of_a_stream_is_a_close_notify_after_all_data(authority: Authority) -> None:
    async with world(authority) as here:
        client, app = await blocking_client(here)
        data = os.urandom(4 * MIB)
        app.transport.write(data)
        assert app.transport.can_write_eof()
        app.transport.write_eof()
        assert await asyncio.to_thread(read_to_end, client) == data
        assert app.events.count("lost") == 0
        client.send(b"ignored")
        client.close()
        await app.lost
        assert app.received == b""


@in_uvloop
async def test_the_client_ends_the_connection(authority: Authority) -> None:
    async with world(authority) as here:
        _, writer, app = await here.connected()
        writer.write(b"last words")
        writer.close()
        await app.lost
        assert app.received == b"last words"
        assert app.events == ["made", "eof", "lost"]


@in_uvloop
async def test_a_replaced_protocol_gets_the_next_bytes(authority: Authority) -> None:
    async with world(authority, Streamed) as here:
        _, writer, app = await here.connected()
        writer.write(b"to the first")
        await until(lambda: app.received == b"to the first")
        transport = app.transport
        successor = Buffered()
        transport.set_protocol(successor)
        successor.connection_made(transport)
        writer.write(b"to the second")
        await until(lambda: successor.received == b"to the second")
        assert transport.get_protocol() is successor


@in_uvloop
async def test_bytes_that_are_not_tls_end_the_handshake(authority: Authority) -> None:
    async with world(authority) as here:
        reader, writer = await asyncio.open_connection(*here.address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 10)
        assert await reader.read(-1) == b""
        await until(lambda: here.port.handshakes.total() == 0)
        assert here.made == []
        assert here.tls.failed_handshakes == 1
        assert "http request" in here.port.warnings[0]
        writer.close()


@in_uvloop
async def test_a_client_without_a_certificate_is_told_why(authority: Authority) -> None:
    required = ("ssl.client.auth=required", "ssl.truststore.type=PEM", f"ssl.truststore.location={authority.path}")
    async with world(authority, Buffered, *required) as here:
        reader, writer = await here.client()
        with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"):
            await reader.read(1)
        assert "certificate" in here.port.warnings[0]
        assert here.made == []
        writer.close()


@in_uvloop
async def test_a_subject_without_a_rule_closes_the_connection(authority: Authority) -> None:
    settings = (
        "ssl.client.auth=required",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={authority.path}",
        "ssl.principal.mapping.rules=RULE:^CN=nobody$/x/",
    )
    async with world(authority, Buffered, *settings) as here:
        context = ssl.create_default_context(cafile=str(authority.path))
        context.load_cert_chain(authority.client("ruleless"))
        reader, writer = await asyncio.open_connection(*here.address, ssl=context)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)):
            await reader.readexactly(1)
        assert "no rule" in here.port.warnings[0]
        assert here.made == []
        await until(lambda: here.port.handshakes.total() == 0)
        writer.close()


@in_uvloop
async def test_silent_connections_are_bounded_and_do_not_keep_others_out(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor_module, "HANDSHAKES_MAX", 50)
    async with world(authority) as here:
        silent = [await silent_socket(here.address) for _ in range(200)]
        try:
            await until(lambda: here.tls.failed_handshakes == 150)
            assert here.port.handshakes.total() == here.tls.pending_handshakes == 50
            _, writer, app = await here.connected()
            writer.write(b"served")
            await until(lambda: app.received == b"served")
            writer.close()
        finally:
            for one in silent:
                one.close()
        await until(lambda: here.port.handshakes.total() == 0)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"], ids=["same address", "another address"])
@in_uvloop
async def test_handshakes_that_never_go_on_do_not_keep_others_out(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(acceptor_module, "HANDSHAKES_MAX", 50)
    async with world(authority) as here:
        client_hello = b"\x16\x03\x01\x02\x00\x01"
        first = await silent_socket(here.address)
        await until(lambda: here.port.handshakes.total() == 1)
        stuck = []
        try:
            for _ in range(60):
                stuck.append(await silent_socket(here.address, address))
                stuck[-1].send(client_hello)
            _, writer, app = await here.connected()
            writer.write(b"served")
            await until(lambda: app.received == b"served")
            writer.close()
            assert here.tls.pending_handshakes <= 50
            if address != "127.0.0.1":
                assert here.port.handshakes["127.0.0.1"] == 1, "the oldest of another address stays"
        finally:
            for one in (first, *stuck):
                one.close()
        await until(lambda: here.port.handshakes.total() == 0)


@in_uvloop
async def test_handshakes_have_a_deadline(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor_module, "HANDSHAKE_SECONDS_MAX", 0.2)
    monkeypatch.setattr(acceptor_module, "SWEEP_SECONDS", 0.05)
    async with world(authority) as here:
        silent = await silent_socket(here.address)
        slow = await silent_socket(here.address)
        # The beginning of a ClientHello that never goes on.
        slow.send(b"\x16\x03\x01\x02\x00\x01")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(WAIT_S):
            for one in (silent, slow):
                try:
                    assert await loop.sock_recv(one, 100) == b""
                except ConnectionResetError:
                    pass
                finally:
                    one.close()
        assert here.tls.failed_handshakes == 2
        assert here.port.handshakes.total() == 0


@in_uvloop
async def test_a_handshake_counts_against_the_limits_of_the_port(authority: Authority) -> None:
    async with world(authority, limit=1) as here:
        first = await silent_socket(here.address)
        await until(lambda: here.port.handshakes.total() == 1)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await here.client()
        first.close()
        await until(lambda: here.port.handshakes.total() == 0)
        _, writer, _ = await here.connected()
        writer.close()


@in_uvloop
async def test_at_most_one_handshake_step_runs_per_loop_iteration(authority: Authority) -> None:
    steps = 0
    original = TlsConnection._step_handshake

    def counted(self: TlsConnection) -> None:
        nonlocal steps
        steps += 1
        original(self)

    most = 0
    done = False

    async def watch() -> None:
        nonlocal most, steps
        while not done:
            most, steps = max(most, steps), 0
            await asyncio.sleep(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TlsConnection, "_step_handshake", counted)
        async with world(authority) as here:
            watching = asyncio.create_task(watch())
            clients = await asyncio.gather(*(here.client() for _ in range(30)))
            await until(lambda: len(here.made) == 30)
            done = True
            await watching
            for _, writer in clients:
                writer.close()
    assert most == 1


async def blocking_client(here: World) -> tuple[ssl.SSLSocket, Any]:
    """A client with a socket of its own. asyncio's clients drop received bytes when the server closes."""
    context = ssl.create_default_context(cafile=str(here.authority.path))
    count = len(here.made)

    def connect() -> ssl.SSLSocket:
        plain = socket.create_connection(here.address, WAIT_S)
        # Every end without a close_notify is an error.
        return context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False)

    client = await asyncio.to_thread(connect)
    await until(lambda: len(here.made) > count and here.made[-1].transport is not None)
    return client, here.made[-1]


def read_to_end(client: ssl.SSLSocket) -> bytes:
    received = bytearray()
    while part := client.recv(1 << 20):
        received += part
    return bytes(received)


@pytest.mark.parametrize(("name", "expected"), [("carol", "User:carol"), (None, "User:ANONYMOUS")])
@in_uvloop
async def test_a_kafka_connection_has_the_principal_of_its_certificate(
    authority: Authority, tmp_path: Path, name: str | None, expected: str
) -> None:
    settings = (
        "ssl.client.auth=requested",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={authority.path}",
        "ssl.principal.mapping.rules=RULE:^CN=(.*?),.*$/$1/",
    )
    with QuietNode(tmp_path, "max.connections=1") as node:
        audit = AuditQueue(AuditConfig(True, True, True, -1), node.clock)
        shared = shared_of(msgspec.structs.replace(node.services, audit=audit), Slow().handlers())
        tls = World(authority, FakePort(), Buffered, *settings).tls
        listener = KafkaListener(Listener("SSL", "SSL", "127.0.0.1", 0), None, shared, tls)
        asked: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            authorizer = type(node.services.authorizer)
            original = authorizer.access

            def access(self: Any, principal: Any, host: str) -> Any:
                asked.append(str(principal))
                return original(self, principal, host)

            patch.setattr(authorizer, "access", access)
            await listener.open()
            context = ssl.create_default_context(cafile=str(authority.path))
            if name is not None:
                context.load_cert_chain(authority.client(name))
            _, writer = await asyncio.open_connection("localhost", listener.port, ssl=context)
            await until(lambda: shared.metrics.connections == 1)
            assert asked == [expected]
            logins = [msgspec.json.decode(one.data) for one in audit.take(100, 2**20)]
            found = [(one["principal"], one["port"], one["mechanism"]) for one in logins]
            assert found == ([] if name is None else [(expected, "kafka", "certificate")])
            assert shared.handshakes_by_host.total() == 0
            # A handshake is refused at the limit of connections, before it begins.
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await asyncio.open_connection("localhost", listener.port, ssl=context)
            assert shared.metrics.connections_refused == 1
            writer.close()
            await until(lambda: shared.metrics.connections == 0)
            listener.close()
