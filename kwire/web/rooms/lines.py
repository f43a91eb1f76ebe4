"""A stream of events in, a stream of answers out: POST /rooms/{room}/events with one JSON text a line.

The body is read as it comes, so it may be of any length and take any time. Lines are decoded and stored in portions,
and each is answered by a line, in order: `{"offset", "event_id"}` or `{"line", "error"}`. An empty line is no event.
Some portions may wait to become durable while the next ones are read. Everything is bounded: a client that does not
read its answers is not read from, and is cut off after `kwire.send.timeout.ms`. A stream that is mostly not events, or
that expands out of proportion, ends with an error as its last line. The loop gets its turn after each piece of work,
empty lines included. A long line counts in the port's memory.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
from aiohttp import web

from kwire.broker.chunking import next_turn
from kwire.broker.events.event import NewEvent, record_of
from kwire.broker.events.publishing import Outcome, Published
from kwire.broker.rooms.rooms import Room
from kwire.errors import EventTooLarge, KafkaError, StreamError, as_value
from kwire.web.bodies import checked_and_decoded
from kwire.web.body_bounds import COUNTED_BYTES_MIN, check_events
from kwire.web.decompression import LINES_BYTES_MAX, check_expansion
from kwire.web.errors import Refusal, error_body
from kwire.web.event_json import PublishedEvent, new_event, source_of
from kwire.web.rooms.line_intake import LineIntake
from kwire.web.rooms.rooms import room_to_publish
from kwire.web.route import NDJSON
from kwire.web.safety import cors_headers
from kwire.web.services import WebServices

log = logging.getLogger("kwire.web")

LINE_TYPES = frozenset({NDJSON, "application/ndjson", "application/jsonl", "application/json-lines"})
# Decoded and stored in one turn of the loop; well below what a batch may have.
PORTION_EVENTS = 200
PORTION_BYTES = 256 * 1024
# What is divided into lines in one turn: at most this many bytes, and at most this many lines.
FED_BYTES = 64 * 1024
FED_LINES = 4096
# Lines in a row that may be refused before the stream ends: each is answered by a line some fifty times as long.
REFUSED_IN_A_ROW_MAX = 100_000
# What a record adds to its event at most: its own fields, and the headers every event has. And a header to its text.
RECORD_BYTES = 1024
HEADER_BYTES = 16
# Lines that are decoded in one step; those of a larger portion are decoded one by one, each after a check.
TOGETHER_BYTES_MAX = COUNTED_BYTES_MIN
# Portions of one stream that wait to become durable, or for their answers to be sent.
PORTIONS_WAITING_MAX = 8

# Streams of this port that are being read; the end of the node ends them, with all answers that are due.
STREAMS: web.AppKey[set[asyncio.Timeout]] = web.AppKey("kwire.streams")

_encode = msgspec.json.Encoder().encode
_decode_lines = msgspec.json.Decoder(PublishedEvent).decode_lines

Failure = StreamError | Refusal


class LinesQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    answers: Annotated[
        Literal["all", "errors"],
        msgspec.Meta(
            description="Of a stream of lines: answer each line, or only those that were refused, and in the end how "
            "many were stored."
        ),
    ] = "all"


class LineAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line is stored, or refused; of `answers=errors` the last line counts both."""

    offset: int | None = None
    event_id: str | None = None
    line: Annotated[int | None, msgspec.Meta(description="The line that was refused, counted from 1.")] = None
    error: dict[str, msgspec.Raw] | None = None
    stored: int | None = None
    refused: int | None = None


class Line(NamedTuple):
    """A line by its number; without a text it was too long."""

    number: int
    text: bytes | None
    size_bytes: int
    limit: int


