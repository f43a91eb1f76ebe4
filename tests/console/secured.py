"""A server or a bridge on which everybody has to log in: an administrator, a reader, and a tenant with a key."""

import base64
import json
import re
from pathlib import Path
from typing import Any

from kwire.pipeline.reports.sender import ROOM
from kwire.testing.ports import unused_port
from tests.console.driver import Console
from tests.console.job_reports import job
from tests.support.access_commands import run_with_password, succeeded
from tests.support.bridge_process import BridgeProcess
from tests.support.cli import run_here
from tests.support.engines import is_served
from tests.support.http_json import HttpAnswer, ask
from tests.support.server import HOST, KwireProcess, wait_until

PASSWORD = "correct horse battery staple"
# Users, and the role of each.
USERS = {"admin": "admin", "olivia": "operator", "rita": "reader"}
SCOPE = "acme"
# Nothing is delivered there: its topic has no events.
WEBHOOK_URL = "https://127.0.0.1:1/hook"

# Errors of a coordinator that has begun a moment ago.
COORDINATOR_ERRORS = re.compile("COORDINATOR_LOAD_IN_PROGRESS|COORDINATOR_NOT_AVAILABLE|NOT_COORDINATOR|CONCURRENT")


def basic(user: str, password: str = PASSWORD) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


BASIC = basic("admin")


class SecuredServer:
    """`log_in` shows the console to one of USERS, `log_in_as_tenant` to the tenant."""

    def __init__(self, directory: Path, cluster: str | None = None) -> None:
        settings = {
            "kwire.authorizer": "acl",
            "kwire.http.authentication": "basic,key",
            "kwire.webhooks.allow.private": "true",
        }
        if cluster is None:
            settings["listeners"] = f"SASL_PLAINTEXT://{HOST}:{unused_port()}"
            self.process = KwireProcess(directory, kafka_port=None, settings=settings)
        else:
            self.process = BridgeProcess(directory, cluster, settings=settings)
        self.is_bridge = cluster is not None
        here = ("--data-dir", self.process.data_dir)
        for user, role in USERS.items():
            succeeded(run_with_password(PASSWORD, "user", "create", user, "--role", role, *here))
        key = json.loads(succeeded(run_here("key", "create", "--scope", SCOPE, *here, "-o", "json")))
        self.key_id, self.key_secret, self.token = key["id"], key["secret"], key["token"]

    def start(self) -> None:
        self.process.restart()
        for authorization, group, *topics in (
            (BASIC, "billing", "orders", "payments"),
            (self.bearer, "acme-billing", "acme-orders"),
        ):
            self.create_topics(authorization, *topics)
            self._create_others(authorization, topics[0], group)

    @property
    def bearer(self) -> str:
        return f"Bearer {self.token}"

    def _create_others(self, authorization: str, topic: str, group: str) -> None:
        """One of each resource that a page of the console may show, so that a link leads to every page."""
        offset = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics = [{"name": topic, "partitions": [offset]}]
        commit = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        transaction = f"{group}-transactions"
        if not self.is_bridge:
            # As for every client, the first request for a coordinator creates its topic.
            for key_type, name in ((0, group), (1, transaction)):
                self.kafka("FindCoordinator", {"key_type": key_type, "coordinator_keys": [name]}, authorization)
        self._coordinated("OffsetCommit", commit, authorization, version=9)
        producer = {"transactional_id": transaction, "transaction_timeout_ms": 60_000}
        self._coordinated("InitProducerId", producer, authorization)
        report = job("1" * 32, "lake", 10, "running", topics=[topic])
        requests: list[tuple[str, object]] = [
            (f"/rooms/{topic}-room/events", {"event_type": "message", "data": {"text": "Hello"}}),
            (f"/rooms/{ROOM}/events", {"event_type": report.type, "data": report.data}),
            ("/webhooks", {"url": WEBHOOK_URL, "topics": {f"{topic}-room": "latest"}}),
        ]
        if self.serves("/events"):
            stored = {"name": f"{topic}-events", "schemas": [{"eventType": "made", "type": "object"}]}
            requests.append(("/topics", stored))
        for path, body in requests:
            answer = self.ask("POST", path, body, authorization)
            assert answer.status == 201, answer

    def serves(self, path: str) -> bool:
        return not self.is_bridge or is_served(path)

    def _coordinated(self, name: str, body: object, authorization: str, *, version: int | None = None) -> None:
        """Send a request to a coordinator. The first one may come before the cluster has any."""

        def is_done() -> bool:
            answer = self._send(name, body, authorization, version)
            return answer.status == 200 and not COORDINATOR_ERRORS.search(json.dumps(answer.body))

        wait_until(is_done, f"the answer to {name}")

    def ask(self, method: str, path: str, body: object = None, authorization: str | None = None) -> HttpAnswer:
        """Send a request, as the administrator unless `authorization` says otherwise."""
        return ask(f"{self.process.http_url}{path}", method, body, authorization=authorization or BASIC)

    def kafka(self, name: str, body: object, authorization: str | None = None, *, version: int | None = None) -> Any:
        answer = self._send(name, body, authorization, version)
        assert answer.status == 200, answer
        assert '"error"' not in json.dumps(answer.body), answer
        return answer.body

    def _send(self, name: str, body: object, authorization: str | None, version: int | None) -> HttpAnswer:
        query = "" if version is None else f"?version={version}"
        return self.ask("POST", f"/kafka/{name}{query}", body, authorization)

    def create_topics(self, authorization: str, *names: str) -> None:
        for name in names:
            answer = self.ask("POST", f"/topics/{name}", {"num_partitions": 2}, authorization)
            assert answer.status == 201, answer

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
