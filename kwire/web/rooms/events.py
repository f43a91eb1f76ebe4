"""POST /rooms/{room}/events: publish one event, an array of them, or a stream of lines (room_lines.py).
GET /rooms/{room}/events: the room's history. GET /rooms/{room}/events/{offset}: one event.

An array is stored whole or not at all, and its events follow each other. What is answered is as durable as the room
promises. History includes both ends of the range; it is read in portions, and an answer that would become too large
ends early: `next_offset` says where to go on.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import msgspec
from aiohttp import web

from kwire.broker.events.counting_back import offset_of_last
from kwire.broker.events.event import NewEvent
from kwire.broker.events.reading import PORTION_BYTES, PORTION_EVENTS, newest_offset, oldest_offset, read_events
from kwire.broker.rooms.rooms import Room
from kwire.errors import EventNotFound, InvalidEvent, KafkaError, OffsetOutOfRange
from kwire.web.bodies import check_is_json, checked_and_decoded, number_in_path, query_of, raw_body_of
from kwire.web.body_bounds import check_events, check_objects
from kwire.web.event_json import PublishedEvent, ShownEvent, event_lines, new_event, source_of
from kwire.web.rooms.lines import LINE_TYPES, LineAnswer, LinesQuery, publish_lines
from kwire.web.rooms.rooms import ROOM, check_length, room_to_publish
from kwire.web.route import JSON, NDJSON, Answer, AnyOf, Route
from kwire.web.services import WebServices

# Of one array: what is decoded and stored in one turn of the loop. More comes as lines.
ARRAY_EVENTS_MAX = 1000
HISTORY_EVENTS_DEFAULT = 100
HISTORY_EVENTS_MAX = 10_000
HISTORY_BYTES_MAX = 8 * 1024 * 1024
OFFSET_MAX = 2**63 - 1

EventArray = Annotated[list[PublishedEvent], msgspec.Meta(min_length=1, max_length=ARRAY_EVENTS_MAX)]

_encode = msgspec.json.Encoder().encode


class Stored(msgspec.Struct, kw_only=True):
    """One event is stored."""

    event_id: str
    offset: int
    subscribers_notified: int


class StoredArray(msgspec.Struct, kw_only=True):
    """An array is stored: the first event at `offset`, the others right behind it."""

    offset: int
    count: int
    event_ids: Sequence[str]
    subscribers_notified: int


class HistoryPage(msgspec.Struct, kw_only=True):
    """`next_offset` is where the events behind these begin."""

    events: list[ShownEvent]
    oldest_offset: int
    newest_offset: int
    next_offset: int


class HistoryQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which events; both ends are included."""

    from_offset: (
        Annotated[
            int,
            msgspec.Meta(
                ge=-OFFSET_MAX,
                le=OFFSET_MAX,
                description="0, or nothing, is the oldest there is; -N is N events back from the end.",
            ),
        ]
        | None
    ) = None
    to_offset: Annotated[int, msgspec.Meta(ge=-1, le=OFFSET_MAX, description="Left out: the newest.")] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=HISTORY_EVENTS_MAX)] = HISTORY_EVENTS_DEFAULT


class HistoryPart(msgspec.Struct):
    """Events as they are shown, each one JSON text, and what else history tells."""

    lines: list[bytes]
    oldest_offset: int
    newest_offset: int
    next_offset: int

    def encoded(self) -> bytes:
        return b'{"events":[%b],"oldest_offset":%d,"newest_offset":%d,"next_offset":%d}' % (
            b",".join(self.lines),
            self.oldest_offset,
            self.newest_offset,
            self.next_offset,
        )


async def publish(services: WebServices, request: web.Request) -> web.StreamResponse:
    if request.content_type in LINE_TYPES:
        return await publish_lines(services, request, query_of(request, LinesQuery))
    if request.query_string:
        query_of(request, LinesQuery)
    check_is_json(request)
    raw = await raw_body_of(request)
    check_objects(raw)
    check_length(services, request.match_info["room"], raw)
    is_array = raw[:64].lstrip()[:1] == b"["
    if is_array:
        events = list(_new_events(checked_and_decoded(raw, EventArray, check_events)))
    else:
        events = [new_event(checked_and_decoded(raw, PublishedEvent, check_events))]
    room = await room_to_publish(services, request.match_info["room"])
    offset, event_ids = await services.publisher.publish_and_wait(room.partition, source_of(room.name), events)
    notified = services.subscriptions.count_of(room.partition)
    answer: Stored | StoredArray
    if is_array:
        answer = StoredArray(offset=offset, count=len(events), event_ids=event_ids, subscribers_notified=notified)
    else:
        answer = Stored(event_id=event_ids[0], offset=offset, subscribers_notified=notified)
    return web.Response(body=_encode(answer), status=201, content_type=JSON)


