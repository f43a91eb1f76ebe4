"""A connection of a listener with SASL: what it handles, holds and closes, with a socket that is a list."""

import asyncio
import gc
import itertools
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

import pytest

from kwire.access.login_limits import FAILURES_MAX
from kwire.access.principal import Principal
from kwire.access.quotas.entities import entity_of
from kwire.access.quotas.quotas import Alteration
from kwire.access.sasl.authentication import LOGIN_SECONDS_MAX, REAUTHENTICATION_SECONDS_MIN
from kwire.access.users import passwords as password_checks
from kwire.config import Listener
from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.server import network_turns
from kwire.server.kafka import connection, throttling
from kwire.server.kafka import listener as listeners
from kwire.server.kafka.connection import KafkaConnection
from kwire.server.kafka.listener import KafkaListener, Sweep
from kwire.server.kafka.revocation import REVOKED_SECONDS_MAX
from kwire.server.loop_budget import LoopBudget
from kwire.wire.codec import decode_message
from kwire.wire.frame import LOGIN_STEP_BYTES, SMALL_STEP_BYTES
from kwire.wire.messages.api_versions import ApiVersionsRequest
from kwire.wire.messages.metadata import MetadataRequest
from kwire.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.server.fakes import FakeClient, shared_of
from tests.server.frames import CLIENT_ID, frame, split
from tests.support.node import QuietNode, in_loop
from tests.support.users import plain_token

WAIT_S = 20.0
GUESSER = "203.0.113.9"
SASL = Listener("SASL_PLAINTEXT", "SASL_PLAINTEXT", "127.0.0.1", 9092)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    settings = (
        "listeners=SASL_PLAINTEXT://127.0.0.1:9092",
        "connection.failed.authentication.delay.ms=300",
        "socket.request.max.bytes=1000000",
    )
    with QuietNode(tmp_path, *settings) as made:
        yield made


class World:
    """A listener with SASL, a user, and clients of the test."""

    def __init__(self, node: QuietNode) -> None:
        self.node = node
        self.shared = shared_of(node.services, HANDLERS)
        self.listener = KafkaListener(SASL, None, self.shared)

    def client(self) -> FakeClient:
        return FakeClient(self.shared, self.listener)

    async def logged_in(self) -> FakeClient:
        client = self.client()
        client.send(handshake(1))
        await answers(client, 1)
        client.send(token(2, "secret"))
        await answers(client, 2)
        return client


def handshake(correlation_id: int, mechanism: str = "PLAIN") -> bytes:
    return frame(SaslHandshakeRequest(mechanism=mechanism), 1, correlation_id)


def token(correlation_id: int, password: str) -> bytes:
    return frame(SaslAuthenticateRequest(auth_bytes=plain_token("alice", password)), 1, correlation_id)


def versions(correlation_id: int) -> bytes:
    return frame(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 0, correlation_id)


def metadata(correlation_id: int) -> bytes:
    return frame(MetadataRequest(topics=[]), 1, correlation_id)


async def answers(client: FakeClient, count: int) -> list[int]:
    """Wait until the client has got this many answers; their correlation ids."""
    async with asyncio.timeout(WAIT_S):
        while len(client.received()) < count:
            await asyncio.sleep(0.001)
    return client.received()


async def send_all(client: FakeClient, data: bytes) -> None:
    """Let the bytes arrive, also on a busy machine, where the server reads the rest in later loop iterations."""
    view = memoryview(data)
    async with asyncio.timeout(WAIT_S):
        while view:
            if client.is_read():
                view = view[client.deliver(view) :]
            else:
                await asyncio.sleep(0)


async def closed(client: FakeClient) -> None:
    async with asyncio.timeout(WAIT_S):
        while not client.transport.is_closing():
            await asyncio.sleep(0.001)


@in_loop
async def test_requests_that_were_sent_with_the_login_are_handled_after_it(node: QuietNode) -> None:
    await node.services.users.create("alice", "secret")
    world = World(node)
    client = world.client()
    assert client.connection.views is not None
    assert str(client.connection.views.access.principal) == "User:ANONYMOUS"
    client.send(versions(1) + handshake(2) + token(3, "secret") + metadata(4) + versions(5))
    assert await answers(client, 5) == [1, 2, 3, 4, 5]
    assert client.connection.views.access.principal == Principal("User", "alice")
    assert client.connection.gate is None, "nothing is checked any more"
    assert (world.shared.metrics.logins, world.shared.metrics.logins_failed) == (1, 0)
    client.lose()


