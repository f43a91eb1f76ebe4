"""What every verb has in common: how a failure ends it, and how it is described."""

import argparse
import os
import subprocess
import sys

import pytest

from kwire.cli.subcommands import FAILED, add_subcommand, reports_failures

MANY_LINES = """
from argparse import Namespace
from kwire.cli.subcommands import reports_failures

@reports_failures(OSError, exit_code=5)
def print_for_ever(options):
    while True:
        print("line")

raise SystemExit(print_for_ever(Namespace()))
"""


def ended(error: Exception | None, *failures: type[Exception], **how: int) -> int:
    @reports_failures(*failures, **how)
    def act(options: argparse.Namespace) -> int | None:
        if error is not None:
            raise error
        return None

    return act(argparse.Namespace())


def test_a_failure_is_one_message_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(None, ValueError) == 0
    assert capsys.readouterr() == ("", "")
    assert ended(ValueError("topic a does not exist"), OSError, ValueError) == FAILED
    assert capsys.readouterr() == ("", "kwire: topic a does not exist\n")
    assert ended(FileNotFoundError("x"), OSError, exit_code=2) == 2


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(KeyError):
        ended(KeyError("x"), OSError, ValueError)


def test_a_reader_that_goes_away_ends_a_verb_quietly() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MANY_LINES], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=os.getcwd()
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == b"line\n"
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait(30) == 5


def test_a_description_keeps_its_capitals_and_its_lines() -> None:
    subcommands = argparse.ArgumentParser().add_subparsers()
    brief = add_subcommand(subcommands, "create", "have events sent to a URL", lambda options: 0)
    assert "Have events sent to a URL." in brief.format_help()
    texts = {"description": "One\n  two", "epilog": "end\n  here"}
    long = add_subcommand(subcommands, "dump", "print files", lambda options: 0, **texts)
    assert "One\n  two" in long.format_help()
    assert "end\n  here" in long.format_help()
