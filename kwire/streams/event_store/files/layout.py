"""Paths and contents of event files. The functions of this module do not access a disk.

    data/<topic>/<date>/<group>/<topic>-<sequence>.json
    data/<topic>/<date>/<group>.ndjson.gz       a packed group, one event per line
    config/<topic>.json
    .kwire/                                     the owner of the directory, and the position of each topic

A group has the events with a thousand consecutive numbers. The events may have different dates, so a group may have
several folders. The date of an event is the date of its timestamp in UTC.
"""

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kwire.errors import InvalidEvent
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.events.json_text import checked_json

DATA = "data"
CONFIG = "config"
OWN = ".kwire"
POSITIONS = f"{OWN}/positions"
OWNER = f"{OWN}/owner.json"
LOCK = f"{OWN}/lock"

GROUP_EVENTS = 1000
# A file name may have at most 255 bytes. It consists of the topic, a dash, up to 19 digits and the suffix.
TOPIC_LENGTH_MAX = 255 - 1 - 19 - len(".json")
PACKED_END = ".ndjson.gz"
# Suffix of the temporary names of files and folders that are being written. Final names never have this suffix.
UNFINISHED_END = ".new"
# Separates the name of a deleted topic from its id. Topic names cannot contain this character.
DELETED_SEPARATOR = "~"

ID_SHOWN_MAX = 300

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?Z", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_GROUP = re.compile(r"\d{4,16}", re.ASCII)


class FileEvent(NamedTuple):
    """The content of an event file.

    `sequence` is the number of the event in its topic, from 1. `timestamp` is in UTC and has the format ISO 8601.
    `payload` is JSON without line breaks. `key` is the key of the Kafka record.
    """

    sequence: int
    timestamp: str
    type: str
    payload: bytes
    metadata: Mapping[str, str] = {}
    key: bytes | None = None


class NotAnEventFile(ValueError):
    """The content of a file is not a valid event, or not the event that its path names."""


def event_id(topic: str, sequence: int) -> str:
    return f"{topic}-{sequence}"


def group_of(sequence: int) -> str:
    """Return the group of an event. Event 1000 is the last of group 0000, event 1001 is the first of group 0001."""
    return f"{(sequence - 1) // GROUP_EVENTS:04d}"


def date_of(timestamp: str) -> str:
    return timestamp[:10]


def event_folder(topic: str, event: FileEvent) -> str:
    return f"{DATA}/{topic}/{date_of(event.timestamp)}/{group_of(event.sequence)}"


def event_name(topic: str, sequence: int) -> str:
    return f"{topic}-{sequence}.json"


def event_path(topic: str, event: FileEvent) -> str:
    return f"{event_folder(topic, event)}/{event_name(topic, event.sequence)}"


def config_path(topic: str) -> str:
    return f"{CONFIG}/{topic}.json"


def position_path(topic: str) -> str:
    return f"{POSITIONS}/{topic}.json"


def deleted_name(topic: str, topic_id: str) -> str:
    """Return the name that the folder of a deleted topic has until all its files are removed."""
    return f"{topic}{DELETED_SEPARATOR}{topic_id[:8]}"


def is_date(name: str) -> bool:
    return _DATE.fullmatch(name) is not None


def is_group(name: str) -> bool:
    """Whether `name` has the form that `group_of` returns."""
    return _GROUP.fullmatch(name) is not None and name == f"{int(name):04d}"


def sequence_in(topic: str, file_name: str) -> int | None:
    """Return the event number in a file name; None if an event file of this topic cannot have this name."""
    stem, end = os.path.splitext(file_name)
    if end != ".json":
        return None
    try:
        found = EventId.parse(stem)
    except InvalidEvent:
        return None
    return found.offset + 1 if found.topic == topic else None


def event_text(topic: str, event: FileEvent) -> bytes:
    """Encode an event as one line, so that `grep` prints whole events. Metadata and key are omitted if absent."""
    metadata = b',"metadata":' + _text(dict(event.metadata)) if event.metadata else b""
    key = b',"key":' + _text(_shown_key(event.key)) if event.key is not None else b""
    # Topic names and timestamps contain no characters that JSON would escape.
    return b'{"id":"%b-%d","timestamp":"%b","type":%b,"payload":%b%b%b}\n' % (
        topic.encode(),
        event.sequence,
        event.timestamp.encode(),
        _text(event.type),
        event.payload,
        metadata,
        key,
    )


def schemas_text(schemas: Sequence[Any]) -> bytes:
    """Return the part of `config_text` that rarely changes and may be long."""
    text = json.dumps({"schemas": list(schemas)}, ensure_ascii=False, indent=2)
    return text.removeprefix("{\n").encode(errors="backslashreplace") + b"\n"


def config_text(topic: str, sequence: int, schemas: bytes) -> bytes:
    """Return the content of a topic's configuration file.

    `sequence` is the number of the last event; 0 if there is none. `schemas` is the result of `schemas_text`.
    """
    return b'{\n  "name": %b,\n  "sequence": %d,\n%b' % (_text(topic), sequence, schemas)


def parse_config(topic: str, raw: bytes) -> tuple[int, list[Any]]:
    """Parse a configuration file and return the topic's sequence and schemas; raises NotAnEventFile."""
    try:
        facts = json.loads(raw)
        sequence, schemas = facts["sequence"], facts["schemas"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotAnEventFile(f"the file is not a topic configuration: {error!r}") from None
    if facts.get("name") != topic or type(sequence) is not int or not isinstance(schemas, list):
        raise NotAnEventFile("the file is not the configuration of this topic")
    return sequence, schemas


def parse_event(topic: str, raw: bytes) -> FileEvent:
    """Parse an event file or a line of a packed group; raises NotAnEventFile."""
    # Imported here, because the server itself never reads event files.
    from kwire.streams.event_store.files.event_json import DecodeError, decode

    try:
        decoded = decode(raw)
        payload = bytes(decoded.payload)
        tight = checked_json(payload)
        key = None if decoded.key is None else _key_of(decoded.key)
        found = EventId.parse(decoded.id)
    except (DecodeError, InvalidEvent, ValueError, RecursionError) as error:
        raise NotAnEventFile(str(error)) from None
    if b"\n" in payload or b"\r" in payload:
        payload = tight
    if found.topic != topic:
        raise NotAnEventFile(f"the event's id is {decoded.id[:ID_SHOWN_MAX]}, which is of another topic")
    return checked(FileEvent(found.offset + 1, decoded.timestamp, decoded.type, payload, decoded.metadata, key))


def checked(event: FileEvent) -> FileEvent:
    """Return the event; raises NotAnEventFile if its timestamp or number is invalid.

    The path of a file is derived from these fields, so they must not have arbitrary values.
    """
    if not _TIMESTAMP.fullmatch(event.timestamp):
        raise NotAnEventFile(f"the timestamp {event.timestamp[:100]!r} is not an ISO 8601 time in UTC")
    if event.sequence < 1:
        raise NotAnEventFile(f"the event number is {event.sequence}, but numbers start at 1")
    return event


def _shown_key(key: bytes) -> str | dict[str, str]:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(key).decode()}


def _key_of(shown: object) -> bytes:
    match shown:
        case str():
            return shown.encode()
        case {"base64": str(text)}:
            return b64decode(text, validate=True)
    raise ValueError("the key is neither a string nor an object with base64")


def _text(value: object) -> bytes:
    return _encode(value).encode(errors="backslashreplace")
