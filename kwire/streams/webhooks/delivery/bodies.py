"""Request bodies of deliveries: the event as plain JSON, or as a CloudEvent in binary or structured mode.

- `event`: `{"id", "topic", "timestamp", "type", "payload"}`, and `metadata` if the event has any.
- `binary`: the body is the payload; the CloudEvents attributes are headers `ce-…`.
- `structured`: one JSON object with attributes and payload, of the type `application/cloudevents+json`.

A delivery of an event with a trace context has it as the header `traceparent`.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args
from urllib.parse import quote

import msgspec

from kwire.streams.event_store.event_ids import EventId
from kwire.streams.events.event import Event, time_text
from kwire.streams.events.traceparent import TRACEPARENT, is_valid_traceparent

BodyForm = Literal["event", "binary", "structured"]
BODY_FORMS: tuple[str, ...] = get_args(BodyForm)

JSON_TYPE = "application/json"
CLOUD_EVENT_TYPE = "application/cloudevents+json; charset=utf-8"
SPEC_VERSION = "1.0"
# Receivers accept only a few kilobytes of headers. In the form `binary`, larger metadata is omitted.
METADATA_HEADER_BYTES_MAX = 4096
# Characters that are not percent-encoded in a header value: printable ASCII except space, double quote and percent.
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')

_encode = msgspec.json.Encoder().encode


class Body(NamedTuple):
    """A request body, and the headers that describe it."""

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
    # Fields before `metadata` have no defaults, so they are always written.
    specversion: str
    id: str
    source: str
    type: str
    time: str
    datacontenttype: str
    subject: str
    data: msgspec.Raw
    # An extension attribute of CloudEvents. Its name may have only lower-case letters and digits, and its value must be
    # a string.
    metadata: str | None = None


def body_of(form: BodyForm, topic: str, event: Event) -> Body:
    """Build the body of a delivery. The id is derived from topic and offset. Ids chosen by publishers are not sent."""
    event_id = str(EventId(topic, event.offset))
    trace = _trace_headers(event)
    if form == "binary":
        return Body(event.data, {"content-type": JSON_TYPE, **_attributes(topic, event_id, event), **trace})
    if form == "structured":
        return Body(_structured(topic, event_id, event), {"content-type": CLOUD_EVENT_TYPE, **trace})
    plain = _PlainEvent(
        event_id,
        topic,
        time_text(event.timestamp_ms),
        event.type,
        msgspec.Raw(event.data),
        dict(event.metadata) or None,
    )
    return Body(_encode(plain), {"content-type": JSON_TYPE, **trace})


def _trace_headers(event: Event) -> dict[str, str]:
    """Return the trace context of the event as a header of the delivery, if the event has a valid one."""
    traceparent = event.metadata.get(TRACEPARENT)
    return {TRACEPARENT: traceparent} if traceparent is not None and is_valid_traceparent(traceparent) else {}


def source_of(topic: str) -> str:
    """Return the CloudEvents source of the events of a topic. Their records contain the same source."""
    return f"/topics/{topic}"


def header_text(text: str) -> str:
    """Percent-encode a header value as the HTTP binding of CloudEvents requires."""
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
