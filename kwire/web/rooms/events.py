"""POST /rooms/{room}/events publishes one event, an array of events, or a stream of lines (`lines.py`). GET
/rooms/{room}/events reads the room's history. GET /rooms/{room}/events/{offset} reads one event.

An array is stored atomically, with consecutive offsets. A publish request is answered when its events are as durable as
the room requires. The range of a history includes both ends. An answer that has reached HISTORY_BYTES_MAX bytes ends
before the end of the range. Its `next_offset` is the `from_offset` of the next request.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Annotated

import msgspec
from aiohttp import web

from kwire.access.quotas.kinds import QuotaKind
from kwire.errors import EventNotFound, InvalidEvent, KafkaError, OffsetOutOfRange
from kwire.streams.events.event import NewEvent
from kwire.streams.events.last_events import offset_of_last
from kwire.streams.events.reading import EVENTS_PER_READ, read_events
from kwire.streams.events.traceparent import traced
from kwire.streams.rooms.interface import OpenRoom
from kwire.web.answers.event_json import PublishedEvent, ShownEvent, event_lines, new_event, source_of
from kwire.web.answers.large_answers import PIECE_BYTES, Parts, PartSizes, stream_answer
from kwire.web.needs import CREATE_TOPICS, READ_ROOM, WRITE_ROOM
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import check_is_json, checked_and_decoded_events, number_in_path, query_of, raw_body_of
from kwire.web.requests.body_limits import check_events
from kwire.web.requests.key_limits import CountedEvents
from kwire.web.requests.memory import MemoryExhausted
from kwire.web.requests.request_ids import traceparent_of
from kwire.web.rooms.lines import LINE_TYPES, LineAnswer, LinesQuery, publish_lines
from kwire.web.rooms.rooms import ROOM, check_length, room_to_use
from kwire.web.route import JSON, NDJSON, Answer, AnyOf, Route
from kwire.web.services import PortServices, RoomServices

# The maximum number of events in an array, which is decoded and stored without yielding to the event loop. A client can
# send more events as lines.
ARRAY_EVENTS_MAX = 1000
HISTORY_EVENTS_DEFAULT = 100
HISTORY_EVENTS_MAX = 10_000
HISTORY_BYTES_MAX = 8 * 1024 * 1024
OFFSET_MAX = 2**63 - 1
NEXT_OFFSET = "X-Next-Offset"

EventArray = Annotated[list[PublishedEvent], msgspec.Meta(min_length=1, max_length=ARRAY_EVENTS_MAX)]

_encode = msgspec.json.Encoder().encode


class Stored(msgspec.Struct, kw_only=True):
    """The result of publishing one event."""

    event_id: str
    offset: int
    subscribers_notified: int


class StoredArray(msgspec.Struct, kw_only=True):
    """The result of publishing an array. `offset` is the offset of the first event; the offsets are consecutive."""

    offset: int
    count: int
    event_ids: Sequence[str]
    subscribers_notified: int


class HistoryPage(msgspec.Struct, kw_only=True):
    """A page of a room's history. `next_offset` is the `from_offset` of the next page."""

    events: list[ShownEvent]
    oldest_offset: int
    newest_offset: int
    next_offset: int


class HistoryQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A range of events; both ends are included."""

    from_offset: (
        Annotated[
            int,
            msgspec.Meta(
                ge=-OFFSET_MAX,
                le=OFFSET_MAX,
                description="0 or absent: from the oldest event on. -N: the last N events.",
            ),
        ]
        | None
    ) = None
    to_offset: Annotated[int, msgspec.Meta(ge=-1, le=OFFSET_MAX, description="Absent: the newest event.")] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=HISTORY_EVENTS_MAX)] = HISTORY_EVENTS_DEFAULT


async def publish(services: RoomServices, request: web.Request) -> web.StreamResponse:
    if request.content_type in LINE_TYPES:
        return await publish_lines(services, request, query_of(request, LinesQuery))
    if request.query_string:
        query_of(request, LinesQuery)
    check_is_json(request)
    raw = await raw_body_of(request)
    check_length(services, request.match_info["room"], raw)
    is_array = raw[:64].lstrip()[:1] == b"["
    checks = services.port.body_checks
    if is_array:
        events = list(_new_events(await checked_and_decoded_events(checks, raw, EventArray, check_events)))
    else:
        events = [new_event(await checked_and_decoded_events(checks, raw, PublishedEvent, check_events))]
    traceparent = traceparent_of(request)
    if traceparent is not None:
        events = [traced(one, traceparent) for one in events]
    access = access_of(request)
    room = await room_to_use(services, access, request.match_info["room"])
    async with CountedEvents(access, len(events)):
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


async def history(services: RoomServices, request: web.Request) -> web.StreamResponse:
    query = query_of(request, HistoryQuery)
    room = await services.rooms.find(request.match_info["room"])
    shown_name = access_of(request).shown(room.name)
    found = await history_of(services.port, room, shown_name, query.from_offset, query.to_offset, query.limit)
    if not _wants_lines(request):
        return await stream_answer(request, found.json(), JSON)
    # The header X-Next-Offset is sent before the events, but its value is known only after they are read. So the events
    # are read twice if they are larger than PIECE_BYTES.
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


async def one_event(services: RoomServices, request: web.Request) -> web.Response:
    offset = number_in_path(request, "offset")
    room = await services.rooms.find(request.match_info["room"])
    await room.log.ready()
    try:
        events = await read_events(room.log, offset, 1, to_offset=offset)
    except OffsetOutOfRange:
        events = []
    if not events or events[0].offset != offset:
        raise EventNotFound(offset)
    (line,) = event_lines(access_of(request).shown(room.name), events)
    return web.Response(body=line, content_type=JSON)


class RoomHistory:
    """Reads the events of a room from offset `start` to `end`, at most `limit` events. It can be read only once.

    `shown_name` is the name of the room in the events.
    """

    def __init__(self, port: PortServices, room: OpenRoom, shown_name: str, start: int, end: int, limit: int) -> None:
        self._port = port
        self._room = room
        self._shown_name = shown_name
        self._start = self.next_offset = start
        self._end = end
        self._limit = limit
        # Set for a second read, which must end at the same offset as the first.
        self._expected_offset: int | None = None
        bounds = room.log.bounds()
        self.oldest_offset, self.newest_offset = bounds.start, bounds.newest

    def again(self) -> "RoomHistory":
        """Return a history for a second read. It ends at the offset at which the first read ended."""
        other = RoomHistory(self._port, self._room, self._shown_name, self._start, self.next_offset - 1, self._limit)
        other._expected_offset = self.next_offset
        return other

    async def json(self) -> Parts:
        """Generate the JSON of a HistoryPage, in parts."""
        front = b'{"events":['
        async with aclosing(self._line_batches()) as batches:
            async for lines in batches:
                part = front + b",".join(lines)
                # Release the lines before the yield: sending the part to a slow client may take long.
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
        async with aclosing(self._line_batches()) as batches:
            async for lines in batches:
                part = b"\n".join([*lines, b""])
                lines.clear()
                yield part
        if self._expected_offset not in (None, self.next_offset):
            raise ConnectionResetError(f"offset {self.next_offset} of {self._room.name!r} can no longer be read")

    async def _line_batches(self) -> AsyncGenerator[list[bytes], None]:
        left = self._limit
        sizes = PartSizes(self._port)
        size_bytes = 0
        try:
            while self.next_offset <= self._end and left > 0 and size_bytes < HISTORY_BYTES_MAX:
                try:
                    events = await read_events(
                        self._room.log,
                        self.next_offset,
                        min(EVENTS_PER_READ, left),
                        to_offset=self._end,
                        bytes_max=await sizes.next_bytes_max(),
                    )
                    sizes.check(events)
                except (KafkaError, OffsetOutOfRange, MemoryExhausted):
                    # If the page already has events, it ends here. The next request starts at the failing offset and
                    # reports the error.
                    if size_bytes:
                        return
                    raise
                if not events:
                    self.next_offset = self._end + 1
                    return
                left -= len(events)
                self.next_offset = events[-1].offset + 1
                lines = event_lines(self._shown_name, events)
                del events
                size_bytes += sum(map(len, lines))
                yield lines
        finally:
            sizes.release()


async def history_of(
    port: PortServices, room: OpenRoom, shown_name: str, from_offset: int | None, to_offset: int | None, limit: int
) -> RoomHistory:
    """Return the history of a room for a range of offsets. Raises OffsetOutOfRange if retention has deleted the range's
    first offset. The history is empty if the range starts beyond the newest event."""
    await room.log.ready()
    if from_offset is not None and from_offset < 0:
        start = await offset_of_last(room.log, -from_offset)
        # Retention may have deleted this offset meanwhile.
        bounds = room.log.bounds()
        start = max(start, bounds.start)
    else:
        bounds = room.log.bounds()
        start = from_offset or bounds.start
    if start < bounds.start:
        raise OffsetOutOfRange(start, bounds.start, bounds.newest)
    end = bounds.newest if to_offset is None else min(bounds.newest, to_offset)
    return RoomHistory(port, room, shown_name, start, end, limit)


def _wants_lines(request: web.Request) -> bool:
    accepted = request.headers.get("Accept", "")
    return any(one.partition(";")[0].strip() in LINE_TYPES for one in accepted.split(","))


ROUTES: tuple[Route[RoomServices], ...] = (
    Route(
        "POST",
        "/rooms/{room}/events",
        publish,
        summary="Publish an event, an array of events, or a stream of them",
        description=(
            "The room is created if it does not exist. An array is stored atomically.\n\n"
            "With `application/x-ndjson` the body is a stream with one event per line. Each line is answered with a "
            "line while the request continues: its offset, or its error. Read the answers while you send, or set "
            "`answers=errors`."
        ),
        tag="rooms",
        request=AnyOf((PublishedEvent, EventArray)),
        more_requests={NDJSON: PublishedEvent},
        query=LinesQuery,
        parameters={"room": ROOM},
        answers={
            201: Answer("Stored.", {JSON: AnyOf((Stored, StoredArray))}),
            200: Answer("One line for each line of the request.", {NDJSON: LineAnswer}),
        },
        needs=(WRITE_ROOM, CREATE_TOPICS),
        charges=QuotaKind.PRODUCE,
    ),
    Route(
        "GET",
        "/rooms/{room}/events",
        history,
        summary="Read the history of a room",
        description="With `Accept: application/x-ndjson` the answer has one event per line.",
        tag="rooms",
        query=HistoryQuery,
        parameters={"room": ROOM},
        answers={200: Answer("Events, oldest first.", {JSON: HistoryPage, NDJSON: ShownEvent})},
        needs=(READ_ROOM,),
        charges=QuotaKind.CONSUME,
    ),
    Route(
        "GET",
        "/rooms/{room}/events/{offset}",
        one_event,
        summary="Read one event",
        tag="rooms",
        parameters={"room": ROOM, "offset": Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]},
        answers={200: ShownEvent},
        needs=(READ_ROOM,),
        charges=QuotaKind.CONSUME,
    ),
)
