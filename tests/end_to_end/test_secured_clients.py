"""Five clients on every listener and with every mechanism of one server with ACLs: rights, logins, sessions.

A cell of the table is a client with a listener and a mechanism, or with a wrong login, or with a change of the server
during its session. docs/clients.md lists what is tested.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.support.certificates import HOSTS, Authority, pem, replace_file
from tests.support.java import JavaTools
from tests.support.secured_clients.interface import Refusal, Refused, SecuredClient
from tests.support.secured_clients.login import Login
from tests.support.secured_clients.server import SESSION_MS, SecuredServer, running_secured_server
from tests.support.secured_clients.session import Session
from tests.support.secured_clients.with_aiokafka import WithAiokafka
from tests.support.secured_clients.with_confluent import WithConfluent
from tests.support.secured_clients.with_java import WithJava
from tests.support.secured_clients.with_kafka_python import WithKafkaPython
from tests.support.secured_clients.with_kcat import WithKcat
from tests.support.server import wait_until
from tests.support.users import MECHANISMS

# One worker runs all tests of the tools, in one JVM.
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("kafka-tools"),
    # kafka-python and aiokafka leave sockets of refused connections to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed :ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <:pytest.PytestUnraisableExceptionWarning"),
]

NEEDS = {"kcat": [pytest.mark.needs_kcat], "java": [pytest.mark.needs_java, pytest.mark.needs_mvn]}
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "kcat", "java")
LOGINS = [
    ("PLAINTEXT", None),
    ("SSL", None),
    *product(("SASL_PLAINTEXT", "SASL_SSL"), MECHANISMS),
]
TLS_LOGINS = [("SSL", None), ("SASL_SSL", "PLAIN")]
# What a session has to survive. Each client uses one mechanism in its sessions.
SESSIONS = ("re-authentication", "certificate reload", "deleted user")
SESSION_MECHANISMS = {
    "confluent-kafka": "SCRAM-SHA-256",
    "kafka-python": "SCRAM-SHA-256",
    "aiokafka": "PLAIN",
    "kcat": "PLAIN",
    "java": "SCRAM-SHA-512",
}
# Users of PLAINTEXT are anonymous.
USERS = ("alice", "ANONYMOUS")
WRONG_TIMEOUT_S = 0.5
NO_CONNECTIONS = "All broker connections are down"
LARGE_VALUES = [bytes([number]) * 900_000 for number in range(ord("a"), ord("m"))]
MANY_VALUES = [b"line %d %s" % (number, b"x" * 1000) for number in range(2000)]
SMALL_VALUES = [b"value-%d" % number for number in range(10)]
# Records that a session reads while it outlives the lifetime which the server gives it, three per lifetime.
SESSION_RECORDS = 9
EACH_CLIENT = pytest.mark.parametrize(
    "client", [pytest.param(name, marks=NEEDS.get(name, [])) for name in CLIENTS], indirect=True
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with running_secured_server(tmp_path_factory.mktemp("secured")) as started:
        started.set_password("alice")
        yield started


@pytest.fixture(autouse=True)
def collected_sockets() -> Iterator[None]:
    """Let the garbage collector close the sockets of a test before another test is blamed for them."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def forbidden(server: SecuredServer) -> str:
    """A topic with one record. The users may use the group of the same name, but not the topic."""
    topic = server.create_topic("forbidden")
    server.write(topic, b"secret")
    server.allow_group(USERS, topic)
    return topic


