"""GET /rooms lists the rooms. PUT /rooms/{room} creates a room or changes its retention. GET /rooms/{room} describes a
room. DELETE /rooms/{room} deletes a room.

The first publish or subscribe request also creates its room. A PUT is needed only for a retention other than the
default.
"""

import asyncio
from typing import Annotated, Literal

import msgspec
from aiohttp import web

from kwire.access.acl import Operation
from kwire.access.quotas.kinds import QuotaKind
from kwire.errors import EventTooLarge, RoomNotFound
from kwire.streams.events.event import time_text
from kwire.streams.rooms.interface import OpenRoom, RoomsPage, RoomStats
from kwire.streams.rooms.names import topic_of_room
from kwire.streams.rooms.settings import RoomOverrides
from kwire.web.needs import ALTER_CONFIGS_OF_TOPICS, CREATE_TOPICS, DELETE_ROOM, DESCRIBE_ROOM, DESCRIBE_TOPICS
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.requests.bodies import check_is_json, decoded, json_answer, query_of, raw_body_of
from kwire.web.requests.quotas import charge_partitions
from kwire.web.route import Route
from kwire.web.services import RoomServices

PAGE_ROOMS_MAX = 1000
PAGE_ROOMS_DEFAULT = 100
# The handler yields to the event loop after checking the rights on this many rooms. Each takes some microseconds.
ROOMS_PER_CHUNK = 200
NUMBER_MAX = 2**63 - 1
HOURS_MAX = 1_000_000

ROOM = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=249,
        pattern="^(?!__)",
        description="Any text that does not start with `__`. Its topic name may have at most 249 characters; each byte "
        "of a character that Kafka does not allow is encoded as five characters.",
    ),
]


class RoomsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[
        str,
        msgspec.Meta(description="Only rooms that sort after this one.", extra_json_schema={"pattern": "^(?!__)"}),
    ] = ""
    prefix: Annotated[str, msgspec.Meta(description="Only rooms with this prefix.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_ROOMS_MAX)] = PAGE_ROOMS_DEFAULT


class ListedRoom(msgspec.Struct, kw_only=True):
    """A room in a list. `event_count`, `newest_offset` and `last_event_at` are null if the room has not been used for a
    while: listing rooms opens no log. `GET /rooms/{room}` always has them."""

    room: str
    subscribers: int
    created_at: str | None
    event_count: int | None
    newest_offset: int | None
    last_event_at: str | None


class RoomList(msgspec.Struct, kw_only=True):
    """A page of rooms. `next` is the `after` of the next page, null on the last page. `room_count` is null for clients
    that may not describe the cluster."""

    rooms: list[ListedRoom]
    room_count: int | None
    next: str | None


class RoomSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The retention to set for a room. For absent fields, an existing room keeps its values and a new room has the
    server's defaults."""

    retention_mode: Annotated[
        Literal["time", "count", "hybrid", "infinite"] | None,
        msgspec.Meta(description="By age, by number of events, by both (the stricter one applies), or forever."),
    ] = None
    retention_hours: Annotated[float, msgspec.Meta(gt=0, le=HOURS_MAX)] | None = None
    max_events: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)] | None = None


class Retention(msgspec.Struct, kw_only=True):
    """The retention of a room. A limit that is null does not apply."""

    mode: str
    hours: float | None
    max_events: int | None


class RoomDescription(msgspec.Struct, kw_only=True):
    """A room. Offsets are valid only for one `epoch`: a room that was deleted and created again has another epoch."""

    room: str
    topic: str
    epoch: str
    is_room: bool
    created_at: str | None
    last_event_at: str | None
    oldest_offset: int
    newest_offset: int
    event_count: int
    size_bytes: int
    subscribers: int
    retention: Retention


class RoomDeleted(msgspec.Struct, kw_only=True):
    success: bool
    room: str


async def list_rooms(services: RoomServices, request: web.Request) -> web.Response:
    query = query_of(request, RoomsQuery)
    access = access_of(request)
    page = await _visible_page(services, access, query) if access.is_restricted else _page(services, query)
    listed = [one for name in page.names if (one := _listed(services, access, name)) is not None]
    count = services.rooms.count if access.allows_cluster(Operation.DESCRIBE) else None
    return json_answer(RoomList(rooms=listed, room_count=count, next=_shown_or_none(access, page.next)))


def _page(services: RoomServices, query: RoomsQuery) -> RoomsPage:
    return services.rooms.list(query.after, query.limit, query.prefix)


async def _visible_page(services: RoomServices, access: RequestAccess, query: RoomsQuery) -> RoomsPage:
    """Return a page of the rooms that the client may describe. `next` is one of these rooms, too, so that it does not
    reveal the name of another room."""
    names: list[str] = []
    after: str | None = access.full_name(query.after) if query.after else ""
    prefix = access.full_name(query.prefix)
    while after is not None:
        page = services.rooms.list(after, ROOMS_PER_CHUNK, prefix)
        for name in page.names:
            if access.allows_room(Operation.DESCRIBE, name):
                if len(names) == query.limit:
                    return RoomsPage(names, names[-1])
                names.append(name)
        after = page.next
        await asyncio.sleep(0)
    return RoomsPage(names, None)


