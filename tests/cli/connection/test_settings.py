"""How commands connect and log in: properties files, the environment, and what is never shown."""

import os
import pty
from collections.abc import Mapping
from pathlib import Path

import pytest

from kwire.cli.connection.settings import ClientSettings, kafka_settings, login_of, source_of
from kwire.kafka_client.login import Login

PASSWORD = "s3cr3t-of-the-test"


def read_client_settings(path: Path | None, environment: Mapping[str, str]) -> ClientSettings:
    """The settings of a properties file; the environment has no profiles."""
    alone = {"KWIRE_CONFIG": "/nowhere/profiles.yaml", **environment}
    return kafka_settings(source_of(path, None, alone), alone)


def read(tmp_path: Path, text: str, **environment: str) -> tuple[str, str, Login | None]:
    path = tmp_path / "client.properties"
    path.write_text(text)
    settings = read_client_settings(path, environment)
    return settings.protocol, settings.mechanism, settings.login


def test_without_a_file_and_a_user_there_is_no_security() -> None:
    settings = read_client_settings(None, {})
    assert settings[:5] == ("127.0.0.1:9092", "PLAINTEXT", "SCRAM-SHA-512", None, None)


def test_the_environment_names_the_user() -> None:
    settings = read_client_settings(None, {"KWIRE_USER": "alice", "KWIRE_PASSWORD": PASSWORD})
    assert (settings.protocol, settings.mechanism) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert settings.login == Login("alice", PASSWORD)


@pytest.mark.parametrize(
    "credentials",
    [
        f"sasl.username=alice\nsasl.password={PASSWORD}",
        f'sasl.jaas.config=org.example.ScramLoginModule required username="alice" password="{PASSWORD}";',
        f"sasl.jaas.config=X required \\\n  username='alice' \\\n  password={PASSWORD};",
    ],
)
def test_the_file_names_the_user(tmp_path: Path, credentials: str) -> None:
    text = f"bootstrap.servers=example.org:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{credentials}\n"
    assert read(tmp_path, text) == ("SASL_PLAINTEXT", "PLAIN", Login("alice", PASSWORD))
    # The file was named by the user of the command, so its login is meant.
    other = read(tmp_path, text, KWIRE_USER="bob", KWIRE_PASSWORD="another")
    assert other[2] == Login("alice", PASSWORD)
    assert read_client_settings(tmp_path / "client.properties", {}).bootstrap_server == "example.org:1"


def test_quotes_in_a_jaas_password_are_escaped(tmp_path: Path) -> None:
    # A backslash is an escape in the properties file, too.
    text = 'sasl.jaas.config=X required username="al\\\\"ice" password="a;b=c \\\\\\\\d";'
    assert read(tmp_path, text)[2] == Login('al"ice', "a;b=c \\d")


def test_the_environment_completes_the_file(tmp_path: Path) -> None:
    text = "security.protocol=SASL_PLAINTEXT\nsasl.username=alice\n"
    assert read(tmp_path, text, KWIRE_PASSWORD=PASSWORD)[2] == Login("alice", PASSWORD)
    with pytest.raises(ValueError, match="the password of user alice is missing: set KWIRE_PASSWORD"):
        # This password is bob's.
        read(tmp_path, text, KWIRE_USER="bob", KWIRE_PASSWORD=PASSWORD)
    assert read(tmp_path, "security.protocol=PLAINTEXT\n", KWIRE_USER="bob", KWIRE_PASSWORD=PASSWORD)[2] is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("security.protocol=SASL_PLAINTEXT", "needs a user: set sasl.jaas.config, or KWIRE_USER"),
        ("security.protocol=TLS", "security.protocol must be one of PLAINTEXT, SSL"),
        ("sasl.mechanism=GSSAPI", "sasl.mechanism must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, got 'GSSAPI'"),
        (f'sasl.jaas.config=X required password="{PASSWORD}";', "sasl.jaas.config has no user"),
        ("security.protocol=SSL\nssl.truststore.location=missing.pem", "missing.pem cannot be read"),
        ("security.protocol=SSL\nssl.truststore.location=a.jks", "a.jks cannot be read"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"client\.properties: ") as raised:
        read(tmp_path, text)
    assert problem in str(raised.value)
    assert PASSWORD not in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing\.properties: cannot be read: No such file"):
        read_client_settings(tmp_path / "nothing.properties", {})


def test_a_login_does_not_show_its_password() -> None:
    settings = read_client_settings(None, {"KWIRE_USER": "alice", "KWIRE_PASSWORD": PASSWORD})
    assert PASSWORD not in repr(settings)
    assert "alice" in repr(settings)


def test_a_missing_password_is_asked_for_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = pty.openpty()
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return PASSWORD

    try:
        with os.fdopen(child) as terminal:
            monkeypatch.setattr("sys.stdin", terminal)
            monkeypatch.setattr("getpass.getpass", answer)
            assert login_of("alice", None, {}) == Login("alice", PASSWORD)
    finally:
        os.close(parent)
    assert asked == ["Password of alice: "]
