"""Events from a server to files and back, a topic at a time. Both ways go on where they ended the last time.

An export notes its place with each page that is safe on disk. An import needs no note: it looks how many events the
topic has, compares the last of them, and publishes what follows only if nobody else has published meanwhile.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from kwire.broker.events.event import METADATA_MAX
from kwire.broker.events.json_text import checked_json
from kwire.broker.store.files.layout import (
    CONFIG,
    TOPIC_LENGTH_MAX,
    FileEvent,
    NotAnEventFile,
    config_path,
    config_text,
    event_id,
    parse_config,
    parse_event,
    schemas_text,
)
from kwire.broker.store.files.reading import Problem, events_in
from kwire.broker.store.files.writing import (
    Position,
    TopicPart,
    begin_topic,
    locked,
    make_root,
    open_root,
    write_round,
)
from kwire.broker.topic_names import check_name
from kwire.cli.ahead import Ahead
from kwire.cli.http_client import HttpClient, Refused
from kwire.cli.progress import Progress
from kwire.errors import KafkaError
from storage.files import Files

# In the place of a server: an export goes on only in the directory of an export.
EXPORT = "export"
PAGE_EVENTS = 1000
PAGES_AHEAD = 4
# What is written, and synced, together; a page more at most.
ROUND_EVENTS = 16_000
ROUND_BYTES = 16 * 1024 * 1024
# So long it may take: whoever looks wants to see it move.
ROUND_SECONDS = 0.7
# What is published together; a large event goes alone.
BATCH_EVENTS = 500
BATCH_BYTES = 512 * 1024
# What was the time of an event before it was imported.
ORIGINAL_TIME = "original_timestamp"

NewBar = Callable[[int], Progress]


class Cannot(ValueError):
    """Why a topic cannot be exported or imported."""


class Moved(NamedTuple):
    """How many events were transferred this time, and how many there are now."""

    events: int
    total: int


class _Page(msgspec.Struct):
    events: list[msgspec.Raw]
    next: str | None


_decode_page = msgspec.json.Decoder(_Page).decode


# --- out


@contextmanager
def opened_export(files: Files, root: str) -> Iterator[dict[str, Position | None]]:
    """The directory, for this process alone: how far each topic has got."""
    make_root(files, root)
    with locked(files, root, is_waiting=False):
        yield open_root(files, root, EXPORT)


def export_topic(
    files: Files, root: str, client: HttpClient, topic: str, position: Position | None, new_bar: NewBar
) -> Moved:
    _check_name(topic)
    if len(topic) > TOPIC_LENGTH_MAX:
        raise Cannot(f"the name of {topic} is longer than {TOPIC_LENGTH_MAX} characters: its files cannot be named")
    facts = client.ask("GET", _path(topic, "schemas"))
    schemas, last = schemas_text(facts["schemas"]), facts["sequence"]
    if position is None:
        position = Position(EXPORT, 0)
        begin_topic(files, root, topic, position)
    start = sequence = position.next_offset
    if sequence > last:
        raise Cannot(f"{topic} has {last} events, but {sequence} were exported: it is not the same topic any more")
    _check_last(files, root, client, topic, sequence)
    bar, count = new_bar(last - start), 0
    try:
        bar.show(0)
        # Where there is nothing new its description may still be.
        write_round(files, root, [_part(topic, sequence, [], schemas)])
        with Ahead(_pages(client, topic, sequence), PAGES_AHEAD) as pages:
            for events in _rounds(pages):
                sequence = events[-1].sequence
                write_round(files, root, [_part(topic, sequence, events, schemas)])
                count += len(events)
                bar.show(sequence - start)
    finally:
        bar.close()
    return Moved(count, sequence)


def _part(topic: str, sequence: int, events: list[FileEvent], schemas: bytes) -> TopicPart:
    return TopicPart(topic, Position(EXPORT, sequence), events, config_text(topic, sequence, schemas))


def _rounds(pages: Iterable[list[FileEvent]]) -> Iterator[list[FileEvent]]:
    """Pages put together: names are given, and made durable, once for all of them. More where that is soon done."""
    events: list[FileEvent] = []
    size_bytes, wanted = 0, PAGE_EVENTS
    for page in pages:
        events += page
        size_bytes += sum(len(event.payload) for event in page)
        if len(events) >= wanted or size_bytes >= ROUND_BYTES:
            begun_at = time.monotonic()
            yield events
            events, size_bytes = [], 0
            is_fast = time.monotonic() - begun_at < ROUND_SECONDS
            wanted = min(2 * wanted, ROUND_EVENTS) if is_fast else max(wanted // 2, PAGE_EVENTS)
    if events:
        yield events


def _pages(client: HttpClient, topic: str, sequence: int) -> Iterator[list[FileEvent]]:
    """What follows, as the server gives it, up to the last event there is when it is asked for."""
    since = event_id(topic, sequence) if sequence else None
    while True:
        events, since = _page(client, topic, since)
        for event in events:
            if event.sequence <= sequence:
                raise Cannot(f"the server shows {event_id(topic, event.sequence)} behind number {sequence}")
            sequence = event.sequence
        if events:
            yield events
        if since is None:
            return


def _page(client: HttpClient, topic: str, since: str | None) -> tuple[list[FileEvent], str | None]:
    query: dict[str, Any] = {"limit": PAGE_EVENTS} | ({} if since is None else {"sinceEventId": since})
    try:
        raw = client.fetch(_path(topic, "events", **query))
    except Refused as error:
        if since is None or "(OffsetOutOfRange)" not in str(error):
            raise
        # Retention has taken what follows: go on with what there still is.
        raw = client.fetch(_path(topic, "events", limit=PAGE_EVENTS))
    try:
        page = _decode_page(raw)
        return [parse_event(topic, bytes(one)) for one in page.events], page.next
    except (msgspec.MsgspecError, NotAnEventFile) as error:
        raise Cannot(f"the server's answer is no page of events: {error}") from error


def _check_last(files: Files, root: str, client: HttpClient, topic: str, sequence: int) -> None:
    """What was exported last has to be what the server has there; it may have gone by retention."""
    told = _event_of_server(client, topic, sequence) if sequence else None
    if told is None:
        return
    kept = next(events_in(files, root, topic, sequence), None)
    if kept != told:
        raise Cannot(
            f"{event_id(topic, sequence)} is another event than the one that was exported, or that one was changed or "
            "removed: export to another directory"
        )


def _event_of_server(client: HttpClient, topic: str, sequence: int) -> FileEvent | None:
    try:
        return parse_event(topic, client.fetch(f"/events/{quote(event_id(topic, sequence), safe='')}"))
    except Refused as error:
        if "(EventNotFound)" in str(error):
            return None
        raise


# --- in


def import_topic(
    files: Files, root: str, client: HttpClient, topic: str, new_bar: NewBar, *, is_renumbering: bool = False
) -> Moved:
    _check_name(topic)
    last, schemas = _config(files, root, topic)
    start = stored = _topic_of_server(client, topic, schemas)
    bar, number, before = new_bar(max(0, last - start)), 0, None
    batch: list[FileEvent] = []
    size_bytes = 0
    try:
        bar.show(0)
        for number, event in enumerate(_in_order(files, root, topic, is_renumbering), start=1):
            if number <= start:
                before = event
                continue
            if number == start + 1:
                _check_same(client, topic, start, before)
            size_bytes += len(event.payload)
            if batch and (len(batch) >= BATCH_EVENTS or size_bytes > BATCH_BYTES):
                stored = _publish(client, topic, stored, batch)
                bar.show(stored - start)
                batch, size_bytes = [], len(event.payload)
            batch.append(event)
        if number <= start:
            # Nothing is left to do; or they are other events.
            _check_same(client, topic, number, before)
        if batch:
            stored = _publish(client, topic, stored, batch)
    finally:
        bar.close()
    return Moved(stored - start, stored)


def _config(files: Files, root: str, topic: str) -> tuple[int, list[Any] | None]:
    """How many events it says there are, and the schemas; none if there is no such file."""
    raw = files.read_file(os.path.join(root, config_path(topic)))
    if raw is None:
        return 0, None
    try:
        return parse_config(topic, raw)
    except NotAnEventFile as error:
        raise Cannot(f"{config_path(topic)}: {error}") from error


def _topic_of_server(client: HttpClient, topic: str, schemas: list[Any] | None) -> int:
    """How many events it has; it is made if it is not there."""
    try:
        sequence: int = client.ask("GET", _path(topic, "schemas"))["sequence"]
        return sequence
    except Refused as error:
        if "(TopicNotFound)" not in str(error):
            raise
    if schemas is None:
        raise Cannot(f"there is no topic {topic}, and no {CONFIG}/{topic}.json to make it from")
    client.ask("POST", "/topics", {"name": topic, "schemas": schemas})
    return 0


def _in_order(files: Files, root: str, topic: str, is_renumbering: bool) -> Iterator[FileEvent]:
    """All events, the first of them number 1 and none missing, unless they may get other numbers."""
    expected = 1
    for one in events_in(files, root, topic):
        if isinstance(one, Problem):
            raise Cannot(f"{one.path}: {one.reason}")
        if one.sequence != expected and not is_renumbering:
            raise Cannot(
                f"{topic}: events {expected} to {one.sequence - 1} are missing, so those behind them would get other "
                "ids; --renumber allows that"
            )
        expected = one.sequence + 1
        yield one


def _check_same(client: HttpClient, topic: str, sequence: int, event: FileEvent | None) -> None:
    """The last event that both have, the topic and the files, is the same in both."""
    if event is None:
        return
    told = _event_of_server(client, topic, sequence)
    if told is None or _content(told) != _content(event):
        raise Cannot(
            f"{topic} has events already, and they are not those of the files: {event_id(topic, sequence)} differs"
        )


def _content(event: FileEvent) -> tuple[object, ...]:
    metadata = {name: value for name, value in event.metadata.items() if name != ORIGINAL_TIME}
    # Spaces between its parts do not count: the server leaves them out.
    return event.type, checked_json(event.payload), metadata, event.key


def _publish(client: HttpClient, topic: str, stored: int, events: Sequence[FileEvent]) -> int:
    """How many the topic has then. Its last event has to be the one before these."""
    bodies = [_body(topic, event, stored - 1 if number == 0 else None) for number, event in enumerate(events)]
    answer = client.ask("POST", "/events", b"[" + b",".join(bodies) + b"]")
    expected = [event_id(topic, stored + number) for number in range(1, len(events) + 1)]
    if answer["eventIds"] != expected:
        raise Cannot(f"the server gave {topic} other ids than {expected[0]} to {expected[-1]}")
    return stored + len(events)


def _body(topic: str, event: FileEvent, expected_version: int | None) -> bytes:
    """The payload goes as it is: whoever decodes and encodes it may change its numbers."""
    fields: dict[str, Any] = {"topic": topic, "type": event.type}
    metadata = dict(event.metadata)
    if len(metadata) < METADATA_MAX:
        metadata.setdefault(ORIGINAL_TIME, event.timestamp)
    fields["metadata"] = metadata
    if expected_version is not None:
        fields["expectedVersion"] = expected_version
    if event.key is not None:
        try:
            fields["key"] = event.key.decode()
        except UnicodeDecodeError:
            raise Cannot(f"the key of {event_id(topic, event.sequence)} is no text: it cannot be published") from None
    return json.dumps(fields).encode()[:-1] + b',"payload":' + event.payload + b"}"


def _check_name(topic: str) -> None:
    try:
        check_name(topic)
    except KafkaError as error:
        raise Cannot(str(error)) from error


def _path(topic: str, what: str, **query: Any) -> str:
    path = f"/topics/{quote(topic, safe='')}/{what}"
    return f"{path}?{urlencode(query)}" if query else path
