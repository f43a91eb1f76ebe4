"""POST /db/api/v1/events publishes an event to a topic of the key's scope.

    curl http://127.0.0.1:8082/db/api/v1/events -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \\
        -d '{"topic": "user:updates", "data": {"name": "Ada"}}'

A topic is a room in the scope of the key. The checks are made in this order: the key (401), its publish rate (400), the
body (400), the number of events (400).
"""

from typing import Annotated

import msgspec
from aiohttp import web

from kwire.access.acl import Operation
from kwire.access.keys.key import Key
from kwire.access.quotas.kinds import QuotaKind
from kwire.access.usage.event_allowances import EventLimitReached, EventsUsed
from kwire.streams.events.event import EMPTY, NewEvent, checked_json
from kwire.streams.events.traceparent import traced
from kwire.web.answers.event_json import source_of
from kwire.web.db_events.key_clients import (
    check_rate,
    db_statuses,
    full_name,
    key_of,
    refuse_quota,
    with_limit_status,
)
from kwire.web.needs import CREATE_TOPICS, WRITE_TOPICS
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import check_is_json, checked_and_decoded_events, raw_body_of
from kwire.web.requests.body_limits import check_events
from kwire.web.requests.key_limits import CURRENT_EVENTS, EVENTS_LIMIT, events_refusal, usage_headers
from kwire.web.requests.request_ids import traceparent_of
from kwire.web.rooms.rooms import check_length, room_to_use
from kwire.web.route import JSON, Answer, Route
from kwire.web.services import DbEventServices

# The type of these events for clients of rooms and for Kafka clients.
EVENT_TYPE = "event"

TOPIC = Annotated[
    str,
    msgspec.Meta(
        max_length=249,
        pattern="^(?!__)",
        description="A name in the scope of the key. It may contain colons. Each byte of a character that Kafka does "
        "not allow counts as five characters.",
    ),
]

_encode = msgspec.json.Encoder().encode


class DbEvent(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An event, as it is published and as subscribers receive it."""

    topic: str
    data: Annotated[msgspec.Raw, msgspec.Meta(description="Any JSON value.")]


class PublishedDbEvent(msgspec.Struct, kw_only=True):
    """The stored event."""

    topic: str
    event_id: str
    offset: int


async def publish(services: DbEventServices, request: web.Request) -> web.Response:
    key = key_of(services, request)
    check_rate(services, key)
    check_is_json(request)
    raw = await raw_body_of(request)
    event = await checked_and_decoded_events(services.port.body_checks, raw, DbEvent, check_events)
    name = full_name(key, event.topic)
    access = access_of(request)
    access.authorize_room(Operation.WRITE, name)
    check_length(services.rooms, name, raw)
    new = traced(NewEvent(EVENT_TYPE, checked_json(bytes(event.data)), EMPTY), traceparent_of(request))
    with db_statuses():
        room = await room_to_use(services.rooms, access, name)
        used = await _count(services, key)
        try:
            stored = await services.rooms.publisher.publish_and_wait(room.log, source_of(room.name), (new,))
        except Exception:
            # The event of a request that was cancelled may still be stored, so it stays counted.
            if used is not None:
                services.usage.events.give_back(key.usage_id)
            raise
    services.sessions.metrics.published += 1
    answer = PublishedDbEvent(topic=event.topic, event_id=stored.event_ids[0], offset=stored.offset)
    headers = {} if used is None else usage_headers(used.used, used.limit)
    return web.Response(body=_encode(answer), content_type=JSON, headers=headers)


async def _count(services: DbEventServices, key: Key) -> EventsUsed | None:
    """Count the event against max_events; None if the key has no such limit. Raises LimitReached."""
    limit = key.limits.max_events
    if limit is None:
        return None
    try:
        return await services.usage.events.take(key.usage_id, limit)
    except EventLimitReached as error:
        services.sessions.metrics.refused_events += 1
        raise with_limit_status(events_refusal(error, has_retry_after=False)) from None


ROUTES: tuple[Route[DbEventServices], ...] = (
    Route(
        "POST",
        "/db/api/v1/events",
        publish,
        summary="Publish an event with an API key",
        description=(
            "The topic belongs to the scope of the key. An answer to a key with `max_events` has the headers "
            f"`{CURRENT_EVENTS}` and `{EVENTS_LIMIT}`. If the limit is reached, the status is 400 and the error has "
            "`resets_at`. If the key's `publish_rate` is exceeded, the status is 400, too."
        ),
        tag="db events",
        request=DbEvent,
        answers={200: Answer("Stored.", {JSON: PublishedDbEvent})},
        needs=(WRITE_TOPICS, CREATE_TOPICS),
        charges=QuotaKind.PRODUCE,
        refuse_quota=refuse_quota,
    ),
)
