"""Rules that hold for every verb of the program: spelling of options, output formats, confirmation, help."""

import argparse

import pytest

from kwire.cli.framework.output import FORMATS
from kwire.cli.framework.parser import CommandParser
from tests.support.cli import run_here
from tests.support.cli_verbs import verbs_of_program

VERBS = verbs_of_program()
# These print no data: they print a script or settings, follow events, or run until they are stopped.
WITHOUT_OUTPUT = {
    *{
        ("serve",),
        ("bridge",),
        ("completion",),
        ("tls", "init"),
        ("room", "tail"),
        ("log", "adopt"),
        ("topic", "export"),
    },
    ("event", "tail"),
    *{("example", name) for name in ("chat", "lobby", "monitoring", "plot")},
}
DELETING = {"delete", "revoke", "trim", "delete-offsets", "abort", "terminate"}
# Jobs of Spark have an output of their own, because they import nothing of this program.
COMMANDS = {name: parser for name, parser in VERBS.items() if name[0] != "pipeline"}
# Arguments that are not options.
WITH_NAMES = [name for name, parser in VERBS.items() if any(not one.option_strings for one in parser._actions)]
EVERY_COMMAND = pytest.mark.parametrize("name", COMMANDS, ids=" ".join)


def option(parser: CommandParser, name: str) -> argparse.Action | None:
    return parser._option_string_actions.get(name)


@EVERY_COMMAND
def test_output_is_spelled_alike(name: tuple[str, ...]) -> None:
    parser = COMMANDS[name]
    output = option(parser, "-o")
    assert (output is None) == (name in WITHOUT_OUTPUT)
    if output is not None:
        assert output is option(parser, "--output")
        assert tuple(output.choices or ()) == FORMATS
        json = option(parser, "--json")
        assert json is not None
        assert json.help == argparse.SUPPRESS


@EVERY_COMMAND
def test_servers_are_spelled_alike(name: tuple[str, ...]) -> None:
    parser = COMMANDS[name]
    if name in (("serve",), ("bridge",)):  # the addresses are those to listen on
        return
    kafka, http = option(parser, "--bootstrap-server"), option(parser, "--http")
    assert option(parser, "--bootstrap") is kafka
    for login in ("--user", "--profile", "--command-config"):
        assert (option(parser, login) is not None) == (kafka is not None or http is not None)
    assert all(one is None or one.default is None for one in (kafka, http)), "the environment decides after options"


@EVERY_COMMAND
def test_verbs_that_delete_ask(name: tuple[str, ...]) -> None:
    assert (option(COMMANDS[name], "--yes") is not None) == (name[-1] in DELETING)


@pytest.mark.parametrize("name", WITH_NAMES, ids=" ".join)
def test_options_may_stand_before_between_and_after_names(name: tuple[str, ...]) -> None:
    parser = VERBS[name]
    words = [_word(action) for action in _positionals(parser) for _ in range(3 if action.nargs in ("+", "*") else 1)]
    options = [*(["-o", "json"] if name not in WITHOUT_OUTPUT else []), *_required(parser)]
    expected = parser.parse_args([*words, *options])
    for at in range(len(words)):
        assert parser.parse_args([*words[:at], *options, *words[at:]]) == expected
        assert parser.parse_args([*words[:at], *options, "--", *words[at:]]) == expected


def test_every_missing_argument_is_named_at_once() -> None:
    done = run_here("event", "publish")
    assert done.code == 2
    assert done.errors.startswith("kwire: the following arguments are required: TOPIC, --type\n")
    assert run_here("event", "publish", "orders").errors.startswith(
        "kwire: the following arguments are required: --type"
    )
    assert run_here("event", "publish", "--type", "t").errors.startswith(
        "kwire: the following arguments are required: TOPIC\n"
    )


def _word(action: argparse.Action) -> str:
    return str(next(iter(action.choices))) if action.choices else "1"


def _positionals(parser: CommandParser) -> list[argparse.Action]:
    return [action for action in parser._actions if not action.option_strings]


def _required(parser: CommandParser) -> list[str]:
    """Return the options that must be given, with values, and one of each group of which one must be given."""
    chosen = [action for action in parser._actions if action.required and action.option_strings]
    chosen += [group._group_actions[0] for group in parser._mutually_exclusive_groups if group.required]
    words = []
    for action in chosen:
        words += [action.option_strings[-1], *([] if action.nargs == 0 else [_word(action)])]
    return words


@pytest.mark.parametrize("name", VERBS, ids=" ".join)
def test_help_explains_every_option(name: tuple[str, ...]) -> None:
    done = run_here(*name, "--help")
    assert (done.code, done.errors) == (0, "")
    assert done.out.startswith(f"usage: kwire {' '.join(name)} ")
    for action in VERBS[name]._actions:
        if action.required:
            assert (action.option_strings or [str(action.metavar)])[-1] in done.out.partition("\n")[0]
    for action in VERBS[name]._actions:
        if action.help != argparse.SUPPRESS and action.option_strings:
            assert action.option_strings[-1] in done.out
