"""Exports a topic's events to files, and imports such files. A second run continues where the last run ended.

An export writes events in rounds. With every round it stores its position in the directory. An import stores no
position. It requests the topic's number of events, checks that the topic's last event equals the event of this number
in the files, and publishes the events after it. Each publish request contains the expected version of the topic, so it
fails if another client publishes to the topic at the same time.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from kwire.broker.topics.names import check_name
from kwire.cli.connection.errors import Refused
from kwire.cli.connection.http_client import HttpClient
from kwire.cli.event.prefetch import Prefetcher
from kwire.errors import KafkaError
from kwire.progress import Progress
from kwire.streams.event_store.files.layout import (
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
from kwire.streams.event_store.files.reader import Problem, events_in
from kwire.streams.event_store.files.writer import (
    Position,
    TopicPart,
    begin_topic,
    locked,
    make_root,
    open_root,
    write_round,
)
from kwire.streams.events.event import METADATA_MAX
from kwire.streams.events.json_text import checked_json
from storage.disk.files import Files

# The owner of the directory, stored in its owner file. A server stores its own name there, so an export cannot continue
# in a server's directory.
EXPORT = "export"
PAGE_EVENTS = 1000
PAGES_PREFETCHED_MAX = 4
# The maximum size of a round. The events of a round are written and synced together. Because rounds consist of whole
# pages, a round may exceed these bounds by one page.
ROUND_EVENTS = 16_000
ROUND_BYTES = 16 * 1024 * 1024
# The intended duration of a round. Longer rounds would update the progress bar too rarely.
ROUND_SECONDS = 0.7
# The maximum size of one publish request. An event with more bytes is published alone.
BATCH_EVENTS = 500
BATCH_BYTES = 512 * 1024
# The metadata entry with the timestamp that an event had before the import.
ORIGINAL_TIME = "original_timestamp"

NewBar = Callable[[int], Progress]


class TransferFailed(ValueError):
    """A topic cannot be exported or imported. The message gives the reason."""


class TransferResult(NamedTuple):
    """The number of events that this run transferred, and the number of the last event that the target holds now."""

    events: int
    total: int


class _Page(msgspec.Struct):
    events: list[msgspec.Raw]
    next: str | None


_decode_page = msgspec.json.Decoder(_Page).decode


# --- export


@contextmanager
def opened_export(files: Files, root: str) -> Iterator[dict[str, Position | None]]:
    """Lock the directory for this process, and yield the position of each exported topic."""
    make_root(files, root)
    with locked(files, root, is_waiting=False):
        yield open_root(files, root, EXPORT)


def export_topic(
    files: Files, root: str, client: HttpClient, topic: str, position: Position | None, new_bar: NewBar
) -> TransferResult:
    _check_name(topic)
    if len(topic) > TOPIC_LENGTH_MAX:
        raise TransferFailed(
            f"topic {topic}: the name has more than {TOPIC_LENGTH_MAX} characters, too many for file names"
        )
    facts = client.request("GET", _path(topic, "schemas"))
    schemas, last = schemas_text(facts["schemas"]), facts["sequence"]
    if position is None:
        position = Position(EXPORT, 0)
        begin_topic(files, root, topic, position)
    start = sequence = position.next_offset
    if sequence > last:
        raise TransferFailed(
            f"topic {topic} has {last} events, but {sequence} were exported: it is no longer the same topic"
        )
    _check_last(files, root, client, topic, sequence)
    bar, count = new_bar(last - start), 0
    try:
        bar.show(0)
        # Write a round without events first, because the schemas may have changed even if there are no new events.
        write_round(files, root, [_part(topic, sequence, [], schemas)])
        with Prefetcher(_pages(client, topic, sequence), PAGES_PREFETCHED_MAX) as pages:
            for events in _rounds(pages):
                sequence = events[-1].sequence
                write_round(files, root, [_part(topic, sequence, events, schemas)])
                count += len(events)
                bar.show(sequence - start)
    finally:
        bar.close()
    return TransferResult(count, sequence)


def _part(topic: str, sequence: int, events: list[FileEvent], schemas: bytes) -> TopicPart:
    return TopicPart(topic, Position(EXPORT, sequence), events, config_text(topic, sequence, schemas))


def _rounds(pages: Iterable[list[FileEvent]]) -> Iterator[list[FileEvent]]:
    """Combine pages into rounds and yield them.

    Directories are synced once per round, so larger rounds are faster. The next round has twice as many events if the
    last one was written in less than ROUND_SECONDS, otherwise half as many.
    """
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
    """Yield pages with the events after number `sequence`, up to the topic's last event."""
    since = event_id(topic, sequence) if sequence else None
    while True:
        events, since = _page(client, topic, since)
        for event in events:
            if event.sequence <= sequence:
                raise TransferFailed(f"the server returned {event_id(topic, event.sequence)} after event {sequence}")
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
        # Retention deleted the event after `since`. Continue with the oldest event that still exists.
        raw = client.fetch(_path(topic, "events", limit=PAGE_EVENTS))
    try:
        page = _decode_page(raw)
        return [parse_event(topic, bytes(one)) for one in page.events], page.next
    except (msgspec.MsgspecError, NotAnEventFile) as error:
        raise TransferFailed(f"the server's answer is not a page of events: {error}") from error


