"""Planted secrets of a running server appear nowhere: data directory, server log, metrics, audit log, error texts.

`Plant` is one secret, with the places where it may be. A new kind of secret is one more row of PLANTS and, if a client
sends it, one more step in `use_them`.
"""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.access_commands import run_with_password
from tests.support.certificates import Authority
from tests.support.cli import run_program
from tests.support.clients import read_topic
from tests.support.ports import unused_port
from tests.support.sasl_server import SaslSocket
from tests.support.server import HOST, KwireProcess, wait_until
from tests.support.users import MECHANISMS, ScramClient

WAIT_S = 20.0
KEY_STORE_PASSWORD = "planted-key-store-password-7f3a"
OTHER_STORE_PASSWORD = "planted-other-store-password-e01d"
# Passwords of users: one that a command sets before the server starts, one that a Kafka client sets later, and one
# that is never right.
OFFLINE_PASSWORD = "planted-offline-password-b6a4"
CHANGED_PASSWORD = "planted-changed-password-40fe"
ADMIN_PASSWORD = "planted-admin-password-8d27"
WRONG_PASSWORD = "planted-wrong-password-19c5"
TRUST_PASSWORD = "planted-trust-password-91bc"
JAAS_PASSWORD = "planted-jaas-password-55d0"
DYNAMIC_PASSWORD = "planted-dynamic-password-02e8"
URL_PASSWORD = "planted-url-password-c4d1"
HEADER_TOKEN = "planted-header-token-6b7e"
BASIC_PASSWORD = "planted-basic-password-3c19"
QUERY_TOKEN = "planted-query-token-aa52"
SIGNING_KEY = base64.b64encode(b"planted-webhook-secret-0123456789").decode()
NEW_SIGNING_KEY = base64.b64encode(b"planted-rotated-secret-0123456789").decode()


class Plant(NamedTuple):
    """A secret. `is_stored` is True if the server needs it again after a restart, and so stores it."""

    text: str
    is_stored: bool = False


PLANTS = (
    Plant(KEY_STORE_PASSWORD),
    Plant(OTHER_STORE_PASSWORD),
    Plant(OFFLINE_PASSWORD),
    Plant(CHANGED_PASSWORD),
    Plant(ADMIN_PASSWORD),
    Plant(WRONG_PASSWORD),
    Plant(TRUST_PASSWORD),
    Plant(JAAS_PASSWORD),
    Plant(DYNAMIC_PASSWORD),
    Plant(URL_PASSWORD),
    Plant(BASIC_PASSWORD),
    # A webhook signs and sends its requests with these, also after a restart: its definition has them.
    Plant(HEADER_TOKEN, is_stored=True),
    Plant(QUERY_TOKEN, is_stored=True),
    Plant(SIGNING_KEY, is_stored=True),
    Plant(NEW_SIGNING_KEY, is_stored=True),
)
# The files that hold definitions of webhooks.
STORED_IN = frozenset({"metastore.journal", "metastore.mirror"})


