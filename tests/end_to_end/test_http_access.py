"""Users, certificates and ACLs on the HTTP port of a real server over TLS, with the same users on its Kafka port.

`admin` is a super user. Each test has users and rooms of its own, created before the first test. The audit log of all
tests is verified after the last one.
"""

import asyncio
import json
import ssl
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)

from kwire.testing.ports import unused_port
from tests.support.access_commands import run_with_password, succeeded
from tests.support.certificates import Authority
from tests.support.cli import run_here
from tests.support.node import in_loop
from tests.support.sasl_server import SaslSocket
from tests.support.server import HOST, KwireProcess

pytestmark = pytest.mark.xdist_group("http-access")

WAIT_S = 10.0
SASL_AUTHENTICATION_FAILED = 58
# A revoked right or a deleted user takes effect on open streams within this time.
REVOKED_SECONDS_MAX = 5.0
EVENT = {"event_type": "greeting", "data": {"text": "hello"}}
# A room that no user may use, except the administrator.
VAULT = "vault"
ROOMS = ("both-ports", "of-machines", "for-browsers", "loses-rights", "loses-user", "audited", VAULT)
USERS = ("admin", "alice", "bob", "carol", "dave", "erin", "frank", "grace", "mallory")
# Every user may use this group, so that only the rights on topics differ.
GROUP = "readers"


class Answer(NamedTuple):
    """The status and the body of an answer."""

    status: int
    body: Any
    headers: Any


class AccessServer:
    """The server, its CA, and clients of both ports."""

    def __init__(self, directory: Path) -> None:
        self._authority = Authority(directory)
        kafka_port = unused_port()
        self.bootstrap = f"{HOST}:{kafka_port}"
        self.process = KwireProcess(
            directory / "kwire",
            kafka_port=None,
            settings={
                "listeners": f"SASL_PLAINTEXT://{self.bootstrap}",
                "kwire.authorizer": "acl",
                "super.users": "User:admin",
                "kwire.http.authentication": "basic,certificate",
                "kwire.http.tls": "true",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._authority.server()),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self._authority.path),
                "listener.name.http.ssl.client.auth": "requested",
                "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            },
        )
        for user in USERS:
            succeeded(run_with_password(password(user), "user", "create", user, "--data-dir", self.process.data_dir))
        self._admin: Any = None

    @property
    def url(self) -> str:
        return f"https://localhost:{self.process.http_port}"

    @property
    def admin(self) -> Any:
        if self._admin is None:
            self._admin = AdminClient(self.client("admin", "SCRAM-SHA-512"))
        return self._admin

    def client(self, user: str, mechanism: str = "PLAIN") -> dict[str, Any]:
        """The settings of a Kafka client of a user."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password(user),
        }

    def tls(self, certificate_of: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self._authority.path))
        if certificate_of is not None:
            context.load_cert_chain(self._authority.client(certificate_of))
        return context

    def allow(self, user: str, name: str, *operations: AclOperation, kind: Any = ResourceType.TOPIC) -> None:
        """Add ACLs, through the Kafka port."""
        literal = (kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*")
        bindings = [AclBinding(*literal, operation, AclPermissionType.ALLOW) for operation in operations]
        for future in self.admin.create_acls(bindings).values():
            future.result(WAIT_S)

    def take_rights(self, user: str) -> None:
        """Delete all ACLs of a user, through the Kafka port."""
        principal = f"User:{user}"
        wanted = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, principal, None, AclOperation.ANY, AclPermissionType.ANY
        )
        for future in self.admin.delete_acls([wanted]).values():
            assert future.result(WAIT_S)

    def delete_user(self, user: str) -> None:
        """Delete both credentials of a user, and so the user, through the Kafka port."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialDeletion(user, mechanism)
            for future in self.admin.alter_user_scram_credentials([change]).values():
                future.result(WAIT_S)


def password(user: str) -> str:
    return f"the-password-of-{user}"


def basic(user: str, its_password: str | None = None) -> dict[str, str]:
    text = f"{user}:{password(user) if its_password is None else its_password}"
    return {"Authorization": "Basic " + b64encode(text.encode()).decode()}


class Https:
    """Requests of one client. `credentials` are headers."""

    def __init__(self, server: AccessServer, session: aiohttp.ClientSession, credentials: dict[str, str]) -> None:
        self.url = server.url
        self.session = session
        self.credentials = credentials

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        async with self.session.request(method, self.url + path, json=body, headers=self.credentials) as answer:
            text = await answer.text()
            return Answer(answer.status, json.loads(text) if text else None, answer.headers)

    async def status(self, method: str, path: str, body: object = None) -> int:
        return (await self.ask(method, path, body)).status


