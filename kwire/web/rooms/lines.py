"""POST /rooms/{room}/events with NDJSON: a stream of events, one per line, answered by a stream of results.

The body is processed while it arrives. An uncompressed body may have any length and last for any time. Lines are
decoded and stored in batches. Each line is answered with a line, in order: `{"offset", "event_id"}` or `{"line",
"error"}`. Empty lines are ignored. The stream ends with an error as its last line if too many consecutive lines are
invalid, or if a compressed body expands too much.

Memory is bounded. Up to WAITING_BATCHES_MAX batches wait to become durable while the next lines are read. If the client
does not read its answers, the server stops reading from the client and aborts the connection after
`kwire.send.timeout.ms`. A long incomplete line counts towards the memory limit of the HTTP port. The code yields to the
event loop after each batch, and also if the received bytes contain only empty lines.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Annotated, Literal, NamedTuple

import msgspec
from aiohttp import web

from kwire.access.acl import Operation, ResourceType
from kwire.access.usage.client_limits import ClientLimits
from kwire.access.usage.event_allowances import EventLimitReached
from kwire.access.usage.publish_rates import RateExceeded
from kwire.concurrency.chunking import yield_to_loop
from kwire.errors import ErrorCode, EventTooLarge, KafkaError, StreamError, as_value
from kwire.metastore import Conflict
from kwire.streams.events.event import NewEvent, record_of
from kwire.streams.events.publishing import Outcome, Published
from kwire.streams.events.traceparent import traced
from kwire.streams.log import StreamLog
from kwire.streams.rooms.interface import OpenRoom
from kwire.web.answers.errors import NotAuthorized, Refusal
from kwire.web.answers.event_json import PublishedEvent, new_event, source_of
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.requests.bodies import checked_and_decoded
from kwire.web.requests.body_limits import COUNTED_BYTES_MIN, check_events
from kwire.web.requests.decompression import LINES_BYTES_MAX, check_expansion
from kwire.web.requests.key_limits import events_refusal
from kwire.web.requests.request_ids import common_headers, traceparent_of
from kwire.web.rooms.line_receiver import LineReceiver
from kwire.web.rooms.line_streams import STREAMS, LineStream
from kwire.web.rooms.rooms import room_to_use
from kwire.web.route import NDJSON
from kwire.web.services import RoomServices
from storage.errors import StorageError

log = logging.getLogger("kwire.web")

LINE_TYPES = frozenset({NDJSON, "application/ndjson", "application/jsonl", "application/json-lines"})
# The maximum number and size of events that are decoded and stored without yielding to the event loop. Both are well
# below the limits of a record batch.
BATCH_EVENTS_MAX = 200
BATCH_BYTES_MAX = 256 * 1024
# The maximum number of bytes and lines that are split without yielding to the event loop.
SPLIT_BYTES_MAX = 64 * 1024
SPLIT_LINES_MAX = 4096
# The stream ends after this many consecutive invalid lines, because the answer to an invalid line can be about fifty
# times as long as the line.
CONSECUTIVE_REFUSALS_MAX = 100_000
# The maximum overhead of a record (its fields, and the headers that every event has), and of each further header.
RECORD_BYTES = 1024
HEADER_BYTES = 16
# A batch up to this size is decoded in one step. The lines of a larger batch are checked and decoded one by one.
JOINT_DECODE_BYTES_MAX = COUNTED_BYTES_MIN
# The maximum number of batches of one stream that are not durable yet or whose answers are not sent yet.
WAITING_BATCHES_MAX = 8
# A stream that waits because of the publish rate of its key tries again after this time, because the rate may have been
# changed.
RATE_CHECK_SECONDS = 1.0

_encode = msgspec.json.Encoder().encode
_decode_lines = msgspec.json.Decoder(PublishedEvent).decode_lines

Failure = StreamError | Refusal


class LinesQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    answers: Annotated[
        Literal["all", "errors"],
        msgspec.Meta(
            description="For a stream of lines: answer each line, or only the refused ones. With `errors` the last "
            "line has the number of stored and refused lines."
        ),
    ] = "all"


class LineAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The result of a line: `offset` and `event_id`, or `line` and `error`. With `answers=errors` the last line has the
    numbers of `stored` and `refused` lines."""

    offset: int | None = None
    event_id: str | None = None
    line: Annotated[int | None, msgspec.Meta(description="The number of the refused line, from 1 on.")] = None
    error: dict[str, msgspec.Raw] | None = None
    stored: int | None = None
    refused: int | None = None


