"""API keys on a real server: commands, logins on both ports, and what happens to open connections.

S1-41, S1-45: a request without a valid key is answered 401.
"""

import http.client
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.access_commands import succeeded
from tests.support.cli import Done, run_here
from tests.support.clients import read_topic
from tests.support.sasl_server import SaslServer, SaslSocket
from tests.support.server import HOST, wait_until
from tests.support.users import ScramClient

WAIT_S = 20.0
# How long an open connection may outlive its key.
REVOKED_SECONDS_MAX = 5.0
ROOM = "lobby"


class Issued(NamedTuple):
    id: str
    secret: str
    token: str

    @property
    def bearer(self) -> str:
        return f"Bearer {self.token}"


class World:
    """A server with a SASL listener, whose HTTP port takes keys only. Its first key was made before it started."""

    def __init__(self, directory: Path) -> None:
        self.server = SaslServer(directory, {"kwire.http.authentication": "key", "kwire.audit": "all"})
        self.root = issued(
            run_here("key", "create", "--root", "--data-dir", self.server.process.data_dir, "-o", "json")
        )
        self.server.process.start()
        self.server.process.ready()

    @property
    def url(self) -> str:
        return self.server.process.http_url

    def run(self, *arguments: object, key: Issued | None = None) -> Done:
        """Run `kwire key` on the running server, with the root key or another one."""
        used = key or self.root
        with mock.patch.dict(os.environ, {"KWIRE_USER": used.id, "KWIRE_PASSWORD": used.secret}):
            return run_here("key", *arguments, "--http", self.url, "-o", "json")

    def create(self, *arguments: object) -> Issued:
        return issued(self.run("create", *arguments))

    def ask(self, method: str, path: str, body: object = None, authorization: str | None = None) -> Any:
        """Send a request; return its status, its headers and the JSON of its body."""
        connection = http.client.HTTPConnection(HOST, self.server.process.http_port, timeout=WAIT_S)
        headers = {} if authorization is None else {"Authorization": authorization}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        found = (answer.status, dict(answer.headers), json.loads(answer.read() or b"null"))
        connection.close()
        return found

    def client_settings(self, key: Issued, mechanism: str = "PLAIN") -> dict[str, Any]:
        return {
            "bootstrap.servers": self.server.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": key.id,
            "sasl.password": key.secret,
        }


