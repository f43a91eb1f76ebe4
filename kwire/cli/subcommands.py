"""Functions that declare subcommands, convert exceptions to messages and exit codes, and print tables."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

FAILED = 1

Run = Callable[[argparse.Namespace], int]


def add_subcommand(
    subcommands: Any, name: str, purpose: str, run: Run, *, description: str | None = None, epilog: str | None = None
) -> argparse.ArgumentParser:
    """Declare a subcommand. `run` returns its exit code. The line breaks of `description` are kept in the help."""
    parser: argparse.ArgumentParser = subcommands.add_parser(
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
    """Return a decorator that catches these exceptions, prints their message to stderr and returns `exit_code`."""

    def decorated(act: Callable[[argparse.Namespace], int | None]) -> Run:
        @wraps(act)
        def run(options: argparse.Namespace) -> int:
            try:
                code = act(options)
                sys.stdout.flush()
            except BrokenPipeError:
                # The reader closed the pipe. Stdout is redirected to /dev/null, because otherwise Python would fail
                # again when it flushes stdout at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return exit_code
            except failures as error:
                print(f"kwire: {error}", file=sys.stderr)
                return exit_code
            return code or 0

        return run

    return decorated


def print_rows(rows: Sequence[dict[str, Any]], columns: Iterable[str], options: argparse.Namespace) -> None:
    """Print a table with aligned columns, or one JSON array."""
    if options.json:
        print(json.dumps(rows))
        return
    names = list(columns)
    table = [names, *(["-" if row[name] is None else str(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(names))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
