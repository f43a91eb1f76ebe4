"""Receive pressure: slow senders are closed when memory is used up, others are not, and no address gets all of it."""

import asyncio
import struct
from pathlib import Path

import pytest

from kwire.server.kafka.receive_pressure import GIVEN_UP_PER_CHUNK, SLOW_SECONDS_MAX, SLOW_SHARE, ReceivePressure
from kwire.server.kafka.shared import Shared
from kwire.wire.frame import SCRATCH_BYTES, SHORT_READ_BYTES, Account, FrameReader, ReceiveMemory
from tests.server.fakes import FakeClient, Slow, shared_of
from tests.support.node import QuietNode, in_loop

KIB = 1024
FRAME_BYTES = 200 * KIB
LIMIT_BYTES = 1024 * KIB
RATE_MIN = 10_000
WINDOW_S = 10.0
TIMEOUT_S = 10.0
SETTINGS = (
    f"socket.request.max.bytes={LIMIT_BYTES // 4}",
    f"queued.max.request.bytes={LIMIT_BYTES}",
    f"kwire.receive.rate.min={RATE_MIN}",
    f"kwire.receive.window.ms={WINDOW_S * 1000:.0f}",
)
UNFINISHED = struct.pack(">i", FRAME_BYTES) + bytes(FRAME_BYTES - 10 * KIB)


class World:
    """Clients that send, and a sweep that is told the time."""

    def __init__(self, node: QuietNode) -> None:
        self.shared: Shared = shared_of(node.services, Slow().handlers())
        self.pressure = ReceivePressure(self.shared)
        self.now = 1000.0

    def client(self, host: str = "192.0.2.1") -> FakeClient:
        return FakeClient(self.shared, host=host)

    def pass_seconds(self, seconds: float) -> None:
        self.now += seconds
        for connection in self.shared.connections:
            self.pressure.observe(connection, self.now)
        self.pressure.end_round(self.now)

    def fill(self, host: str = "192.0.2.1") -> list[FakeClient]:
        """Clients that send most of a request, as many as find memory for it."""
        clients: list[FakeClient] = []
        while not self.shared.starved:
            clients.append(self.client(host))
            clients[-1].send_while_read(UNFINISHED)
        return clients[:-1]


@in_loop
async def test_slow_request_lives_as_long_as_there_is_memory(tmp_path: Path) -> None:
    with QuietNode(tmp_path, *SETTINGS) as node:
        world = World(node)
        slow = world.client()
        slow.send_while_read(struct.pack(">i", FRAME_BYTES) + bytes(100 * KIB))
        for _ in range(20):
            world.pass_seconds(WINDOW_S)
            slow.send_while_read(bytes(int(WINDOW_S * RATE_MIN * SLOW_SHARE) + 1))
        assert not slow.transport.is_aborted


@in_loop
async def test_request_of_which_next_to_nothing_arrives_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with QuietNode(tmp_path, *SETTINGS) as node:
        world = World(node)
        slow, recovering = world.client(), world.client()
        for one in (slow, recovering):
            one.send_while_read(struct.pack(">i", FRAME_BYTES) + bytes(100 * KIB))
        seconds = 0.0
        while seconds < SLOW_SECONDS_MAX:
            world.pass_seconds(WINDOW_S if seconds else 0)
            seconds += WINDOW_S
            assert not slow.transport.is_aborted
            slow.send_while_read(b"\0")
            recovering.send_while_read(b"\0" if seconds <= WINDOW_S else bytes(20 * KIB))
        world.pass_seconds(WINDOW_S)
        assert slow.transport.is_aborted
        assert not recovering.transport.is_aborted
        assert world.shared.memory.used_bytes == recovering.connection.reader.held_bytes
    assert "bytes for too long" in caplog.text


