"""What a delivery says: the event as plain JSON, or as a CloudEvent in one of its two forms over HTTP.

- `event`: `{"id", "topic", "timestamp", "type", "payload"}`, and `metadata` if there are any.
- `binary`: the payload alone is the body; what CloudEvents calls attributes are headers `ce-…`.
- `structured`: one JSON object with all of it, of the type `application/cloudevents+json`.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args
from urllib.parse import quote

import msgspec

from kwire.broker.events.event import Event, time_text
from kwire.broker.store.event_ids import EventId

BodyForm = Literal["event", "binary", "structured"]
BODY_FORMS: tuple[str, ...] = get_args(BodyForm)

JSON_TYPE = "application/json"
CLOUD_EVENT_TYPE = "application/cloudevents+json; charset=utf-8"
SPEC_VERSION = "1.0"
# Receivers take some kilobytes of headers; metadata beyond this are told in the other two forms only.
METADATA_HEADER_BYTES_MAX = 4096
# What stays as it is in a header's value: all printable ASCII but the blank, the double quote and the percent sign.
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')

_encode = msgspec.json.Encoder().encode


class Body(NamedTuple):
    content: bytes
    headers: Mapping[str, str]


class _PlainEvent(msgspec.Struct, omit_defaults=True):
    id: str
    topic: str
    timestamp: str
    type: str
    payload: msgspec.Raw
    metadata: Mapping[str, str] | None = None


class _CloudEvent(msgspec.Struct, omit_defaults=True):
    # No defaults before `metadata`: all of them are always written.
    specversion: str
    id: str
    source: str
    type: str
    time: str
    datacontenttype: str
    subject: str
    data: msgspec.Raw
    # An extension: CloudEvents has names of small letters and digits, and values without structure.
    metadata: str | None = None


def body_of(form: BodyForm, topic: str, event: Event) -> Body:
    """The body and the headers that tell what it is; the id comes from the event's place, never from what was sent."""
    event_id = str(EventId(topic, event.offset))
    if form == "binary":
        return Body(event.data, {"content-type": JSON_TYPE, **_attributes(topic, event_id, event)})
    if form == "structured":
        return Body(_structured(topic, event_id, event), {"content-type": CLOUD_EVENT_TYPE})
    plain = _PlainEvent(
        event_id,
        topic,
        time_text(event.timestamp_ms),
        event.type,
        msgspec.Raw(event.data),
        dict(event.metadata) or None,
    )
    return Body(_encode(plain), {"content-type": JSON_TYPE})


def source_of(topic: str) -> str:
    """Where events of a topic come from, as it is in their records too."""
    return f"/topics/{topic}"


def header_text(text: str) -> str:
    """A value as CloudEvents wants it in an HTTP header: what is not plain is percent-encoded."""
    return quote(text, safe=_PLAIN, errors="replace")


def _attributes(topic: str, event_id: str, event: Event) -> dict[str, str]:
    attributes = {
        "ce-specversion": SPEC_VERSION,
        "ce-id": header_text(event_id),
        "ce-source": header_text(source_of(topic)),
        "ce-type": header_text(event.type),
        "ce-time": time_text(event.timestamp_ms),
        "ce-subject": header_text(topic),
    }
    if event.metadata and len(metadata := header_text(_metadata_text(event))) <= METADATA_HEADER_BYTES_MAX:
        attributes["ce-metadata"] = metadata
    return attributes


def _structured(topic: str, event_id: str, event: Event) -> bytes:
    return _encode(
        _CloudEvent(
            SPEC_VERSION,
            event_id,
            source_of(topic),
            event.type,
            time_text(event.timestamp_ms),
            JSON_TYPE,
            topic,
            msgspec.Raw(event.data),
            _metadata_text(event) if event.metadata else None,
        )
    )


def _metadata_text(event: Event) -> str:
    return _encode(dict(event.metadata)).decode()