class Line(NamedTuple):
    """A line with its number. `text` is None if the line is longer than `limit`."""

    number: int
    text: bytes | None
    size_bytes: int
    limit: int


class Lines:
    """Splits bytes into lines. The text of a line that exceeds `line_bytes_max` is discarded; only its size is kept."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        # The incomplete line. A BytesIO grows in place. That is necessary because a line of megabytes may arrive in
        # pieces of a few bytes.
        self._partial = BytesIO()
        self._skipped_bytes = 0
        self._count = 0

    @property
    def partial_bytes(self) -> int:
        """The size of the incomplete line."""
        return self._partial.tell()

    def feed(self, data: bytes) -> list[Line]:
        """Add bytes and return the lines that are now complete, without empty lines."""
        if not self.partial_bytes and not self._skipped_bytes and data.endswith(b"\n") and data.isspace():
            self._count += data.count(b"\n")
            return []
        *complete, rest = data.split(b"\n")
        if complete and self.partial_bytes:
            complete[0] = self._completed(complete[0])
        found = [line for text in complete if (line := self._line(text)) is not None]
        self._partial.write(rest)
        if self._skipped_bytes or self.partial_bytes > self._line_bytes_max:
            self._skipped_bytes += self.partial_bytes
            self.clear()
        return found

    @property
    def next_number(self) -> int:
        """The number of the incomplete line."""
        return self._count + 1

    def end(self) -> list[Line]:
        """Return the incomplete line as the last line: it need not end with a line break. Return [] if it is empty."""
        last = self._line(self._completed(b""))
        return [] if last is None else [last]

    def clear(self) -> None:
        """Discard the incomplete line."""
        self._partial = BytesIO()

    def _completed(self, rest: bytes) -> bytes:
        """Return the incomplete line joined with `rest`, and clear the buffer of the incomplete line."""
        self._partial.write(rest)
        # `getvalue` does not copy the bytes.
        text = self._partial.getvalue()
        self.clear()
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


class LineBatch:
    """Lines whose events are stored together. `failures` has the errors of invalid lines, by line number. `outcome` is
    the result of storing the events."""

    __slots__ = ("events", "failures", "has_events", "numbers", "outcome")

    def __init__(self, numbers: Sequence[int], events: Sequence[NewEvent], failures: Mapping[int, Failure]) -> None:
        self.numbers = numbers
        self.events = events
        self.has_events = bool(events)
        self.failures = failures
        self.outcome: asyncio.Future[Outcome | Refusal] = asyncio.get_running_loop().create_future()

    def settle(self, outcome: Outcome | Refusal) -> None:
        # Release the events now: if the client is slow, it may take long until the answer is sent.
        self.events = ()
        if not self.outcome.done():
            self.outcome.set_result(outcome)


async def publish_lines(services: RoomServices, request: web.Request, query: LinesQuery) -> web.StreamResponse:
    access = access_of(request)
    room = await room_to_use(services, access, request.match_info["room"])
    access.hold(Operation.WRITE, ResourceType.TOPIC, room.log.topic)
    own = {"Content-Type": NDJSON, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    headers = {**own, **common_headers(request)}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    waiting: asyncio.Queue[LineBatch | None] = asyncio.Queue(WAITING_BATCHES_MAX)
    timeout_s = services.port.config.network.send_timeout_ms / 1000
    writer = _AnswerWriter(response, access, timeout_s, query.answers == "all")
    streams = request.app[STREAMS]
    receiver = LineReceiver(request)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer.run(waiting))
            try:
                async with asyncio.timeout(None) as until_stop:
                    stream = LineStream(access, until_stop)
                    streams.add(stream)
                    publisher = _LinePublisher(services, request, access, room, waiting, receiver)
                    await publisher.run()
            except TimeoutError:
                # The node is stopping, or the client has lost its rights. The lines that were read are still answered.
                response.force_close()
                if stream.loss is not None:
                    await waiting.put(publisher.last_answer(stream.loss))
            finally:
                streams.discard(stream)
            await waiting.put(None)
    except BaseException as error:
        # The status is already sent. Only an aborted connection shows the client that the answer is incomplete.
        if request.transport is not None:
            request.transport.abort()
        if isinstance(error, ExceptionGroup):
            if error.split((ConnectionError, TimeoutError, web.RequestPayloadError))[1] is not None:
                log.error("a stream of lines failed", exc_info=error)
            raise ConnectionResetError("the stream of lines was aborted") from error
        raise
    finally:
        receiver.release()
    return response


class _LinePublisher:
    """Reads the lines of one stream and publishes their events, until the stream ends or is refused."""

    def __init__(
        self,
        services: RoomServices,
        request: web.Request,
        access: RequestAccess,
        room: OpenRoom,
        waiting: "asyncio.Queue[LineBatch | None]",
        receiver: LineReceiver,
    ) -> None:
        self._services = services
        self._access = access
        # None: the rights may have changed since the request was admitted, so they are checked with the first line.
        self._revision: int | None = None
        self._content = request.content
        self._receiver = receiver
        self._room = room
        self._source = source_of(room.name)
        self._traceparent = traceparent_of(request)
        self._waiting = waiting
        self._lines = Lines(services.port.config.web.body_bytes_max)
        self._read_bytes = 0
        self._consecutive_refusals = 0
        # The number of the first line that is not processed, if too many lines before it were refused.
        self._stop_line: int | None = None

    async def run(self) -> None:
        lines, data = self._lines, b""
        try:
            while data := await self._receiver.read():
                self._read_bytes += len(data)
                check_expansion(self._content, self._read_bytes, LINES_BYTES_MAX)
                for piece in _pieces(data):
                    await self._store(lines.feed(piece))
                # Release the bytes, because `hold` may wait for memory.
                data = b""
                await self._receiver.hold(lines.next_number, lines.partial_bytes)
            await self._store(lines.end())
        except Refusal as refusal:
            await self._waiting.put(self.last_answer(refusal))
        finally:
            # The traceback of a task group keeps this frame, and so these bytes, in a reference cycle until the next
            # garbage collection.
            lines.clear()
            data = b""

    def last_answer(self, refusal: Refusal) -> "LineBatch":
        """Return the answer to the first line that is not processed, with which the stream ends."""
        number = self._stop_line or self._lines.next_number
        return LineBatch([number], (), {number: refusal})

    async def _store(self, found: Sequence[Line]) -> None:
        if self._access.revision != self._revision:
            self._revision = self._access.revision
            loss = self._access.loss()
            if loss is not None:
                raise loss
        if self._room.log.is_closing:
            self._room = await _current_room(self._services, self._access, self._room)
        room_log = self._room.log
        for start in range(0, len(found), BATCH_EVENTS_MAX):
            some = found[start : start + BATCH_EVENTS_MAX]
            for batch in _line_batches(some, room_log.max_batch_bytes, self._traceparent):
                # Queue the batch before it is stored, so that it is answered even if this task is cancelled meanwhile.
                await self._waiting.put(batch)
                if batch.events:
                    await self._publish(room_log, batch)
                self._count_refused(batch)
            await yield_to_loop()
        if not found:
            await yield_to_loop()

    async def _publish(self, room_log: StreamLog, batch: LineBatch) -> None:
        """Publish the events of a batch when the client's key may publish them. At its daily limit they are refused."""
        limits, count = self._access.limits, len(batch.events)
        if limits is None:
            self._services.publisher.publish(room_log, self._source, batch.events, batch.settle)
            return
        counted = 0
        try:
            storing_count = await self._admitted(limits, count)
            counted = count
            if storing_count is not None:
                await asyncio.shield(storing_count)
        except EventLimitReached as error:
            batch.settle(events_refusal(error))
            return
        except (StorageError, Conflict) as error:
            limits.give_back(counted)
            batch.settle(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the events could not be counted: {error}"))
            return
        except asyncio.CancelledError:
            limits.give_back(counted)
            batch.settle(Refusal("the stream ended before the event was stored", code="StreamEnded", status=503))
            raise

        def settle(outcome: Outcome) -> None:
            if not isinstance(outcome, Published):
                limits.give_back(count)
            batch.settle(outcome)

        self._services.publisher.publish(room_log, self._source, batch.events, settle)

    async def _admitted(self, limits: ClientLimits, count: int) -> "asyncio.Future[None] | None":
        """Count events. A stream waits while the key has published too many events per second, or until the rate is
        changed."""
        while True:
            try:
                return limits.admit(count)
            except RateExceeded as error:
                await asyncio.sleep(min(error.wait_s, RATE_CHECK_SECONDS))

    def _count_refused(self, batch: LineBatch) -> None:
        self._consecutive_refusals = 0 if batch.has_events else self._consecutive_refusals + len(batch.failures)
        if self._consecutive_refusals >= CONSECUTIVE_REFUSALS_MAX:
            self._stop_line = batch.numbers[-1] + 1
            raise Refusal(
                f"{self._consecutive_refusals} consecutive lines were refused: the stream ends here",
                code="TooManyRefusedLines",
                limit=CONSECUTIVE_REFUSALS_MAX,
            )


def _pieces(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        piece = data[start : start + SPLIT_BYTES_MAX]
        if piece.count(b"\n") > SPLIT_LINES_MAX and not piece.isspace():
            piece = piece[:SPLIT_LINES_MAX]
        yield piece
        start += len(piece)


async def _current_room(services: RoomServices, access: RequestAccess, room: OpenRoom) -> OpenRoom:
    """Return the current room with the name of `room`. Called when the log of `room` is closing: the server may have
    deleted the unused room while the stream was idle."""
    try:
        return await room_to_use(services, access, room.name)
    except (StreamError, KafkaError, NotAuthorized):
        return room  # publishing to this room fails, so every line is answered with an error


def _line_batches(lines: Sequence[Line], message_bytes_max: int, traceparent: str | None = None) -> Iterator[LineBatch]:
    """Generate batches of lines whose events are stored atomically. The events of a batch fit into one record batch. A
    single event that may be too large is a batch of its own."""
    bytes_max = min(BATCH_BYTES_MAX, message_bytes_max)
    numbers: list[int] = []
    events: list[NewEvent] = []
    failures: dict[int, Failure] = {}
    size_bytes = 0
    for line, found in zip(lines, _decoded(lines), strict=True):
        try:
            event = traced(_checked(found, message_bytes_max), traceparent)
        except (StreamError, Refusal) as error:
            failures[line.number] = as_value(error)
        else:
            event_bytes = _bytes_max(event)
            if events and size_bytes + event_bytes > bytes_max:
                yield LineBatch(numbers, events, failures)
                numbers, events, failures, size_bytes = [], [], {}, 0
            size_bytes += event_bytes
            events.append(event)
        numbers.append(line.number)
    if numbers:
        yield LineBatch(numbers, events, failures)


def _decoded(lines: Sequence[Line]) -> Sequence[PublishedEvent | Line]:
    """Decode all lines in one step, which is twice as fast as one by one. If that fails, return `lines` unchanged.

    The joint decoding fails if a line is invalid or if an event contains line breaks. It is not tried if the lines have
    more than JOINT_DECODE_BYTES_MAX bytes.
    """
    texts = [line.text for line in lines if line.text is not None]
    if len(texts) == len(lines) and sum(map(len, texts)) <= JOINT_DECODE_BYTES_MAX:
        try:
            found = _decode_lines(b"\n".join(texts))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = []
        if len(found) == len(lines):
            return found
    return lines


def _checked(found: PublishedEvent | Line, message_bytes_max: int) -> NewEvent:
    """Return the event of a line. Raise StreamError or Refusal if the event is invalid. Without this check, one invalid
    event would make its whole batch fail."""
    if isinstance(found, Line):
        if found.text is None:
            raise EventTooLarge(found.size_bytes, found.limit)
        if found.size_bytes > message_bytes_max:
            # Refuse the line before it is decoded, because it is too large to be stored.
            raise EventTooLarge(found.size_bytes, message_bytes_max)
        found = checked_and_decoded(found.text, PublishedEvent, check_events)
    event = new_event(found)
    if event.metadata or event.event_id is not None or not event.type.isascii():
        # Check reserved names, and sizes in bytes: the decoder does not check these.
        record_of(event, b"", event.event_id or event.type, 0)
    return event


def _bytes_max(event: NewEvent) -> int:
    """Return the maximum size of an event in a record batch."""
    size_bytes = RECORD_BYTES + len(event.data) + len(event.key or b"")
    for name, value in event.metadata.items():
        # A character has at most four bytes in UTF-8.
        size_bytes += HEADER_BYTES + 4 * (len(name) + len(value))
    return size_bytes


class _AnswerWriter:
    """Writes the answers to the lines of each batch, in order."""

    def __init__(
        self, response: web.StreamResponse, access: RequestAccess, timeout_s: float, answers_all: bool
    ) -> None:
        self._response = response
        self._access = access
        self._timeout_s = timeout_s
        self._answers_all = answers_all
        self._stored = self._refused = 0

    async def run(self, waiting: "asyncio.Queue[LineBatch | None]") -> None:
        """Write the answers of each batch in the queue until the queue returns None. Raises TimeoutError if the client
        does not read its answers, ConnectionError if it disconnects."""
        while (batch := await waiting.get()) is not None:
            text = self._answers(batch, await batch.outcome if batch.has_events else None)
            if text:
                await self._write(text)
        if not self._answers_all:
            await self._write(_encode(LineAnswer(stored=self._stored, refused=self._refused)) + b"\n")

    async def _write(self, text: bytes) -> None:
        async with asyncio.timeout(self._timeout_s):
            await self._response.write(text)

    def _answers(self, batch: LineBatch, outcome: Outcome | Refusal | None) -> bytes:
        lines: list[bytes] = []
        if isinstance(outcome, Published):
            offset, event_ids = outcome
            self._stored += len(event_ids)
            if self._answers_all:
                lines = [
                    b'{"offset":%d,"event_id":%b}\n' % (offset + index, _encode(event_id))
                    for index, event_id in enumerate(event_ids)
                ]
                if not batch.failures:
                    return b"".join(lines)
        return b"".join(self._mixed(batch, outcome, lines))

    def _mixed(self, batch: LineBatch, outcome: Outcome | Refusal | None, stored: Sequence[bytes]) -> Iterator[bytes]:
        """Generate the answers to stored and refused lines, in the order of the lines."""
        left = iter(stored)
        for number in batch.numbers:
            failure: Exception | None = batch.failures.get(number)
            if failure is None and isinstance(outcome, StreamError | KafkaError | Refusal):
                failure = outcome
            if failure is not None:
                self._refused += 1
                yield _encode({"line": number, "error": self._access.shown_error(failure)}) + b"\n"
            elif self._answers_all:
                yield next(left)