@pytest.fixture(scope="module")
def clients(java: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> dict[str, SecuredClient]:
    directory = tmp_path_factory.mktemp("properties")
    made: list[SecuredClient] = [
        WithConfluent(),
        WithKafkaPython(),
        WithAiokafka(),
        WithKcat(),
        WithJava(java, directory),
    ]
    return {client.name: client for client in made}


@pytest.fixture
def client(clients: dict[str, SecuredClient], request: pytest.FixtureRequest) -> SecuredClient:
    return clients[request.param]


def test_the_cells_are_counted(clients: dict[str, SecuredClient], capsys: pytest.CaptureFixture[str]) -> None:
    assert tuple(clients) == CLIENTS == tuple(SESSION_MECHANISMS)
    cells = {
        "listeners and mechanisms": len(LOGINS),
        "wrong passwords": len(MECHANISMS),
        "untrusted servers": len(TLS_LOGINS),
        "untrusted client certificates": 1,
        "sessions": len(SESSIONS),
    }
    listed = ", ".join(f"{count} {name}" for name, count in cells.items())
    with capsys.disabled():
        print(f"\nsecured clients: {len(CLIENTS) * sum(cells.values())} cells: {len(CLIENTS)} clients x ({listed})")


@EACH_CLIENT
@pytest.mark.parametrize(("listener", "mechanism"), LOGINS)
def test_a_client_uses_what_it_has_a_right_to_and_nothing_else(
    server: SecuredServer, forbidden: str, client: SecuredClient, listener: str, mechanism: str | None
) -> None:
    topic = server.create_topic("allowed")
    server.allow(USERS, topic)
    login = server.login(listener, mechanism, "alice")
    # Over TLS requests and responses of many TLS records are worth a test, once for each client.
    values = SMALL_VALUES
    if listener == "SSL":
        values = MANY_VALUES if client.name == "kcat" else LARGE_VALUES
    client.produce(login, topic, values)
    assert client.read_group(login, topic, topic, len(values)) == values
    assert refusal_of(lambda: client.produce(login, forbidden, SMALL_VALUES)) is Refusal.RIGHT
    assert refusal_of(lambda: client.read_group(login, forbidden, forbidden, 1)) is Refusal.RIGHT
    assert (server.end_offset(topic), server.end_offset(forbidden)) == (len(values), 1)


def refusal_of(call: Callable[[], object]) -> Refusal:
    with pytest.raises(Refused) as raised:
        call()
    return raised.value.kind


def check_refused(client: SecuredClient, login: Login, topic: str, expected: Refusal) -> None:
    impatient = replace(login, connect_timeout_s=WRONG_TIMEOUT_S)
    assert refusal_of(lambda: client.produce(impatient, topic, SMALL_VALUES)) is expected
    assert refusal_of(lambda: client.read_group(impatient, topic, topic, 1)) is expected


@EACH_CLIENT
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(
    server: SecuredServer, forbidden: str, client: SecuredClient, mechanism: str
) -> None:
    failed = server.authentications("failed")
    login = replace(server.login("SASL_PLAINTEXT", mechanism, "alice"), password="wrong")
    check_refused(client, login, forbidden, Refusal.LOGIN)
    assert server.authentications("failed") >= failed + 2


@EACH_CLIENT
@pytest.mark.parametrize(("listener", "mechanism"), TLS_LOGINS)
def test_a_client_refuses_a_server_whose_ca_it_does_not_trust(
    server: SecuredServer, forbidden: str, client: SecuredClient, listener: str, mechanism: str | None, tmp_path: Path
) -> None:
    """Above all with PLAIN, a client that does not trust the server must not send it the password."""
    sent = server.authentications("failed") + server.authentications("successful")
    login = replace(server.login(listener, mechanism, "alice"), ca=Authority(tmp_path).path)
    check_refused(client, login, forbidden, Refusal.CERTIFICATE)
    assert server.authentications("failed") + server.authentications("successful") == sent


@EACH_CLIENT
def test_a_server_refuses_a_client_certificate_of_an_unknown_ca(
    server: SecuredServer, forbidden: str, client: SecuredClient, tmp_path: Path
) -> None:
    """The certificate has the name of the super user."""
    login = replace(server.login("SSL", None, "alice"), key_store=Authority(tmp_path).client("admin"))
    check_refused(client, login, forbidden, Refusal.CERTIFICATE)


class Sessions:
    """Sessions of several clients at the same time, because each takes seconds. Each has its own user and topic."""

    def __init__(self, server: SecuredServer, clients: Sequence[SecuredClient], listener: str, count: int) -> None:
        self._server = server
        self._sent: list[bytes] = []
        self.all: list[Session] = []
        for client in clients:
            user = topic = server.create_topic(f"session-{client.name}")
            server.set_password(user)
            server.allow([user], topic)
            login = server.login(listener, SESSION_MECHANISMS[client.name], user)
            self.all.append(Session(client, login, topic, count))
        self.send_one()

    def send_one(self) -> None:
        """Write a value to each topic, and wait until each group has committed it."""
        self._sent.append(b"value-%d" % len(self._sent))
        for one in self.all:
            self._server.write(one.topic, self._sent[-1])
        for one in self.all:
            wait_until(
                lambda one=one: one.is_over or self._server.committed(one.topic) == len(self._sent),  # type: ignore[misc]
                f"{one.client.name} has committed {len(self._sent)} values",
            )

    def check_values(self) -> None:
        """Wait for the end of all sessions. Each has read every value once."""
        for one in self.all:
            assert (one.client.name, one.values()) == (one.client.name, self._sent)


def run_longer_than_the_lifetime(sessions: Sessions) -> None:
    began = time.monotonic()
    for number in range(1, SESSION_RECORDS):
        at = began + number * SESSION_MS / 3000
        wait_until(lambda at=at: time.monotonic() >= at, "the time of the next record")  # type: ignore[misc]
        sessions.send_one()
    sessions.check_values()


@pytest.mark.needs_kcat
@pytest.mark.needs_java
@pytest.mark.needs_mvn
def test_clients_authenticate_again_before_their_session_ends(
    server: SecuredServer, clients: dict[str, SecuredClient]
) -> None:
    """KIP-368: no connection ends, and none is opened."""
    able = [clients[name] for name in ("confluent-kafka", "kafka-python", "java")]
    failed = server.authentications("failed")
    sessions = Sessions(server, able, "SHORT", SESSION_RECORDS)
    opened, succeeded = server.connections_opened(), server.authentications("successful")
    run_longer_than_the_lifetime(sessions)
    assert server.connections_opened() == opened
    assert server.authentications("successful") >= succeeded + 2 * len(able)
    assert server.authentications("failed") == failed


def test_aiokafka_reconnects_after_its_session_and_loses_nothing(
    server: SecuredServer, clients: dict[str, SecuredClient]
) -> None:
    """It does not know KIP-368. The server closes its connection at the first request after the session."""
    failed = server.authentications("failed")
    sessions = Sessions(server, [clients["aiokafka"]], "SHORT", SESSION_RECORDS)
    opened = server.connections_opened()
    run_longer_than_the_lifetime(sessions)
    assert server.connections_opened() >= opened + 2
    assert server.authentications("failed") == failed


@pytest.mark.needs_kcat
def test_kcat_ends_with_its_session(server: SecuredServer, clients: dict[str, SecuredClient]) -> None:
    """Its librdkafka is older than 2.2 and does not know KIP-368; kcat ends when all connections are closed."""
    sessions = Sessions(server, [clients["kcat"]], "SHORT", 2)
    assert NO_CONNECTIONS in sessions.all[0].failure()


@pytest.mark.needs_kcat
@pytest.mark.needs_java
@pytest.mark.needs_mvn
def test_sessions_survive_a_new_certificate_and_new_connections_see_it(
    server: SecuredServer, clients: dict[str, SecuredClient], tmp_path: Path
) -> None:
    sessions = Sessions(server, list(clients.values()), "RELOADED", 2)
    other = Authority(tmp_path)
    before = server.shown_certificate("RELOADED")
    replace_file(server.reloaded_key_store, pem(other.issue(*HOSTS)))
    wait_until(lambda: server.shown_certificate("RELOADED") != before, "the new certificate is shown")
    # The clients do not trust the new certificate, so they could not connect again.
    sessions.send_one()
    sessions.check_values()
    for one in sessions.all:
        check_refused(one.client, one.login, one.topic, Refusal.CERTIFICATE)
        one.client.produce(replace(one.login, ca=other.path), one.topic, SMALL_VALUES)


@pytest.mark.needs_kcat
@pytest.mark.needs_java
@pytest.mark.needs_mvn
def test_a_deleted_user_is_refused_during_its_session(server: SecuredServer, clients: dict[str, SecuredClient]) -> None:
    sessions = Sessions(server, list(clients.values()), "SASL_SSL", 2)
    for one in sessions.all:
        server.delete_user(one.login.user)
        server.write(one.topic, b"after the deletion")
    for one in sessions.all:
        if one.client.name == "kcat":
            # It ends when it has lost its connections, before it tries to log in again.
            assert NO_CONNECTIONS in one.failure()
            check_refused(one.client, one.login, one.topic, Refusal.LOGIN)
        else:
            assert (one.client.name, one.refusal()) == (one.client.name, Refusal.LOGIN)
        assert server.committed(one.topic) == 1
