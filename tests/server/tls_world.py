"""A TLS server in this process, for tests of connections."""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kwire.access.tls import TlsListener
from kwire.config import load
from kwire.server.tls.acceptor import TlsAcceptor
from tests.support.certificates import Authority

WAIT_S = 20.0


class FakePort:
    """The limits of a port, which record what they were asked."""

    def __init__(self, limit: int = 10**6) -> None:
        self.limit = limit
        self.handshakes: Counter[str] = Counter()
        self.warnings: list[str] = []

    def admit_handshake(self, host: str, descriptor: int) -> bool:
        assert descriptor >= 0
        if self.handshakes.total() >= self.limit:
            return False
        self.handshakes[host] += 1
        return True

    def end_handshake(self, host: str) -> None:
        assert self.handshakes[host] > 0
        self.handshakes[host] -= 1

    def warn(self, message: str, *details: object) -> None:
        self.warnings.append(message % details)


class Buffered(asyncio.BufferedProtocol):
    """A connection above TLS that collects what it receives, in a buffer of its own."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = bytearray()
        self.events: list[str] = []
        self.buffer = bytearray(32 * 1024)
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.events.append("made")

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.lost.set_result(exc)


class Streamed(asyncio.Protocol):
    """The same with `data_received`, as aiohttp's protocol."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = bytearray()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data


class World:
    """A TLS server in this process and its connections."""

    def __init__(self, authority: Authority, port: FakePort, make: Callable[[], Any], *settings: str) -> None:
        self.authority = authority
        self.port = port
        self.made: list[Any] = []
        config = load(
            settings=[
                "listeners=SSL://127.0.0.1:0",
                "ssl.keystore.type=PEM",
                f"ssl.keystore.location={authority.server()}",
                *settings,
            ]
        )
        self.tls = TlsListener(config.tls["SSL"])
        self.tls.use(self.tls.load())
        self._make = make
        self.acceptor = TlsAcceptor(self.tls, port, self._connection)
        self.address = ("", 0)

    def _connection(self) -> Any:
        self.made.append(self._make())
        return self.made[-1]

    async def client(self, receive_buffer: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cafile=str(self.authority.path))
        one = socket.socket()
        one.setblocking(False)
        if receive_buffer:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(one, self.address)
        return await asyncio.open_connection(sock=one, ssl=context, server_hostname=self.address[0], limit=64 * 1024)

    async def connected(self, receive_buffer: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Any]:
        count = len(self.made)
        reader, writer = await self.client(receive_buffer)
        await until(lambda: len(self.made) > count and self.made[-1].transport is not None)
        return reader, writer, self.made[-1]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def world(
    authority: Authority, make: Callable[[], Any] = Buffered, *settings: str, limit: int = 10**6
) -> AsyncIterator[World]:
    here = World(authority, FakePort(limit), make, *settings)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(here.acceptor, "127.0.0.1", 0)
    here.address = server.sockets[0].getsockname()
    try:
        yield here
    finally:
        server.close()
        here.acceptor.close()
        for one in here.made:
            if one.transport is not None:
                one.transport.abort()
        await asyncio.sleep(0.01)


async def silent_socket(address: tuple[str, int], own_address: str = "127.0.0.1") -> socket.socket:
    one = socket.socket()
    one.setblocking(False)
    one.bind((own_address, 0))
    await asyncio.get_running_loop().sock_connect(one, address)
    return one
