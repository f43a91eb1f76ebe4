"""A server on which everybody has to log in: an administrator, a reader, and a tenant with a key."""

import json
from pathlib import Path

from kafka.admin import KafkaAdminClient, NewTopic

from kwire.testing.ports import unused_port
from tests.console.driver import Console
from tests.support.access_commands import run_with_password, succeeded
from tests.support.cli import run_here
from tests.support.server import HOST, KwireProcess

PASSWORD = "correct horse battery staple"
# Users, and the role of each.
USERS = {"admin": "admin", "olivia": "operator", "rita": "reader"}
SCOPE = "acme"


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

    def log_in(self, console: Console, user: str, path: str = "/") -> None:
        console.open(path)
        console.type("User", user)
        console.type("Password", PASSWORD)
        console.click("Log in")
        console.until("document.querySelector('.side-nav') !== null")

    def log_in_as_tenant(self, console: Console, path: str = "/") -> None:
        console.open(path)
        console.click("API key")
        console.type("Token of the API key", self.token)
        console.click("Log in")
        console.until("document.querySelector('.side-nav') !== null")
