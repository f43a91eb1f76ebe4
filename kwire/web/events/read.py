"""GET /topics/{topic}/events: what was published to a topic of the event store, in pages, from either end.
GET /events/{event}: one event by its id.

`sinceEventId` and `beforeEventId` bound the range and are not part of it; `date` is a day in UTC and leaves out all
other events. The day of an event is that of its own time, and producers may send times in any order: so all events from
the first that is not older than the day are looked at, a bounded number per request. `next` is where the page behind
this one begins; null means that there is none.
"""

import asyncio
import re
from contextlib import aclosing
from datetime import UTC, date, datetime
from typing import Annotated, Literal, NamedTuple

import msgspec
from aiohttp import web

from kwire.broker.events.event import Event
from kwire.broker.events.reading import PORTION_EVENTS, read_events
from kwire.broker.store.event_ids import EventId
from kwire.broker.topics import Topic
from kwire.errors import KafkaError, OffsetOutOfRange
from kwire.web.bodies import query_of
from kwire.web.errors import BadRequest, Refusal
from kwire.web.event_id import EVENT_ID
from kwire.web.events.event_lines import StoredEvent, stream_lines
from kwire.web.large_answers import Parts, PartSizes, stream_answer
from kwire.web.memory import MemoryExhausted
from kwire.web.route import JSON, Route
from kwire.web.services import WebServices
from kwire.web.topics.lookup import TOPIC

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
PAGE_BYTES_MAX = 8 * 1024 * 1024
# What one request looks at to find the events of a day.
LOOKED_AT_MAX = 50_000
DAY_MS = 86_400_000
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


class ReadQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    since_event_id: Annotated[EVENT_ID | None, msgspec.Meta(description="Only events behind this one.")] = None
    before_event_id: Annotated[EVENT_ID | None, msgspec.Meta(description="Only events in front of this one.")] = None
    date: Annotated[
        str | None,
        msgspec.Meta(description="Only events of this day in UTC: 2025-07-06.", extra_json_schema={"format": "date"}),
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT
    order: Annotated[Literal["forwards", "backwards"], msgspec.Meta(description="Oldest first, or newest first.")] = (
        "forwards"
    )
    last: Annotated[bool, msgspec.Meta(description="The newest event alone.")] = False


class EventPage(msgspec.Struct, kw_only=True):
    """`next` is the `sinceEventId` of the page behind this one (reading backwards: its `beforeEventId`), or null."""

    events: list[StoredEvent]
    next: str | None


class _Range(NamedTuple):
    """Offsets from `start` up to, not including, `end`; and, with a day, the times that are wanted."""

    start: int
    end: int
    day_ms: int | None

    def has(self, event: Event) -> bool:
        return self.day_ms is None or self.day_ms <= event.timestamp_ms < self.day_ms + DAY_MS


class _Page:
    """How far a page is. `place` is the offset of the event that was looked at last, or the one before the first."""

    def __init__(self, topic: Topic, limit: int, place: int, sizes: PartSizes) -> None:
        self.topic = topic
        self.place = place
        self.left = limit
        self.sizes = sizes
        self._looked_at = 0
        self._size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.left <= 0 or self._looked_at >= LOOKED_AT_MAX or self._size_bytes >= PAGE_BYTES_MAX

    @property
    def is_begun(self) -> bool:
        return self._looked_at > 0

    def take(self, events: list[Event], wanted: _Range) -> bytes:
        """Those that are wanted, as far as there is room, as JSON; `place` is the last event's offset then."""
        found: list[Event] = []
        for event in events:
            if len(found) >= self.left:
                break
            self.place = event.offset
            self._looked_at += 1
            if wanted.has(event):
                found.append(event)
        self.left -= len(found)
        part = b",".join(stream_lines(self.topic.name, found))
        self._size_bytes += len(part)
        return part


async def read(services: WebServices, request: web.Request) -> web.StreamResponse:
    query = query_of(request, ReadQuery)
    topic = services.event_store.event_topic(request.match_info["topic"])
    wanted = await _range(services, topic, query)
    return await stream_answer(request, _page(services, topic, query, wanted), JSON)


async def _page(services: WebServices, topic: Topic, query: ReadQuery, wanted: _Range) -> Parts:
    """The page as JSON, in parts."""
    is_backwards = query.last or query.order == "backwards"
    sizes = PartSizes(services)
    page = _Page(topic, 1 if query.last else query.limit, wanted.end if is_backwards else wanted.start - 1, sizes)
    read_on = _read_backwards if is_backwards else _read_forwards
    front = b'{"events":['
    try:
        async with aclosing(read_on(services, page, wanted)) as parts:
            async for part in parts:
                yield front + part
                front = b","
    finally:
        sizes.release()
    if is_backwards:
        is_done = page.place <= wanted.start or (query.last and page.left <= 0)
    else:
        is_done = page.place + 1 >= wanted.end
    following = b"null" if is_done else f'"{EventId(topic.name, page.place)}"'.encode()
    yield b'%b],"next":%b}' % (front if front != b"," else b"", following)


async def _range(services: WebServices, topic: Topic, query: ReadQuery) -> _Range:
    log = topic.stream()
    await log.ready()
    oldest, end, _ = log.bounds()
    start = oldest
    day_ms = None if query.date is None else _day_ms(query.date)
    if query.since_event_id is not None:
        start = _offset_of(topic, query.since_event_id) + 1
        if start < oldest:
            raise OffsetOutOfRange(start, oldest, end - 1)
    if query.before_event_id is not None:
        end = min(end, _offset_of(topic, query.before_event_id))
    if day_ms is not None:
        start = max(start, await log.offset_for_time(max(day_ms, 0)))
    return _Range(start, max(start, end), day_ms)


async def _read_forwards(services: WebServices, page: _Page, wanted: _Range) -> Parts:
    while page.place + 1 < wanted.end and not page.is_full:
        count = min(PORTION_EVENTS, page.left) if wanted.day_ms is None else PORTION_EVENTS
        try:
            events = await _portion(services, page, page.place + 1, count, wanted.end - 1)
        except (KafkaError, OffsetOutOfRange, MemoryExhausted):
            # The page ends here; the error is reported to the next request, which starts at the failing offset.
            if page.is_begun:
                return
            raise
        if not events:
            page.place = wanted.end - 1
            return
        part = page.take(events, wanted)
        # A client that does not take the part holds it, and not the events as well.
        del events
        if part:
            yield part
        await asyncio.sleep(0)


async def _read_backwards(services: WebServices, page: _Page, wanted: _Range) -> Parts:
    window = PORTION_EVENTS if wanted.day_ms is not None else min(PORTION_EVENTS, page.left)
    while page.place > wanted.start and not page.is_full:
        window = min(window, page.place - wanted.start)
        start = page.place - window
        try:
            events = await _portion(services, page, start, window, page.place - 1)
        except (KafkaError, OffsetOutOfRange, MemoryExhausted):
            # A damaged place, or retention comes from the other end: what lies nearer may be good.
            if window > 1:
                events = []
            elif page.is_begun:
                return
            else:
                raise
        if window > 1 and (not events or events[-1].offset + 1 < page.place):
            # It does not reach up to where the page stands: it has more bytes than a portion, or is damaged.
            window //= 2
            continue
        if not events:
            page.place = start
        part = page.take(events[::-1], wanted)
        del events
        if part:
            yield part
        await asyncio.sleep(0)


async def _portion(services: WebServices, page: _Page, start: int, count: int, to_offset: int) -> list[Event]:
    bytes_max = await page.sizes.next_bytes_max()
    events = await read_events(page.topic.stream(), start, count, to_offset=to_offset, bytes_max=bytes_max)
    page.sizes.check(events)
    return events


async def one_event(services: WebServices, request: web.Request) -> web.Response:
    event_id = EventId.parse(request.match_info["event"])
    topic = services.event_store.event_topic(event_id.topic)
    try:
        events = await read_events(topic.stream(), event_id.offset, 1, to_offset=event_id.offset)
    except OffsetOutOfRange:
        events = []
    if not events:
        raise Refusal(f"there is no event {event_id}", code="EventNotFound", status=404, event_id=str(event_id))
    (line,) = stream_lines(topic.name, events)
    return web.Response(body=line, content_type=JSON)


def _offset_of(topic: Topic, text: str) -> int:
    event_id = EventId.parse(text)
    if event_id.topic != topic.name:
        raise BadRequest(f"{text[:300]} is an event of {event_id.topic[:300]}, not of {topic.name}")
    return event_id.offset


def _day_ms(text: str) -> int:
    """When a day begins, in milliseconds since 1970."""
    try:
        if _DATE.fullmatch(text) is None:
            raise ValueError
        day = date.fromisoformat(text)
    except ValueError:
        raise BadRequest("date must be a day such as 2025-07-06") from None
    return round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/topics/{topic}/events",
        read,
        summary="Events of a topic of the event store",
        description=(
            "In pages: go on with the `next` of an answer as `sinceEventId`, or as `beforeEventId` when reading "
            "backwards, until it is null. A page may be empty and have a `next`: it takes several requests to find the "
            "events of a day in a large topic."
        ),
        tag="events",
        query=ReadQuery,
        parameters={"topic": TOPIC},
        answers={200: EventPage},
    ),
    Route(
        "GET",
        "/events/{event}",
        one_event,
        summary="One event, by its id",
        tag="events",
        parameters={"event": EVENT_ID},
        answers={200: StoredEvent},
    ),
)
