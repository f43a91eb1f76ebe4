"""Key updates of TLS 1.3, which cost a client nothing: their responses and the time that they take are bounded."""

import _ssl
import asyncio
import ctypes
import socket
import ssl

import pytest

from kwire.server.tls import connection as connection_module
from kwire.server.tls.connection import TlsConnection
from tests.server.tls_world import WAIT_S, silent_socket, until, world
from tests.support.certificates import Authority
from tests.support.node import in_uvloop


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


class KeyUpdates:
    """A client that changes its keys, which Python's `ssl` cannot, over a plain socket."""

    def __init__(self, authority: Authority) -> None:
        self._received, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(authority.path))
        self._ssl = context.wrap_bio(self._received, self._sent, server_hostname="127.0.0.1")
        # OpenSSL's object is the second field of the Python object.
        self._pointer = ctypes.c_void_p.from_address(id(self._ssl._sslobj) + 24)  # type: ignore[attr-defined]
        self._library = ctypes.CDLL(_ssl.__file__)

    async def connect(self, address: tuple[str, int]) -> socket.socket:
        loop, client = asyncio.get_running_loop(), await silent_socket(address)
        self._pointer = ctypes.c_void_p(self._pointer.value)
        while True:
            try:
                self._ssl.do_handshake()
                break
            except ssl.SSLWantReadError:
                await loop.sock_sendall(client, self._sent.read())
                self._received.write(await loop.sock_recv(client, 65536))
        await loop.sock_sendall(client, self._sent.read())
        return client

    def updates(self, count: int) -> bytes:
        """Return messages each of which asks the server to change its keys, too."""
        for _ in range(count):
            assert self._library.SSL_key_update(self._pointer, 1) == 1
            assert self._library.SSL_do_handshake(self._pointer) == 1
        return self._sent.read()

    def data(self, data: bytes) -> bytes:
        self._ssl.write(data)
        return self._sent.read()


@in_uvloop
async def test_key_updates_wait_until_their_responses_are_read(authority: Authority) -> None:
    """Each key update has a response. A client that read none of them could fill the server's memory."""
    async with world(authority) as here:
        loop, peer = asyncio.get_running_loop(), KeyUpdates(authority)
        client = await peer.connect(here.address)
        await until(lambda: here.made)
        app, unsent = here.made[0], 0
        for one, option in ((client, socket.SO_RCVBUF), (app.transport.get_extra_info("socket"), socket.SO_SNDBUF)):
            one.setsockopt(socket.SOL_SOCKET, option, 128 * 1024)
        messages = peer.updates(60_000) + peer.data(b"data after all of them")
        sending = asyncio.ensure_future(loop.sock_sendall(client, messages))
        try:
            await until(lambda: app.transport.get_write_buffer_size() > connection_module.UNSENT_ENCRYPTED_BYTES_MAX)
            for _ in range(20):
                await asyncio.sleep(0.005)
                unsent = max(unsent, app.transport.get_write_buffer_size())
            assert app.received == b""
            while not app.received:
                async with asyncio.timeout(WAIT_S):
                    await loop.sock_recv(client, 65536)
                unsent = max(unsent, app.transport.get_write_buffer_size())
            assert app.received == b"data after all of them"
            assert unsent <= connection_module.UNSENT_ENCRYPTED_BYTES_MAX + connection_module.RECEIVE_BYTES
            await sending
        finally:
            sending.cancel()
            client.close()


@in_uvloop
async def test_few_key_updates_are_handled_per_chunk(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(authority) as here:
        peer = KeyUpdates(authority)
        client = await peer.connect(here.address)
        await until(lambda: here.made)
        messages = peer.updates(5_000) + peer.data(b"data")
        connection, handled = here.made[0].transport, []
        receive, incoming = TlsConnection._receive, connection._incoming

        def count(self: TlsConnection) -> None:
            before = incoming.pending
            receive(self)
            handled.append(before - incoming.pending)

        monkeypatch.setattr(TlsConnection, "_receive", count)
        sending = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(client, messages))
        await until(lambda: here.made[0].received == b"data")
        await sending
        assert sum(handled) == len(messages)
        assert max(handled) <= connection_module.RECEIVE_LITTLE_BYTES
        client.close()
