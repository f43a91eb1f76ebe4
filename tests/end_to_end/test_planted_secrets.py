"""Planted secrets of a running server appear nowhere: data directory, server log, metrics, audit log, error texts.

`Plant` is one secret, with the places where it may be. A new kind of secret is one more row of PLANTS and, if a client
sends it, one more step in `use_them`.
"""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.support.clients import read_topic
from tests.support.server import KwireProcess, wait_until

WAIT_S = 20.0
KEY_PASSWORD = "planted-key-password-7f3a"
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
    Plant(KEY_PASSWORD),
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


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KwireProcess]:
    settings = {
        "kwire.audit": "all",
        "kwire.webhooks.allow.private": "true",
        "ssl.key.password": KEY_PASSWORD,
        "ssl.truststore.password": TRUST_PASSWORD,
        "sasl.jaas.config": f'ScramLoginModule required username="u" password="{JAAS_PASSWORD}";',
    }
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    process = KwireProcess(tmp_path, arguments=["--config", str(config)])
    process.start()
    process.ready()
    yield process
    if process.is_running:
        process.kill()


class Collected:
    """Texts that clients saw, by where they saw them."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def add(self, place: str, text: object) -> None:
        self.texts[place] = self.texts.get(place, "") + str(text)


def use_them(server: KwireProcess, seen: Collected) -> None:
    """Do all that a secret could come out of: right requests and wrong ones."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 1, 1)]).values():
        future.result(WAIT_S)
    for name in ("ssl.key.password", "listener.name.internal.ssl.key.password", "sasl.jaas.config", "no.such.password"):
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
    seen.add("a URL with a password", http(server, "POST", "/webhooks", body))
    body["url"] = f"http://127.0.0.1:9/in?token={QUERY_TOKEN}"
    for wrong in ({"secret": f"whsec_{SIGNING_KEY}x"}, {"secret": SIGNING_KEY}, {"headers": {"a b": HEADER_TOKEN}}):
        seen.add("a wrong webhook", http(server, "POST", "/webhooks", {**body, **wrong}))
    body["url"] = f"https://127.0.0.1:9/in?token={QUERY_TOKEN}"
    made = json.loads(http(server, "POST", "/webhooks", {**body, "secret": f"whsec_{SIGNING_KEY}"}))
    webhook = made["id"]
    # The answer to the one request that sets a secret has it.
    assert made.pop("secret") == f"whsec_{SIGNING_KEY}"
    rotated = http(server, "POST", f"/webhooks/{webhook}/rotate-secret", {"secret": f"whsec_{NEW_SIGNING_KEY}"})
    assert NEW_SIGNING_KEY in rotated
    http(server, "POST", "/rooms/orders/events", {"event_type": "x", "data": {}})
    wait_until(
        lambda: '"failed":0' not in http(server, "GET", f"/webhooks/{webhook}"), "a delivery to nobody has failed"
    )
    shown = json.loads(http(server, "GET", f"/webhooks/{webhook}"))
    # The owner of a webhook sees its URL.
    shown.pop("url")
    seen.add("GET /webhooks/ID", shown)
    seen.add("attempts", http(server, "GET", f"/webhooks/{webhook}/attempts"))
    seen.add("test", http(server, "POST", f"/webhooks/{webhook}/test"))
    basic = "Basic " + base64.b64encode(f"alice:{BASIC_PASSWORD}".encode()).decode()
    for path in ("/topics", "/no/such/path"):
        seen.add("Basic", http(server, "GET", path, authorization=basic))
        seen.add("Basic", http(server, "GET", path, authorization=f"Bearer {BASIC_PASSWORD}"))
    seen.add("/metrics", http(server, "GET", "/metrics"))
    wait_until(lambda: "webhook.registered" in audit(server), "the audit log has the webhook")
    seen.add("audit log", audit(server))


def http(server: KwireProcess, method: str, path: str, body: object = None, *, authorization: str = "") -> str:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **({"Authorization": authorization} if authorization else {})}
    request = urllib.request.Request(server.http_url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def audit(server: KwireProcess) -> str:
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


def test_planted_secrets_appear_nowhere(server: KwireProcess) -> None:
    seen = Collected()
    use_them(server, seen)
    assert server.stop() == 0
    seen.add("server log", server.stderr_path.read_text() + server.stdout_path.read_text())
    files = {path: path.read_bytes() for path in server.data_dir.rglob("*") if path.is_file()}
    assert any(path.name in STORED_IN for path in files)
    found = []
    for plant in PLANTS:
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
