"""kwire event tail: prints events as they are published, of one topic or of all."""

import argparse
from typing import Any
from urllib.parse import quote, urlencode

from kwire.cli.connection.http_client import HttpClient, add_http_verb
from kwire.cli.connection.subscriptions import add_tail_options, follow, tail_query
from kwire.cli.framework.errors import UsageError


def add_tail(verbs: Any) -> None:
    parser = add_http_verb(
        verbs, "tail", "print events as they arrive, one JSON object per line, until Ctrl-C", tail, has_output=False
    )
    parser.add_argument("name", metavar="TOPIC", nargs="?", help="a topic of the event store (default: all topics)")
    parser.add_argument(
        "--from",
        dest="start",
        metavar="POSITION",
        help="oldest, N: from version N on (without TOPIC: from position N on), -N: the last N events "
        "(default: only new events)",
    )
    add_tail_options(parser)


def tail(client: HttpClient, options: argparse.Namespace) -> int:
    query = tail_query(options)
    if options.start is not None:
        query["from"] = _start(options.start)
    resource = "all" if options.name is None else f"streams/{quote(options.name, safe='')}"
    return follow(client, f"/subscribe/{resource}?{urlencode(query)}", options)


def _start(text: str) -> str:
    digits = text.removeprefix("-")
    if text not in ("oldest", "new") and not (digits.isascii() and digits.isdecimal()):
        raise UsageError(f"--from: expected oldest, new, a number N or -N, got {text!r}")
    return text