class Connector(aiohttp.TCPConnector):
    """Keeps its transports: aiohttp does not wait for those whose TLS is closing when the session ends."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(ssl=context)
        self._transports: list[asyncio.Transport] = []

    async def _wrap_create_connection(self, *args: Any, **kwargs: Any) -> Any:
        transport, protocol = await super()._wrap_create_connection(*args, **kwargs)
        self._transports.append(transport)
        return transport, protocol

    async def end(self) -> None:
        for transport in self._transports:
            transport.abort()
        # An aborted transport of TLS closes its socket in the second of two callbacks.
        for _ in range(3):
            await asyncio.sleep(0)


@asynccontextmanager
async def https(
    server: AccessServer, credentials: dict[str, str] | None = None, *, certificate_of: str | None = None
) -> AsyncIterator[Https]:
    connector = Connector(server.tls(certificate_of))
    timeout = aiohttp.ClientTimeout(total=WAIT_S)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            yield Https(server, session, credentials or {})
    finally:
        await connector.end()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccessServer]:
    made = AccessServer(tmp_path_factory.mktemp("http-access"))
    made.process.start()
    try:
        made.process.ready()
        made.allow("*", GROUP, AclOperation.READ, kind=ResourceType.GROUP)
        asyncio.run(create_rooms(made))
        yield made
        assert made.process.stop() == 0
        done = run_here("log", "verify", made.process.data_dir, "--json", "--no-progress")
        assert done.code == 0, done.out + done.errors
        (chain,) = json.loads(done.out)["audit_chains"]
        assert chain["breaks"] == 0
        assert chain["records"] > len(ROOMS)
    finally:
        made.process.kill()


async def create_rooms(server: AccessServer) -> None:
    async with https(server, basic("admin")) as admin:
        for room in ROOMS:
            assert await admin.status("PUT", f"/rooms/{room}", {}) == 201
            assert await admin.status("POST", f"/rooms/{room}/events", EVENT) == 201


@in_loop
async def test_requests_without_valid_credentials_are_refused_with_401(server: AccessServer) -> None:
    path = f"/rooms/{VAULT}/events"
    async with https(server) as client:
        answers = [
            await client.ask(method, path, body)
            for method, path, body in (
                ("GET", "/topics", None),
                ("GET", path, None),
                ("POST", path, EVENT),
                ("GET", f"/rooms/{VAULT}/subscribe", None),
                ("POST", "/tickets", None),
            )
        ]
    # Few, because an address may fail only some times a minute.
    for credentials in (basic("mallory", "not-the-password"), basic("nobody"), basic("admin", password("mallory"))):
        async with https(server, credentials) as client:
            answers.append(await client.ask("GET", path))
    for answer in answers:
        assert answer.status == 401, answer
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")
        assert "Certificate " in answer.headers["WWW-Authenticate"]
    async with https(server, basic("mallory")) as client:
        assert await client.status("GET", path) == 403


def kafka_login_error(server: AccessServer, user: str, its_password: str) -> int:
    with SaslSocket((HOST, int(server.bootstrap.rpartition(":")[2]))) as connection:
        return int(connection.log_in(user, its_password).error_code)


def kafka_write_error(server: AccessServer, user: str, topic: str) -> int | None:
    """Produce one record and return the code of the error, None if it was stored."""
    errors: list[Any] = []
    producer = Producer({**server.client(user, "SCRAM-SHA-256"), "message.timeout.ms": int(WAIT_S * 1000)})
    producer.produce(topic, json.dumps(EVENT).encode(), callback=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    (error,) = errors
    return None if error is None else int(error.code())


def kafka_read_error(server: AccessServer, user: str, topic: str) -> int | None:
    """Read one record and return the code of the error, None if there was one."""
    settings = {"group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**server.client(user), **settings})
    try:
        consumer.subscribe([topic])
        record = consumer.poll(WAIT_S)
        assert record is not None
        return None if record.error() is None else int(record.error().code())
    finally:
        consumer.close()


@in_loop
async def test_a_user_has_the_same_rights_on_both_ports(server: AccessServer) -> None:
    room = "both-ports"
    subscribe = f"/rooms/{room}/subscribe"
    async with https(server, basic("alice")) as alice:
        for method, path, body in (
            ("POST", f"/rooms/{room}/events", EVENT),
            ("GET", f"/rooms/{room}/events", None),
            ("GET", subscribe, None),
        ):
            assert await alice.status(method, path, body) == 403, path
        assert (await alice.ask("GET", "/topics")).body == []
        assert kafka_write_error(server, "alice", room) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert kafka_read_error(server, "alice", room) == KafkaError.TOPIC_AUTHORIZATION_FAILED

        server.allow("alice", room, AclOperation.READ)
        assert await alice.status("POST", f"/rooms/{room}/events", EVENT) == 403
        assert kafka_write_error(server, "alice", room) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        history = await alice.ask("GET", f"/rooms/{room}/events")
        assert history.status == 200
        assert [one["data"] for one in history.body["events"]] == [EVENT["data"]]
        assert kafka_read_error(server, "alice", room) is None

        server.allow("alice", room, AclOperation.WRITE)
        assert await alice.status("POST", f"/rooms/{room}/events", EVENT) == 201
        assert kafka_write_error(server, "alice", room) is None
        async with alice.session.get(alice.url + subscribe, headers=alice.credentials) as stream:
            assert stream.status == 200
            async with asyncio.timeout(WAIT_S):
                assert b"subscribed" in await stream.content.readline()
        # Rights on one room are not rights on another.
        assert await alice.status("GET", f"/rooms/{VAULT}/events") == 403
        assert kafka_read_error(server, "alice", VAULT) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert (await alice.ask("GET", "/topics")).body == [room]
    listed = AdminClient(server.client("alice")).list_topics(timeout=WAIT_S)
    assert set(listed.topics) == {room}
    async with https(server, basic("admin")) as admin:
        assert {room, VAULT} <= set((await admin.ask("GET", "/topics")).body)


@in_loop
async def test_a_client_certificate_has_the_rights_of_its_mapped_name(server: AccessServer) -> None:
    room, user = "of-machines", "machine"
    path = f"/rooms/{room}/events"
    async with https(server, certificate_of=user) as machine:
        refused = await machine.ask("GET", path)
        assert refused.status == 403
        assert f"User:{user} " in json.dumps(refused.body)
        server.allow(user, room, AclOperation.READ)
        assert await machine.status("GET", path) == 200
        assert await machine.status("POST", path, EVENT) == 403
        assert (await machine.ask("GET", "/topics")).body == [room]
    # A wrong password is not made up for by a certificate.
    async with https(server, basic("mallory", "not-the-password"), certificate_of=user) as both:
        assert await both.status("GET", path) == 401
    async with https(server, certificate_of="admin") as admin:
        assert await admin.status("GET", f"/rooms/{VAULT}/events") == 200


@in_loop
async def test_a_ticket_opens_one_websocket_with_the_rights_of_its_user(server: AccessServer) -> None:
    room = "for-browsers"
    server.allow("bob", room, AclOperation.READ)
    async with https(server, basic("bob")) as bob, https(server) as browser:
        issued = await bob.ask("POST", "/tickets")
        assert issued.status == 201
        ticket = issued.body["ticket"]
        # A ticket is for streams only.
        assert await browser.status("GET", f"/rooms/{room}/events?ticket={ticket}") == 401
        socket_url = browser.url.replace("https", "wss") + "/ws"
        protocol = f"kwire.ticket.{ticket}"
        async with browser.session.ws_connect(socket_url, protocols=(protocol,)) as socket:
            assert socket.protocol == protocol
            for named, expected in ((room, "result"), (VAULT, "error")):
                command = {"command": "stream.subscribe", "payload": {"room": named}, "request_id": named}
                await socket.send_json(command)
                while (message := await socket.receive_json(timeout=WAIT_S)).get("request_id") != named:
                    pass
                assert expected in message, message
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await browser.session.ws_connect(socket_url, protocols=(protocol,))
        assert refused.value.status == 401
        other = (await bob.ask("POST", "/tickets")).body["ticket"]
        forbidden = f"/rooms/{VAULT}/subscribe?ticket={other}"
        assert await browser.status("GET", forbidden) == 403


TakeAway = Callable[[AccessServer, str], None]


@pytest.mark.parametrize(
    ("user", "room", "take_away"),
    [("carol", "loses-rights", AccessServer.take_rights), ("dave", "loses-user", AccessServer.delete_user)],
    ids=["rights", "user"],
)
@in_loop
async def test_open_streams_end_when_rights_or_the_user_are_gone(
    server: AccessServer, user: str, room: str, take_away: TakeAway
) -> None:
    server.allow(user, room, AclOperation.READ)
    server.allow("erin", room, AclOperation.READ)
    path = f"/rooms/{room}/subscribe"
    sse = {"Accept": "text/event-stream"}
    async with (
        https(server, basic(user)) as client,
        https(server, basic("erin")) as other,
        client.session.get(client.url + path, headers={**client.credentials, **sse}) as stream,
        other.session.get(client.url + path, headers={**other.credentials, **sse}) as kept,
        client.session.ws_connect(client.url + path, headers=client.credentials) as socket,
    ):
        async with asyncio.timeout(WAIT_S):
            for one in (stream, kept):
                assert one.status == 200
                assert b"subscribed" in await one.content.readline()
            await socket.receive_json()
        started = time.monotonic()
        await asyncio.to_thread(take_away, server, user)
        async with asyncio.timeout(REVOKED_SECONDS_MAX):
            text = (await stream.content.read()).decode()
            messages = [one.json() async for one in socket]
        assert time.monotonic() - started < REVOKED_SECONDS_MAX
        assert '"Forbidden"' in text
        assert messages[-1]["code"] == "Forbidden"
        assert socket.close_code == aiohttp.WSCloseCode.POLICY_VIOLATION
        assert await client.status("GET", path) in (401, 403)
        # The stream of another user goes on.
        async with https(server, basic("admin")) as admin:
            assert await admin.status("POST", f"/rooms/{room}/events", {"event_type": "last", "data": user}) == 201
        async with asyncio.timeout(WAIT_S):
            while user.encode() not in await kept.content.readline():
                assert not kept.content.at_eof()


@in_loop
async def test_nobody_publishes_to_the_audit_log(server: AccessServer) -> None:
    async with https(server, basic("admin")) as admin:
        assert await admin.status("GET", "/rooms/kwire-audit/events?limit=1") == 200
        assert await admin.status("POST", "/rooms/kwire-audit/events", EVENT) == 403
        assert await admin.status("POST", "/topics/kwire-audit/publish", EVENT) == 403
        assert await admin.status("DELETE", "/topics/kwire-audit") == 403
    async with https(server, basic("erin")) as erin:
        assert await erin.status("GET", "/rooms/kwire-audit/events") == 403
    assert kafka_write_error(server, "admin", "kwire-audit") is not None


class Recorded(NamedTuple):
    """The fields of an audit entry that tests compare."""

    type: str
    principal: str
    port: str
    outcome: str
    resource: str


async def audited(admin: Https) -> set[Recorded]:
    found: list[dict[str, Any]] = []
    while page := (await admin.ask("GET", f"/rooms/kwire-audit/events?from_offset={len(found)}&limit=1000")).body[
        "events"
    ]:
        found += page
    return {
        Recorded(
            one["type"],
            one["data"]["principal"],
            one["data"]["port"],
            one["data"]["outcome"],
            one["data"].get("resource", {}).get("name", ""),
        )
        for one in found
    }


@in_loop
async def test_the_audit_log_has_logins_refusals_and_changes_of_both_ports(server: AccessServer) -> None:
    room = "audited"
    path = f"/rooms/{room}/events"
    for credentials in (basic("frank"), basic("frank", "not-the-password")):
        async with https(server, credentials) as client:
            assert await client.status("GET", path) in (401, 403)
    async with https(server, certificate_of="robot") as robot:
        assert await robot.status("GET", path) == 403
    assert kafka_read_error(server, "frank", room) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert kafka_login_error(server, "frank", "not-the-password") == SASL_AUTHENTICATION_FAILED
    deletion = UserScramCredentialDeletion("admin", ScramMechanism.SCRAM_SHA_256)
    frank = AdminClient(server.client("frank"))
    for future in frank.alter_user_scram_credentials([deletion]).values():
        with pytest.raises(KafkaException) as refused:
            future.result(WAIT_S)
        assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    server.allow("frank", room, AclOperation.READ)
    server.take_rights("frank")
    server.delete_user("grace")
    admin_change = ("User:admin", "kafka", "success")
    expected = {
        Recorded("access.login", "User:frank", "http", "success", ""),
        Recorded("access.login", "User:frank", "http", "failure", ""),
        Recorded("access.login", "User:frank", "kafka", "success", ""),
        Recorded("access.login", "User:frank", "kafka", "failure", ""),
        Recorded("access.login", "User:robot", "http", "success", ""),
        Recorded("access.denied", "User:frank", "http", "denied", room),
        Recorded("access.denied", "User:frank", "kafka", "denied", room),
        Recorded("access.denied", "User:robot", "http", "denied", room),
        Recorded("access.denied", "User:frank", "kafka", "denied", "kafka-cluster"),
        Recorded("topic.created", "User:admin", "http", "success", room),
        Recorded("acl.created", *admin_change, room),
        Recorded("acl.deleted", *admin_change, room),
        Recorded("user.changed", *admin_change, "grace"),
        Recorded("user.deleted", *admin_change, "grace"),
    }
    missing = expected
    deadline = time.monotonic() + WAIT_S
    async with https(server, basic("admin")) as admin:
        while missing and time.monotonic() < deadline:
            missing = expected - await audited(admin)
    assert missing == set()
