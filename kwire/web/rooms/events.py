"""POST /rooms/{room}/events: publish one event, an array of them, or a stream of lines (room_lines.py).
GET /rooms/{room}/events: the room's history. GET /rooms/{room}/events/{offset}: one event.

An array is stored whole or not at all, and its events follow each other. What is answered is as durable as the room
promises. History includes both ends of the range; it is read in portions, and an answer that would become too large
ends early: `next_offset` says where to go on.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Annotated

import msgspec
from aiohttp import web

from kwire.broker.events.counting_back import offset_of_last
from kwire.broker.events.event import NewEvent
from kwire.broker.events.reading import PORTION_EVENTS, read_events
from kwire.broker.rooms.rooms import Room
from kwire.errors import EventNotFound, InvalidEvent, KafkaError, OffsetOutOfRange
from kwire.web.bodies import check_is_json, checked_and_decoded, number_in_path, query_of, raw_body_of
from kwire.web.body_bounds import check_events, check_objects
from kwire.web.event_json import PublishedEvent, ShownEvent, event_lines, new_event, source_of
from kwire.web.large_answers import PIECE_BYTES, Parts, PartSizes, stream_answer
from kwire.web.memory import MemoryExhausted
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
NEXT_OFFSET = "X-Next-Offset"

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
    offset, event_ids = await services.publisher.publish_and_wait(room.log, source_of(room.name), events)
    notified = services.subscriptions.count_of(room.log)
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


async def history(services: WebServices, request: web.Request) -> web.StreamResponse:
    query = query_of(request, HistoryQuery)
    room = services.rooms.get(request.match_info["room"])
    found = await history_of(services, room, query.from_offset, query.to_offset, query.limit)
    if not _wants_lines(request):
        return await stream_answer(request, found.json(), JSON)
    # The header comes before the events: where they are too many to be kept, they are read twice.
    kept: list[bytes] = []
    size_bytes = 0
    async with aclosing(found.ndjson()) as parts:
        async for part in parts:
            size_bytes += len(part)
            if size_bytes <= PIECE_BYTES:
                kept.append(part)
            else:
                kept.clear()
    headers = {NEXT_OFFSET: str(found.next_offset)}
    if size_bytes <= PIECE_BYTES:
        return web.Response(body=b"".join(kept), content_type=NDJSON, headers=headers)
    return await stream_answer(request, found.again().ndjson(), NDJSON, headers)


async def one_event(services: WebServices, request: web.Request) -> web.Response:
    offset = number_in_path(request, "offset")
    room = services.rooms.get(request.match_info["room"])
    try:
        events = await read_events(room.log, offset, 1, to_offset=offset)
    except OffsetOutOfRange:
        events = []
    if not events or events[0].offset != offset:
        raise EventNotFound(offset)
    (line,) = event_lines(room.name, events)
    return web.Response(body=line, content_type=JSON)


class RoomHistory:
    """Events of a room from `next_offset` up to `end`, at most `limit`, to be read once."""

    def __init__(self, services: WebServices, room: Room, start: int, end: int, limit: int) -> None:
        self._services = services
        self._room = room
        self._start = self.next_offset = start
        self._end = end
        self._limit = limit
        # Set for a second reading, which has to end where the first one did.
        self._expected_offset: int | None = None
        bounds = room.log.bounds()
        self.oldest_offset, self.newest_offset = bounds.start, bounds.newest

    def again(self) -> "RoomHistory":
        """The same events once more, now that it is known where they end."""
        other = RoomHistory(self._services, self._room, self._start, self.next_offset - 1, self._limit)
        other._expected_offset = self.next_offset
        return other

    async def json(self) -> Parts:
        """A HistoryPage."""
        front = b'{"events":['
        async with aclosing(self._portions()) as portions:
            async for lines in portions:
                part = front + b",".join(lines)
                # A client that does not take the part holds it, and not its lines as well.
                lines.clear()
                yield part
                front = b","
        yield b'%b],"oldest_offset":%d,"newest_offset":%d,"next_offset":%d}' % (
            front if front != b"," else b"",
            self.oldest_offset,
            self.newest_offset,
            self.next_offset,
        )

    async def ndjson(self) -> Parts:
        async with aclosing(self._portions()) as portions:
            async for lines in portions:
                part = b"\n".join([*lines, b""])
                lines.clear()
                yield part
        if self._expected_offset not in (None, self.next_offset):
            raise ConnectionResetError(f"offset {self.next_offset} of {self._room.name!r} can no longer be read")

    async def _portions(self) -> AsyncGenerator[list[bytes], None]:
        left = self._limit
        sizes = PartSizes(self._services)
        size_bytes = 0
        try:
            while self.next_offset <= self._end and left > 0 and size_bytes < HISTORY_BYTES_MAX:
                try:
                    events = await read_events(
                        self._room.log,
                        self.next_offset,
                        min(PORTION_EVENTS, left),
                        to_offset=self._end,
                        bytes_max=await sizes.next_bytes_max(),
                    )
                    sizes.check(events)
                except (KafkaError, OffsetOutOfRange, MemoryExhausted):
                    # The page ends here; the error is reported to the next request, which starts at the failing offset.
                    if size_bytes:
                        return
                    raise
                if not events:
                    self.next_offset = self._end + 1
                    return
                left -= len(events)
                self.next_offset = events[-1].offset + 1
                lines = event_lines(self._room.name, events)
                del events
                size_bytes += sum(map(len, lines))
                yield lines
        finally:
            sizes.release()


async def history_of(
    services: WebServices, room: Room, from_offset: int | None, to_offset: int | None, limit: int
) -> RoomHistory:
    """Raises OffsetOutOfRange for a start that retention has taken; one beyond the end is simply empty."""
    await room.log.ready()
    if from_offset is not None and from_offset < 0:
        start = await offset_of_last(room.log, -from_offset)
        # Retention may have run meanwhile.
        bounds = room.log.bounds()
        start = max(start, bounds.start)
    else:
        bounds = room.log.bounds()
        start = from_offset or bounds.start
    if start < bounds.start:
        raise OffsetOutOfRange(start, bounds.start, bounds.newest)
    end = bounds.newest if to_offset is None else min(bounds.newest, to_offset)
    return RoomHistory(services, room, start, end, limit)


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
