"""kwire room: list, create, describe and delete rooms of a running server, publish to them and follow them."""

import argparse
import json
import sys
from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any, cast
from urllib.parse import quote, urlencode

from kwire.cli.http_client import LINE_BYTES_MAX, HttpClient, Refused, http_verb
from kwire.cli.verbs import print_rows

PAGE_ROOMS = 1000
ROOM_COLUMNS = ("room", "subscribers", "created_at")
# Of the lines that `publish` reads, all that are stored together.
EVENTS_PER_REQUEST = 500
INPUT_BYTES = 64 * 1024


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    listing = http_verb(verbs, "list", "name every room", list_rooms)
    listing.add_argument("--prefix", default="", help="only rooms whose names begin so")
    creating = http_verb(verbs, "create", "create rooms, or change what they keep", create)
    creating.add_argument("names", metavar="ROOM", nargs="+")
    creating.add_argument(
        "--retention-mode",
        choices=["time", "count", "hybrid", "infinite"],
        help="what bounds the history: age, number of events, either of them, or nothing (default: the server's)",
    )
    creating.add_argument("--retention-hours", type=float, metavar="HOURS", help="age at which events go")
    creating.add_argument("--max-events", type=int, metavar="N", help="newest events that are kept")
    describing = http_verb(verbs, "describe", "show offsets, size, subscribers and retention", describe)
    describing.add_argument("names", metavar="ROOM", nargs="+")
    deleting = http_verb(verbs, "delete", "delete rooms and their events", delete)
    deleting.add_argument("names", metavar="ROOM", nargs="+")
    publishing = http_verb(verbs, "publish", "publish an event, or one for each line of the input", publish)
    publishing.add_argument("name", metavar="ROOM", help="made if there is none, unless the server is told not to")
    publishing.add_argument(
        "data", metavar="DATA", nargs="?", help="the event's data: JSON, or else a text (default: lines of the input)"
    )
    publishing.add_argument("--type", default="message", help="the event's type (default: message)")
    publishing.add_argument("--metadata", metavar="KEY=VALUE", action="append", default=[], help="repeatable")
    tailing = http_verb(
        verbs, "tail", "print events as they come, one JSON object per line, until Ctrl-C", tail, has_json=False
    )
    tailing.add_argument("name", metavar="ROOM", help="made if there is none, unless the server is told not to")
    tailing.add_argument(
        "--from-offset",
        type=int,
        metavar="N",
        help="0: all there are, N: from there on, -N: so many back (default: only new ones)",
    )
    tailing.add_argument("--count", type=_count, metavar="N", help="end after so many events")
    tailing.add_argument("--until-caught-up", action="store_true", help="end when all that was there has been printed")


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError
    return count


def list_rooms(client: HttpClient, options: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = client.ask("GET", _path("", limit=PAGE_ROOMS, prefix=options.prefix, after=after))
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
        _show(client.ask("PUT", _path(name), body), options)


def describe(client: HttpClient, options: argparse.Namespace) -> None:
    for name in options.names:
        _show(client.ask("GET", _path(name)), options)


def delete(client: HttpClient, options: argparse.Namespace) -> int:
    """All of them are tried; those that fail make the whole command fail."""
    code = 0
    for name in options.names:
        try:
            client.ask("DELETE", _path(name))
        except Refused as error:
            print(f"kwire: {error}", file=sys.stderr)
            code = 1
        else:
            print(json.dumps({"deleted": name}) if options.json else f"deleted {name}")
    return code


def publish(client: HttpClient, options: argparse.Namespace) -> None:
    metadata = dict(_pair(text) for text in options.metadata)
    for texts in _portions_of_input() if options.data is None else [[options.data]]:
        events = [
            {"event_type": options.type, "data": _data(text), "metadata": metadata} for text in texts if text.strip()
        ]
        if events:
            _publish(client, events, options)


def _portions_of_input() -> Iterator[list[str]]:
    """Lines as they come: what is there is published together, and nobody waits for lines that are still to come."""
    source, rest = cast(BufferedIOBase, sys.stdin.buffer), b""
    while data := source.read1(INPUT_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line of the input is longer than {LINE_BYTES_MAX} bytes")
        for first in range(0, len(lines), EVENTS_PER_REQUEST):
            yield [line.decode() for line in lines[first : first + EVENTS_PER_REQUEST]]
    yield [rest.decode()]


def tail(client: HttpClient, options: argparse.Namespace) -> int:
    """1 if the server ended it."""
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
        print("kwire: the connection to the server has ended", file=sys.stderr)
    return 1


def _publish(client: HttpClient, events: list[dict[str, Any]], options: argparse.Namespace) -> None:
    answer = client.ask("POST", _path(f"{quote(options.name, safe='')}/events", is_quoted=True), events)
    if options.json:
        print(json.dumps(answer), flush=True)
    else:
        first, last = answer["offset"], answer["offset"] + answer["count"] - 1
        print(f"published {first if first == last else f'{first} to {last}'}", flush=True)


def _data(text: str) -> Any:
    """JSON, or the text itself where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text.rstrip("\r\n")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--metadata takes KEY=VALUE, not {text!r}")
    return name, value


def _show(room: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(room))
        return
    for name, value in room.items():
        if isinstance(value, dict):
            value = ", ".join(f"{one} {_text(told)}" for one, told in value.items())
        print(f"{name}: {_text(value)}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "-" if value is None else json.dumps(value)


def _path(name: str, *, is_quoted: bool = False, **query: Any) -> str:
    path = f"/rooms/{name if is_quoted else quote(name, safe='')}".rstrip("/")
    return f"{path}?{urlencode(query)}" if query else path
