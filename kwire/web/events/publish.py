"""POST /events: one event or an array of them, for one topic or for many, all stored or none.

The answer comes when the events are durable and can be read: `eventIds` in the order of the request. A request that is
sent again because its answer was lost is not stored twice if it says so: by a header `Idempotency-Key`, or by an
`eventId` of the client's own on each event. It is answered with the ids of the first time then, and status 200.
"""

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from aiohttp import web

from kwire.broker.events.event import EMPTY, EVENT_ID_BYTES_MAX, TYPE_BYTES_MAX
from kwire.broker.events.json_text import checked_json
from kwire.broker.store.event_store import EVENTS_MAX, EventDraft
from kwire.errors import StreamError
from kwire.web.bodies import check_is_json, checked_and_decoded, json_answer, raw_body_of
from kwire.web.body_bounds import check_objects, check_stored_events
from kwire.web.event_json import MetadataName
from kwire.web.route import JSON, Answer, Route
from kwire.web.safety import check_name
from kwire.web.services import WebServices
from kwire.web.turns import BodyTurns

IDEMPOTENCY_KEY = "Idempotency-Key"
KEY: Any = Annotated[
    str, msgspec.Meta(description="1 to 256 bytes of your own. The same request with the same key is stored once.")
]
TOPIC_LENGTH_MAX = 249
VERSION_MAX = 2**63 - 1
_DIGEST_BYTES = 32

# Half the time of making one by its name.
_new_tuple = tuple.__new__


class EventToPublish(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """`payload` has to be what the topic's schema for this `type` says."""

    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=TYPE_BYTES_MAX)]
    payload: Annotated[msgspec.Raw, msgspec.Meta(description="Any JSON value.")]
    metadata: Annotated[
        Mapping[MetadataName, str] | None, msgspec.Meta(description="Stored as headers of the record.")
    ] = None
    key: Annotated[str | None, msgspec.Meta(description="The key of the record, for Kafka clients.")] = None
    event_id: (
        Annotated[
            str,
            msgspec.Meta(
                min_length=1,
                max_length=EVENT_ID_BYTES_MAX,
                description="Your own id, kept as `ce_id`. If all events of a request have one, it can be sent again.",
            ),
        ]
        | None
    ) = None
    expected_version: (
        Annotated[
            int,
            msgspec.Meta(
                ge=-1,
                le=VERSION_MAX,
                description="The version of the event that has to stand before this one in its topic; -1: none.",
            ),
        ]
        | None
    ) = None


MANY: Any = Annotated[list[EventToPublish], msgspec.Meta(min_length=1, max_length=EVENTS_MAX)]
ONE_OR_MANY: Any = EventToPublish | MANY


class PublishedEventIds(msgspec.Struct, kw_only=True, rename="camel"):
    """In the order of the request."""

    event_ids: list[str]


async def publish(services: WebServices, request: web.Request) -> web.Response:
    check_is_json(request)
    raw = await raw_body_of(request)
    check_objects(raw)
    asked: EventToPublish | list[EventToPublish] = checked_and_decoded(raw, ONE_OR_MANY, check_stored_events)
    drafts = await _drafts(services, [asked] if isinstance(asked, EventToPublish) else asked)
    key = _given_key(request)
    if key is None:
        key = _key_of_ids(drafts)
    committed = await services.commands.events.commit(drafts, idempotency_key=key)
    ids = list(committed.event_ids)
    return json_answer(PublishedEventIds(event_ids=ids), status=200 if committed.is_repeated else 201)


async def _drafts(services: WebServices, asked: Sequence[EventToPublish]) -> list[EventDraft]:
    """Everything that can be said of an event by itself is said before any is stored."""
    drafts: list[EventDraft] = []
    bytes_max: dict[str, int] = {}
    turns = BodyTurns()
    for index, one in enumerate(asked):
        try:
            if one.topic not in bytes_max:
                check_name(one.topic)
                bytes_max[one.topic] = services.event_store.event_topic(one.topic).settings.max_message_bytes
            drafts.append(_draft(one, bytes_max[one.topic]))
        except StreamError as error:
            error.details["index"] = index
            raise
        if turns.is_over(len(drafts[-1].payload)):
            await asyncio.sleep(0)
    return drafts


def _draft(one: EventToPublish, bytes_max: int) -> EventDraft:
    return _new_tuple(
        EventDraft,
        (
            one.topic,
            one.type,
            checked_json(bytes(one.payload), "payload", bytes_max),
            one.metadata or EMPTY,
            None if one.key is None else one.key.encode(),
            one.event_id,
            one.expected_version,
        ),
    )


def _given_key(request: web.Request) -> str | None:
    """The header, as it is or between double quotes; what is no key is refused by the store."""
    text = request.headers.get(IDEMPOTENCY_KEY)
    if text is not None and len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1]
    return text


def _key_of_ids(drafts: Sequence[EventDraft]) -> str | None:
    """The same events by their own ids are the same request."""
    made = blake2b(digest_size=_DIGEST_BYTES)
    for draft in drafts:
        if draft.event_id is None:
            return None
        for text in (draft.topic, draft.event_id):
            raw = text.encode(errors="surrogatepass")
            made.update(len(raw).to_bytes(4) + raw)
    return f"event-ids:{made.hexdigest()}"


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/events",
        publish,
        summary="Publish events, to one topic or to many",
        description=(
            "All of them are stored, or none: an event that its schema refuses, a topic that is not there or an "
            "`expectedVersion` that is not met (409) refuses the request as a whole. `index` in an error is the place "
            "of the event in the array.\n\n"
            "With a header `Idempotency-Key`, or an `eventId` on each event, the same request can be sent again: it is "
            "stored once and answered with the same ids. The same key for other events is refused with 409."
        ),
        tag="events",
        request=ONE_OR_MANY,
        headers={IDEMPOTENCY_KEY: KEY},
        answers={
            201: Answer("Stored.", {JSON: PublishedEventIds}),
            200: Answer("They had been stored before.", {JSON: PublishedEventIds}),
        },
    ),
)