def _check_last(files: Files, root: str, client: HttpClient, topic: str, sequence: int) -> None:
    """Check that the last exported event equals the server's event with the same number.

    If retention has deleted the server's event, nothing is checked.
    """
    on_server = _server_event(client, topic, sequence) if sequence else None
    if on_server is None:
        return
    exported = next(events_in(files, root, topic, sequence), None)
    if exported != on_server:
        raise TransferFailed(
            f"{event_id(topic, sequence)}: the server's event differs from the exported one, or the file was changed "
            "or removed: export to another directory"
        )


def _server_event(client: HttpClient, topic: str, sequence: int) -> FileEvent | None:
    try:
        return parse_event(topic, client.fetch(f"/events/{quote(event_id(topic, sequence), safe='')}"))
    except Refused as error:
        if "(EventNotFound)" in str(error):
            return None
        raise


# --- import


def import_topic(
    files: Files, root: str, client: HttpClient, topic: str, new_bar: NewBar, *, is_renumbering: bool = False
) -> TransferResult:
    _check_name(topic)
    last, schemas = _config(files, root, topic)
    start = stored = _server_event_count(client, topic, schemas)
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
            # The topic has at least as many events as the files, so there is nothing to import. Check that the last
            # event of the files is the same in the topic.
            _check_same(client, topic, number, before)
        if batch:
            stored = _publish(client, topic, stored, batch)
    finally:
        bar.close()
    return TransferResult(stored - start, stored)


def _config(files: Files, root: str, topic: str) -> tuple[int, list[Any] | None]:
    """Return the number of events and the schemas from the topic's config file.

    Return (0, None) if the file does not exist.
    """
    raw = files.read_file(os.path.join(root, config_path(topic)))
    if raw is None:
        return 0, None
    try:
        return parse_config(topic, raw)
    except NotAnEventFile as error:
        raise TransferFailed(f"{config_path(topic)}: {error}") from error


def _server_event_count(client: HttpClient, topic: str, schemas: list[Any] | None) -> int:
    """Return the number of events in the server's topic. Create the topic if it does not exist."""
    try:
        sequence: int = client.request("GET", _path(topic, "schemas"))["sequence"]
        return sequence
    except Refused as error:
        if "(TopicNotFound)" not in str(error):
            raise
    if schemas is None:
        raise TransferFailed(f"topic {topic} does not exist and cannot be created: {CONFIG}/{topic}.json is missing")
    client.request("POST", "/topics", {"name": topic, "schemas": schemas})
    return 0


def _in_order(files: Files, root: str, topic: str, is_renumbering: bool) -> Iterator[FileEvent]:
    """Yield all events of the files in order. Unless `is_renumbering`, raise if their numbers are not 1, 2, 3 …"""
    expected = 1
    for one in events_in(files, root, topic):
        if isinstance(one, Problem):
            raise TransferFailed(f"{one.path}: {one.reason}")
        if one.sequence != expected and not is_renumbering:
            raise TransferFailed(
                f"topic {topic}: events {expected} to {one.sequence - 1} are missing, so later events would get new "
                "ids; --renumber allows that"
            )
        expected = one.sequence + 1
        yield one


def _check_same(client: HttpClient, topic: str, sequence: int, event: FileEvent | None) -> None:
    """Check that the event number `sequence` of the topic has the same content as `event`, which is from the files."""
    if event is None:
        return
    on_server = _server_event(client, topic, sequence)
    if on_server is None or _content(on_server) != _content(event):
        raise TransferFailed(
            f"topic {topic} already has other events than the files: {event_id(topic, sequence)} differs"
        )


def _content(event: FileEvent) -> tuple[object, ...]:
    metadata = {name: value for name, value in event.metadata.items() if name != ORIGINAL_TIME}
    # `checked_json` removes whitespace between JSON tokens, as the server does.
    return event.type, checked_json(event.payload), metadata, event.key


def _publish(client: HttpClient, topic: str, stored: int, events: Sequence[FileEvent]) -> int:
    """Publish the events that follow event number `stored`. Return the topic's new number of events."""
    bodies = [_body(topic, event, stored - 1 if number == 0 else None) for number, event in enumerate(events)]
    answer = client.request("POST", "/events", b"[" + b",".join(bodies) + b"]")
    expected = [event_id(topic, stored + number) for number in range(1, len(events) + 1)]
    if answer["eventIds"] != expected:
        raise TransferFailed(f"topic {topic}: the server assigned other event ids than {expected[0]} to {expected[-1]}")
    return stored + len(events)


def _body(topic: str, event: FileEvent, expected_version: int | None) -> bytes:
    """Return the JSON of one event to publish.

    The bytes of the payload are inserted unchanged, because decoding and encoding could alter its numbers.
    """
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
            raise TransferFailed(
                f"{event_id(topic, event.sequence)}: the key is not UTF-8 text and cannot be published"
            ) from None
    return json.dumps(fields).encode()[:-1] + b',"payload":' + event.payload + b"}"


def _check_name(topic: str) -> None:
    try:
        check_name(topic)
    except KafkaError as error:
        raise TransferFailed(str(error)) from error


def _path(topic: str, resource: str, **query: Any) -> str:
    path = f"/topics/{quote(topic, safe='')}/{resource}"
    return f"{path}?{urlencode(query)}" if query else path
