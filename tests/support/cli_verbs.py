"""The verbs that the program has, found by walking its parsers."""

import argparse
from collections.abc import Iterator

from kwire.cli import program_parser
from kwire.cli.framework.parser import CommandParser


def verbs_of_program() -> dict[tuple[str, ...], CommandParser]:
    """Every command without verbs, verb and job, with its parser."""
    return dict(_verbs(program_parser(), ()))


def _verbs(parser: CommandParser, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], CommandParser]]:
    parser.load()
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield path, parser
    for action in below:
        for name, child in action.choices.items():
            yield from _verbs(child, (*path, name))
