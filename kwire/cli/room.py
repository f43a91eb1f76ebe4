"""kwire room: list, create, describe and delete rooms of a running server, publish events and print new events."""

import argparse
import json
import sys
from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any, cast
from urllib.parse import quote, urlencode

from kwire.cli.http_client import LINE_BYTES_MAX, HttpClient, Refused, add_http_subcommand
from kwire.cli.subcommands import print_rows

PAGE_ROOMS = 1000
ROOM_COLUMNS = ("room", "subscribers", "created_at")
# The maximum number of input lines that `publish` sends in one request.
EVENTS_PER_REQUEST = 500
INPUT_BYTES = 64 * 1024


def add(parser: argparse.ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="subcommand", required=True, metavar="subcommand")
    list_ = add_http_subcommand(subcommands, "list", "list rooms", list_rooms)
    list_.add_argument("--prefix", default="", help="only rooms whose names begin with this")
    create_ = add_http_subcommand(subcommands, "create", "create rooms, or change their retention", create)
    create_.add_argument("names", metavar="ROOM", nargs="+")
    create_.add_argument(
        "--retention-mode",
        choices=["time", "count", "hybrid", "infinite"],
        help="what bounds the history: age, number of events, either of them, or nothing (default: the server's)",
    )
    create_.add_argument("--retention-hours", type=float, metavar="HOURS", help="age at which events are deleted")
    create_.add_argument("--max-events", type=int, metavar="N", help="number of newest events to keep")
    describe_ = add_http_subcommand(subcommands, "describe", "show offsets, size, subscribers and retention", describe)
    describe_.add_argument("names", metavar="ROOM", nargs="+")
    delete_ = add_http_subcommand(subcommands, "delete", "delete rooms and their events", delete)
    delete_.add_argument("names", metavar="ROOM", nargs="+")
    publish_ = add_http_subcommand(
        subcommands, "publish", "publish an event, or one for each line of the input", publish
    )
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
    tail_ = add_http_subcommand(
        subcommands, "tail", "print events as they arrive, one JSON object per line, until Ctrl-C", tail, has_json=False
    )
    tail_.add_argument(
        "name", metavar="ROOM", help="created if it does not exist, unless the server's configuration forbids it"
    )
    tail_.add_argument(
        "--from-offset",
        type=int,
        metavar="N",
        help="0: from the oldest event, N: from offset N, -N: the last N events (default: only new events)",
    )
    tail_.add_argument("--count", type=_count, metavar="N", help="stop after N events")
    tail_.add_argument("--until-caught-up", action="store_true", help="stop when all stored events have been printed")


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError
    return count


def list_rooms(client: HttpClient, options: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = client.request("GET", _path("", limit=PAGE_ROOMS, prefix=options.prefix, after=after))
        rows += page["rooms"]
        after = page["next"]
    print_rows(rows, ROOM_COLUMNS, options)


def create(client: HttpClient, options: argparse.Namespace) -> None:
    wanted = {
        "retention_mode": options.retention_mode,
        "retention_hours": options.retention_hours,
        "max_events": options.max_events,
    }
    body = {name: value for name, value in wanted.items() if value is not None}
    for name in options.names:
        _show(client.request("PUT", _path(name), body), options)


def describe(client: HttpClient, options: argparse.Namespace) -> None:
    for name in options.names:
        _show(client.request("GET", _path(name)), options)


def delete(client: HttpClient, options: argparse.Namespace) -> int:
    """Delete the rooms. If one of them cannot be deleted, continue with the others and return exit code 1."""
    code = 0
    for name in options.names:
        try:
            client.request("DELETE", _path(name))
        except Refused as error:
            print(f"kwire: {error}", file=sys.stderr)
            code = 1
        else:
            print(json.dumps({"deleted": name}) if options.json else f"deleted {name}")
    return code


def publish(client: HttpClient, options: argparse.Namespace) -> None:
    metadata = dict(_pair(text) for text in options.metadata)
    for texts in _line_batches() if options.data is None else [[options.data]]:
        events = [
            {"event_type": options.type, "data": _data(text), "metadata": metadata} for text in texts if text.strip()
        ]
        if events:
            _publish(client, events, options)


def _line_batches() -> Iterator[list[str]]:
    """Yield the lines of standard input in batches. Lines that have arrived are yielded without waiting for more."""
    source, rest = cast(BufferedIOBase, sys.stdin.buffer), b""
    while data := source.read1(INPUT_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line of the input is longer than the maximum of {LINE_BYTES_MAX} bytes")
        for first in range(0, len(lines), EVENTS_PER_REQUEST):
            yield [line.decode() for line in lines[first : first + EVENTS_PER_REQUEST]]
    yield [rest.decode()]


def tail(client: HttpClient, options: argparse.Namespace) -> int:
    """Print the events of a room as they arrive. Return exit code 1 if the server ended the subscription."""
    where = {} if options.from_offset is None else {"from_offset": options.from_offset}
    left, kind = options.count, None
    for message in client.lines(_path(f"{quote(options.name, safe='')}/subscribe", is_quoted=True, **where)):
        kind = message.get("control")
        if kind is None:
            print(json.dumps(message, ensure_ascii=False, separators=(",", ":")), flush=True)
            left = None if left is None else left - 1
        elif kind in ("gap", "closed", "lagging"):
            print(f"kwire: {json.dumps(message)}", file=sys.stderr)
        if left == 0 or (kind == "caught_up" and options.until_caught_up):
            return 0
    if kind != "closed":
        print("kwire: the server closed the connection", file=sys.stderr)
    return 1


def _publish(client: HttpClient, events: list[dict[str, Any]], options: argparse.Namespace) -> None:
    answer = client.request("POST", _path(f"{quote(options.name, safe='')}/events", is_quoted=True), events)
    if options.json:
        print(json.dumps(answer), flush=True)
    else:
        first, last = answer["offset"], answer["offset"] + answer["count"] - 1
        print(f"published {first if first == last else f'{first} to {last}'}", flush=True)


def _data(text: str) -> Any:
    """Return the JSON value of the text. If the text is not JSON, return the text without its line break."""
    try:
        return json.loads(text)
    except ValueError:
        return text.rstrip("\r\n")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--metadata: expected KEY=VALUE, got {text!r}")
    return name, value


def _show(room: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(room))
        return
    for name, value in room.items():
        if isinstance(value, dict):
            value = ", ".join(f"{field} {_text(content)}" for field, content in value.items())
        print(f"{name}: {_text(value)}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "-" if value is None else json.dumps(value)


def _path(name: str, *, is_quoted: bool = False, **query: Any) -> str:
    path = f"/rooms/{name if is_quoted else quote(name, safe='')}".rstrip("/")
    return f"{path}?{urlencode(query)}" if query else path
