"""Confirmation of verbs that delete: they ask at a terminal, and need --yes where nobody can answer."""

import argparse
import sys

from kwire.cli.framework.errors import UsageError


class Declined(ValueError):
    """The user answered no."""


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


def confirm(action: str, options: argparse.Namespace) -> None:
    """Ask whether to do something, such as `delete topic orders and its records`, unless --yes was given.

    Raises Declined, or UsageError if there is no terminal to ask at.
    """
    if options.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"there is no terminal to ask whether to {action}: add --yes")
    print(f"{action[0].upper()}{action[1:]}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined("nothing was changed")


def counted_names(noun: str, names: list[str], shown_max: int = 5) -> str:
    """Return names for a question: `topic a`, `2 topics (a, b)`, `9 topics (a, b, c, d, e and 4 more)`."""
    if len(names) == 1:
        return f"{noun} {names[0]}"
    shown = ", ".join(names[:shown_max])
    more = f" and {len(names) - shown_max} more" if len(names) > shown_max else ""
    return f"{len(names)} {noun}s ({shown}{more})"
