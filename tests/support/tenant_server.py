"""A node in a thread of this process whose users are tenants. Real clients log in to it over SASL.

The authorizer gives each of TENANTS the access of a client with a scope, and every other user the rights of an
administrator.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kwire.access.access import Access, Unrestricted
from kwire.access.authorizer import OpenAuthorizer
from kwire.access.principal import Principal
from kwire.access.scope import Scope
from kwire.access.scoped_access import ScopedAccess
from kwire.node import Node
from tests.support.node import running_node
from tests.support.ports import unused_port
from tests.support.scopes import A, B
from tests.support.server import HOST

TENANTS: dict[str, Scope] = {"alice": A, "bob": B}
PASSWORD = "correct-horse-battery"
START_TIMEOUT_S = 60.0


class TenantAuthorizer(OpenAuthorizer):
    def access(self, principal: Principal, host: str) -> Access:
        scope = TENANTS.get(principal.name)
        return Unrestricted(principal, host) if scope is None else ScopedAccess(principal, host, scope)


class TenantServer:
    """The addresses of the node: `open` is without a login, `bootstrap` with one."""

    def __init__(self) -> None:
        self.open_port, self.sasl_port = unused_port(), unused_port()
        self.open = f"{HOST}:{self.open_port}"
        self.bootstrap = f"{HOST}:{self.sasl_port}"
        self.node: Node | None = None

    def confluent(self, user: str, **options: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            **{name.replace("_", "."): value for name, value in options.items()},
        }

    def keywords(self, user: str) -> dict[str, Any]:
        """Of kafka-python."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": PASSWORD,
        }

    def properties(self, directory: Path, user: str) -> str:
        """A file for Kafka's tools."""
        path = directory / f"{user}.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{user}" password="{PASSWORD}";\n'
        )
        return str(path)


@contextmanager
def running_tenant_server(directory: Path) -> Iterator[TenantServer]:
    server = TenantServer()
    settings = (
        f"listeners=OPEN://{server.open},SASL://{server.bootstrap}",
        "listener.security.protocol.map=OPEN:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        "group.initial.rebalance.delay.ms=0",
    )
    is_ready, is_over = threading.Event(), asyncio.Event()
    failures: list[BaseException] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with running_node(directory, *settings, kafka=None) as node:
            server.node = node
            for user in (*TENANTS, "admin"):
                await node._shared.services.users.create(user, PASSWORD)
            is_ready.set()
            await is_over.wait()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(serve())
        except BaseException as error:
            failures.append(error)
            is_ready.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kwire.node.authorizer_of", lambda *arguments: TenantAuthorizer())
        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert is_ready.wait(START_TIMEOUT_S), "the node did not start"
            assert not failures, failures
            yield server
        finally:
            if not failures:
                loop.call_soon_threadsafe(is_over.set)
            thread.join(START_TIMEOUT_S)
            loop.close()
        assert not failures, failures