async def put_room(services: RoomServices, request: web.Request) -> web.Response:
    raw = await raw_body_of(request)
    settings = RoomSettings()
    if raw:
        check_is_json(request)
        settings = decoded(raw, RoomSettings)
    overrides = RoomOverrides(settings.retention_mode, settings.retention_hours, settings.max_events)
    name = request.match_info["room"]
    access = access_of(request)
    is_existing = await _exists(services, name)
    _authorize_put(access, name, overrides, is_existing=is_existing)
    if not is_existing:
        charge_partitions(services.port.quotas, access, 1)
    is_new = await services.commands.create(name, overrides)
    return json_answer(_description(access, await services.rooms.describe(name)), 201 if is_new else 200)


def _authorize_put(access: RequestAccess, name: str, overrides: RoomOverrides, *, is_existing: bool) -> None:
    """Check the right to create the room, or to change or describe the existing one. A client without any of these
    rights does not learn whether the room exists."""
    if not access.is_restricted:
        return
    topic = topic_of_room(name)
    wanted = Operation.DESCRIBE if overrides.is_empty else Operation.ALTER_CONFIGS
    if not is_existing:
        access.authorize_creation(topic)
        return
    if not access.allows_topic(wanted, topic):
        access.authorize_creation(topic)
        access.authorize_topic(wanted, topic)


async def _exists(services: RoomServices, name: str) -> bool:
    try:
        await services.rooms.find(name)
    except RoomNotFound:
        return False
    return True


async def get_room(services: RoomServices, request: web.Request) -> web.Response:
    return json_answer(_description(access_of(request), await services.rooms.describe(request.match_info["room"])))


async def delete_room(services: RoomServices, request: web.Request) -> web.Response:
    name = request.match_info["room"]
    access = access_of(request)
    if await _exists(services, name):
        charge_partitions(services.port.quotas, access, 1)
    await services.commands.delete(name)
    return json_answer(RoomDeleted(success=True, room=access.shown(name)))


async def room_to_use(services: RoomServices, access: RequestAccess, name: str) -> OpenRoom:
    """Return the room; create it if it does not exist and the client may create it. For a room in memory this function
    does not wait."""
    try:
        return await services.rooms.find(name)
    except RoomNotFound:
        if services.rooms.config.is_auto_create:
            access.authorize_room_creation(name)
            charge_partitions(services.port.quotas, access, 1)
        return await services.rooms.get_or_create(name)


def check_length(services: RoomServices, name: str, raw: bytes) -> None:
    """Raise EventTooLarge if the body is larger than the largest record batch that the room accepts. Called before the
    body is decoded."""
    try:
        limit = services.rooms.get(name).log.max_batch_bytes
    except RoomNotFound:
        limit = services.port.config.values.number("message.max.bytes")
    if len(raw) > limit:
        raise EventTooLarge(len(raw), limit)


def _shown_or_none(access: RequestAccess, name: str | None) -> str | None:
    return None if name is None else access.shown(name)


def _listed(services: RoomServices, access: RequestAccess, name: str) -> ListedRoom | None:
    """Return the room's entry in the list; None if the room is being deleted."""
    seen = services.rooms.summary(name)
    if seen is None:
        return None
    return ListedRoom(
        room=access.shown(name),
        subscribers=seen.subscriber_count,
        created_at=_time(seen.created_at_ms),
        event_count=seen.event_count,
        newest_offset=seen.newest_offset,
        last_event_at=_time(seen.last_event_at_ms),
    )


def _description(access: RequestAccess, stats: RoomStats) -> RoomDescription:
    return RoomDescription(
        room=access.shown(stats.name),
        topic=access.shown(stats.topic),
        epoch=stats.epoch,
        is_room=stats.is_room,
        created_at=_time(stats.created_at_ms),
        last_event_at=_time(stats.last_event_at_ms),
        oldest_offset=stats.oldest_offset,
        newest_offset=stats.newest_offset,
        event_count=stats.event_count,
        size_bytes=stats.size_bytes,
        subscribers=stats.subscriber_count,
        retention=Retention(
            mode=stats.retention.mode, hours=stats.retention.hours, max_events=stats.retention.max_events
        ),
    )


def _time(timestamp_ms: int | None) -> str | None:
    return None if timestamp_ms is None or timestamp_ms < 0 else time_text(timestamp_ms)


ROUTES: tuple[Route[RoomServices], ...] = (
    Route(
        "GET",
        "/rooms",
        list_rooms,
        summary="List the rooms, sorted by their topic names",
        tag="rooms",
        query=RoomsQuery,
        answers={200: RoomList},
        needs=(DESCRIBE_TOPICS,),
    ),
    Route(
        "PUT",
        "/rooms/{room}",
        put_room,
        summary="Create a room, or change its retention",
        tag="rooms",
        request=RoomSettings,
        parameters={"room": ROOM},
        answers={200: RoomDescription, 201: RoomDescription},
        needs=(CREATE_TOPICS, ALTER_CONFIGS_OF_TOPICS, DESCRIBE_TOPICS),
        charges=QuotaKind.MUTATION,
    ),
    Route(
        "GET",
        "/rooms/{room}",
        get_room,
        summary="Describe a room: offsets, size, subscribers and retention",
        tag="rooms",
        parameters={"room": ROOM},
        answers={200: RoomDescription},
        needs=(DESCRIBE_ROOM,),
    ),
    Route(
        "DELETE",
        "/rooms/{room}",
        delete_room,
        summary="Delete a room and all its events",
        tag="rooms",
        parameters={"room": ROOM},
        answers={200: RoomDeleted},
        needs=(DELETE_ROOM,),
        charges=QuotaKind.MUTATION,
    ),
)
