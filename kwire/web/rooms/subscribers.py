"""GET /rooms/{room}/subscribers lists the subscriptions to a room on this node, oldest first."""

from typing import Annotated, Literal, Protocol, runtime_checkable

import msgspec
from aiohttp import web

from kwire.access.acl import Operation
from kwire.access.principal import Principal
from kwire.streams.events.event import time_text
from kwire.streams.subscriptions import Subscription
from kwire.web.needs import DESCRIBE_ROOM
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import json_answer, query_of
from kwire.web.rooms.rooms import ROOM
from kwire.web.route import Route
from kwire.web.services import RoomServices

SUBSCRIBERS_MAX = 1000
SUBSCRIBERS_DEFAULT = 100


@runtime_checkable
class ClientSink(Protocol):
    """A sink that is the connection of a client."""

    @property
    def protocol(self) -> str: ...

    @property
    def principal(self) -> Principal: ...


class SubscribersQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=SUBSCRIBERS_MAX)] = SUBSCRIBERS_DEFAULT


class Subscriber(msgspec.Struct, kw_only=True):
    """A subscription. `protocol` is websocket, sse or ndjson. `principal` is null for clients that may not describe the
    cluster. `lag` is the number of events after its position. `types` is null if all types are delivered."""

    subscription_id: str
    protocol: str
    principal: str | None
    subscribed_at: str
    state: Annotated[
        Literal["live", "reading"], msgspec.Meta(description="reading: the subscriber still reads stored events.")
    ]
    next_offset: int
    lag: int
    on_lag: str
    types: list[str] | None


class SubscriberList(msgspec.Struct, kw_only=True):
    """The oldest `limit` subscriptions of a room. `subscriber_count` is the number of all of them."""

    subscribers: list[Subscriber]
    subscriber_count: int


async def list_subscribers(services: RoomServices, request: web.Request) -> web.Response:
    query = query_of(request, SubscribersQuery)
    room = await services.rooms.find(request.match_info["room"])
    await room.log.ready()
    is_principal_shown = access_of(request).allows_cluster(Operation.DESCRIBE)
    end = room.log.bounds().committed_end
    found = sorted(services.subscriptions.of_log(room.log), key=lambda one: one.subscribed_at_ms)
    listed = [_shown(one, end, is_principal_shown) for one in found[: query.limit]]
    return json_answer(SubscriberList(subscribers=listed, subscriber_count=len(found)))


def _shown(one: Subscription, end: int, is_principal_shown: bool) -> Subscriber:
    client = one.sink if isinstance(one.sink, ClientSink) else None
    return Subscriber(
        subscription_id=one.id,
        protocol="internal" if client is None else client.protocol,
        principal=str(client.principal) if client is not None and is_principal_shown else None,
        subscribed_at=time_text(one.subscribed_at_ms),
        state="live" if one.is_live else "reading",
        next_offset=one.position,
        lag=max(0, end - one.position),
        on_lag=one.on_lag.value,
        types=None if one.types is None else sorted(one.types),
    )


ROUTES: tuple[Route[RoomServices], ...] = (
    Route(
        "GET",
        "/rooms/{room}/subscribers",
        list_subscribers,
        summary="List the subscriptions to a room",
        tag="rooms",
        query=SubscribersQuery,
        parameters={"room": ROOM},
        answers={200: SubscriberList},
        needs=(DESCRIBE_ROOM,),
    ),
)
