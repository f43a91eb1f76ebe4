"""The commands that write and read data, with a profile for SASL_SSL and https."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kwire.testing.ports import unused_port
from tests.support.access_commands import run_with_password, succeeded
from tests.support.cli import Done, run_here, run_program
from tests.support.server import HOST, KwireProcess

PASSWORD = "s3cr3t of the test"
LINES = "".join(f"line {number} {'x' * 200}\n" for number in range(20_000))
# More than one TLS record, and more than one read of a socket.
LARGE = "y" * 900_000

Run = Callable[..., Done]


class SecuredServer:
    """A server with a SASL_SSL listener and https, on which only the user admin has rights."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tls = folder, folder / "tls"
        succeeded(run_here("tls", "init", "--dir", self.tls, "127.0.0.1"))
        self.bootstrap = f"{HOST}:{unused_port()}"
        self.process = KwireProcess(
            folder / "kwire",
            kafka_port=None,
            settings={
                "listeners": f"SASL_SSL://{self.bootstrap}",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": f"{self.tls}/server.pem",
                "kwire.authorizer": "acl",
                "super.users": "User:admin",
                "kwire.http.tls": "true",
                "kwire.http.authentication": "basic",
            },
        )
        for user in ("admin", "guest"):
            succeeded(run_with_password(PASSWORD, "user", "create", user, "--data-dir", self.process.data_dir))

    def settings(self, user: str) -> list[str]:
        return [
            f"bootstrap.servers={self.bootstrap}",
            f"kwire.http=https://{HOST}:{self.process.http_port}",
            "security.protocol=SASL_SSL",
            f"ssl.truststore.location={self.tls}/ca.pem",
            f"sasl.username={user}",
        ]

    def run(self, *arguments: object, profile: str = "admin", given: str = "") -> Done:
        return run_program(
            *arguments, given=given, KWIRE_CONFIG=str(self.folder / "profiles.yaml"), KWIRE_PROFILE=profile
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    found = SecuredServer(tmp_path_factory.mktemp("secured"))
    found.process.start()
    try:
        found.process.ready()
        for user in ("admin", "guest"):
            set_ = ("profile", "set", user, *found.settings(user), "sasl.password")
            succeeded(found.run(*set_, given=f"{PASSWORD}\n"))
        yield found
        assert found.process.stop() == 0
    finally:
        found.process.kill()


def test_records_and_groups(server: SecuredServer, tmp_path: Path) -> None:
    def run(*arguments: object, given: str = "") -> str:
        return succeeded(server.run(*arguments, given=given))

    run("topic", "create", "orders", "--partitions", "3")
    assert "orders" in run("topic", "list")
    run("topic", "produce", "orders", "-z", "gzip", given=LINES)
    run("topic", "produce", "orders", "--format", "whole", "--batch-size", "1048576", given=LARGE)
    consumed = run("topic", "consume", "orders", "--until", "end", "--group", "readers")
    assert sorted(consumed.splitlines()) == sorted([*LINES.splitlines(), LARGE])
    assert len(run("topic", "consume", "orders", "--tail", "5", "--until", "end").splitlines()) == 5
    (group,) = json.loads(run("group", "list", "-o", "json"))
    assert group["group"] == "readers"
    described = json.loads(run("group", "describe", "readers", "-o", "json"))
    assert sum(row["lag"] for row in described["offsets"]) == 0
    run("group", "reset", "readers", "--to-earliest", "--execute")
    again = run("topic", "consume", "orders", "--until", "end", "--group", "readers", "--count", "20001")
    assert len(again.splitlines()) == 20_001
    run("topic", "export", "orders", "--file", tmp_path / "orders.csv")
    run("topic", "create", "copy", "--partitions", "3")
    run("topic", "import", "copy", "--file", tmp_path / "orders.csv")
    copied = run("topic", "consume", "copy", "--until", "end")
    assert sorted(copied.splitlines()) == sorted(consumed.splitlines())
    run("topic", "trim", "copy", "--before", "latest", "--yes")
    run("group", "delete", "readers", "--yes")
    run("topic", "delete", "orders", "copy", "--yes")
    run("bench", "--records", "1000", "--seconds", "2", "--latency-records", "10")


def test_rooms_and_events(server: SecuredServer, tmp_path: Path) -> None:
    def run(*arguments: object, given: str = "") -> str:
        return succeeded(server.run(*arguments, given=given))

    run("room", "create", "lobby")
    run("room", "publish", "lobby", given="1\n2\n3\n")
    run("room", "publish", "lobby", given=LARGE)
    assert len(run("room", "history", "lobby").splitlines()) == 4
    tailed = run("room", "tail", "lobby", "--from-offset", "0", "--count", "4").splitlines()
    assert [json.loads(line)["data"] for line in tailed] == [1, 2, 3, LARGE]
    (tmp_path / "schemas.json").write_text('[{"eventType": "counted", "type": "integer"}]')
    run("schema", "register", "counts", "--file", tmp_path / "schemas.json")
    run("event", "publish", "counts", "--type", "counted", given="".join(f"{number}\n" for number in range(1200)))
    assert len(run("event", "list", "counts").splitlines()) == 1200
    assert len(run("event", "tail", "counts", "--from", "oldest", "--until-caught-up").splitlines()) == 1200
    run("event", "export", "counts", "--to", tmp_path / "export", "--verify")
    run("schema", "delete", "counts", "--yes")
    run("event", "import", "--from", tmp_path / "export")
    assert len(run("event", "list", "counts").splitlines()) == 1200
    run("backup", "create", tmp_path / "backup")
    run("cluster", "info")
    run("cluster", "health")


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "produce", "orders", "--file", "/dev/null"),
        ("topic", "consume", "orders"),
        ("group", "describe", "readers"),
        ("room", "history", "lobby"),
        ("room", "tail", "lobby"),
        ("event", "list", "counts"),
    ],
    ids=" ".join,
)
def test_a_user_without_rights_is_refused(server: SecuredServer, arguments: tuple[str, ...]) -> None:
    done = server.run(*arguments, profile="guest")
    assert (done.code, done.out) == (1, "")
    assert done.errors.startswith("kwire: ")


