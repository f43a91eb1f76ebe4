"""What every command has in common: how it ends, and what it prints when it fails."""

import argparse
import os
import signal
import subprocess
import sys
import threading

import pytest

from kwire.cli import program_parser
from kwire.cli.framework.errors import CannotRun, UsageError
from kwire.cli.framework.parser import CommandParser, add_verb
from kwire.cli.framework.runner import DEBUG_VARIABLE, RUNS_UNTIL_INTERRUPT, run_command
from tests.support.cli import run_here, run_program

MANY_LINES = """
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.runner import run_command

def print_for_ever(options):
    while True:
        print("line")

parser = CommandParser(prog="kwire")
parser.set_defaults(run=print_for_ever)
raise SystemExit(run_command(parser, []))
"""

WAITING = """
import time
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.reader_watch import reader_watched
from kwire.cli.framework.runner import run_command

def wait_for_ever(options):
    print("line", flush=True)
    with reader_watched():
        time.sleep(60)

parser = CommandParser(prog="kwire")
parser.set_defaults(run=wait_for_ever)
raise SystemExit(run_command(parser, []))
"""


def ended(error: BaseException | None, **defaults: object) -> int:
    def act(options: argparse.Namespace) -> None:
        if error is not None:
            raise error

    parser = CommandParser(prog="kwire")
    parser.set_defaults(run=act, **defaults)
    return run_command(parser, [])


def test_a_failure_is_one_message_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(None) == 0
    assert capsys.readouterr() == ("", "")
    assert ended(ValueError("topic a does not exist\ntopic b, too")) == 1
    assert capsys.readouterr() == ("", "kwire: topic a does not exist\nkwire: topic b, too\n")
    assert ended(FileNotFoundError(2, "No such file", "x.txt")) == 1
    assert capsys.readouterr() == ("", "kwire: x.txt: No such file\n")
    assert ended(FileNotFoundError("x"), failure_code=2) == 2


@pytest.mark.parametrize("error", [CannotRun("x"), UsageError("x")])
def test_a_command_that_cannot_run_ends_with_2(error: Exception) -> None:
    assert ended(error) == 2


def test_an_interrupted_command_ends_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "kwire: interrupted\n"


def test_ctrl_c_is_the_usual_end_of_a_command_that_follows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ended(KeyboardInterrupt(), runs_until_interrupt=True) == 130
    assert capsys.readouterr() == ("", "")
    # The terminal shows ^C, and the prompt of the shell follows.
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert ended(KeyboardInterrupt(), runs_until_interrupt=True) == 130
    assert capsys.readouterr() == ("", "\n")


@pytest.mark.parametrize("words", ["room tail lobby", "event tail", "topic consume orders"])
def test_every_command_that_follows_ends_quietly(words: str) -> None:
    options = program_parser().parse_args(words.split())
    assert getattr(options, RUNS_UNTIL_INTERRUPT) is True


def test_a_mistake_of_ours_is_named_without_its_class(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DEBUG_VARIABLE, raising=False)
    assert ended(KeyError("x")) == 1
    assert capsys.readouterr().err.startswith("kwire: internal error: 'x'\nkwire: set KWIRE_DEBUG=1 ")
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    with pytest.raises(KeyError):
        ended(KeyError("x"))


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    ended(ValueError("group \x1b[2J does not exist"))
    assert capsys.readouterr().err == "kwire: group \\x1b[2J does not exist\n"


@pytest.mark.parametrize("program", [MANY_LINES, WAITING], ids=["prints", "waits"])
def test_a_reader_that_goes_away_ends_a_command_quietly(program: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=os.getcwd()
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == b"line\n"
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(30) == 128 + signal.SIGPIPE


def test_a_watch_that_was_not_needed_leaves_nothing() -> None:
    """The block ends before the reader does: the thread ends with it, and the signal is ignored as before."""
    program = WAITING.replace("time.sleep(60)", "pass").replace("raise SystemExit", "import signal, threading\ncode = ")
    program += "\nprint(code, threading.active_count(), signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "line\n0 1 True\n"
    assert threading.active_count() >= 1


def test_a_description_keeps_its_capitals_and_its_lines() -> None:
    verbs = CommandParser(prog="kwire").verbs()
    brief = add_verb(verbs, "create", "have events sent to a URL", lambda options: 0)
    assert "Have events sent to a URL." in brief.format_help()
    texts = {"description": "One\n  two", "epilog": "end\n  here"}
    long = add_verb(verbs, "dump", "print files", lambda options: 0, **texts)
    assert "One\n  two" in long.format_help()
    assert "end\n  here" in long.format_help()


def test_the_version_is_printed() -> None:
    assert run_here("--version").out == "kwire 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("topc", "list"), "kwire: 'topc' is not a known command: did you mean topic?\n"),
        (("topic", "lst"), "kwire: 'lst' is not a known verb: did you mean list?\n"),
        (("produce", "orders"), "kwire: 'produce' is not a known command: did you mean topic produce?\n"),
        (("history",), "kwire: 'history' is not a known command: did you mean room history?\n"),
        (("reset", "a"), "kwire: 'reset' is not a known command: did you mean group reset?\n"),
        (("list",), "kwire: 'list' is not a known command: choose from serve, "),
        (("room", "read"), "kwire: 'read' is not a known verb: choose from list, "),
        (
            ("topic", "consume", "a", "--from-beginning"),
            "kwire: unrecognized arguments: --from-beginning; did you mean --from?\n",
        ),
        (("topic",), "kwire: a verb is missing\n\nusage: kwire topic [options] verb ...\n"),
        ((), "kwire: a command is missing\n\nusage: kwire [options] command ...\n"),
        (("topic", "create"), "kwire: the following arguments are required: TOPIC\n"),
        (
            ("topic", "list", "--nothing"),
            "kwire: unrecognized arguments: --nothing\nusage: kwire topic list [options]\n",
        ),
        (("topic", "list", "--bootstrp=a"), "kwire: unrecognized arguments: --bootstrp=a; did you mean --bootstrap?\n"),
        (("topic", "consume", "a", "--count", "x"), "kwire: argument -c/--count: must be a whole number, got 'x'\n"),
        (
            ("room", "history", "a", "--limit", "0"),
            "kwire: argument --limit: must be a whole number from 1 on, got '0'\n",
        ),
        (
            ("webhook", "rotate", "a", "--overlap-hours", "x"),
            "kwire: argument --overlap-hours: must be a number, got 'x'\n",
        ),
        (("topic", "list", "orders"), "kwire: unrecognized arguments: orders\n"),
        (
            ("topic", "list", "-o", "xml"),
            "kwire: 'xml' is not a known -o/--output: choose from table, wide, json, yaml\n",
        ),
    ],
)
def test_wrong_arguments_are_named_and_end_with_2(arguments: tuple[str, ...], message: str) -> None:
    done = run_here(*arguments)
    assert done.code == 2
    assert done.errors.startswith(message)
    assert "--help" in done.errors


def test_the_installed_program_has_help_and_ends_with_2() -> None:
    assert "create, describe, alter and delete topics" in run_program("--help").out
    assert run_program("topic", "create").code == 2
