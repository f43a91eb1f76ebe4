"""kwire room: list, create, describe and delete rooms of a running server, publish events, and print events."""

import argparse
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from kwire.cli.connection.errors import Refused, RefusedOverHttp
from kwire.cli.connection.http_client import HttpClient, add_http_verb
from kwire.cli.connection.subscriptions import add_tail_options, follow, positive_count, tail_query
from kwire.cli.framework.confirmation import add_yes, confirm, counted_names
from kwire.cli.framework.output import print_line, print_object, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.printable import printable
from kwire.cli.framework.several_names import for_each
from kwire.cli.values.assignments import assignments_of
from kwire.cli.values.input_lines import line_batches

PAGE_ROOMS = 1000
ROOM_COLUMNS = ("room", "subscribers", "created_at")
# The maximum number of input lines that `publish` sends in one request.
EVENTS_PER_REQUEST = 500
# The number of events that `history` requests at once.
PAGE_EVENTS = 1000
# The error code of requests for a room that does not exist.
ROOM_NOT_FOUND = "RoomNotFound"


def add(parser: CommandParser) -> None:
    verbs = parser.verbs()
    list_ = add_http_verb(verbs, "list", "list rooms", list_rooms)
    list_.add_argument("--prefix", default="", help="only rooms whose names begin with this")
    create_ = add_http_verb(verbs, "create", "create rooms, or change their retention", create)
    create_.add_argument("names", metavar="ROOM", nargs="+")
    create_.add_argument(
        "--retention-mode",
        choices=["time", "count", "hybrid", "infinite"],
        help="what bounds the history: age, number of events, either of them, or nothing (default: the server's)",
    )
    create_.add_argument("--retention-hours", type=float, metavar="HOURS", help="age at which events are deleted")
    create_.add_argument("--max-events", type=int, metavar="N", help="number of newest events to keep")
    describe_ = add_http_verb(verbs, "describe", "show offsets, size, subscribers and retention", describe)
    describe_.add_argument("names", metavar="ROOM", nargs="+")
    delete_ = add_http_verb(verbs, "delete", "delete rooms and their events", delete)
    delete_.add_argument("names", metavar="ROOM", nargs="+")
    add_yes(delete_)
    publish_ = add_http_verb(verbs, "publish", "publish an event, or one for each line of the input", publish)
    publish_.add_argument(
        "name", metavar="ROOM", help="created if it does not exist, unless the server's configuration forbids it"
    )
    publish_.add_argument(
        "data",
        metavar="DATA",
        nargs="?",
        help="the event's data: JSON, or otherwise a string (default: one event per line of the input)",
    )
    publish_.add_argument("--type", default="message", help="the event's type (default: message)")
    publish_.add_argument(
        "--metadata", metavar="KEY=VALUE", action="append", default=[], help="metadata of the event; repeatable"
    )
    history_ = add_http_verb(verbs, "history", "print stored events, one JSON object per line", history)
    history_.add_argument("name", metavar="ROOM")
    history_.add_argument(
        "--from-offset", type=int, metavar="N", help="0: the oldest event (default); N: offset N; -N: the last N events"
    )
    history_.add_argument("--to-offset", type=int, metavar="N", help="the last event to print (default: the newest)")
    history_.add_argument("--limit", type=positive_count, metavar="N", help="print at most N events (default: all)")
    tail_ = add_http_verb(
        verbs, "tail", "print events as they arrive, one JSON object per line, until Ctrl-C", tail, has_output=False
    )
    tail_.add_argument("name", metavar="ROOM")
    tail_.add_argument(
        "--create",
        action="store_true",
        help="create the room if it does not exist, unless the server's configuration forbids it",
    )
    tail_.add_argument(
        "--from-offset",
        type=int,
        metavar="N",
        help="0: from the oldest event, N: from offset N, -N: the last N events (default: only new events)",
    )
    add_tail_options(tail_)