@in_loop
async def test_connections_of_a_host_share_their_views_until_they_log_in(node: QuietNode) -> None:
    await node.services.users.create("alice", "secret")
    world = World(node)
    client, other = world.client(), world.client()
    shared = client.connection.views
    assert shared is not None
    assert other.connection.views is shared
    client.send(handshake(1) + token(2, "secret"))
    assert await answers(client, 2) == [1, 2]
    assert client.connection.principal == Principal("User", "alice")
    assert other.connection.views is shared
    assert str(shared.access.principal) == "User:ANONYMOUS"
    client.lose()
    other.lose()


@in_loop
async def test_requests_that_were_sent_with_a_wrong_login_are_not_handled(node: QuietNode) -> None:
    await node.services.users.create("alice", "secret")
    world = World(node)
    client = world.client()
    client.send(handshake(1) + token(2, "wrong") + metadata(3) + metadata(4))
    await closed(client)
    assert client.received() == [1, 2]
    assert client.is_closed(), "the answer is sent before the end"
    (_, body) = split(bytes(client.transport.sent))
    answer = decode_message(SaslAuthenticateResponse, 1, body[4:])
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (world.shared.metrics.logins, world.shared.metrics.logins_failed) == (0, 1)
    client.lose()


@in_loop
async def test_a_failed_login_holds_no_memory_during_its_delay(node: QuietNode) -> None:
    world = World(node)
    client = world.client()
    client.send(handshake(1))
    await answers(client, 1)
    giant = frame(SaslAuthenticateRequest(auth_bytes=bytes(500_000)), 1, 2)
    await send_all(client, giant)
    async with asyncio.timeout(WAIT_S):
        while not world.shared.metrics.logins_failed:
            await asyncio.sleep(0)
    assert not client.transport.is_closing()
    assert client.connection.reader.held_bytes == 0
    assert not client.is_read()
    await closed(client)
    client.lose()


@in_loop
async def test_the_limit_of_frames_rises_with_the_login(node: QuietNode) -> None:
    await node.services.users.create("alice", "secret")
    world = World(node)
    early = world.client()
    early.send_while_read(struct.pack(">i", 524_289))
    assert early.transport.is_aborted
    late = await world.logged_in()
    late.send(struct.pack(">i", 900_000) + bytes(1000))
    assert not late.transport.is_aborted
    for client in (early, late):
        client.lose()