def issued(done: Done) -> Issued:
    found = json.loads(succeeded(done))
    assert list(found) == ["id", "secret", "token"]
    return Issued(**found)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from running(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def own_world(tmp_path: Path) -> Iterator[World]:
    """A server of its own, for a test whose failed logins use up the budget of the address."""
    yield from running(tmp_path)


def running(directory: Path) -> Iterator[World]:
    made = World(directory)
    try:
        yield made
        assert made.server.process.stop() == 0
    finally:
        made.server.process.kill()


def test_commands_on_a_running_server(world: World) -> None:
    key = world.create("--scope", "acme", "--max-events", 10, "--max-subscriptions", 2, "--description", "shop")
    alias = world.create("--alias-of", key.id)
    listed = {row["id"]: row for row in json.loads(succeeded(world.run("list")))}
    assert {key.id, alias.id, world.root.id} <= set(listed)
    assert listed[alias.id]["alias_of"] == key.id
    shown = listed[key.id]
    assert (shown["scope"], shown["max_events"], shown["max_subscriptions"]) == ("acme", 10, 2)
    assert listed[world.root.id]["last_used_at"] is not None
    assert key.secret not in json.dumps(list(listed.values()))
    rotated = issued(world.run("rotate", key.id, "--overlap", 0))
    assert rotated.id == key.id
    assert world.ask("GET", "/rooms", authorization=key.bearer)[0] == 401
    assert world.ask("GET", "/rooms", authorization=rotated.bearer)[0] == 200
    assert json.loads(succeeded(world.run("revoke", "--yes", key.id)))["revoked"] == sorted((key.id, alias.id))
    assert world.ask("GET", "/rooms", authorization=rotated.bearer)[0] == 401
    missing = world.run("rotate", key.id)
    assert (missing.code, missing.errors) == (1, f"kwire: the key {key.id} does not exist (KeyNotFound)\n")


def test_a_scoped_key_cannot_administer_keys(world: World) -> None:
    key = world.create("--scope", "acme")
    refused = world.run("create", "--scope", "other", key=key)
    assert refused.code == 1
    assert f"Key:{key.id} is not allowed to ALTER the cluster" in refused.errors
    for method, path in (("GET", "/keys"), ("GET", f"/keys/{key.id}"), ("DELETE", f"/keys/{world.root.id}")):
        assert world.ask(method, path, authorization=key.bearer)[0] == 403


def test_requests_without_a_valid_key_are_answered_401(own_world: World) -> None:
    """S1-41, S1-45."""
    key = own_world.create("--scope", "acme")
    wrong = [None, "Bearer ", "Bearer x", f"Bearer {key.id}", f"Bearer {key.secret}", f"Bearer {key.token[:-1]}"]
    for authorization in (*wrong, "Digest x"):
        status, headers, body = own_world.ask("GET", "/rooms", authorization=authorization)
        assert (status, body["error"]["code"]) == (401, "Unauthorized")
        assert headers["WWW-Authenticate"] == 'Bearer realm="kwire"'
        assert key.secret not in str(body)
    # The failures of the address do not keep a valid key out.
    assert own_world.ask("GET", "/rooms", authorization=key.bearer)[0] == 200


def test_a_ticket_opens_a_stream_until_its_key_is_revoked(world: World) -> None:
    key = world.create("--root")
    ticket, unused = (world.ask("POST", "/tickets", authorization=key.bearer)[2]["ticket"] for _ in range(2))
    with connect(f"{world.url.replace('http', 'ws')}/rooms/{ROOM}/subscribe?ticket={ticket}") as socket:
        socket.recv(WAIT_S)
        succeeded(world.run("revoke", "--yes", key.id))
        assert seconds_until_closed(socket) < REVOKED_SECONDS_MAX
    assert world.ask("GET", f"/rooms/{ROOM}/subscribe?ticket={unused}")[0] == 401


def test_kafka_clients_log_in_with_id_and_secret(world: World) -> None:
    settings = world.client_settings(world.root)
    admin = AdminClient(settings)
    for future in admin.create_topics([NewTopic("orders", 1, 1)]).values():
        future.result(WAIT_S)
    producer = Producer(settings)
    producer.produce("orders", b"one")
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert message is not None
    assert message.value() == b"one"
    scoped = world.create("--scope", "acme")
    client = KafkaAdminClient(
        bootstrap_servers=world.server.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=scoped.id,
        sasl_plain_password=scoped.secret,
    )
    assert "orders" not in client.list_topics(), "a tenant sees only its own names"
    client.close()


def test_the_limits_of_a_key_act_on_kafka_producers_and_can_be_altered(world: World) -> None:
    key = world.create("--scope", "limited", "--max-events", 5)
    settings = world.client_settings(key)
    admin = AdminClient(settings)
    for future in admin.create_topics([NewTopic("orders", 1, 1)]).values():
        future.result(WAIT_S)
    producer = Producer({**settings, "linger.ms": 0})
    errors: list[Any] = []

    def send(count: int) -> list[Any]:
        errors.clear()
        for _ in range(count):
            producer.produce("orders", b"x", on_delivery=lambda error, _: errors.append(error and error.name()))
            assert producer.flush(WAIT_S) == 0
        return errors

    assert send(6) == [None] * 5 + ["POLICY_VIOLATION"]
    room = {"event_type": "message", "data": 1}
    status, headers, _ = world.ask("POST", f"/rooms/{ROOM}/events", room, key.bearer)
    assert (status, headers["X-Current-Events"]) == (429, "5")
    # The change acts on the open connection.
    (altered,) = json.loads(succeeded(world.run("alter", key.id, "--max-events", "none", "--publish-rate", 2)))
    assert (altered["max_events"], altered["publish_rate"]) == (None, 2)
    began = time.monotonic()
    assert send(5) == [None] * 5
    # Two at once, and two per second afterwards.
    assert 1.0 < time.monotonic() - began < WAIT_S


def test_a_wrong_secret_and_scram_are_refused(own_world: World) -> None:
    key = own_world.create("--scope", "acme")
    for password in (own_world.root.secret, key.token, "", "x"):
        with SaslSocket(own_world.server.address) as socket:
            assert socket.log_in(key.id, password).error_code == 58
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with SaslSocket(own_world.server.address) as socket:
            socket.handshake(mechanism)
            answer = socket.authenticate(ScramClient(mechanism, key.id, key.secret).first())
            assert answer.error_code == 58
            assert answer.error_message == (
                f"Authentication failed: keys log in with SASL mechanism PLAIN, not {mechanism}"
            )
    with pytest.raises(KafkaException):
        AdminClient(own_world.client_settings(key, "SCRAM-SHA-512")).list_topics(timeout=3)


def seconds_until_closed(socket: Any) -> float:
    began = time.monotonic()
    with suppress(ConnectionClosed):
        while True:
            socket.recv(WAIT_S)
    return time.monotonic() - began


class Opened:
    """A Kafka connection, a WebSocket and Server-Sent Events of one key."""

    def __init__(self, world: World, key: Issued, stack: ExitStack) -> None:
        self.kafka = stack.enter_context(SaslSocket(world.server.address, WAIT_S))
        assert self.kafka.log_in(key.id, key.secret).error_code == 0
        self.kafka.metadata()
        headers = {"Authorization": key.bearer}
        url = f"{world.url.replace('http', 'ws')}/rooms/{ROOM}/subscribe"
        self.socket = stack.enter_context(connect(url, additional_headers=headers))
        self.socket.recv(WAIT_S)
        connection = http.client.HTTPConnection(HOST, world.server.process.http_port, timeout=WAIT_S)
        stack.callback(connection.close)
        connection.request("GET", f"/rooms/{ROOM}/subscribe", None, {**headers, "Accept": "text/event-stream"})
        self.events = connection.getresponse()
        assert self.events.status == 200
        assert b"subscribed" in self.events.readline()

    def seconds_until_all_closed(self) -> float:
        began = time.monotonic()
        assert self.kafka.raw.is_closed(WAIT_S)
        seconds_until_closed(self.socket)
        assert b"the key was revoked, has expired, or has another secret now" in self.events.read()
        return time.monotonic() - began


def test_open_connections_of_a_revoked_key_end_within_five_seconds(world: World) -> None:
    with ExitStack() as stack:
        key = world.create("--root")
        alias = world.create("--alias-of", key.id)
        opened, of_alias = Opened(world, key, stack), Opened(world, alias, stack)
        succeeded(world.run("revoke", "--yes", alias.id))
        taken = of_alias.seconds_until_all_closed()
        print(f"connections of a revoked alias ended after {taken:.2f} s")
        assert taken < REVOKED_SECONDS_MAX
        opened.kafka.metadata()
        succeeded(world.run("revoke", "--yes", key.id))
        assert opened.seconds_until_all_closed() < REVOKED_SECONDS_MAX


def test_open_connections_of_an_expired_key_and_of_a_replaced_secret_end(world: World) -> None:
    with ExitStack() as stack:
        rotated, expiring = world.create("--root"), world.create("--root", "--expires-in", 3)
        with_old, of_expiring = Opened(world, rotated, stack), Opened(world, expiring, stack)
        current = issued(world.run("rotate", rotated.id, "--overlap", 3))
        with_new = Opened(world, current, stack)
        # Within the overlap both secrets are valid.
        assert world.ask("GET", "/rooms", authorization=rotated.bearer)[0] == 200
        for one in (with_old, of_expiring):
            assert one.seconds_until_all_closed() < 3 + REVOKED_SECONDS_MAX
        for gone in (rotated, expiring):
            assert world.ask("GET", "/rooms", authorization=gone.bearer)[0] == 401
        with_new.kafka.metadata()
        assert world.ask("GET", "/rooms", authorization=current.bearer)[0] == 200


def test_logins_and_changes_are_in_the_audit_log_without_secrets(world: World) -> None:
    key = world.create("--scope", "audited")
    assert world.ask("GET", "/rooms", authorization=key.bearer)[0] == 200
    with SaslSocket(world.server.address) as socket:
        # A client that sends the token in place of the user name.
        assert socket.log_in(key.token, key.secret).error_code == 58
    succeeded(world.run("revoke", "--yes", key.id))

    def audit() -> str:
        found = read_topic(world.server.open, "kwire-audit")
        return str([(record.headers, record.value) for records in found.values() for record in records])

    expected = ("key.revoked", "Unknown:user")
    wait_until(lambda: (text := audit()) and all(one in text for one in expected), "the entries are there")
    text = audit()
    assert f"Key:{key.id}" in text
    assert key.secret not in text
    assert f"Key:{world.root.id}" in text
    files = b"".join(path.read_bytes() for path in world.server.process.data_dir.rglob("*") if path.is_file())
    assert key.secret.encode() not in files
    assert key.secret not in world.server.process.stderr_path.read_text()