def list_rooms(client: HttpClient, options: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = client.request("GET", _path("", limit=PAGE_ROOMS, prefix=options.prefix, after=after))
        rows += page["rooms"]
        after = page["next"]
    print_rows(rows, ROOM_COLUMNS, options)


def create(client: HttpClient, options: argparse.Namespace) -> int:
    wanted = {
        "retention_mode": options.retention_mode,
        "retention_hours": options.retention_hours,
        "max_events": options.max_events,
    }
    body = {name: value for name, value in wanted.items() if value is not None}
    return for_each(options.names, lambda name: _show(client.request("PUT", _path(name), body), options)).code


def describe(client: HttpClient, options: argparse.Namespace) -> int:
    return for_each(options.names, lambda name: _show(client.request("GET", _path(name)), options)).code


def delete(client: HttpClient, options: argparse.Namespace) -> int:
    confirm(f"delete {counted_names('room', options.names)} with all events", options)

    def delete_one(name: str) -> None:
        client.request("DELETE", _path(name))

    return for_each(options.names, delete_one).finish("deleted", options)


def publish(client: HttpClient, options: argparse.Namespace) -> None:
    metadata = assignments_of(options.metadata, "--metadata")
    for texts in line_batches(EVENTS_PER_REQUEST) if options.data is None else [[options.data]]:
        events = [{"event_type": options.type, "data": _data(text), "metadata": metadata} for text in texts]
        _publish(client, events, options)


def history(client: HttpClient, options: argparse.Namespace) -> None:
    """Print stored events, page by page, each as one JSON object per line."""
    left, start = options.limit, options.from_offset
    while left is None or left > 0:
        page_events = PAGE_EVENTS if left is None else min(left, PAGE_EVENTS)
        query = {"from_offset": start, "to_offset": options.to_offset, "limit": page_events}
        with _missing_room_named(options.name):
            page = client.request("GET", _path(options.name, "events", **query))
        for event in page["events"]:
            print_line(event, options)
        left = None if left is None else left - len(page["events"])
        start = page["next_offset"]
        end = page["newest_offset"] if options.to_offset is None else min(options.to_offset, page["newest_offset"])
        if start > end or not page["events"]:
            return


def tail(client: HttpClient, options: argparse.Namespace) -> int:
    query = tail_query(options)
    if options.from_offset is not None:
        query["from_offset"] = options.from_offset
    if not options.create:
        # A subscription creates its room. A name that is misspelled must not.
        with _missing_room_named(options.name, ", or add --create"):
            client.request("GET", _path(options.name))
    return follow(client, _path(options.name, "subscribe", **query), options)


@contextmanager
def _missing_room_named(name: str, alternative: str = "") -> Iterator[None]:
    """Say in the error about a missing room how to create it."""
    try:
        yield
    except RefusedOverHttp as error:
        if error.code != ROOM_NOT_FOUND:
            raise
        command = f"kwire room create {shlex.quote(name)}"
        raise Refused(f"room {name} does not exist: create it with {command}{alternative}") from None


def _publish(client: HttpClient, events: list[dict[str, Any]], options: argparse.Namespace) -> None:
    answer = client.request("POST", _path(options.name, "events"), events)

    def print_text() -> None:
        first, last = answer["offset"], answer["offset"] + answer["count"] - 1
        print(f"published offset {first}" if first == last else f"published offsets {first} to {last}", flush=True)

    print_object(answer, options, print_text)


def _data(text: str) -> Any:
    """Return the JSON value of the text, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _show(room: dict[str, Any], options: argparse.Namespace) -> None:
    def print_text() -> None:
        for name, value in room.items():
            if isinstance(value, dict):
                value = ", ".join(f"{field} {_text(content)}" for field, content in value.items())
            print(printable(f"{name}: {_text(value)}"))

    print_object(room, options, print_text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "-" if value is None else json.dumps(value)


def _path(name: str, resource: str = "", **query: Any) -> str:
    path = "/".join(part for part in ("/rooms", quote(name, safe=""), resource) if part)
    given = {field: value for field, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