class Collected:
    """Texts that clients saw, by where they saw them, and secrets that the server made."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.plants: list[Plant] = []

    def add(self, place: str, text: object) -> None:
        self.texts[place] = self.texts.get(place, "") + str(text)


class World:
    """A server with TLS on its HTTP port, users, and two listeners: one with SASL, and an open one."""

    def __init__(self, directory: Path, seen: Collected) -> None:
        self.seen = seen
        authority = Authority(directory)
        self.tls = ssl.create_default_context(cafile=str(authority.path))
        self.sasl = (HOST, unused_port())
        settings = {
            "listeners": f"SASL://{HOST}:{self.sasl[1]},OPEN://{HOST}:{unused_port()}",
            "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,OPEN:PLAINTEXT",
            "kwire.audit": "all",
            "kwire.webhooks.allow.private": "true",
            "kwire.http.tls": "true",
            "kwire.http.authentication": "basic,key",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(authority.pkcs12("server.p12", KEY_STORE_PASSWORD)),
            "ssl.keystore.password": KEY_STORE_PASSWORD,
            "ssl.key.password": KEY_STORE_PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(authority.pkcs12_trust("trust.p12", TRUST_PASSWORD)),
            "ssl.truststore.password": TRUST_PASSWORD,
            "ssl.client.auth": "requested",
            "sasl.jaas.config": f'ScramLoginModule required username="u" password="{JAAS_PASSWORD}";',
        }
        config = directory / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.process = KwireProcess(directory / "kwire", kafka_port=None, arguments=["--config", str(config)])
        for user, password in (("admin", ADMIN_PASSWORD), ("alice", OFFLINE_PASSWORD), ("alice", WRONG_PASSWORD)):
            done = run_with_password(password, "user", "create", user, "--data-dir", self.process.data_dir)
            seen.add("kwire user create", done)
            assert done.code == (0 if password != WRONG_PASSWORD else 1)
        done = run_program("key", "create", "--scope", "acme", "--data-dir", self.process.data_dir, "-o", "json")
        self.offline_key = json.loads(done.out)
        self.refuse_to_start(config, "ssl.keystore.password", KEY_STORE_PASSWORD)
        self.refuse_to_start(config, "ssl.truststore.password", TRUST_PASSWORD)
        self.process.start()
        self.process.ready()

    @property
    def bootstrap(self) -> str:
        """The address of the open listener, which is the last one."""
        return self.process.bootstrap

    def refuse_to_start(self, config: Path, setting: str, password: str) -> None:
        """Start the server with another password of a store, which fails."""
        other = config.with_name("other.properties")
        text = config.read_text()
        assert f"{setting}={password}\n" in text
        other.write_text(text.replace(f"={password}\n", f"={OTHER_STORE_PASSWORD}\n"))
        done = run_program("serve", "--config", other, "--data-dir", self.process.data_dir, "--http", f"{HOST}:0")
        assert done.code != 0
        assert setting in done.errors
        self.seen.add(f"start with a wrong {setting}", done)

    def http(self, method: str, path: str, body: object = None, *, authorization: str | None = None) -> str:
        """Send a request, by default as the administrator, and return the body of the answer."""
        with self.open_http(method, path, body, authorization) as answer:
            return str(answer.read().decode())

    def open_http(self, method: str, path: str, body: object = None, authorization: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        given = basic("admin", ADMIN_PASSWORD) if authorization is None else authorization
        headers = {"Content-Type": "application/json", **({"Authorization": given} if given else {})}
        url = f"https://localhost:{self.process.http_port}{path}"
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            return urllib.request.urlopen(request, timeout=WAIT_S, context=self.tls)
        except urllib.error.HTTPError as error:
            return error


@pytest.fixture
def server(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, Collected())
    yield made
    if made.process.is_running:
        made.process.kill()


def use_them(server: World, seen: Collected) -> None:
    """Do all that a secret could come out of: right requests and wrong ones."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 1, 1)]).values():
        future.result(WAIT_S)
    for name in (
        "ssl.key.password",
        "ssl.keystore.password",
        "listener.name.http.ssl.keystore.password",
        "listener.name.internal.ssl.key.password",
        "sasl.jaas.config",
        "no.such.password",
    ):
        entry = ConfigEntry(name, DYNAMIC_PASSWORD, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            try:
                future.result(WAIT_S)
            except Exception as error:
                seen.add(f"AlterConfigs {name}", error)
    for future in admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values():
        seen.add("DescribeConfigs", {name: one.value for name, one in future.result(WAIT_S).items()})
    url = f"https://user:{URL_PASSWORD}@127.0.0.1/in"
    headers = {"x-token": HEADER_TOKEN}
    body: dict[str, Any] = {"url": url, "topics": {"orders": None}, "headers": headers}
    seen.add("a URL with a password", server.http("POST", "/webhooks", body))
    body["url"] = f"http://127.0.0.1:9/in?token={QUERY_TOKEN}"
    for wrong in ({"secret": f"whsec_{SIGNING_KEY}x"}, {"secret": SIGNING_KEY}, {"headers": {"a b": HEADER_TOKEN}}):
        seen.add("a wrong webhook", server.http("POST", "/webhooks", {**body, **wrong}))
    body["url"] = f"https://127.0.0.1:9/in?token={QUERY_TOKEN}"
    made = json.loads(server.http("POST", "/webhooks", {**body, "secret": f"whsec_{SIGNING_KEY}"}))
    webhook = made["id"]
    # The answer to the one request that sets a secret has it.
    assert made.pop("secret") == f"whsec_{SIGNING_KEY}"
    rotated = server.http("POST", f"/webhooks/{webhook}/rotate-secret", {"secret": f"whsec_{NEW_SIGNING_KEY}"})
    assert NEW_SIGNING_KEY in rotated
    server.http("POST", "/rooms/orders/events", {"event_type": "x", "data": {}})
    wait_until(
        lambda: '"failed":0' not in server.http("GET", f"/webhooks/{webhook}"), "a delivery to nobody has failed"
    )
    shown = json.loads(server.http("GET", f"/webhooks/{webhook}"))
    # The owner of a webhook sees its URL.
    shown.pop("url")
    seen.add("GET /webhooks/ID", shown)
    seen.add("attempts", server.http("GET", f"/webhooks/{webhook}/attempts"))
    seen.add("test", server.http("POST", f"/webhooks/{webhook}/test"))
    for path in ("/topics", "/no/such/path"):
        seen.add("Basic", server.http("GET", path, authorization=basic("alice", BASIC_PASSWORD)))
        seen.add("Basic", server.http("GET", path, authorization=f"Bearer {BASIC_PASSWORD}"))
    change_password(server, admin, seen)
    log_in_with_sasl(server, seen)
    use_tickets(server, seen)
    use_keys(server, seen)
    seen.add("/metrics", server.http("GET", "/metrics"))
    wait_until(lambda: "webhook.registered" in audit(server), "the audit log has the webhook")
    seen.add("audit log", audit(server))


def change_password(server: World, admin: AdminClient, seen: Collected) -> None:
    """Change alice's password over Kafka, and use the old and the new one with HTTP Basic."""
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        for user, iterations in (("alice", 4096), ("alice", 1), ("*", 4096)):
            info = ScramCredentialInfo(mechanism, iterations)
            change = UserScramCredentialUpsertion(user, info, CHANGED_PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([change]).values():
                try:
                    future.result(WAIT_S)
                except Exception as error:
                    assert (user, iterations) != ("alice", 4096)
                    seen.add("AlterUserScramCredentials", error)
    for password, is_right in ((CHANGED_PASSWORD, True), (OFFLINE_PASSWORD, False), (WRONG_PASSWORD, False)):
        answer = server.http("GET", "/topics", authorization=basic("alice", password))
        assert ("orders" in answer) == is_right
        seen.add("Basic", answer)
    # Without a name, and without base64. A password in place of the name is not secret: names are recorded.
    for wrong in (basic("", CHANGED_PASSWORD), f"Basic {CHANGED_PASSWORD}"):
        seen.add("malformed Basic", server.http("GET", "/topics", authorization=wrong))


def log_in_with_sasl(server: World, seen: Collected) -> None:
    """Log in with all mechanisms and right, wrong and malformed tokens."""
    for password in (CHANGED_PASSWORD, OFFLINE_PASSWORD, WRONG_PASSWORD):
        with SaslSocket(server.sasl) as connection:
            answer = connection.log_in("alice", password)
            assert (answer.error_code == 0) == (password == CHANGED_PASSWORD)
            seen.add("PLAIN", answer)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            client = ScramClient(mechanism, "alice", password)
            with SaslSocket(server.sasl) as connection:
                connection.handshake(mechanism)
                first = connection.authenticate(client.first())
                final = connection.authenticate(client.final(first.auth_bytes))
                assert (final.error_code == 0) == (password == CHANGED_PASSWORD)
                seen.add("SCRAM", (first, final))
    secret = CHANGED_PASSWORD.encode()
    for mechanism in MECHANISMS:
        for token in (secret, b"alice\0" + secret, b"\0alice\0" + secret + b"\0", b"bob\0alice\0" + secret):
            with SaslSocket(server.sasl) as connection:
                connection.handshake(mechanism)
                answer = connection.authenticate(token)
                assert answer.error_code != 0
                seen.add("malformed token", answer)
    with SaslSocket(server.sasl) as connection:
        seen.add("unknown mechanism", connection.handshake(CHANGED_PASSWORD))


def use_tickets(server: World, seen: Collected) -> None:
    """Open a stream with a ticket, and use tickets where they are not valid."""
    used, unused = (json.loads(server.http("POST", "/tickets"))["ticket"] for _ in range(2))
    seen.plants += [Plant(used), Plant(unused)]
    with server.open_http("GET", f"/rooms/orders/subscribe?ticket={used}", authorization="") as stream:
        assert stream.status == 200
        seen.add("stream", stream.readline())
    for path in (
        f"/rooms/orders/subscribe?ticket={used}",
        f"/rooms/orders/subscribe?ticket={used}&ticket={unused}",
        f"/rooms/orders/events?ticket={unused}",
        f"/no/such/path?ticket={unused}",
    ):
        refused = server.http("GET", path, authorization="")
        assert "Unauthorized" in refused
        seen.add("ticket", refused)
    # The query is checked with valid credentials, too.
    seen.add("ticket", server.http("GET", f"/rooms/orders/events?ticket={unused}"))
    seen.add("ticket", server.http("GET", f"/rooms/orders/subscribe?from_offset={unused}"))


def use_keys(server: World, seen: Collected) -> None:
    """Create, rotate and revoke keys, and use their secrets where they are valid and where they are not."""
    created = json.loads(server.http("POST", "/keys", {"scope": "acme"}))
    rotated = json.loads(server.http("POST", f"/keys/{created['id']}/rotate", {"overlap_secs": 0}))
    secrets = [created["secret"], rotated["secret"], server.offline_key["secret"]]
    # Without the prefix, too: it is the same in all secrets.
    seen.plants += [Plant(text) for secret in secrets for text in (secret, secret.removeprefix("kws_"))]
    shown = [server.http("GET", path) for path in ("/keys", f"/keys/{created['id']}")]
    seen.add("GET /keys", shown)
    for one in (created, rotated, server.offline_key):
        for authorization in (f"Bearer {one['token']}", f"Bearer {one['secret']}", f"Bearer {one['token']}x"):
            seen.add("Bearer", server.http("GET", "/rooms", authorization=authorization))
        for user, password in ((one["id"], one["secret"]), (one["token"], "x"), (one["secret"], one["secret"])):
            seen.add("Basic with a key", server.http("GET", "/rooms", authorization=basic(user, password)))
            with SaslSocket(server.sasl) as connection:
                answer = connection.log_in(user, password)
                assert (answer.error_code == 0) == (user == one["id"] and one is not created)
                seen.add("PLAIN with a key", answer)
            with SaslSocket(server.sasl) as connection:
                connection.handshake("SCRAM-SHA-512")
                seen.add("SCRAM with a key", connection.authenticate(ScramClient("SCRAM-SHA-512", user, "x").first()))
    seen.add("DELETE /keys", server.http("DELETE", f"/keys/{created['id']}"))


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def audit(server: World) -> str:
    try:
        found = read_topic(server.bootstrap, "kwire-audit")
    except Exception:
        return ""
    return str([(record.headers, record.value) for records in found.values() for record in records])


def forms_of(secret: str) -> set[bytes]:
    """The secret as it could be written: plain, in base64, and in hexadecimal."""
    raw = secret.encode()
    # Without the ends, which depend on the bytes beside it in what was encoded.
    encoded = [base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3)]
    return {raw, raw.hex().encode(), *encoded}


def test_planted_secrets_appear_nowhere(server: World) -> None:
    seen = server.seen
    use_them(server, seen)
    process = server.process
    assert process.stop() == 0
    seen.add("server log", process.stderr_path.read_text() + process.stdout_path.read_text())
    files = {path: path.read_bytes() for path in process.data_dir.rglob("*") if path.is_file()}
    assert any(path.name in STORED_IN for path in files)
    found = []
    for plant in (*PLANTS, *seen.plants):
        for form in forms_of(plant.text):
            found += [(plant.text, place) for place, text in seen.texts.items() if form in text.encode()]
            found += [
                (plant.text, str(path))
                for path, data in files.items()
                if form in data and not (plant.is_stored and path.name in STORED_IN)
            ]
    assert found == []
    # The search finds what is there.
    journal = b"".join(data for path, data in files.items() if path.name in STORED_IN)
    assert all(plant.text.encode() in journal for plant in PLANTS if plant.is_stored)
