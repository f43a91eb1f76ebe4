"""The `kwire` command in tests: as a process of its own, or called in this one, which saves the start of a process."""

import io
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest import mock

from kwire.cli import main
from kwire.cli.framework.runner import DEBUG_VARIABLE
from tests.support.server import kwire_command

COMMAND_TIMEOUT_S = 60.0


class Done(NamedTuple):
    """What a command returned and printed."""

    code: int
    out: str
    errors: str


def run_program(*arguments: object, given: str = "", **environment: str) -> Done:
    """Run the installed command with pipes. `given` is its standard input."""
    return run_slow_program(COMMAND_TIMEOUT_S, *arguments, given=given, **environment)


def run_slow_program(timeout_s: float, *arguments: object, given: str = "", **environment: str) -> Done:
    """Run the installed command as `run_program` does, with another time limit."""
    done = subprocess.run(
        [str(kwire_command()), *map(str, arguments)],
        input=given,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def run_here(*arguments: object) -> Done:
    """Call the command's function. An exception that the command does not handle is raised here."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors), mock.patch.dict(os.environ, {DEBUG_VARIABLE: "1"}):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            # How argparse ends a program whose arguments it refuses.
            code = int(end.code or 0)
    return Done(code, out.getvalue(), errors.getvalue())


@contextmanager
def interruptible() -> Iterator[None]:
    """Processes started in this block end by SIGINT, also if the test run ignores it, as one that a script put in the
    background does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
