"""What the verbs of an administrator have in common: the server they talk to, and how they print what it says."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError as ClientError

REQUEST_TIMEOUT_MS = 30_000

Act = Callable[[KafkaAdminClient, argparse.Namespace], None]


def verb(verbs: Any, name: str, purpose: str, act: Act) -> argparse.ArgumentParser:
    """One more verb; `act` is called with a client of the server and the options, and raises ValueError to complain."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=purpose, description=purpose.capitalize() + ".")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", default="127.0.0.1:9092")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=lambda options: _run(act, options))
    return parser


def _run(act: Act, options: argparse.Namespace) -> int:
    try:
        admin = KafkaAdminClient(bootstrap_servers=options.bootstrap_server, request_timeout_ms=REQUEST_TIMEOUT_MS)
    except (ClientError, OSError) as error:
        print(f"kwire: no answer from {options.bootstrap_server}: {error}", file=sys.stderr)
        return 1
    try:
        act(admin, options)
    except (ClientError, OSError, ValueError) as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 1
    finally:
        admin.close()
    return 0


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
