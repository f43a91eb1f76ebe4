"""Planted secrets of a running server appear nowhere: data directory, server log, metrics, audit log, error texts.

A new kind of secret is one more row of PLANTS and, if a client sends it, one more step in `use_them`.
"""

import base64
import json
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

from kwire.testing.ports import unused_port
from tests.support.access_commands import run_with_password
from tests.support.certificates import Authority
from tests.support.cli import run_program
from tests.support.clients import read_topic
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
# A password that somebody typed in the field of the user name.
TYPED_PASSWORD = "planted-typed-password-e7b3"
SIGNING_KEY = base64.b64encode(b"planted-webhook-secret-0123456789").decode()
NEW_SIGNING_KEY = base64.b64encode(b"planted-rotated-secret-0123456789").decode()


PLANTS = (
    KEY_STORE_PASSWORD,
    OTHER_STORE_PASSWORD,
    OFFLINE_PASSWORD,
    CHANGED_PASSWORD,
    ADMIN_PASSWORD,
    WRONG_PASSWORD,
    TRUST_PASSWORD,
    JAAS_PASSWORD,
    DYNAMIC_PASSWORD,
    URL_PASSWORD,
    BASIC_PASSWORD,
    TYPED_PASSWORD,
    # A webhook signs and sends its requests with these, also after a restart: its definition has them, encrypted.
    HEADER_TOKEN,
    QUERY_TOKEN,
    SIGNING_KEY,
    NEW_SIGNING_KEY,
)
# What is not secret, in the files that hold definitions of webhooks.
DESCRIPTION = "planted-description-that-is-not-secret"
STORED_IN = frozenset({"metastore.journal", "metastore.mirror"})


class Collected:
    """Texts that clients saw, by where they saw them, and secrets that the server made."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.plants: list[str] = []

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
    body: dict[str, Any] = {
        "url": url,
        "topics": {"orders": None},
        "headers": headers,
        "description": DESCRIPTION,
    }
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
    look_at_webhook(server, seen, webhook)
    for receiver in (EchoingReceiver(), EchoingReceiver(is_valid=False)):
        with receiver:
            body["url"] = f"http://127.0.0.1:{receiver.port}/in?token={QUERY_TOKEN}"
            webhook = json.loads(server.http("POST", "/webhooks", body))["id"]
            look_at_webhook(server, seen, webhook)
            assert receiver.heads
            assert QUERY_TOKEN in receiver.heads[0]
            assert HEADER_TOKEN in receiver.heads[0]
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


def look_at_webhook(server: World, seen: Collected, webhook: str) -> None:
    """Wait until a delivery has failed, and collect what the server says about the webhook."""
    wait_until(lambda: '"failed":0' not in server.http("GET", f"/webhooks/{webhook}"), "a delivery has failed")
    shown = json.loads(server.http("GET", f"/webhooks/{webhook}"))
    # The owner of a webhook sees its URL.
    shown.pop("url")
    seen.add("GET /webhooks/ID", shown)
    attempts = server.http("GET", f"/webhooks/{webhook}/deliveries")
    assert '"problem":"' in attempts
    seen.add("attempts", attempts)
    seen.add("test", server.http("POST", f"/webhooks/{webhook}/test"))


class EchoingReceiver:
    """A receiver of webhooks that refuses every request, and repeats it in its answer, which may be malformed."""

    def __init__(self, *, is_valid: bool = True) -> None:
        self.heads: list[str] = []
        self._is_valid = is_valid
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "EchoingReceiver":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        # Closing the socket does not wake a thread that accepts connections.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(WAIT_S)
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(WAIT_S)
                received = b""
                while b"\r\n\r\n" not in received:
                    received += connection.recv(65536)
                head = received.partition(b"\r\n\r\n")[0]
                self.heads.append(head.decode())
                line = (
                    b"HTTP/1.1 500 %b" % head.splitlines()[0] if self._is_valid else b"HTTP/1.1 nonsense " + head[:200]
                )
                connection.sendall(line + b"\r\nContent-Length: %d\r\n\r\n" % len(head) + head)


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
    # A password in the field of the user name.
    for password in (TYPED_PASSWORD, OFFLINE_PASSWORD):
        seen.add("typed password", server.http("GET", "/topics", authorization=basic(TYPED_PASSWORD, password)))
    # Without a name, and without base64.
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
    with SaslSocket(server.sasl) as connection:
        seen.add("typed password", connection.log_in(TYPED_PASSWORD, WRONG_PASSWORD))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        client = ScramClient(mechanism, TYPED_PASSWORD, WRONG_PASSWORD)
        with SaslSocket(server.sasl) as connection:
            connection.handshake(mechanism)
            first = connection.authenticate(client.first())
            final = connection.authenticate(client.final(first.auth_bytes))
            assert final.error_code != 0
            seen.add("typed password", (first, final))
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
    seen.plants += [used, unused]
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
    seen.plants += [text for secret in secrets for text in (secret, secret.removeprefix("kwsecret_"))]
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
        for form in forms_of(plant):
            found += [(plant, place) for place, text in seen.texts.items() if form in text.encode()]
            found += [(plant, str(path)) for path, data in files.items() if form in data]
    assert found == []
    # The search finds what is there.
    for path, data in files.items():
        assert (DESCRIPTION.encode() in data) == (path.name in STORED_IN), path
    assert "Unknown:user" in seen.texts["audit log"]
    # The users that were created before the start are in the audit log, too.
    assert '"port":"offline"' in seen.texts["audit log"]
    assert "login of an unknown user failed" in seen.texts["server log"]