@in_loop
async def test_requests_are_given_up_a_few_at_a_time(tmp_path: Path) -> None:
    with QuietNode(tmp_path, *SETTINGS) as node:
        world = World(node)
        stalled = [world.client(f"192.0.2.{number}") for number in range(2 * GIVEN_UP_PER_CHUNK)]
        for one in stalled:
            one.send_while_read(struct.pack(">i", FRAME_BYTES) + bytes(KIB))
        for _ in range(int(SLOW_SECONDS_MAX / WINDOW_S)):
            world.pass_seconds(WINDOW_S)
        assert not any(one.transport.is_aborted for one in stalled)
        world.pass_seconds(WINDOW_S)
        assert sum(one.transport.is_aborted for one in stalled) == GIVEN_UP_PER_CHUNK
        async with asyncio.timeout(TIMEOUT_S):
            while not all(one.transport.is_aborted for one in stalled):
                await asyncio.sleep(0)


@in_loop
async def test_slow_requests_are_given_up_when_another_needs_the_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with QuietNode(tmp_path, *SETTINGS) as node:
        world = World(node)
        slow = world.fill()
        (starved,) = world.shared.starved
        fast = slow[-1]
        world.pass_seconds(0)
        for _ in range(int(WINDOW_S)):
            for one in slow:
                one.send_while_read(b"\0" * (1 if one is not fast else RATE_MIN // 10))
            fast.connection.reader.received_bytes += 2 * RATE_MIN  # as if it sent more than its frame has left
            world.pass_seconds(1)
        given_up = [one for one in slow if one.transport.is_aborted]
        # One is enough for the other to go on, and the slowest are the first to go.
        assert len(given_up) == 1
        assert fast not in given_up
        assert not starved.reader.is_starved
        assert "kwire.receive.rate.min=10000" in caplog.text


@in_loop
async def test_connection_that_waits_for_memory_is_not_too_slow(tmp_path: Path) -> None:
    with QuietNode(tmp_path, *SETTINGS) as node:
        world = World(node)
        first, *_ = world.fill()
        (starved,) = world.shared.starved
        world.pass_seconds(0)
        world.pass_seconds(WINDOW_S - 1)
        first.lose()
        starved.try_reading()
        world.pass_seconds(2)
        assert not starved.reader.is_starved
        assert not starved._transport.is_closing()


@in_loop
async def test_memory_that_is_released_goes_to_those_that_wait(tmp_path: Path) -> None:
    with QuietNode(tmp_path, *SETTINGS) as node:
        world = World(node)
        first, *_ = world.fill()
        (starved,) = world.shared.starved
        first.lose()
        assert starved.reader.has_room
        world.shared._resume_starved()
        assert not starved.reader.is_starved
        assert not world.shared.starved


@in_loop
async def test_one_address_leaves_memory_for_another(tmp_path: Path) -> None:
    with QuietNode(tmp_path, *SETTINGS) as node:
        world = World(node)
        greedy = world.fill("192.0.2.1")
        assert world.shared.memory.used_bytes <= LIMIT_BYTES // 2 + SCRATCH_BYTES
        other = world.client("192.0.2.2")
        other.send_while_read(UNFINISHED)
        assert not other.connection.reader.is_starved
        for one in (*greedy, other):
            one.lose()


def test_address_has_the_share_that_it_leaves_free() -> None:
    memory = ReceiveMemory(1000, 100)
    one, another = Account(), Account()
    assert memory.room_bytes(one) == 500
    memory.overdraw(400, one)
    assert (memory.room_bytes(one), memory.room_bytes(another)) == (100, 300)
    memory.overdraw(200, another)
    assert (memory.room_bytes(one), memory.room_bytes(another)) == (0, 100)


def test_one_frame_of_the_largest_size_always_fits_the_share() -> None:
    memory = ReceiveMemory(1000, 900)
    assert memory.room_bytes(Account()) == 904


def test_connections_of_an_address_without_room_are_read_a_little_at_a_time() -> None:
    memory = ReceiveMemory(LIMIT_BYTES, 1)
    account = Account()
    assert len(FrameReader(memory, LIMIT_BYTES, account).buffer()) == SCRATCH_BYTES
    memory.overdraw(LIMIT_BYTES, account)
    assert len(FrameReader(memory, LIMIT_BYTES, account).buffer()) == SHORT_READ_BYTES