def _new_events(published: Iterable[PublishedEvent]) -> Iterator[NewEvent]:
    for index, one in enumerate(published):
        try:
            yield new_event(one)
        except InvalidEvent as error:
            raise InvalidEvent(f"events[{index}]: {error.message}") from None


async def history(services: WebServices, request: web.Request) -> web.Response:
    query = query_of(request, HistoryQuery)
    room = services.rooms.get(request.match_info["room"])
    part = await history_of(services, room, query.from_offset, query.to_offset, query.limit)
    if _wants_lines(request):
        body = b"".join([line + b"\n" for line in part.lines])
        return web.Response(body=body, content_type=NDJSON, headers={"X-Next-Offset": str(part.next_offset)})
    return web.Response(body=part.encoded(), content_type=JSON)


async def one_event(services: WebServices, request: web.Request) -> web.Response:
    offset = number_in_path(request, "offset")
    room = services.rooms.get(request.match_info["room"])
    try:
        events = await read_events(room.partition, offset, 1, services.reads, to_offset=offset)
    except OffsetOutOfRange:
        events = []
    if not events or events[0].offset != offset:
        raise EventNotFound(offset)
    (line,) = event_lines(room.name, events)
    return web.Response(body=line, content_type=JSON)


async def history_of(
    services: WebServices, room: Room, from_offset: int | None, to_offset: int | None, limit: int
) -> HistoryPart:
    """Raises OffsetOutOfRange for a start that retention has taken; one beyond the end is simply empty."""
    partition = room.partition
    if from_offset is not None and from_offset < 0:
        start = await offset_of_last(partition, -from_offset, services.reads)
        # Others had their turn meanwhile.
        oldest, newest = oldest_offset(partition), newest_offset(partition)
        start = max(start, oldest)
    else:
        oldest, newest = oldest_offset(partition), newest_offset(partition)
        start = from_offset or oldest
    if start < oldest:
        raise OffsetOutOfRange(start, oldest, newest)
    end = newest if to_offset is None else min(newest, to_offset)
    part = HistoryPart([], oldest, newest, start)
    size_bytes = 0
    while part.next_offset <= end and len(part.lines) < limit and size_bytes < HISTORY_BYTES_MAX:
        count = min(PORTION_EVENTS, limit - len(part.lines))
        try:
            events = await read_events(
                partition, part.next_offset, count, services.reads, to_offset=end, bytes_max=PORTION_BYTES
            )
        except (KafkaError, OffsetOutOfRange):
            # What was read is told; who goes on from there is told what is wrong.
            if part.lines:
                break
            raise
        if not events:
            part.next_offset = end + 1
            break
        lines = event_lines(room.name, events)
        size_bytes += sum(map(len, lines))
        part.lines += lines
        part.next_offset = events[-1].offset + 1
        await asyncio.sleep(0)
    return part


def _wants_lines(request: web.Request) -> bool:
    accepted = request.headers.get("Accept", "")
    return any(one.partition(";")[0].strip() in LINE_TYPES for one in accepted.split(","))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/rooms/{room}/events",
        publish,
        summary="Publish an event, an array of events, or a stream of them",
        description=(
            "The room is made if there is none. An array is stored whole or not at all.\n\n"
            "As `application/x-ndjson` the body is read as it comes, one event a line, and each line is answered by a "
            "line while the request goes on: its offset, or its error. Read the answers while you send, or ask for "
            "`answers=errors`."
        ),
        tag="rooms",
        request=AnyOf((PublishedEvent, EventArray)),
        more_requests={NDJSON: PublishedEvent},
        query=LinesQuery,
        parameters={"room": ROOM},
        answers={
            201: Answer("Stored.", {JSON: AnyOf((Stored, StoredArray))}),
            200: Answer("A line for each line.", {NDJSON: LineAnswer}),
        },
    ),
    Route(
        "GET",
        "/rooms/{room}/events",
        history,
        summary="What was published",
        description="With `Accept: application/x-ndjson` the events come as lines.",
        tag="rooms",
        query=HistoryQuery,
        parameters={"room": ROOM},
        answers={200: Answer("Events, oldest first.", {JSON: HistoryPage, NDJSON: ShownEvent})},
    ),
    Route(
        "GET",
        "/rooms/{room}/events/{offset}",
        one_event,
        summary="One event",
        tag="rooms",
        parameters={"room": ROOM, "offset": Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]},
        answers={200: ShownEvent},
    ),
)
