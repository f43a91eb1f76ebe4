"""A server on which everybody has to log in: an administrator, a reader, and a tenant with a key."""

import base64
import json
from pathlib import Path
from typing import Any

from kafka.admin import KafkaAdminClient, NewTopic

from kwire.testing.ports import unused_port
from tests.console.driver import Console
from tests.support.access_commands import run_with_password, succeeded
from tests.support.cli import run_here
from tests.support.http_json import HttpAnswer, ask
from tests.support.server import HOST, KwireProcess

PASSWORD = "correct horse battery staple"
# Users, and the role of each.
USERS = {"admin": "admin", "olivia": "operator", "rita": "reader"}
SCOPE = "acme"
# Nothing is delivered there: its topic has no events.
WEBHOOK_URL = "https://127.0.0.1:1/hook"


def basic(user: str, password: str = PASSWORD) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


BASIC = basic("admin")


class SecuredServer:
    """`log_in` shows the console to one of USERS, `log_in_as_tenant` to the tenant."""

    def __init__(self, directory: Path) -> None:
        self._bootstrap = f"{HOST}:{unused_port()}"
        self.process = KwireProcess(
            directory,
            kafka_port=None,
            settings={
                "listeners": f"SASL_PLAINTEXT://{self._bootstrap}",
                "kwire.authorizer": "acl",
                "kwire.http.authentication": "basic,key",
                "kwire.webhooks.allow.private": "true",
            },
        )
        here = ("--data-dir", self.process.data_dir)
        for user, role in USERS.items():
            succeeded(run_with_password(PASSWORD, "user", "create", user, "--role", role, *here))
        key = json.loads(succeeded(run_here("key", "create", "--scope", SCOPE, *here, "-o", "json")))
        self.key_id, self.key_secret, self.token = key["id"], key["secret"], key["token"]

    def start(self) -> None:
        self.process.restart()
        self.create_topics("admin", PASSWORD, "orders", "payments")
        self.create_topics(self.key_id, self.key_secret, "acme-orders")
        for authorization, topic, group in ((BASIC, "orders", "billing"), (self.bearer, "acme-orders", "acme-billing")):
            self._create_others(authorization, topic, group)

    @property
    def bearer(self) -> str:
        return f"Bearer {self.token}"

    def _create_others(self, authorization: str, topic: str, group: str) -> None:
        """One of each resource that a page of the console may show, so that a link leads to every page."""
        offset = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics = [{"name": topic, "partitions": [offset]}]
        commit = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        transaction = f"{group}-transactions"
        # As for every client, the first request for a coordinator creates its topic.
        for key_type, name in ((0, group), (1, transaction)):
            self.kafka("FindCoordinator", {"key_type": key_type, "coordinator_keys": [name]}, authorization)
        self.kafka("OffsetCommit", commit, authorization, version=9)
        producer = {"transactional_id": transaction, "transaction_timeout_ms": 60_000}
        self.kafka("InitProducerId", producer, authorization)
        stored = {"name": f"{topic}-events", "schemas": [{"eventType": "made", "type": "object"}]}
        for path, body in (
            (f"/rooms/{topic}-room/events", {"event_type": "message", "data": {"text": "Hello"}}),
            ("/topics", stored),
            ("/webhooks", {"url": WEBHOOK_URL, "topics": {f"{topic}-events": "latest"}}),
        ):
            answer = self.ask("POST", path, body, authorization)
            assert answer.status == 201, answer

    def ask(self, method: str, path: str, body: object = None, authorization: str | None = None) -> HttpAnswer:
        """Send a request, as the administrator unless `authorization` says otherwise."""
        return ask(f"{self.process.http_url}{path}", method, body, authorization=authorization or BASIC)

    def kafka(self, name: str, body: object, authorization: str | None = None, *, version: int | None = None) -> Any:
        answer = self.ask(
            "POST", f"/kafka/{name}{'' if version is None else f'?version={version}'}", body, authorization
        )
        assert answer.status == 200, answer
        assert '"error"' not in json.dumps(answer.body), answer
        return answer.body

    def create_topics(self, user: str, password: str, *names: str) -> None:
        admin = KafkaAdminClient(
            bootstrap_servers=self._bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username=user,
            sasl_plain_password=password,
        )
        try:
            admin.create_topics([NewTopic(name, 2, 1) for name in names])
        finally:
            admin.close()

    def log_in(self, console: Console, user: str, path: str = "/", password: str = PASSWORD) -> None:
        console.open(path)
        console.type("User", user)
        console.type("Password", password)
        console.click("Log in")
        console.until("document.querySelector('.side-nav') !== null")

    def log_in_as_tenant(self, console: Console, path: str = "/", token: str = "") -> None:
        console.open(path)
        console.click("API key")
        console.type("Token of the API key", token or self.token)
        console.click("Log in")
        console.until("document.querySelector('.side-nav') !== null")
