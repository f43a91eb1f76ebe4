"""A start on which users exist, but nobody has to log in, is a warning in the log that names the settings."""

from collections.abc import Mapping
from pathlib import Path

from kwire.testing.ports import unused_port
from tests.support.access_commands import run_with_password, succeeded
from tests.support.server import ANY_PORT, HOST, KwireProcess

WARNING = "WARNING kwire.server: users exist, but everybody may use "
PASSWORD = "correct horse battery staple"


def warnings_of(directory: Path, settings: Mapping[str, str], *, has_user: bool = True) -> list[str]:
    """Start a server, and return the lines of its log about access without a login."""
    process = KwireProcess(directory, settings=settings, kafka_port=None if "listeners" in settings else ANY_PORT)
    if has_user:
        succeeded(run_with_password(PASSWORD, "user", "create", "alice", "--data-dir", process.data_dir))
    process.start()
    process.ready()
    try:
        assert process.stop() == 0
    finally:
        process.kill()
    return [line.partition(WARNING)[2] for line in process.stderr_path.read_text().splitlines() if WARNING in line]


def test_users_that_nobody_logs_in_as_are_a_warning(tmp_path: Path) -> None:
    (line,) = warnings_of(tmp_path, {})
    kafka, _, rest = line.partition(" and ")
    assert kafka.startswith(f"PLAINTEXT://{HOST}:")
    assert rest.startswith(f"http://{HOST}:")
    login = kafka.replace("PLAINTEXT", "SASL_PLAINTEXT")
    assert rest.endswith(
        f" without a login: set listeners={login} and kwire.http.authentication=basic (docs/security.md)"
    )


def test_a_server_without_users_does_not_warn(tmp_path: Path) -> None:
    assert warnings_of(tmp_path, {}, has_user=False) == []


def test_only_addresses_without_a_login_are_named(tmp_path: Path) -> None:
    inside, outside = f"INSIDE://{HOST}:{unused_port()}", f"SASL_PLAINTEXT://{HOST}:{unused_port()}"
    (line,) = warnings_of(
        tmp_path,
        {
            "listeners": f"{inside},{outside}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "kwire.http.authentication": "basic",
        },
    )
    assert line == (
        f"{inside} without a login: set listener.security.protocol.map=INSIDE:SASL_PLAINTEXT (docs/security.md)"
    )


def test_a_server_that_asks_for_logins_does_not_warn(tmp_path: Path) -> None:
    listener = f"SASL_PLAINTEXT://{HOST}:{unused_port()}"
    assert warnings_of(tmp_path, {"listeners": listener, "kwire.http.authentication": "basic"}) == []


def test_a_server_with_an_authorizer_does_not_warn(tmp_path: Path) -> None:
    assert warnings_of(tmp_path, {"kwire.authorizer": "acl"}) == []
