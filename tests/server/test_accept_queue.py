"""The accept queue: what arrives at once is opened in turns by network, and nothing is lost or left open."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from kwire.server import accept_queue
from kwire.server.accept_queue import AcceptQueue
from tests.support.node import in_uvloop

HOST, OTHER_HOST = "127.0.0.1", "127.0.0.2"
TIMEOUT_S = 5
MANY = 60


class Greeting(asyncio.Protocol):
    """A connection that notes the address of its client, greets it, and is closed."""

    def __init__(self, opened: list[str]) -> None:
        self._opened = opened

    def connection_made(self, transport: Any) -> None:
        self._opened.append(transport.get_extra_info("peername")[0])
        transport.write(b"hello")
        transport.close()


class World:
    """A queue that listens on a port of its own, and the hosts whose connections were opened, in their order."""

    def __init__(self, admit_descriptor: Callable[[int], bool] = lambda _: True) -> None:
        self.opened: list[str] = []
        self.warnings: list[str] = []
        self.queue = AcceptQueue(
            lambda: Greeting(self.opened),
            admit_descriptor,
            lambda text, *details: self.warnings.append(text % details),
        )

    def connect(self, source: str = HOST) -> socket.socket:
        connection = socket.create_connection((HOST, self.queue.port), TIMEOUT_S, (source, 0))
        connection.setblocking(False)
        return connection


@asynccontextmanager
async def listening(world: World) -> AsyncIterator[World]:
    async with asyncio.timeout(TIMEOUT_S):
        await world.queue.listen(HOST, 0, 1000)
        try:
            yield world
        finally:
            world.queue.close()
            # Connections that are being opened or closed need a few more iterations of the loop.
            for _ in range(5):
                await asyncio.sleep(0)


async def received(connection: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(connection, 100)


@in_uvloop
async def test_a_client_of_another_network_does_not_wait_for_all_that_came_before_it() -> None:
    async with listening(World()) as world:
        with ExitStack() as stack:
            clients = [stack.enter_context(world.connect()) for _ in range(MANY)]
            clients.append(stack.enter_context(world.connect(OTHER_HOST)))
            for client in clients:
                assert await received(client) == b"hello"
    assert len(world.opened) == MANY + 1
    assert world.opened.index(OTHER_HOST) < MANY / 2, world.opened


@in_uvloop
async def test_when_too_many_wait_no_more_are_accepted_until_half_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accept_queue, "WAITING_MAX", 4)
    waiting_max = 0
    async with listening(World()) as world:
        open_waiting = world.queue._open_waiting

        def count(accepted: socket.socket) -> None:
            nonlocal waiting_max
            waiting_max = max(waiting_max, len(world.queue._turns) + 1)
            open_waiting(accepted)

        monkeypatch.setattr(world.queue._turns, "_serve", count)
        with ExitStack() as stack:
            for client in [stack.enter_context(world.connect()) for _ in range(MANY)]:
                assert await received(client) == b"hello"
    assert waiting_max == 4


@in_uvloop
async def test_a_connection_whose_descriptor_is_reserved_is_closed() -> None:
    async with listening(World(admit_descriptor=lambda _: False)) as world:
        with world.connect() as client:
            assert await received(client) == b""
    assert not world.opened


@in_uvloop
async def test_connections_that_wait_are_closed_with_the_listener() -> None:
    async with listening(World()) as world:
        with ExitStack() as stack:
            clients = [stack.enter_context(world.connect()) for _ in range(MANY)]
            while not world.queue._turns:
                await asyncio.sleep(0)
            world.queue.close()
            texts = [await received_or_reset(client) for client in clients]
    assert texts.count(b"hello") == len(world.opened) < MANY
    assert texts.count(b"") == MANY - len(world.opened)


async def received_or_reset(connection: socket.socket) -> bytes:
    try:
        return await received(connection)
    except ConnectionResetError:
        return b""  # The kernel resets connections that were not accepted.


@in_uvloop
async def test_an_error_of_the_system_is_reported_and_accepting_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accept_queue, "PAUSE_SECONDS", 0.01)
    async with listening(World()) as world:
        accept = socket.socket.accept
        failures = [OSError(errno.EMFILE, "Too many open files")] * 2

        def fail_twice(self: socket.socket) -> object:
            if failures:
                raise failures.pop()
            return accept(self)

        monkeypatch.setattr(socket.socket, "accept", fail_twice)
        with world.connect() as client:
            assert await received(client) == b"hello"
    assert len(world.warnings) == 2
    assert "Too many open files" in world.warnings[0]


@in_uvloop
async def test_a_connection_that_cannot_be_opened_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.queue._make_protocol = lambda: 1 // 0  # type: ignore[assignment, return-value]
    async with listening(world):
        with world.connect() as client:
            assert await received(client) == b""
    assert "cannot be opened" in caplog.text


@in_uvloop
async def test_settings_of_the_listening_socket() -> None:
    world = World()
    await world.queue.listen(HOST, 0, 10, 200_000, 100_000)
    (listening_socket,) = world.queue._listening
    # The kernel doubles the sizes, for its own use.
    assert listening_socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 200_000
    assert listening_socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 100_000
    assert listening_socket.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
    taken = World()
    with pytest.raises(OSError, match="Address already in use") as problem:
        await taken.queue.listen(HOST, world.queue.port, 10)
    assert problem.value.errno == errno.EADDRINUSE
    world.queue.close()
    assert not taken.queue._listening


@in_uvloop
async def test_a_host_with_several_addresses_has_a_socket_for_each() -> None:
    world = World()
    await world.queue.listen(None, 0, 10)
    families = {one.family for one in world.queue._listening}
    world.queue.close()
    assert socket.AF_INET in families
    assert families == {socket.AF_INET, socket.AF_INET6} or not socket.has_dualstack_ipv6()
