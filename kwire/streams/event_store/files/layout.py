"""Where the file of an event is and what it says. Pure: nothing here touches a disk.

    data/<topic>/<date>/<group>/<topic>-<sequence>.json
    data/<topic>/<date>/<group>.ndjson.gz       a group that was packed, one event per line
    config/<topic>.json
    .kwire/                                     whose folder it is, and how far each topic has got

A group is a thousand numbers of the topic's sequence, whatever the date; the date is that of the event, in UTC.
"""

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kwire.broker.events.json_text import checked_json
from kwire.broker.store.event_ids import EventId
from kwire.errors import InvalidEvent

DATA = "data"
CONFIG = "config"
OWN = ".kwire"
POSITIONS = f"{OWN}/positions"
OWNER = f"{OWN}/owner.json"
LOCK = f"{OWN}/lock"

GROUP_EVENTS = 1000
# A file's name may have 255 bytes: the topic, a dash, up to 19 digits and what it ends with.
TOPIC_LENGTH_MAX = 255 - 1 - 19 - len(".json")
PACKED_END = ".ndjson.gz"
# Of files that are being written; no topic, date or group can be called so.
UNFINISHED_END = ".new"
# Between the name of a topic that is gone and its id: no topic has it in its name.
GONE_MARK = "~"

ID_SHOWN_MAX = 300

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?Z", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_GROUP = re.compile(r"\d{4,16}", re.ASCII)


class FileEvent(NamedTuple):
    """An event as its file says it. `timestamp` is in UTC, ISO 8601; `payload` is JSON without line breaks.

    `key` is what Kafka clients see as the key of the record.
    """

    sequence: int
    timestamp: str
    type: str
    payload: bytes
    metadata: Mapping[str, str] = {}
    key: bytes | None = None


class NotAnEventFile(ValueError):
    """What the file holds is no event, or not the one that belongs there."""


def event_id(topic: str, sequence: int) -> str:
    return f"{topic}-{sequence}"


def group_of(sequence: int) -> str:
    """Event 1000 is the last of 0000, event 1001 the first of 0001."""
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


def gone_name(topic: str, topic_id: str) -> str:
    """What the folder of a topic is called from its deletion until it is empty."""
    return f"{topic}{GONE_MARK}{topic_id[:8]}"


def is_date(name: str) -> bool:
    return _DATE.fullmatch(name) is not None


def is_group(name: str) -> bool:
    """Whether it is the name that `group_of` gives to some events."""
    return _GROUP.fullmatch(name) is not None and name == f"{int(name):04d}"


def sequence_in(topic: str, file_name: str) -> int | None:
    """The number of the event that a file of this name holds; None if it is no event's name."""
    stem, end = os.path.splitext(file_name)
    if end != ".json":
        return None
    try:
        found = EventId.parse(stem)
    except InvalidEvent:
        return None
    return found.offset + 1 if found.topic == topic else None


def event_text(topic: str, event: FileEvent) -> bytes:
    """One line, so that what `grep` finds is an event. Metadata and key are there if it has any."""
    metadata = b',"metadata":' + _text(dict(event.metadata)) if event.metadata else b""
    key = b',"key":' + _text(_shown_key(event.key)) if event.key is not None else b""
    # Names of topics and times have nothing that JSON would write otherwise.
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
    """The part of `config_text` that seldom changes, and may be long."""
    text = json.dumps({"schemas": list(schemas)}, ensure_ascii=False, indent=2)
    return text.removeprefix("{\n").encode(errors="backslashreplace") + b"\n"


def config_text(topic: str, sequence: int, schemas: bytes) -> bytes:
    """`sequence` is the number of the last event, 0 if there is none: the next one gets one more."""
    return b'{\n  "name": %b,\n  "sequence": %d,\n%b' % (_text(topic), sequence, schemas)


def parse_config(topic: str, raw: bytes) -> tuple[int, list[Any]]:
    """Sequence and schemas of a topic; raises NotAnEventFile."""
    try:
        facts = json.loads(raw)
        sequence, schemas = facts["sequence"], facts["schemas"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotAnEventFile(f"it is no configuration of a topic: {error!r}") from None
    if facts.get("name") != topic or type(sequence) is not int or not isinstance(schemas, list):
        raise NotAnEventFile("it is no configuration of this topic")
    return sequence, schemas


def parse_event(topic: str, raw: bytes) -> FileEvent:
    """What a file or a line of a packed group says; raises NotAnEventFile."""
    # Taken when events are read back, which the server never does.
    from kwire.broker.store.files.told_event import DecodeError, decode

    try:
        told = decode(raw)
        payload = bytes(told.payload)
        tight = checked_json(payload)
        key = None if told.key is None else _key_of(told.key)
        found = EventId.parse(told.id)
    except (DecodeError, InvalidEvent, ValueError, RecursionError) as error:
        raise NotAnEventFile(str(error)) from None
    if b"\n" in payload or b"\r" in payload:
        payload = tight
    if found.topic != topic:
        raise NotAnEventFile(f"it says it is {told.id[:ID_SHOWN_MAX]}")
    return checked(FileEvent(found.offset + 1, told.timestamp, told.type, payload, told.metadata, key))


def checked(event: FileEvent) -> FileEvent:
    """The same; raises NotAnEventFile if it has no place: what comes from elsewhere must not choose any path."""
    if not _TIMESTAMP.fullmatch(event.timestamp):
        raise NotAnEventFile(f"{event.timestamp[:100]!r} is no time in UTC")
    if event.sequence < 1:
        raise NotAnEventFile(f"{event.sequence} is no number of an event: they begin with 1")
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
    raise ValueError("its key is neither a text nor bytes in base64")


def _text(value: object) -> bytes:
    return _encode(value).encode(errors="backslashreplace")
