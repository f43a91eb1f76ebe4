"""Small requests that need much CPU time: compressed empty lines, and an event with very many metadata keys."""

import gzip
from functools import cache
from itertools import islice, product
from string import ascii_lowercase, digits

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.http import JSON, LINES, ask, events_path, post

MEGABYTE = 1_000_000
ROOM = "abused"
KEY_LENGTH = 4
ANSWERS_OF_ERRORS = "?answers=errors"


@cache
def _compressed(line: bytes, megabytes: int) -> bytes:
    return gzip.compress(line * (megabytes * MEGABYTE // len(line)), compresslevel=9)


def _send_lines(target: Target, line: bytes) -> None:
    body = _compressed(line, target.size)
    path = events_path(ROOM) + ANSWERS_OF_ERRORS
    with target.http() as connection:
        ask(connection, post(path, body, LINES, "Content-Encoding: gzip"))


def _blank_lines(target: Target) -> None:
    _send_lines(target, b"\n")


def _empty_objects(target: Target) -> None:
    _send_lines(target, b"{}\n")


@cache
def _many_keys(count: int) -> bytes:
    names = islice(product(ascii_lowercase + digits, repeat=KEY_LENGTH), count)
    metadata = ",".join(f'"{"".join(name)}":""' for name in names)
    return f'{{"event_type":"attack","data":1,"metadata":{{{metadata}}}}}'.encode()


def _metadata_keys(target: Target) -> None:
    """Send the event as a line to a room, and as JSON to a topic. A room refuses such JSON before it decodes it."""
    event = _many_keys(target.size)
    for request in (post(events_path(ROOM), event + b"\n", LINES), post(f"/topics/{ROOM}/publish", event, JSON)):
        with target.http() as connection:
            ask(connection, request)


ATTACKS = (
    Attack("blank-lines", "NDJSON, {} MB of blank lines in gzip", 100, 2, _blank_lines),
    Attack("empty-objects", "NDJSON, {} MB of empty objects in gzip", 12, 1, _empty_objects),
    Attack("metadata-keys", "event with {} metadata keys", 900_000, 20_000, _metadata_keys),
)