@in_loop
async def test_connections_that_do_not_log_in_are_closed(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.services.users.create("alice", "secret")
    world = World(node)
    kept = await world.logged_in()
    idle, begun, slow = world.client(), world.client(), world.client()
    begun.send(handshake(1, "SCRAM-SHA-256"))
    slow.send(struct.pack(">i", 400_000) + bytes(1000))
    sweep = Sweep(world.shared)
    sweep.close()
    for elapsed_s, is_closed in ((LOGIN_SECONDS_MAX - 1, False), (LOGIN_SECONDS_MAX + 1, True)):
        monkeypatch.setattr(listeners, "perf_counter", partial(_later, elapsed_s))
        sweep._run()
        sweep.close()
        assert [one.transport.is_aborted for one in (idle, begun, slow)] == [is_closed] * 3
        assert not kept.transport.is_closing()
    assert world.shared.metrics.logins_failed == 3
    for client in (idle, begun, slow, kept):
        client.lose()


@in_loop
async def test_a_connection_that_ends_during_the_check_of_its_password_is_forgotten(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.services.users.create("alice", "secret")
    world = World(node)
    client = world.client()
    client.send(handshake(1))
    await answers(client, 1)
    client.send(token(2, "secret"))
    client.lose()
    await node.services.users.create("bob", "x")
    assert client.received() == [1]
    assert world.shared.metrics.logins == 0
    assert world.shared.connections == set()


@in_loop
async def test_connections_of_a_changed_user_are_closed_when_their_requests_are_answered(node: QuietNode) -> None:
    users = node.services.users
    await users.create("alice", "secret")
    await users.create("bob", "secret")
    world = World(node)
    idle, other = await world.logged_in(), world.client()
    await users.set_password("bob", "new")
    assert not idle.transport.is_closing()
    await users.set_password("alice", "new")
    assert idle.is_closed()
    assert not other.transport.is_closing()
    assert REVOKED_SECONDS_MAX < 5
    for client in (idle, other):
        client.lose()


@in_loop
async def test_a_lost_connection_is_freed_without_the_garbage_collector(node: QuietNode) -> None:
    await node.services.users.create("alice", "secret")
    world = World(node)
    gc.collect()
    gc.disable()
    try:
        before = connections()
        for is_logged_in in (False, True):
            client = await world.logged_in() if is_logged_in else world.client()
            assert connections() - before == 1
            client.lose()
            del client
            # A task that has ended is freed by the loop.
            await asyncio.sleep(0)
            assert connections() - before == 0
    finally:
        gc.enable()


def _later(seconds: float) -> float:
    return perf_counter() + seconds


def connections() -> int:
    return sum(isinstance(one, KafkaConnection) for one in gc.get_objects())


@in_loop
async def test_a_hash_in_progress_does_not_block_the_loop(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served while passwords are hashed: the loop only waits for the threads."""
    await node.services.users.create("alice", "secret")
    world = World(node)
    logged_in = await world.logged_in()
    clients = [world.client() for _ in range(20 * password_checks.HASHES_AT_ONCE)]
    for client in clients:
        client.send(handshake(1) + token(2, "wrong"))
    logged_in.send(metadata(3))
    assert await answers(logged_in, 3) == [1, 2, 3]
    assert world.shared.metrics.logins_failed < len(clients), "passwords are still being hashed"
    for client in clients:
        await closed(client)
        client.lose()
    logged_in.lose()


@in_loop
async def test_an_incomplete_frame_before_the_login_holds_little_memory(node: QuietNode) -> None:
    await node.services.users.create("alice", "secret")
    world = World(node)
    early = world.client()
    early.send(handshake(1)[:3])
    assert early.connection.reader.held_bytes == LOGIN_STEP_BYTES
    early.send(handshake(1)[3:])
    await answers(early, 1)
    large = token(2, "secret" + "x" * 20_000)
    await send_all(early, large[:15_000])
    assert 15_000 <= early.connection.reader.held_bytes <= len(large)
    await send_all(early, large[15_000:])
    await closed(early)
    late = await world.logged_in()
    late.send(metadata(3)[:3])
    assert late.connection.reader.held_bytes == SMALL_STEP_BYTES
    for client in (early, late):
        client.lose()


@in_loop
async def test_logins_of_an_address_that_has_failed_too_often_do_not_delay_others(node: QuietNode) -> None:
    await node.services.users.create("alice", "secret")
    world = World(node)
    for _ in range(FAILURES_MAX):
        node.services.login_limits.fail(GUESSER)
    guessers = [FakeClient(world.shared, world.listener, host=GUESSER) for _ in range(200)]
    assert not any(guesser.is_read() for guesser in guessers), "they are read in later loop iterations"
    client = world.client()
    client.send(handshake(1))
    assert client.received() == [1], "it is answered immediately"
    client.send(token(2, "secret"))
    assert await answers(client, 2) == [1, 2]
    assert world.shared.metrics.logins == 1
    for guesser in guessers:
        await send_all(guesser, handshake(1) + token(2, "wrong"))
    async with asyncio.timeout(WAIT_S):
        while not any(guesser.transport.is_closing() for guesser in guessers):
            await asyncio.sleep(0.001)
    assert sum(guesser.transport.is_closing() for guesser in guessers) < 20, "the others wait"
    for one in (client, *guessers):
        one.lose()
    await asyncio.sleep(0)
    assert world.shared.connections == set()
    assert node.services.login_limits.is_exhausted(GUESSER)


@in_loop
async def test_when_the_loop_budget_is_spent_clients_that_log_in_take_turns_by_network(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(node)
    monkeypatch.setattr(LoopBudget, "start", lambda _: 0.0)
    monkeypatch.setattr(network_turns, "TURN_SECONDS", 0.0)
    many = [FakeClient(world.shared, world.listener, host=GUESSER) for _ in range(10)]
    other = world.client()
    for client in (*many, other):
        client.send(handshake(1))
        assert not client.received()
    async with asyncio.timeout(WAIT_S):
        while not other.received():
            await asyncio.sleep(0)
            other.connection.send()
    for client in many:
        client.connection.send()
    assert sum(len(one.received()) for one in many) <= 3
    for client in many:
        await answers(client, 1)
    for client in (*many, other):
        client.lose()


@in_loop
async def test_connections_that_are_closed_while_they_wait_for_their_turn_are_forgotten(node: QuietNode) -> None:
    world = World(node)
    for _ in range(FAILURES_MAX):
        node.services.login_limits.fail(GUESSER)
    guessers = [FakeClient(world.shared, world.listener, host=GUESSER) for _ in range(20)]
    for guesser in guessers[1:]:
        guesser.lose()
    assert len(world.shared._suspect_login_turns) == 1
    guessers[0].lose()
    assert not world.shared._suspect_login_turns


@in_loop
async def test_every_failure_counts_for_the_address(node: QuietNode) -> None:
    """Wrong passwords, requests that are not allowed, and logins that are begun and abandoned."""
    limits = node.services.login_limits
    world = World(node)
    for number in range(FAILURES_MAX):
        assert not limits.is_exhausted(world.client().connection.client_host)
        client = world.client()
        if number % 3 == 0:
            client.send(handshake(1) + token(2, "wrong"))
            await closed(client)
        elif number % 3 == 1:
            client.send(metadata(1))
            assert client.transport.is_aborted
        else:
            first = frame(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abcdefghijkl"), 1, 2)
            client.send(handshake(1, "SCRAM-SHA-256") + first)
            assert await answers(client, 2) == [1, 2]
        client.lose()
    assert limits.is_exhausted(client.connection.client_host)


@in_loop
async def test_a_user_may_have_only_so_many_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = ("listeners=SASL_PLAINTEXT://127.0.0.1:9092", "kwire.max.connections.per.principal=2")
    with QuietNode(tmp_path, *settings) as node:
        await node.services.users.create("alice", "secret")
        world = World(node)
        first, second = [await world.logged_in() for _ in range(2)]
        third = await world.logged_in()
        assert third.received() == [1, 2], "the login is answered"
        await closed(third)
        assert "kwire.max.connections.per.principal=2 of User:alice" in caplog.text
        assert not first.transport.is_closing()
        assert not second.transport.is_closing()
        third.lose()
        first.lose()
        assert world.shared.connections_by_principal == {Principal("User", "alice"): 1}
        fourth = await world.logged_in()
        await asyncio.sleep(0)
        assert not fourth.transport.is_closing()
        for client in (second, fourth):
            client.lose()
        assert not world.shared.connections_by_principal


def quota_of(client: FakeClient) -> object:
    return client.connection.quota


@in_loop
async def test_quotas_of_a_user_apply_after_its_login(node: QuietNode) -> None:
    await node.services.users.create("alice", "secret")
    quotas = node.services.quotas
    for user in ("alice", "ANONYMOUS"):
        await quotas.alter([Alteration(entity_of([("user", user)]), {"producer_byte_rate": 1000.0})])
    world = World(node)
    client = world.client()
    client.send(versions(1))
    await answers(client, 1)
    assert quota_of(client) is None, "a client that has not logged in is not throttled"
    client.send(handshake(2))
    await answers(client, 2)
    client.send(token(3, "secret"))
    await answers(client, 3)
    client.send(metadata(4))
    await answers(client, 4)
    assert quota_of(client) is not None
    await quotas.alter([Alteration(entity_of([("user", "alice")]), {"producer_byte_rate": None})])
    client.send(metadata(5))
    assert await answers(client, 5) == [1, 2, 3, 4, 5]
    assert quota_of(client) is None
    client.lose()


@in_loop
async def test_quotas_apply_after_a_client_has_authenticated_again_with_another_client_id(tmp_path: Path) -> None:
    settings = ("listeners=SASL_PLAINTEXT://127.0.0.1:9092", "connections.max.reauth.ms=60000")
    with QuietNode(tmp_path, *settings) as node:
        await node.services.users.create("alice", "secret")
        alice = entity_of([("user", "alice")])
        await node.services.quotas.alter([Alteration(alice, {"producer_byte_rate": 1000.0})])
        client = await World(node).logged_in()
        authentication = client.connection.authentication
        assert authentication is not None
        authentication._started_at -= REAUTHENTICATION_SECONDS_MIN
        client.send(handshake(3))
        await answers(client, 3)
        client.send(token(4, "secret").replace(CLIENT_ID, b"more", 1))
        await answers(client, 4)
        client.send(metadata(5).replace(CLIENT_ID, b"more", 1))
        assert await answers(client, 5) == [1, 2, 3, 4, 5]
        assert quota_of(client) is not None
        client.lose()


@in_loop
async def test_responses_keep_their_order_when_a_throttle_time_ends_at_once(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may be suspended for longer than the throttle time while a request is handled."""
    await node.services.users.create("alice", "secret")
    client = await World(node).logged_in()
    alice = entity_of([("user", "alice")])
    await node.services.quotas.alter([Alteration(alice, {"request_percentage": 1e-6})])
    clock = itertools.count(perf_counter(), 2.0)
    for module in (connection, throttling):
        monkeypatch.setattr(module, "perf_counter", lambda: next(clock))
    client.send(versions(3) + versions(4))
    assert await answers(client, 4) == [1, 2, 3, 4]
    client.lose()
