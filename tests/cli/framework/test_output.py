"""The formats of output, tables, colours and confirmation."""

import argparse
import io
import json
import os
import pty
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from kwire.cli.framework.confirmation import Declined, confirm, counted_names
from kwire.cli.framework.errors import CannotRun, UsageError
from kwire.cli.framework.output import add_output, json_text, print_done, print_rows
from kwire.cli.framework.several_names import for_each
from kwire.cli.framework.tables import table_lines
from kwire.colours import is_coloured

ROWS: list[dict[str, Any]] = [
    {"name": "a", "count": 5, "note": None, "extra": True},
    {"name": "long name", "count": 12345, "note": "x\x1b[2J", "extra": False},
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def options_of(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_output(parser)
    return parser.parse_args(arguments)


def test_a_table_is_aligned_and_safe() -> None:
    assert list(table_lines(ROWS, ("name", "count", "note", "extra"), io.StringIO())) == [
        "name       count  note      extra",
        "a              5  -         yes",
        "long name  12345  x\\x1b[2J  no",
    ]
    assert list(table_lines([], ("name", "count"), io.StringIO())) == ["name  count"]


@pytest.mark.parametrize(
    ("arguments", "columns"), [((), ["name", "count"]), (("-o", "wide"), ["name", "count", "note"])]
)
def test_wide_has_more_columns(
    arguments: tuple[str, ...], columns: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    print_rows(ROWS, ("name", "count"), options_of(*arguments), wide=("note",))
    assert capsys.readouterr().out.splitlines()[0].split() == columns


@pytest.mark.parametrize("arguments", [("-o", "json"), ("--json",), ("--output", "yaml")])
def test_data_has_all_fields(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, ("name",), options_of(*arguments))
    out = capsys.readouterr().out
    assert (yaml.safe_load(out) if "yaml" in arguments else json.loads(out)) == ROWS


def test_what_was_done_is_text_or_data(capsys: pytest.CaptureFixture[str]) -> None:
    print_done("created", ["a", "b"], options_of())
    assert capsys.readouterr().out == "created a\ncreated b\n"
    print_done("created", ["a", "b"], options_of("--json"))
    assert capsys.readouterr().out == '{"created": ["a", "b"]}\n'
    print_done("created", ["a"], options_of("-o", "yaml"))
    assert capsys.readouterr().out == "---\ncreated:\n- a\n"


def test_colours_are_for_terminals_whose_users_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert is_coloured(Terminal())
    assert not is_coloured(io.StringIO())
    assert next(table_lines(ROWS, ("name",), Terminal())) == "\x1b[1mname\x1b[0m"
    monkeypatch.setenv("TERM", "dumb")
    assert not is_coloured(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_coloured(Terminal())


# Confirmation


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Terminal]]:
    """Gives the command a terminal at which somebody types this answer. Returns what stderr shows."""
    parent, child = pty.openpty()
    with os.fdopen(child) as terminal:

        def typed(text: str) -> Terminal:
            os.write(parent, text.encode())
            shown = Terminal()
            monkeypatch.setattr("sys.stdin", terminal)
            monkeypatch.setattr("sys.stderr", shown)
            return shown

        yield typed
    os.close(parent)


@pytest.mark.parametrize("text", ["y\n", "YES\n"])
def test_yes_confirms(answer: Callable[[str], Terminal], text: str) -> None:
    shown = answer(text)
    confirm("delete topic a", argparse.Namespace(yes=False))
    assert shown.getvalue() == "Delete topic a? [y/N] "


@pytest.mark.parametrize("text", ["\n", "no\n", "delete\n"])
def test_everything_else_declines(answer: Callable[[str], Terminal], text: str) -> None:
    answer(text)
    with pytest.raises(Declined, match="nothing was changed"):
        confirm("delete topic a", argparse.Namespace(yes=False))


def test_without_a_terminal_yes_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match="no terminal to ask whether to delete topic a: add --yes"):
        confirm("delete topic a", argparse.Namespace(yes=False))
    confirm("delete topic a", argparse.Namespace(yes=True))


def test_questions_name_a_few_things() -> None:
    assert counted_names("topic", ["a"]) == "topic a"
    assert counted_names("topic", ["a", "b"]) == "2 topics (a, b)"
    assert counted_names("topic", list("abcdefg")) == "7 topics (a, b, c, d, e and 2 more)"


# Several names


def test_several_names_go_on_after_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def act(name: str) -> None:
        if name == "b":
            raise ValueError("b does not exist")

    outcomes = for_each(["a", "b", "c", "a"], act)
    assert (outcomes.done, outcomes.code) == (["a", "c"], 1)
    assert capsys.readouterr().err == "kwire: b does not exist\n"


@pytest.mark.parametrize("error", [CannotRun("no server"), BrokenPipeError(), KeyError("mistake")])
def test_what_would_fail_for_every_name_ends_the_command(error: Exception) -> None:
    def act(name: str) -> None:
        raise error

    with pytest.raises(type(error)):
        for_each(["a", "b"], act)


def test_json_has_letters_as_they_are_and_no_control_characters() -> None:
    value = {"text": "grüße 東京 🎉", "hostile": "\x1b[2J \x9b2J \u202e \ud800 \n"}
    text = json_text(value)
    assert "grüße 東京 🎉" in text
    assert text.isprintable()
    assert json.loads(text) == value
    assert json.loads(json_text(value, indent=2)) == value
    assert json_text({"a": 1}, indent=2) == '{\n  "a": 1\n}'


def test_wide_characters_take_two_columns() -> None:
    rows = [{"room": "東京 🎉", "events": 5}, {"room": "cafe\u0301", "events": 12}, {"room": "Zürich", "events": 1}]
    assert list(table_lines(rows, ("room", "events"), io.StringIO())) == [
        "room     events",
        "東京 🎉       5",
        "cafe\u0301         12",
        "Zürich        1",
    ]