class Lines:
    """Bytes to lines, with a bound: of a line that is too long only its size is kept."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        # The line that has begun. It grows in place: a line of megabytes may come in pieces of a few bytes.
        self._begun = bytearray()
        self._skipped_bytes = 0
        self._count = 0

    @property
    def begun_bytes(self) -> int:
        """What is kept of the line that has begun."""
        return len(self._begun)

    def feed(self, data: bytes) -> list[Line]:
        """The lines that are complete now, without those that are empty."""
        if not self._begun and not self._skipped_bytes and data.endswith(b"\n") and data.isspace():
            self._count += data.count(b"\n")
            return []
        *complete, rest = data.split(b"\n")
        if complete and self._begun:
            complete[0] = self._whole(complete[0])
        found = [line for text in complete if (line := self._line(text)) is not None]
        self._begun += rest
        if self._skipped_bytes or len(self._begun) > self._line_bytes_max:
            self._skipped_bytes += len(self._begun)
            self._begun.clear()
        return found

    @property
    def next_number(self) -> int:
        """The number of the line that has not ended."""
        return self._count + 1

    def end(self) -> list[Line]:
        """The last line, which need not end with a line break."""
        last = self._line(self._whole(b""))
        return [] if last is None else [last]

    def clear(self) -> None:
        """Forget the line that has begun."""
        self._begun.clear()

    def _whole(self, rest: bytes) -> bytes:
        """The line that has begun, with its rest."""
        text = b"".join((self._begun, rest))
        self._begun.clear()
        return text

    def _line(self, text: bytes) -> Line | None:
        self._count += 1
        size_bytes = self._skipped_bytes + len(text)
        self._skipped_bytes = 0
        if size_bytes > self._line_bytes_max:
            return Line(self._count, None, size_bytes, self._line_bytes_max)
        if not text or text.isspace():
            return None
        return Line(self._count, text, size_bytes, self._line_bytes_max)


class Portion:
    """Lines that are stored together. `failures` are those without an event; `outcome` is what became of the events."""

    __slots__ = ("events", "failures", "has_events", "numbers", "outcome")

    def __init__(self, numbers: Sequence[int], events: Sequence[NewEvent], failures: Mapping[int, Failure]) -> None:
        self.numbers = numbers
        self.events = events
        self.has_events = bool(events)
        self.failures = failures
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settle(self, outcome: Outcome) -> None:
        # They are stored; the answer may wait long for the client.
        self.events = ()
        if not self.outcome.done():
            self.outcome.set_result(outcome)


async def publish_lines(services: WebServices, request: web.Request, query: LinesQuery) -> web.StreamResponse:
    room = await room_to_publish(services, request.match_info["room"])
    headers = {"Content-Type": NDJSON, "Cache-Control": "no-store", "X-Accel-Buffering": "no", **cors_headers(request)}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    waiting: asyncio.Queue[Portion | None] = asyncio.Queue(PORTIONS_WAITING_MAX)
    sender = _Sender(response, services.config.network.send_timeout_ms / 1000, query.answers == "all")
    streams = request.app[STREAMS]
    intake = LineIntake(request)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sender.run(waiting))
            try:
                async with asyncio.timeout(None) as until_stop:
                    streams.add(until_stop)
                    await _Storing(services, request, room, waiting, intake).run()
            except TimeoutError:
                # The node stops; what was taken is answered.
                response.force_close()
            finally:
                streams.discard(until_stop)
            await waiting.put(None)
    except BaseException as error:
        # The answer has begun: only a broken connection tells that it is not whole.
        if request.transport is not None:
            request.transport.abort()
        if isinstance(error, ExceptionGroup):
            if error.split((ConnectionError, TimeoutError, web.RequestPayloadError))[1] is not None:
                log.error("a stream of lines failed", exc_info=error)
            raise ConnectionResetError("a stream of lines was cut off") from error
        raise
    finally:
        intake.release()
    return response


class _Storing:
    """Reads one stream to its end, or to the point where it is refused, and stores its events."""

    def __init__(
        self,
        services: WebServices,
        request: web.Request,
        room: Room,
        waiting: "asyncio.Queue[Portion | None]",
        intake: LineIntake,
    ) -> None:
        self._services = services
        self._content = request.content
        self._intake = intake
        self._room = room
        self._source = source_of(room.name)
        self._waiting = waiting
        self._lines = Lines(services.config.web.body_bytes_max)
        self._read_bytes = 0
        self._refused_in_a_row = 0
        # The first line that is not looked at any more, if it is known.
        self._stopped_at: int | None = None

    async def run(self) -> None:
        lines, data = self._lines, b""
        try:
            while data := await self._intake.read():
                self._read_bytes += len(data)
                check_expansion(self._content, self._read_bytes, LINES_BYTES_MAX)
                for piece in _pieces(data):
                    await self._store(lines.feed(piece))
                # It may wait for memory, and should hold little meanwhile.
                data = b""
                await self._intake.hold(lines.next_number, lines.begun_bytes)
            await self._store(lines.end())
        except Refusal as refusal:
            number = self._stopped_at or lines.next_number
            await self._waiting.put(Portion([number], (), {number: refusal}))
        finally:
            # A task group's traceback keeps this frame, in a reference cycle, until a garbage collection comes by.
            lines.clear()
            data = b""

    async def _store(self, found: Sequence[Line]) -> None:
        if self._room.log.is_closing:
            self._room = await _room_again(self._services, self._room)
        room_log = self._room.log
        for start in range(0, len(found), PORTION_EVENTS):
            for portion in _portions(found[start : start + PORTION_EVENTS], room_log.max_batch_bytes):
                # It waits for its answer before it is stored, so that none is lost if this ends in between.
                await self._waiting.put(portion)
                if portion.events:
                    self._services.publisher.publish(room_log, self._source, portion.events, portion.settle)
                self._count_refused(portion)
            await next_turn()
        if not found:
            await next_turn()

    def _count_refused(self, portion: Portion) -> None:
        self._refused_in_a_row = 0 if portion.has_events else self._refused_in_a_row + len(portion.failures)
        if self._refused_in_a_row >= REFUSED_IN_A_ROW_MAX:
            self._stopped_at = portion.numbers[-1] + 1
            raise Refusal(
                f"{self._refused_in_a_row} lines in a row were refused, so the stream ends here",
                code="TooManyRefused",
                limit=REFUSED_IN_A_ROW_MAX,
            )


def _pieces(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        piece = data[start : start + FED_BYTES]
        if piece.count(b"\n") > FED_LINES and not piece.isspace():
            piece = piece[:FED_LINES]
        yield piece
        start += len(piece)


async def _room_again(services: WebServices, room: Room) -> Room:
    """The room of this name that is there now: a stream that was silent for long finds its own one cleaned up."""
    try:
        return await room_to_publish(services, room.name)
    except (StreamError, KafkaError):
        return room  # every line is told so


def _portions(lines: Sequence[Line], message_bytes_max: int) -> Iterator[Portion]:
    """What one call stores whole or not at all: what surely fits into a batch, or a single event that may not."""
    bytes_max = min(PORTION_BYTES, message_bytes_max)
    numbers: list[int] = []
    events: list[NewEvent] = []
    failures: dict[int, Failure] = {}
    size_bytes = 0
    for line, found in zip(lines, _decoded(lines), strict=True):
        try:
            event = _checked(found, message_bytes_max)
        except (StreamError, Refusal) as error:
            failures[line.number] = as_value(error)
        else:
            event_bytes = _bytes_max(event)
            if events and size_bytes + event_bytes > bytes_max:
                yield Portion(numbers, events, failures)
                numbers, events, failures, size_bytes = [], [], {}, 0
            size_bytes += event_bytes
            events.append(event)
        numbers.append(line.number)
    if numbers:
        yield Portion(numbers, events, failures)


def _decoded(lines: Sequence[Line]) -> Sequence[PublishedEvent | Line]:
    """All at once, which is twice as fast; where that fails, or an event has line breaks of its own, one by one."""
    texts = [line.text for line in lines if line.text is not None]
    if len(texts) == len(lines) and sum(map(len, texts)) <= TOGETHER_BYTES_MAX:
        try:
            found = _decode_lines(b"\n".join(texts))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = []
        if len(found) == len(lines):
            return found
    return lines


def _checked(found: PublishedEvent | Line, message_bytes_max: int) -> NewEvent:
    """An event that nothing is wrong with, so that those that are stored together do not fail for one of them."""
    if isinstance(found, Line):
        if found.text is None:
            raise EventTooLarge(found.size_bytes, found.limit)
        if found.size_bytes > message_bytes_max:
            # As with a single event: to decode what cannot be stored would hold the loop.
            raise EventTooLarge(found.size_bytes, message_bytes_max)
        found = checked_and_decoded(found.text, PublishedEvent, check_events)
    event = new_event(found)
    if event.metadata or event.event_id is not None or not event.type.isascii():
        # What the decoder cannot tell: names that are not allowed, and sizes in bytes.
        record_of(event, b"", event.event_id or event.type, 0)
    return event


def _bytes_max(event: NewEvent) -> int:
    """What it may take in a batch."""
    size_bytes = RECORD_BYTES + len(event.data) + len(event.key or b"")
    for name, value in event.metadata.items():
        # A character has four bytes at most.
        size_bytes += HEADER_BYTES + 4 * (len(name) + len(value))
    return size_bytes


class _Sender:
    """Writes the answers of portions, in their order."""

    def __init__(self, response: web.StreamResponse, timeout_s: float, is_telling_all: bool) -> None:
        self._response = response
        self._timeout_s = timeout_s
        self._is_telling_all = is_telling_all
        self._stored = self._refused = 0

    async def run(self, waiting: "asyncio.Queue[Portion | None]") -> None:
        """Until None comes. Raises TimeoutError when the client takes no answers, ConnectionError when it is gone."""
        while (portion := await waiting.get()) is not None:
            text = self._answers(portion, await portion.outcome if portion.has_events else None)
            if text:
                await self._write(text)
        if not self._is_telling_all:
            await self._write(_encode(LineAnswer(stored=self._stored, refused=self._refused)) + b"\n")

    async def _write(self, text: bytes) -> None:
        async with asyncio.timeout(self._timeout_s):
            await self._response.write(text)

    def _answers(self, portion: Portion, outcome: Outcome | None) -> bytes:
        lines: list[bytes] = []
        if isinstance(outcome, Published):
            offset, event_ids = outcome
            self._stored += len(event_ids)
            if self._is_telling_all:
                lines = [
                    b'{"offset":%d,"event_id":%b}\n' % (offset + place, _encode(event_id))
                    for place, event_id in enumerate(event_ids)
                ]
                if not portion.failures:
                    return b"".join(lines)
        return b"".join(self._mixed(portion, outcome, lines))

    def _mixed(self, portion: Portion, outcome: Outcome | None, stored: Sequence[bytes]) -> Iterator[bytes]:
        """Answers of stored lines and of those that were refused, each in its place."""
        left = iter(stored)
        for number in portion.numbers:
            failure: Exception | None = portion.failures.get(number)
            if failure is None and isinstance(outcome, StreamError | KafkaError):
                failure = outcome
            if failure is not None:
                self._refused += 1
                yield _encode({"line": number, "error": error_body(failure)}) + b"\n"
            elif self._is_telling_all:
                yield next(left)
