"""The verbs of a noun: how one is declared, how a failure becomes a message and an exit code, how rows are printed."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

FAILED = 1

Run = Callable[[argparse.Namespace], int]


def add_verb(
    verbs: Any, name: str, purpose: str, run: Run, *, description: str | None = None, epilog: str | None = None
) -> argparse.ArgumentParser:
    """Declare a verb; `run` returns its exit code. A `description` of its own is printed as it is laid out."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=purpose,
        description=description or f"{purpose[0].upper()}{purpose[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter if description else argparse.HelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def reports_failures(
    *failures: type[Exception], exit_code: int = FAILED
) -> Callable[[Callable[[argparse.Namespace], int | None]], Run]:
    """Decorator of a verb's function: one of `failures` becomes one message on standard error and `exit_code`."""

    def decorated(act: Callable[[argparse.Namespace], int | None]) -> Run:
        @wraps(act)
        def run(options: argparse.Namespace) -> int:
            try:
                code = act(options)
                sys.stdout.flush()
            except BrokenPipeError:
                # The reader of the output is gone; nothing may be left that Python would try to print at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return exit_code
            except failures as error:
                print(f"kwire: {error}", file=sys.stderr)
                return exit_code
            return code or 0

        return run

    return decorated


def print_rows(rows: Sequence[dict[str, Any]], columns: Iterable[str], options: argparse.Namespace) -> None:
    """A table with aligned columns, or one JSON array."""
    if options.json:
        print(json.dumps(rows))
        return
    names = list(columns)
    table = [names, *(["-" if row[name] is None else str(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(names))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
