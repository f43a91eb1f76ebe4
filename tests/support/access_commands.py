"""The commands for users and ACLs in tests."""

import io
import json
from typing import Any
from unittest import mock

from tests.support.cli import Done, run_here


def run_with_password(password: str, *arguments: object) -> Done:
    """Call a command that reads a new password from its standard input."""
    with mock.patch("sys.stdin", io.StringIO(f"{password}\n")):
        return run_here(*arguments, "--password-stdin")


def succeeded(done: Done) -> str:
    assert done.code == 0, done.out + done.errors
    return done.out


def json_of(*arguments: object) -> Any:
    return json.loads(succeeded(run_here(*arguments, "--json")))
