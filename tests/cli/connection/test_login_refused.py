"""Every verb on a server with logins: a refused login and a missing right are the same failure on both ports.

The arguments are those of tests/cli/connection/test_server_down.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.testing.ports import unused_port
from tests.cli.connection.test_server_down import VERBS, words
from tests.support.access_commands import run_with_password, succeeded
from tests.support.cli import Done, run_here
from tests.support.cli_table import HTTP, KAFKA
from tests.support.server import HOST, KwireProcess

PASSWORD = "correct horse battery staple"
ADMIN, NOBODY = "admin", "nobody"
FAILED = 1
# A list shows what the user may see, also if that is nothing.
LISTS = {verb for verb in VERBS if verb[-1] in ("list", "find-hanging")}
# These verbs print an address before, or instead of, a request that needs a login.
EXAMPLES = {verb for verb in VERBS if verb[0] == "example"}
LOGGING_IN = pytest.mark.parametrize("verb", sorted(set(VERBS) - EXAMPLES), ids=" ".join)
# After ten wrong passwords, the HTTP port refuses further logins of this address for a while.
WRONG = {
    KAFKA: ("refused the login of user admin: the user name or the password is wrong\n",),
    HTTP: (
        "refused the login of user admin: the user name or the password is wrong (Unauthorized)",
        "too many failed logins from this address",
    ),
}


class Secured:
    """A server on which everybody has to log in, an administrator, and a user without rights."""

    def __init__(self, directory: Path) -> None:
        self.kafka_port = unused_port()
        self.process = KwireProcess(
            directory,
            kafka_port=None,
            settings={
                "listeners": f"SASL_PLAINTEXT://{HOST}:{self.kafka_port}",
                "kwire.authorizer": "acl",
                "kwire.http.authentication": "basic",
                "connection.failed.authentication.delay.ms": "0",
            },
        )
        here = ("--data-dir", self.process.data_dir)
        succeeded(run_with_password(PASSWORD, "user", "create", ADMIN, "--role", "admin", *here))
        succeeded(run_with_password(PASSWORD, "user", "create", NOBODY, *here))
        self.process.start()
        self.process.ready()

    def run(self, verb: tuple[str, ...], folder: Path, *login: str) -> Done:
        port = self.kafka_port if VERBS[verb] == KAFKA else self.process.http_port
        assert port is not None
        return run_here(*words(verb, port, folder), *login)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("secured"))
    yield secured
    secured.process.kill()


@LOGGING_IN
def test_a_wrong_password_is_a_failure(
    server: Secured, verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KWIRE_PASSWORD", "wrong")
    done = server.run(verb, tmp_path, "--user", ADMIN)
    assert (done.code, done.out) == (FAILED, ""), done.errors
    assert done.errors.count("\n") == 1
    assert any(text in done.errors for text in WRONG[VERBS[verb]]), done.errors


@LOGGING_IN
def test_a_missing_login_is_a_failure_that_says_how_to_log_in(
    server: Secured, verb: tuple[str, ...], tmp_path: Path
) -> None:
    done = server.run(verb, tmp_path)
    assert (done.code, done.out) == (FAILED, ""), done.errors
    assert done.errors.count("\n") == 1
    assert "needs credentials" in done.errors
    assert "log in with --user NAME, or KWIRE_USER and KWIRE_PASSWORD" in done.errors


@pytest.mark.parametrize("verb", sorted(set(VERBS) - EXAMPLES - LISTS), ids=" ".join)
def test_a_missing_right_is_a_failure(
    server: Secured, verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KWIRE_PASSWORD", PASSWORD)
    done = server.run(verb, tmp_path, "--user", NOBODY)
    assert done.code == FAILED, done
    assert done.errors.startswith("kwire: ")


def test_both_ports_are_tried() -> None:
    assert set(VERBS.values()) == {KAFKA, HTTP}
