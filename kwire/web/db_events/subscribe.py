"""GET /db/api/v1/events/subscribe?topic=TOPIC opens a WebSocket with the new events of a topic of the key's scope.

Everything that can fail is checked before the slot is taken, and the slot is released whenever the connection ends: the
key (401), its rate (400), the topic and the handshake (400), the connections of this node (503), the slot (503).
"""

import asyncio

import msgspec
from aiohttp import web

from kwire.access.acl import Operation, ResourceType
from kwire.access.keys.key import Key
from kwire.access.quotas.kinds import QuotaKind
from kwire.access.usage.subscription_slots import Slot, SlotDenied, SlotsUnavailable
from kwire.streams.rooms.names import topic_of_room
from kwire.streams.subscriptions import FROM_NEWEST
from kwire.web.answers.errors import BadRequest
from kwire.web.db_events.event_session import OPTIONS, EventSession
from kwire.web.db_events.key_clients import Unavailable, check_rate, db_statuses, full_name, key_of, refuse_quota
from kwire.web.db_events.publish import TOPIC
from kwire.web.needs import CREATE_TOPICS, READ_TOPICS
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import query_of
from kwire.web.rooms.rooms import room_to_use
from kwire.web.route import Route
from kwire.web.services import DbEventServices
from kwire.web.streaming.stream_requests import accept_of_request, is_upgrade, upgrade
from kwire.web.streaming.streaming import Outlet, Session, check_streamable


class DbSubscribeQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    topic: TOPIC = ""


async def subscribe(services: DbEventServices, request: web.Request) -> web.StreamResponse:
    key = key_of(services, request)
    check_rate(services, key)
    topic = query_of(request, DbSubscribeQuery).topic
    name = full_name(key, topic)
    access = access_of(request)
    access.hold(Operation.READ, ResourceType.TOPIC, topic_of_room(name))
    if not is_upgrade(request):
        raise BadRequest(
            "this path needs a WebSocket: send Connection: Upgrade and Upgrade: websocket", code="NotWebSocket"
        )
    check_streamable(request)
    accept_of_request(request)
    if not services.sessions.enter():
        raise Unavailable(
            f"this node has {services.sessions.connections_max} subscriptions, which is the maximum",
            code="TooManyConnections",
            limit=services.sessions.connections_max,
        )
    try:
        return await _subscribe(services, request, key, topic, name)
    finally:
        services.sessions.leave()


async def _subscribe(
    services: DbEventServices, request: web.Request, key: Key, topic: str, name: str
) -> web.StreamResponse:
    access, sessions = access_of(request), services.sessions
    session = EventSession(sessions, access, key.id, topic)
    with db_statuses():
        room = await room_to_use(services.rooms, access, name)
        subscription = await services.rooms.subscriptions.subscribe(topic, room.log, FROM_NEWEST, session, OPTIONS)
    try:
        slot = await _slot(services, key)
        try:
            topic_sessions = sessions.register(session, room.log, subscription.position)

            def open_session(outlet: Outlet) -> Session:
                now = asyncio.get_running_loop().time()
                return session.open_subscribed(outlet, subscription, topic_sessions, now)

            return await upgrade(services.port, request, open_session)
        finally:
            sessions.unregister(session, room.log)
            services.slots.release(slot)
    finally:
        subscription.close()


async def _slot(services: DbEventServices, key: Key) -> Slot:
    """Take a slot. Raises Unavailable."""
    try:
        with db_statuses():
            return await services.slots.request(key)
    except SlotDenied as error:
        services.sessions.metrics.refused_slots += 1
        raise denied(error) from None
    except SlotsUnavailable as error:
        raise Unavailable(str(error), code="SlotsUnavailable") from None


def denied(error: SlotDenied) -> Unavailable:
    return Unavailable(
        str(error),
        code="TooManySubscriptions",
        current_subscriptions=error.used,
        subscriptions_limit=error.limit,
    )


ROUTES: tuple[Route[DbEventServices], ...] = (
    Route(
        "GET",
        "/db/api/v1/events/subscribe",
        subscribe,
        summary="Subscribe to a topic with an API key",
        description=(
            'A WebSocket with the new events of the topic, each as `{"topic", "data"}`. The subscription takes one '
            "of the key's `max_subscriptions`; without a free one, or if the node has too many connections, the status "
            "is 503. The close frame of a subscription that the server ends has a reason and the last offset."
        ),
        tag="db events",
        query=DbSubscribeQuery,
        answers={101: None},
        is_streaming=True,
        needs=(READ_TOPICS, CREATE_TOPICS),
        charges=QuotaKind.CONSUME,
        refuse_quota=refuse_quota,
    ),
)
