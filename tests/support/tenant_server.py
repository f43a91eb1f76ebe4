"""A real server with two tenants: each has the key of a scope of its own. Clients log in to it over SASL."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.access_commands import succeeded
from tests.support.cli import run_here
from tests.support.sasl_server import SaslServer

TENANTS = ("alice", "bob")


class Tenant(NamedTuple):
    """The key of a tenant, and the prefix of the full names of its scope."""

    id: str
    secret: str
    prefix: str

    def full_name(self, plain: str) -> str:
        return self.prefix + plain


class TenantServer(SaslServer):
    """`open` is without a login, `bootstrap` with the login of a tenant."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {"group.initial.rebalance.delay.ms": "0"})
        here = ("--data-dir", self.process.data_dir, "-o", "json")
        created = {name: json.loads(succeeded(run_here("key", "create", "--scope", name, *here))) for name in TENANTS}
        prefixes = {one["id"]: one["prefix"] for one in json.loads(succeeded(run_here("key", "list", *here)))}
        self.tenants = {name: Tenant(one["id"], one["secret"], prefixes[one["id"]]) for name, one in created.items()}

    def confluent(self, tenant: str, **options: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": self.tenants[tenant].id,
            "sasl.password": self.tenants[tenant].secret,
            **{name.replace("_", "."): value for name, value in options.items()},
        }

    def keywords(self, tenant: str) -> dict[str, Any]:
        """Of kafka-python."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": self.tenants[tenant].id,
            "sasl_plain_password": self.tenants[tenant].secret,
        }

    def properties(self, directory: Path, tenant: str) -> str:
        """A file for Kafka's tools."""
        path = directory / f"{tenant}.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{self.tenants[tenant].id}" password="{self.tenants[tenant].secret}";\n'
        )
        return str(path)


@contextmanager
def running_tenant_server(directory: Path) -> Iterator[TenantServer]:
    server = TenantServer(directory)
    try:
        server.process.start()
        server.process.ready()
        yield server
        assert server.process.stop() == 0
    finally:
        server.process.kill()
