"""POST /events: publish one event or an array of events, to one or many topics, atomically.

The request is answered when the events are durable and can be read. The answer has `eventIds`, in the order of the
request. A client may send a request again if the answer was lost. The events are stored only once if the request has a
header `Idempotency-Key`, or if every event has an `eventId` chosen by the client. The second request is then answered
with the ids of the first request and status 200.
"""

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from aiohttp import web

from kwire.access.acl import Operation
from kwire.access.quotas.kinds import QuotaKind
from kwire.access.scope import prefix_of
from kwire.errors import StreamError
from kwire.streams.event_store.drafts import EVENTS_MAX, EventDraft
from kwire.streams.events.event import EMPTY, EVENT_ID_BYTES_MAX, TYPE_BYTES_MAX
from kwire.streams.events.json_text import checked_json
from kwire.streams.events.traceparent import traced_metadata
from kwire.web.answers.errors import BadRequest
from kwire.web.answers.event_json import MetadataName
from kwire.web.needs import WRITE_TOPICS
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.requests.bodies import check_is_json, checked_and_decoded_events, json_answer, raw_body_of
from kwire.web.requests.body_limits import check_stored_events
from kwire.web.requests.key_limits import CountedEvents
from kwire.web.requests.origin_policy import check_name
from kwire.web.requests.request_ids import traceparent_of
from kwire.web.route import JSON, Answer, Route
from kwire.web.services import EventStoreServices
from kwire.web.topics.chunk_budget import ChunkBudget

IDEMPOTENCY_KEY = "Idempotency-Key"
KEY: Any = Annotated[
    str,
    msgspec.Meta(
        description="1 to 256 bytes, chosen by the client. The same request with the same key is stored once."
    ),
]
TOPIC_LENGTH_MAX = 249
VERSION_MAX = 2**63 - 1
_DIGEST_BYTES = 32

# Creating a named tuple with this function takes half the time of the class's constructor.
_new_tuple = tuple.__new__


class EventToPublish(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """An event to publish. `payload` must match the topic's schema for this `type`."""

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
                description="An id chosen by the client, stored as `ce_id`. If every event has one, the request can be "
                "repeated.",
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
                description="The version of the event that must precede this one in its topic; -1: none.",
            ),
        ]
        | None
    ) = None


MANY: Any = Annotated[list[EventToPublish], msgspec.Meta(min_length=1, max_length=EVENTS_MAX)]
ONE_OR_MANY: Any = EventToPublish | MANY


class PublishedEventIds(msgspec.Struct, kw_only=True, rename="camel"):
    """The ids of the events, in the order of the request."""

    event_ids: list[str]


async def publish(services: EventStoreServices, request: web.Request) -> web.Response:
    check_is_json(request)
    raw = await raw_body_of(request)
    asked: EventToPublish | list[EventToPublish] = await checked_and_decoded_events(
        services.port.body_checks, raw, ONE_OR_MANY, check_stored_events
    )
    access = access_of(request)
    events = [asked] if isinstance(asked, EventToPublish) else asked
    drafts = await _drafts(services, access, events, traceparent_of(request))
    key = _given_key(request, access)
    if key is None:
        key = _key_of_ids(drafts)
    async with CountedEvents(access, len(drafts)) as counted:
        committed = await services.commands.commit(drafts, idempotency_key=key)
        if committed.is_repeated:
            counted.give_back(len(drafts))
    ids = [access.shown(one) for one in committed.event_ids]
    return json_answer(PublishedEventIds(event_ids=ids), status=200 if committed.is_repeated else 201)


async def _drafts(
    services: EventStoreServices, access: RequestAccess, asked: Sequence[EventToPublish], traceparent: str | None
) -> list[EventDraft]:
    """Check all events before any of them is stored, and convert them to drafts."""
    if access.is_restricted:
        # All rights are checked first, so that an error about one topic reveals nothing to clients without rights.
        for name in dict.fromkeys(one.topic for one in asked):
            check_name(name)
            access.authorize_topic(Operation.WRITE, access.full_name(name))
        for one in asked:
            one.topic = access.full_name(one.topic)
    drafts: list[EventDraft] = []
    bytes_max: dict[str, int] = {}
    budget = ChunkBudget()
    for index, one in enumerate(asked):
        try:
            if one.topic not in bytes_max:
                check_name(one.topic)
                bytes_max[one.topic] = services.event_store.event_topic(one.topic).max_message_bytes
            drafts.append(_draft(one, bytes_max[one.topic], traceparent))
        except StreamError as error:
            error.details["index"] = index
            raise
        if budget.is_spent(len(drafts[-1].payload)):
            await asyncio.sleep(0)
    return drafts


def _draft(one: EventToPublish, bytes_max: int, traceparent: str | None) -> EventDraft:
    return _new_tuple(
        EventDraft,
        (
            one.topic,
            one.type,
            checked_json(bytes(one.payload), "payload", bytes_max),
            traced_metadata(one.metadata or EMPTY, traceparent),
            None if one.key is None else one.key.encode(),
            one.event_id,
            one.expected_version,
        ),
    )


def _given_key(request: web.Request, access: RequestAccess) -> str | None:
    """Return the full name of the key in the header Idempotency-Key, without enclosing double quotes; None if the
    header is absent. The event store refuses an invalid key."""
    text = request.headers.get(IDEMPOTENCY_KEY)
    if text is None:
        return None
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if access.scope is None and prefix_of(text):
        # Otherwise a client without a scope could find out which keys a tenant has used.
        raise BadRequest("the idempotency key must not start with the prefix of a scope")
    return access.full_name(text)


def _key_of_ids(drafts: Sequence[EventDraft]) -> str | None:
    """Return an idempotency key computed from the topics and ids of the events; None if an event has no id. Requests
    with the same ids have the same key."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for draft in drafts:
        if draft.event_id is None:
            return None
        for text in (draft.topic, draft.event_id):
            raw = text.encode(errors="surrogatepass")
            digest.update(len(raw).to_bytes(4) + raw)
    return f"event-ids:{digest.hexdigest()}"


ROUTES: tuple[Route[EventStoreServices], ...] = (
    Route(
        "POST",
        "/events",
        publish,
        summary="Publish events to one or many topics, atomically",
        description=(
            "All events are stored, or none: an event that does not match its schema, a topic that does not exist or a "
            "wrong `expectedVersion` (409) refuses the whole request. `index` in an error is the index of the event in "
            "the array.\n\n"
            "With a header `Idempotency-Key`, or an `eventId` on each event, the same request can be sent again: it is "
            "stored once and answered with the same ids. The same key with other events is refused with 409."
        ),
        tag="events",
        request=ONE_OR_MANY,
        headers={IDEMPOTENCY_KEY: KEY},
        answers={
            201: Answer("Stored.", {JSON: PublishedEventIds}),
            200: Answer("The same request was stored before.", {JSON: PublishedEventIds}),
        },
        needs=(WRITE_TOPICS,),
        charges=QuotaKind.PRODUCE,
    ),
)
