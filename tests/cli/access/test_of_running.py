"""Commands on a running server that has a listener of each security protocol, and ACLs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kwire.testing.ports import unused_port
from tests.support.access_commands import json_of, run_with_password, succeeded
from tests.support.cli import Done, run_here
from tests.support.clients import unique_name
from tests.support.server import KwireProcess

ADMIN_PASSWORD = "s3cr3t-of-the-admin"
PASSWORD = "s3cr3t-of-a-user"
# It is not the default, so the commands have to ask for it.
PASSWORD_LENGTH_MIN = 10
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Secured(NamedTuple):
    """A running server with the user `admin`, the port of each listener, and the folder of its certificates."""

    process: KwireProcess
    ports: dict[str, int]
    tls: Path

    def config(self, tmp_path: Path, protocol: str, user: str = "", password: str = "", *more: str) -> Path:
        lines = [
            f"bootstrap.servers=127.0.0.1:{self.ports[protocol]}",
            f"security.protocol={protocol}",
            f"ssl.truststore.location={self.tls}/ca.pem",
            f"ssl.keystore.location={self.tls}/client.pem",
            f"sasl.username={user}",
            f"sasl.password={password}",
            *more,
        ]
        path = tmp_path / f"{unique_name('client')}.properties"
        path.write_text("\n".join(lines))
        return path

    def admin(self, tmp_path: Path) -> tuple[str, Path]:
        """The option that names the login of the administrator."""
        return "--command-config", self.config(tmp_path, "SASL_SSL", "admin", ADMIN_PASSWORD)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    tls = directory / "tls"
    succeeded(run_here("tls", "init", "--dir", tls, "127.0.0.1"))
    data_dir = directory / "data"
    succeeded(run_with_password(ADMIN_PASSWORD, "user", "create", "admin", "--role", "admin", "--data-dir", data_dir))
    ports = {protocol: unused_port() for protocol in PROTOCOLS}
    settings = {
        "listeners": ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{tls}/server.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{tls}/ca.pem",
        "listener.name.ssl.ssl.client.auth": "required",
        "kwire.authorizer": "acl",
        # The client certificate of `kwire tls init`.
        "super.users": "User:CN=client",
        "kwire.password.length.min": str(PASSWORD_LENGTH_MIN),
    }
    process = KwireProcess(directory, settings=settings, kafka_port=None)
    process.start()
    try:
        process.ready()
        yield Secured(process, ports, tls)
        assert process.stop() == 0
        for password in (ADMIN_PASSWORD, PASSWORD):
            for path in directory.rglob("*"):
                assert not path.is_file() or password.encode() not in path.read_bytes(), path
    finally:
        process.kill()


@pytest.fixture
def admin(server: Secured, tmp_path: Path) -> Callable[..., Done]:
    """Runs a command as the administrator. With `password`, the command reads it."""
    login = server.admin(tmp_path)

    def run(*arguments: object, password: str | None = None) -> Done:
        if password is None:
            return run_here(*arguments, *login)
        return run_with_password(password, *arguments, *login)

    return run


def test_the_server_decides_how_long_a_password_must_be(admin: Callable[..., Done]) -> None:
    name = unique_name("length")
    refused = (1, "", "kwire: the password must have at least 10 characters\n")
    assert admin("user", "create", name, password="123456789") == refused
    succeeded(admin("user", "create", name, password="1234567890"))
    assert admin("user", "passwd", name, password="123456789") == refused
    succeeded(admin("user", "delete", "--yes", name))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_user_logs_in_with_each_mechanism(server: Secured, tmp_path: Path, protocol: str, mechanism: str) -> None:
    config = server.config(tmp_path, protocol, "admin", ADMIN_PASSWORD, f"sasl.mechanism={mechanism}")
    name = unique_name("cli")
    assert succeeded(run_here("topic", "create", name, "--command-config", config)) == f"created {name}\n"
    listed = json_of("user", "list", "--command-config", config)
    assert [row["user"] for row in listed if row["user"] == "admin"] == ["admin"]


def test_a_client_certificate_is_a_login(server: Secured, tmp_path: Path) -> None:
    config = server.config(tmp_path, "SSL")
    name = unique_name("cli")
    succeeded(run_here("topic", "create", name, "--command-config", config))
    assert name in succeeded(run_here("topic", "list", "--command-config", config)).split()
    assert json_of("user", "list", "--command-config", config)


def test_a_client_without_a_login_may_do_nothing(server: Secured, tmp_path: Path) -> None:
    bootstrap = f"127.0.0.1:{server.ports['PLAINTEXT']}"
    for command in (("user", "list"), ("acl", "list")):
        done = run_here(*command, "--bootstrap-server", bootstrap)
        assert done.code == 1
        assert done.errors.startswith(f"kwire: {bootstrap}: a client without login may not do this")


def test_a_wrong_password_is_reported_at_once(server: Secured, tmp_path: Path) -> None:
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in MECHANISMS:
            config = server.config(tmp_path, protocol, "admin", "wr0ng-password", f"sasl.mechanism={mechanism}")
            for command in (("topic", "list"), ("user", "list"), ("group", "list")):
                done = run_here(*command, "--command-config", config)
                assert done.code == 1
                refusal = f"kwire: 127.0.0.1:{server.ports[protocol]} refused the login of user admin: "
                assert done.errors.startswith(refusal)
                assert done.errors.count("\n") == 1
                assert "wr0ng" not in done.out + done.errors


def test_a_connection_without_the_expected_security_is_explained(server: Secured, tmp_path: Path) -> None:
    commands = (("topic", "list"), ("user", "list"))
    bootstrap = f"127.0.0.1:{server.ports['SASL_PLAINTEXT']}"
    for command in commands:
        done = run_here(*command, "--bootstrap-server", bootstrap)
        assert done.code == 1
        assert done.errors == (
            f"kwire: {bootstrap} needs credentials; log in with --user NAME, or KWIRE_USER and KWIRE_PASSWORD\n"
        )
    for protocol in ("SASL_SSL", "SSL"):
        bootstrap = f"127.0.0.1:{server.ports[protocol]}"
        for command in commands:
            done = run_here(*command, "--bootstrap-server", bootstrap)
            assert done.code == 2, protocol
            assert done.errors.startswith(f"kwire: no answer from {bootstrap}: ")
            assert (
                "if it expects a login, add --user NAME; if it expects TLS, use a profile or --command-config"
                in done.errors
            )
    tls_to_plain = server.config(tmp_path, "SASL_SSL", "admin", ADMIN_PASSWORD)
    bootstrap = f"127.0.0.1:{server.ports['SASL_PLAINTEXT']}"
    done = run_here("topic", "list", "--command-config", tls_to_plain, "--bootstrap-server", bootstrap)
    assert done.code == 2
    assert done.errors.startswith(f"kwire: no answer from {bootstrap}: ")


def test_an_unknown_certificate_is_not_trusted(server: Secured, tmp_path: Path) -> None:
    succeeded(run_here("tls", "init", "--dir", tmp_path / "other", "127.0.0.1"))
    config = server.config(tmp_path, "SASL_SSL", "admin", ADMIN_PASSWORD)
    config.write_text(config.read_text().replace(str(server.tls), str(tmp_path / "other")))
    done = run_here("topic", "list", "--command-config", config)
    assert done.code == 2
    assert "its certificate is not trusted: " in done.errors
    assert "check ssl.truststore.location" in done.errors


def test_the_environment_logs_in(server: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap = ("--bootstrap-server", f"127.0.0.1:{server.ports['SASL_PLAINTEXT']}")
    monkeypatch.setenv("KWIRE_USER", "admin")
    done = run_here("topic", "list", *bootstrap)
    assert (done.code, done.errors) == (2, "kwire: the password of user admin is missing: set KWIRE_PASSWORD\n")
    monkeypatch.setenv("KWIRE_PASSWORD", ADMIN_PASSWORD)
    succeeded(run_here("topic", "list", *bootstrap))
    succeeded(run_here("acl", "list", *bootstrap))


def test_a_user_has_its_role_until_it_is_deleted(server: Secured, tmp_path: Path, admin: Callable[..., Done]) -> None:
    name, topic = unique_name("user"), unique_name("orders")
    role = ("--role", "writer", "--prefix", "orders")
    assert succeeded(admin("user", "create", name, *role, password=PASSWORD)) == f"created {name}\n"
    again = admin("user", "create", name, *role, password=PASSWORD)
    assert (again.code, again.errors) == (
        1,
        f"kwire: user {name} exists already: change its password with kwire user passwd\n",
    )
    config = ("--command-config", server.config(tmp_path, "SASL_SSL", name, PASSWORD))
    succeeded(run_here("topic", "create", topic, *config))
    refused = run_here("topic", "create", "other", *config)
    assert refused.code == 1
    assert "other: " in refused.errors
    forbidden = run_here("user", "list", *config)
    assert forbidden.code == 1
    assert f"user {name} may not do this; it needs rights on the cluster" in forbidden.errors
    listed = [row for row in json_of("user", "list", *server.admin(tmp_path)) if row["user"] == name]
    assert listed == [
        {
            "user": name,
            "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
            "roles": [{"role": "writer", "prefix": "orders"}],
            "other_acls": 0,
        }
    ]
    assert succeeded(admin("user", "delete", "--yes", name)) == f"deleted {name}\n"
    assert run_here("topic", "list", *config).code == 1
    assert json_of("acl", "list", "--principal", f"User:{name}", *server.admin(tmp_path)) == []
    missing = admin("user", "delete", "--yes", name)
    assert (missing.code, missing.errors) == (1, f"kwire: user {name} does not exist\n")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_changes_the_own_password(
    server: Secured, tmp_path: Path, admin: Callable[..., Done], mechanism: str
) -> None:
    name = unique_name("own")
    succeeded(admin("user", "create", name, "--role", "admin", password=PASSWORD))
    old = server.config(tmp_path, "SASL_SSL", name, PASSWORD, f"sasl.mechanism={mechanism}")
    changed = run_with_password("another-one", "user", "passwd", name, "--command-config", old)
    assert succeeded(changed) == f"changed {name}\n"
    assert run_here("user", "list", "--command-config", old).code == 1
    for one in MECHANISMS:
        new = server.config(tmp_path, "SASL_SSL", name, "another-one", f"sasl.mechanism={one}")
        succeeded(run_here("user", "list", "--command-config", new))
    itself = run_here("user", "delete", "--yes", name, "--command-config", new)
    assert (itself.code, itself.errors) == (
        1,
        f"kwire: user {name} cannot delete itself: log in as another user\n",
    )
    succeeded(admin("user", "delete", "--yes", name))


def test_acls_of_a_running_server(server: Secured, tmp_path: Path, admin: Callable[..., Done]) -> None:
    principal, topic = f"User:{unique_name('app')}", unique_name("t")
    allowed = ("--principal", principal, "--allow", "read,describe", "--topic", topic, "--prefixed")
    out = succeeded(admin("acl", "add", *allowed, "--host", "10.1.2.3")).splitlines()
    assert [line.split() for line in out[1:]] == [
        [principal, "allow", operation, "topic", topic, "prefixed", "10.1.2.3"] for operation in ("read", "describe")
    ]
    listed = json_of("acl", "list", "--topic", f"{topic}-more", "--principal", principal, *server.admin(tmp_path))
    assert {row["operation"] for row in listed} == {"read", "describe"}
    assert json_of("acl", "list", "--topic", "else", "--principal", principal, *server.admin(tmp_path)) == []
    deleted = json_of("acl", "delete", "--yes", "--principal", principal, "--allow", "read", *server.admin(tmp_path))
    assert [row["operation"] for row in deleted] == ["read"]
    succeeded(admin("acl", "delete", "--yes", "--principal", principal))
    nothing = admin("acl", "delete", "--yes", "--principal", principal)
    assert (nothing.code, nothing.errors) == (1, "kwire: no ACL matches, nothing was deleted\n")


def test_a_group_is_described_over_tls(server: Secured, tmp_path: Path, admin: Callable[..., Done]) -> None:
    missing = admin("group", "describe", unique_name("nobody"))
    assert missing.code == 1
    assert "does not exist" in missing.errors


def test_a_server_without_an_authorizer_says_so(tmp_path: Path) -> None:
    process = KwireProcess(tmp_path)
    process.start()
    try:
        process.ready()
        bootstrap = ("--bootstrap-server", process.bootstrap)
        done = run_here("acl", "list", *bootstrap)
        assert (done.code, done.errors) == (
            1,
            f"kwire: {process.bootstrap} has no ACLs: start the server with kwire.authorizer=acl\n",
        )
        with_role = run_with_password(PASSWORD, "user", "create", "alice", "--role", "reader", *bootstrap)
        assert with_role.code == 1
        assert json_of("user", "list", *bootstrap) == []
        succeeded(run_with_password(PASSWORD, "user", "create", "alice", *bootstrap))
        assert [row["user"] for row in json_of("user", "list", *bootstrap)] == ["alice"]
        succeeded(run_here("user", "delete", "--yes", "alice", *bootstrap))
    finally:
        process.kill()
