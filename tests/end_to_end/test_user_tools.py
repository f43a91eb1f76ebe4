"""kafka-configs, unchanged, manages users and their passwords."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.java import JavaTools
from tests.support.sasl_server import SECRET, SaslServer, running_sasl_server
from tests.support.secured_clients.login import Login

# One worker runs all tests of the tools, in one JVM.
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("kafka-tools"),
    pytest.mark.needs_java,
    pytest.mark.needs_mvn,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslServer]:
    with running_sasl_server(tmp_path_factory.mktemp("sasl")) as started:
        started.set_password("alice")
        yield started


def test_kafka_configs_manages_users(server: SaslServer, java: JavaTools, tmp_path: Path) -> None:
    """The tool salts and hashes, and the server never sees the password."""

    def options(mechanism: str, user: str, password: str) -> tuple[str, ...]:
        login = Login(server.bootstrap, "SASL_PLAINTEXT", mechanism, user, password)
        return "--bootstrap-server", server.bootstrap, "--command-config", str(login.write_properties(tmp_path))

    def configs(*arguments: str) -> str:
        alice = options("SCRAM-SHA-512", "alice", SECRET)
        return java.run("kafka.admin.ConfigCommand", *alice, "--entity-type", "users", *arguments)

    bob = ("--entity-name", "bob")
    for mechanism, password in (("SCRAM-SHA-256", "first"), ("SCRAM-SHA-512", "second")):
        configs(*bob, "--alter", "--add-config", f"{mechanism}=[iterations=8192,password={password}]")
    described = configs(*bob, "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=8192" in described
    everybody = configs("--describe")
    assert "'alice'" in everybody
    assert "'bob'" in everybody

    for mechanism, password in (("SCRAM-SHA-256", "first"), ("SCRAM-SHA-512", "second"), ("PLAIN", "first")):
        java.run("TopicCommand", *options(mechanism, "bob", password), "--list")
    refusal = java.refused("TopicCommand", *options("SCRAM-SHA-256", "bob", "second"), "--list")
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in refusal
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        configs(*bob, "--alter", "--delete-config", mechanism)
    assert "'bob'" not in configs("--describe")