@pytest.mark.parametrize(
    ("changed", "verb", "message", "code"),
    [
        ("ssl.truststore.location=", ("topic", "list"), "its certificate is not trusted: ", 2),
        ("ssl.truststore.location=", ("room", "list"), "its certificate is not trusted: ", 2),
        (
            "security.protocol=PLAINTEXT",
            ("topic", "list"),
            "if it expects a login, add --user NAME; if it expects TLS, use a profile or --command-config",
            2,
        ),
        (
            "security.protocol=PLAINTEXT",
            ("topic", "consume", "orders"),
            "if it expects a login, add --user NAME; if it expects TLS, use a profile or --command-config",
            2,
        ),
        (
            "security.protocol=SSL",
            ("topic", "list"),
            "needs credentials; set security.protocol=SASL_SSL, and log in",
            1,
        ),
        ("sasl.mechanism=SCRAM-SHA-1", ("topic", "list"), "sasl.mechanism must be one of", 2),
        ("kwire.http=http", ("room", "list"), "check the port, and whether it expects https", 2),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else str(part),
)
def test_wrong_settings_are_named(
    server: SecuredServer, changed: str, verb: tuple[str, ...], message: str, code: int, tmp_path: Path
) -> None:
    name, _, value = changed.partition("=")
    if value == "http":
        changed = f"{name}=http://{HOST}:{server.process.http_port}"
    settings = dict(one.partition("=")[::2] for one in server.settings("admin")) | {"sasl.password": PASSWORD}
    settings |= dict([changed.partition("=")[::2]])
    properties = tmp_path / "client.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items() if value))
    done = run_program(*verb, "--command-config", properties)
    assert done.code == code, done
    assert message in done.errors
    assert PASSWORD not in done.errors


def test_a_wrong_password_is_reported_with_the_user(server: SecuredServer) -> None:
    environment = {"KWIRE_CONFIG": str(server.folder / "profiles.yaml"), "KWIRE_PROFILE": "admin"}
    done = run_program("topic", "list", **environment, KWIRE_PASSWORD="wrong")
    assert (done.code, done.out) == (1, "")
    assert "refused the login of user admin" in done.errors
    done = run_program("room", "list", **environment, KWIRE_PASSWORD="wrong")
    assert (done.code, done.out) == (1, "")
    assert "wrong" not in done.errors.partition("password")[0]
