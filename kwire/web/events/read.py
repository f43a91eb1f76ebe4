"""GET /topics/{topic}/events reads the events of an event store topic, in pages, oldest or newest first. GET
/events/{event} reads one event by its id.

`sinceEventId` and `beforeEventId` are exclusive bounds. `date` selects the events whose timestamps are within a day in
UTC. Timestamps may be in any order. So the server scans all events from the first event with a timestamp on or after
this day, at most SCANNED_EVENTS_MAX per request. `next` is the start of the next page, null on the last page.
"""

import asyncio
import re
from contextlib import aclosing
from datetime import UTC, date, datetime
from typing import Annotated, Literal, NamedTuple

import msgspec
from aiohttp import web

from kwire.access.acl import Operation
from kwire.access.quotas.kinds import QuotaKind
from kwire.errors import KafkaError, OffsetOutOfRange
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.events.event import Event
from kwire.streams.events.reading import EVENTS_PER_READ, read_events
from kwire.streams.topic_directory import StreamTopic
from kwire.web.answers.errors import BadRequest, Refusal
from kwire.web.answers.event_id import EVENT_ID
from kwire.web.answers.large_answers import Parts, PartSizes, stream_answer
from kwire.web.events.event_lines import StoredEvent, stream_lines
from kwire.web.needs import READ_TOPIC, READ_TOPICS
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.requests.bodies import query_of
from kwire.web.requests.memory import MemoryExhausted
from kwire.web.route import JSON, Route
from kwire.web.services import EventStoreServices, PortServices
from kwire.web.topics.lookup import TOPIC

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
PAGE_BYTES_MAX = 8 * 1024 * 1024
# The maximum number of events that one request scans.
SCANNED_EVENTS_MAX = 50_000
DAY_MS = 86_400_000
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


class ReadQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    since_event_id: Annotated[EVENT_ID | None, msgspec.Meta(description="Only events after this one.")] = None
    before_event_id: Annotated[EVENT_ID | None, msgspec.Meta(description="Only events before this one.")] = None
    date: Annotated[
        str | None,
        msgspec.Meta(description="Only events of this day in UTC: 2025-07-06.", extra_json_schema={"format": "date"}),
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT
    order: Annotated[Literal["forwards", "backwards"], msgspec.Meta(description="Oldest first, or newest first.")] = (
        "forwards"
    )
    last: Annotated[bool, msgspec.Meta(description="Only the newest event.")] = False


class EventPage(msgspec.Struct, kw_only=True):
    """A page of events. `next` is the `sinceEventId` of the next page, or its `beforeEventId` when reading backwards.
    On the last page `next` is null."""

    events: list[StoredEvent]
    next: str | None


class _Range(NamedTuple):
    """The offsets from `start` to `end` (exclusive). If `day_ms` is set, only events of the day that begins at `day_ms`
    are selected."""

    start: int
    end: int
    day_ms: int | None

    def has(self, event: Event) -> bool:
        return self.day_ms is None or self.day_ms <= event.timestamp_ms < self.day_ms + DAY_MS


class _Page:
    """The progress of a page. `position` is the offset of the last scanned event. Before any event is scanned,
    `position` is just outside the range: `start - 1` when reading forwards, `end` when reading backwards."""

    def __init__(self, topic: StreamTopic, shown_topic: str, limit: int, position: int, sizes: PartSizes) -> None:
        self.topic = topic
        self._shown_topic = shown_topic
        self.position = position
        self.left = limit
        self.sizes = sizes
        self._scanned_count = 0
        self._size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.left <= 0 or self._scanned_count >= SCANNED_EVENTS_MAX or self._size_bytes >= PAGE_BYTES_MAX

    @property
    def is_begun(self) -> bool:
        return self._scanned_count > 0

    def take(self, events: list[Event], wanted: _Range) -> bytes:
        """Scan events until the page has `limit` selected events. Return the selected events as JSON. Set `position` to
        the offset of the last scanned event."""
        found: list[Event] = []
        for event in events:
            if len(found) >= self.left:
                break
            self.position = event.offset
            self._scanned_count += 1
            if wanted.has(event):
                found.append(event)
        self.left -= len(found)
        part = b",".join(stream_lines(self._shown_topic, found))
        self._size_bytes += len(part)
        return part


async def read(services: EventStoreServices, request: web.Request) -> web.StreamResponse:
    query = query_of(request, ReadQuery)
    topic = services.event_store.event_topic(request.match_info["topic"])
    access = access_of(request)
    wanted = await _range(access, topic, query)
    return await stream_answer(request, _page(services.port, topic, access.shown(topic.name), query, wanted), JSON)


async def _page(port: PortServices, topic: StreamTopic, shown_topic: str, query: ReadQuery, wanted: _Range) -> Parts:
    """Generate the JSON of the page, in parts."""
    is_backwards = query.last or query.order == "backwards"
    sizes = PartSizes(port)
    position = wanted.end if is_backwards else wanted.start - 1
    page = _Page(topic, shown_topic, 1 if query.last else query.limit, position, sizes)
    read_on = _read_backwards if is_backwards else _read_forwards
    front = b'{"events":['
    try:
        async with aclosing(read_on(page, wanted)) as parts:
            async for part in parts:
                yield front + part
                front = b","
    finally:
        sizes.release()
    if is_backwards:
        is_done = page.position <= wanted.start or (query.last and page.left <= 0)
    else:
        is_done = page.position + 1 >= wanted.end
    following = b"null" if is_done else f'"{EventId(shown_topic, page.position)}"'.encode()
    yield b'%b],"next":%b}' % (front if front != b"," else b"", following)


async def _range(access: RequestAccess, topic: StreamTopic, query: ReadQuery) -> _Range:
    log = topic.stream()
    await log.ready()
    oldest, end, _ = log.bounds()
    start = oldest
    day_ms = None if query.date is None else _day_ms(query.date)
    if query.since_event_id is not None:
        start = _offset_of(access, topic, query.since_event_id) + 1
        if start < oldest:
            raise OffsetOutOfRange(start, oldest, end - 1)
    if query.before_event_id is not None:
        end = min(end, _offset_of(access, topic, query.before_event_id))
    if day_ms is not None:
        start = max(start, await log.offset_for_time(max(day_ms, 0)))
    return _Range(start, max(start, end), day_ms)


async def _read_forwards(page: _Page, wanted: _Range) -> Parts:
    while page.position + 1 < wanted.end and not page.is_full:
        count = min(EVENTS_PER_READ, page.left) if wanted.day_ms is None else EVENTS_PER_READ
        try:
            events = await _read_batch(page, page.position + 1, count, wanted.end - 1)
        except (KafkaError, OffsetOutOfRange, MemoryExhausted):
            # If events were already scanned, the page ends here. The next request starts at the failing offset and
            # reports the error.
            if page.is_begun:
                return
            raise
        if not events:
            page.position = wanted.end - 1
            return
        part = page.take(events, wanted)
        # Release the events before the yield: sending the part to a slow client may take long.
        del events
        if part:
            yield part
        await asyncio.sleep(0)


async def _read_backwards(page: _Page, wanted: _Range) -> Parts:
    window = EVENTS_PER_READ if wanted.day_ms is not None else min(EVENTS_PER_READ, page.left)
    while page.position > wanted.start and not page.is_full:
        window = min(window, page.position - wanted.start)
        start = page.position - window
        try:
            events = await _read_batch(page, start, window, page.position - 1)
        except (KafkaError, OffsetOutOfRange, MemoryExhausted):
            # A part of the window cannot be read, because it is damaged or deleted by retention. A smaller window that
            # ends at the same offset may be readable.
            if window > 1:
                events = []
            elif page.is_begun:
                return
            else:
                raise
        if window > 1 and (not events or events[-1].offset + 1 < page.position):
            # The read stopped before the end of the window, because the window is too large for one read or a part of
            # it cannot be read. Reading backwards needs the newest events first: try a window half as large.
            window //= 2
            continue
        if not events:
            page.position = start
        part = page.take(events[::-1], wanted)
        del events
        if part:
            yield part
        await asyncio.sleep(0)


async def _read_batch(page: _Page, start: int, count: int, to_offset: int) -> list[Event]:
    bytes_max = await page.sizes.next_bytes_max()
    events = await read_events(page.topic.stream(), start, count, to_offset=to_offset, bytes_max=bytes_max)
    page.sizes.check(events)
    return events


async def one_event(services: EventStoreServices, request: web.Request) -> web.Response:
    event_id = EventId.parse(request.match_info["event"])
    access = access_of(request)
    access.authorize_topic(Operation.READ, event_id.topic)
    topic = services.event_store.event_topic(event_id.topic)
    try:
        await topic.stream().ready()
        events = await read_events(topic.stream(), event_id.offset, 1, to_offset=event_id.offset)
    except OffsetOutOfRange:
        events = []
    if not events:
        raise Refusal(f"event {event_id} does not exist", code="EventNotFound", status=404, event_id=str(event_id))
    (line,) = stream_lines(access.shown(topic.name), events)
    return web.Response(body=line, content_type=JSON)


def _offset_of(access: RequestAccess, topic: StreamTopic, text: str) -> int:
    event_id, shown_topic = EventId.parse(text), access.shown(topic.name)
    if event_id.topic != shown_topic:
        raise BadRequest(f"event {text[:300]} belongs to topic {event_id.topic[:300]}, not to {shown_topic}")
    return event_id.offset


def _day_ms(text: str) -> int:
    """Return the start of a day in UTC, in milliseconds since 1970; raises BadRequest."""
    try:
        if _DATE.fullmatch(text) is None:
            raise ValueError
        day = date.fromisoformat(text)
    except ValueError:
        raise BadRequest("date must be a day such as 2025-07-06") from None
    return round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000


ROUTES: tuple[Route[EventStoreServices], ...] = (
    Route(
        "GET",
        "/topics/{topic}/events",
        read,
        summary="Read the events of a topic of the event store",
        description=(
            "The result has pages: continue with the `next` of an answer as `sinceEventId`, or as `beforeEventId` when "
            "reading backwards, until it is null. A page may be empty and have a `next`: finding the events of a day "
            "in a large topic takes several requests."
        ),
        tag="events",
        query=ReadQuery,
        parameters={"topic": TOPIC},
        answers={200: EventPage},
        needs=(READ_TOPIC,),
        charges=QuotaKind.CONSUME,
    ),
    Route(
        "GET",
        "/events/{event}",
        one_event,
        summary="Read one event by its id",
        tag="events",
        parameters={"event": EVENT_ID},
        answers={200: StoredEvent},
        needs=(READ_TOPICS,),
        charges=QuotaKind.CONSUME,
    ),
)
