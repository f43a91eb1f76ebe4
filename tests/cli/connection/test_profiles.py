"""Profiles: the file, the command, and what comes before and after them."""

import io
import json
import stat
from pathlib import Path

import pytest

from kwire.cli.connection.profiles import profiles_path
from kwire.cli.connection.settings import http_settings, kafka_settings, source_of
from kwire.kafka_client.login import Login
from tests.support.cli import run_here

PASSWORD = "s3cr3t-of-the-test"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "folder" / "profiles.yaml"
    monkeypatch.setenv("KWIRE_CONFIG", str(path))
    for name in ("KWIRE_PROFILE", "KWIRE_BOOTSTRAP_SERVER", "KWIRE_HTTP", "KWIRE_USER", "KWIRE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return path


def profile(*arguments: object) -> str:
    done = run_here("profile", *arguments)
    assert done.code == 0, done.errors
    return done.out


def test_a_profile_is_set_used_shown_and_deleted(file: Path) -> None:
    assert profile("set", "local", "bootstrap.servers=127.0.0.1:1", "kwire.http=http://127.0.0.1:2") == "set local\n"
    assert profile("set", "other", "bootstrap.servers=127.0.0.1:3") == "set other\n"
    assert profile("use", "local") == "using local\n"
    rows = json.loads(profile("list", "-o", "json"))
    assert [(row["profile"], row["current"], row["bootstrap.servers"]) for row in rows] == [
        ("local", True, "127.0.0.1:1"),
        ("other", False, "127.0.0.1:3"),
    ]
    assert profile("show") == "profile local\nbootstrap.servers=127.0.0.1:1\nkwire.http=http://127.0.0.1:2\n"
    assert profile("set", "local", "kwire.http=") == "set local\n"
    assert profile("show", "local") == "profile local\nbootstrap.servers=127.0.0.1:1\n"
    done = run_here("profile", "delete", "nothing", "local", "--yes")
    assert done == (1, "deleted local\n", "kwire: profile nothing does not exist\n")
    assert "there is no current profile" in run_here("profile", "show").errors
    assert profile("use", "other")
    assert profile("use", "--none") == "using no profile\n"


def test_passwords_are_never_arguments_never_shown_and_only_the_owner_reads_them(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = run_here("profile", "set", "a", f"sasl.password={PASSWORD}")
    assert refused.code == 2
    assert PASSWORD not in refused.errors
    assert not file.exists()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    profile("set", "a", "sasl.username=alice", "sasl.password")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert PASSWORD in file.read_text()
    for shown in (profile("show", "a"), profile("show", "a", "-o", "json"), profile("list", "-o", "wide")):
        assert PASSWORD not in shown
        assert "alice" in shown
    file.chmod(0o644)
    assert run_here("profile", "list").errors.startswith(f"kwire: {file} has a password and other users can read it: ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("set", "a", "bootstrap.server=x"), "did you mean bootstrap.servers?"),
        (("set", "a", "bootstrap.servers"), "expected SETTING=VALUE, got 'bootstrap.servers'"),
        (("set", "a", "sasl.password"), "sasl.password: the value is missing"),
        (("use", "nothing"), "profile nothing does not exist, only none"),
        (("use",), "name one profile, or --none"),
        (("delete", "a"), "add --yes"),
    ],
)
def test_wrong_arguments_are_explained(
    file: Path, arguments: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    done = run_here("profile", *arguments)
    assert done.code == 2
    assert problem in done.errors
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("profiles: [", "not a file of profiles"),
        ("- a", "expected `profiles:`"),
        ("profiles:\n  a: 5\n", "profile a: expected settings"),
        ("profiles:\n  a:\n    sasl.mechanizm: PLAIN\n", "did you mean sasl.mechanism"),
        ("current: b\nprofiles:\n  a: {}\n", "profile b does not exist, only a"),
        ("x" * 1_100_000, "larger than the maximum"),
    ],
)
def test_a_wrong_file_is_named(file: Path, text: str, problem: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    done = run_here("topic", "list")
    assert done.code == 2
    assert problem in done.errors
    assert file.name in done.errors or "profile b" in done.errors


def test_the_file_is_where_other_programs_have_theirs() -> None:
    assert profiles_path({"HOME": "/there"}) == Path("/there/.config/kwire/profiles.yaml")
    assert profiles_path({"HOME": "/there", "XDG_CONFIG_HOME": "/x"}) == Path("/x/kwire/profiles.yaml")
    assert profiles_path({"XDG_CONFIG_HOME": "/x", "KWIRE_CONFIG": "/y.yaml"}) == Path("/y.yaml")


def test_an_option_comes_before_the_environment_before_the_profile_before_the_default(file: Path) -> None:
    file.parent.mkdir()
    file.write_text(
        "current: p\n"
        "profiles:\n"
        "  p: {bootstrap.servers: 'in-profile:1', kwire.http: 'http://in-profile:2',"
        f" sasl.username: alice, sasl.password: {PASSWORD}}}\n"
        "  q: {bootstrap.servers: 'in-q:1'}\n"
    )
    config = {"KWIRE_CONFIG": str(file)}
    environment = {**config, "KWIRE_BOOTSTRAP_SERVER": "in-env:1", "KWIRE_HTTP": "http://in-env:2"}

    def kafka(environment: dict[str, str], profile: str | None = None, option: str | None = None) -> str:
        source = source_of(None, profile, environment)
        return kafka_settings(source, environment, bootstrap_server=option).bootstrap_server

    assert kafka({"KWIRE_CONFIG": "/nowhere"}) == "127.0.0.1:9092"
    assert kafka(config) == "in-profile:1"
    assert kafka(config, profile="q") == kafka({**config, "KWIRE_PROFILE": "q"}) == "in-q:1"
    assert kafka(environment) == "in-env:1"
    assert kafka(environment, option="in-option:1") == "in-option:1"
    assert http_settings(source_of(None, None, config), config).url == "http://in-profile:2"
    assert http_settings(source_of(None, None, environment), environment).url == "http://in-env:2"
    assert http_settings(source_of(None, None, environment), environment, url="http://o:2").url == "http://o:2"

    def login(environment: dict[str, str], user: str | None = None) -> Login | None:
        return http_settings(source_of(None, None, environment), environment, user=user).login

    assert login(config) == Login("alice", PASSWORD)
    assert login({**config, "KWIRE_PASSWORD": "in-env"}) == Login("alice", "in-env")
    assert login({**config, "KWIRE_USER": "bob", "KWIRE_PASSWORD": "in-env"}) == Login("bob", "in-env")
    assert login({**config, "KWIRE_USER": "bob", "KWIRE_PASSWORD": "in-env"}, "alice") == Login("alice", PASSWORD)
    assert kafka_settings(source_of(None, None, config), config).protocol == "SASL_PLAINTEXT"


def test_a_properties_file_replaces_the_profile(file: Path, tmp_path: Path) -> None:
    profile("set", "p", "bootstrap.servers=in-profile:1")
    profile("use", "p")
    config = tmp_path / "client.properties"
    config.write_text("request.timeout.ms=7000\nsocket.connection.setup.timeout.ms=300\nbootstrap.servers=in-file:1\n")
    environment = {"KWIRE_CONFIG": str(file), "KWIRE_BOOTSTRAP_SERVER": "in-env:1"}
    settings = kafka_settings(source_of(config, None, environment), environment)
    assert (settings.bootstrap_server, settings.timeouts) == ("in-file:1", (0.3, 7.0))
    both = run_here("topic", "list", "--command-config", config, "--profile", "p")
    assert (both.code, both.errors) == (2, "kwire: --command-config and --profile cannot be used together\n")
    config.write_text("request.timeout.ms=soon")
    wrong = run_here("topic", "list", "--command-config", config)
    assert "request.timeout.ms must be a number from 1 to" in wrong.errors
