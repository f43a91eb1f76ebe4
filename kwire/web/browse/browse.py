"""GET /topics/{topic}/records: browse the records of a topic, with filters. docs/browse.md describes it for users.

The answer is a stream of lines (`scan_lines.py`): records that pass the filters, the progress at least twice a second,
and at the end where another request continues. A scan ends when the client closes the connection.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated, Literal, NamedTuple

import msgspec
from aiohttp import web

from kwire.access.quotas.kinds import QuotaKind
from kwire.errors import KafkaError
from kwire.streams.log import StreamLog
from kwire.streams.topic_directory import StreamTopic
from kwire.web.answers.errors import BadRequest, ErrorFacts, Refusal
from kwire.web.answers.large_answers import SENDING_BYTES
from kwire.web.browse.filters import HEADER_FILTERS_MAX, NEEDLE_LENGTH_MAX, PathTest, RecordFilter
from kwire.web.browse.json_path import PATH_LENGTH_MAX, InvalidPath, parse_path
from kwire.web.browse.merged_scan import PENDING_BYTES_MAX, PENDING_PER_CHUNK_MAX, MergedScan
from kwire.web.browse.partition_scans import BackwardScan, ForwardScan, PartitionScan
from kwire.web.browse.record_cursor import RecordCursor, ScanCounts, ScanRules
from kwire.web.browse.record_json import LISTED, WHOLE, BrowsedRecord, EncodingChoice, FoundRecord, shown_record
from kwire.web.browse.scan_lines import (
    IDLE_PROGRESS_SECONDS,
    PROGRESS_SECONDS,
    End,
    EndLine,
    EndReason,
    ProgressLine,
    RecordLine,
    ScanWriter,
    UnreadableLine,
    error_facts,
)
from kwire.web.browse.starts import (
    ScanBounds,
    ScanStart,
    StartKind,
    bounds_of,
    first_offset,
    parse_next,
    parse_partitions,
    parse_start,
)
from kwire.web.needs import READ_TOPIC
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.requests.bodies import converted_query, json_answer, number_in_path, query_of
from kwire.web.requests.tickets import TICKET_PARAMETER
from kwire.web.rooms.line_streams import STREAMS, LineStream
from kwire.web.route import EVENT_STREAM, NDJSON, Answer, AnyOf, Route
from kwire.web.services import TopicServices
from kwire.web.streaming.stream_requests import accepts
from kwire.web.streaming.streaming import check_streamable
from kwire.web.topics.lookup import PARTITION, TOPIC, find_log, find_topic, make_ready

log = logging.getLogger("kwire.web")

LIMIT_DEFAULT = 50
LIMIT_MAX = 10_000
HEADER_PREFIX = "header."
HEADER_NAME_LENGTH_MAX = 256
# The memory of one scan: records that were found, and lines that are sent.
SCAN_BYTES = PENDING_BYTES_MAX + SENDING_BYTES

Isolation = Literal["read_committed", "read_uncommitted"]
Needle = Annotated[str, msgspec.Meta(min_length=1, max_length=NEEDLE_LENGTH_MAX)]
_ISOLATION = msgspec.Meta(description="`read_uncommitted` also shows records of open and aborted transactions.")
_ENCODING = msgspec.Meta(
    description="`auto`: JSON objects and arrays as JSON, other UTF-8 as text, other bytes as base64. `text`: JSON as "
    "text, too, so that its numbers keep their digits."
)


class BrowseQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    start: Annotated[
        str,
        msgspec.Meta(
            description="`newest`: the newest records first. `oldest`, an offset, a time in ISO 8601 or milliseconds "
            "since 1970 with the suffix `ms`: forwards from there. A negative offset counts from the end."
        ),
    ] = msgspec.field(name="from", default="newest")
    partition: Annotated[str, msgspec.Meta(description="Partitions, separated by commas. Absent: all.")] | None = None
    limit: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=LIMIT_MAX,
            description="The maximum number of records. With `live`, of records that exist already (`from=newest`).",
        ),
    ] = LIMIT_DEFAULT
    live: Annotated[bool, msgspec.Meta(description="Continue with new records until the client disconnects.")] = False
    isolation: Annotated[Isolation, _ISOLATION] = "read_committed"
    encoding: Annotated[EncodingChoice, _ENCODING] = "auto"
    next: (
        Annotated[
            str,
            msgspec.Meta(
                description="To continue: the `next` of an earlier answer, as pairs of partition and offset such as "
                "`0:42,1:7`. With `from=newest` the scan reads backwards before these offsets, else forwards from them."
            ),
        ]
        | None
    ) = None
    key: Annotated[Needle, msgspec.Meta(description="The key contains this text.")] | None = None
    value: Annotated[Needle, msgspec.Meta(description="The value contains this text.")] | None = None
    path: (
        Annotated[
            str,
            msgspec.Meta(
                max_length=PATH_LENGTH_MAX,
                description="The value is JSON and has this part, for example `$.order.items[0].name`. Steps: `.name`, "
                "`['name']`, `[0]`, `[-1]`, `[*]`.",
            ),
        ]
        | None
    ) = None
    equals: Annotated[Needle, msgspec.Meta(description="The part at `path` equals this.")] | None = None
    contains: Annotated[Needle, msgspec.Meta(description="The part at `path` contains this text.")] | None = None


class RecordQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    isolation: Annotated[Isolation, _ISOLATION] = "read_committed"
    encoding: Annotated[EncodingChoice, _ENCODING] = "auto"


class ScanRequest(NamedTuple):
    """What a client has asked for."""

    query: BrowseQuery
    start: ScanStart
    partitions: list[int]
    # The offsets at which the scan continues, by partition; empty for a new scan.
    continues: dict[int, int]
    rules: ScanRules


# --- requests


def _scan_request(request: web.Request, topic: StreamTopic) -> ScanRequest:
    given: dict[str, str] = {}
    headers: dict[str, str] = {}
    partitions: list[str] = []
    for name, text in request.rel_url.query.items():
        if name == "partition":
            partitions.append(text)
        elif name in given or name in headers:
            raise BadRequest(f"query: the parameter {name[:100]!r} is given more than once")
        elif name.startswith(HEADER_PREFIX):
            headers[name] = text
        elif name != TICKET_PARAMETER:
            given[name] = text
    if partitions:
        given["partition"] = ",".join(partitions)
    query = converted_query(given, BrowseQuery)
    continues = {} if query.next is None else parse_next(query.next)
    chosen = parse_partitions(partitions, topic.partition_count)
    for partition in continues:
        if partition >= topic.partition_count:
            raise BadRequest(f"next names partition {partition}, and the topic has {topic.partition_count}")
    if continues:
        chosen = [one for one in chosen if one in continues]
    rules = ScanRules(_filter(query, headers), LISTED, query.isolation == "read_committed")
    return ScanRequest(query, parse_start(query.start), chosen, continues, rules)


def _filter(query: BrowseQuery, headers: dict[str, str]) -> RecordFilter:
    if len(headers) > HEADER_FILTERS_MAX:
        raise BadRequest(f"at most {HEADER_FILTERS_MAX} filters of headers are allowed")
    names: dict[str, str] = {}
    for parameter, text in headers.items():
        name = parameter.removeprefix(HEADER_PREFIX)
        if not 1 <= len(name) <= HEADER_NAME_LENGTH_MAX or len(text) > NEEDLE_LENGTH_MAX:
            raise BadRequest(
                f"a filter header.NAME needs a name of at most {HEADER_NAME_LENGTH_MAX} characters and a text of at "
                f"most {NEEDLE_LENGTH_MAX}"
            )
        names[name] = text
    if query.path is None:
        if query.equals is not None or query.contains is not None:
            raise BadRequest("equals and contains need a path, for example path=$.id&equals=7")
        return RecordFilter(query.key, query.value, names)
    if query.equals is not None and query.contains is not None:
        raise BadRequest("equals and contains exclude each other: give only one of them")
    try:
        path = parse_path(query.path)
    except InvalidPath as error:
        raise BadRequest(f"path: {error}") from None
    return RecordFilter(query.key, query.value, names, PathTest(path, query.equals, query.contains))


async def browse(services: TopicServices, request: web.Request) -> web.StreamResponse:
    check_streamable(request)
    topic = await find_topic(services.topics, request)
    asked = _scan_request(request, topic)
    access = access_of(request)
    memory = services.port.memory.lease()
    with services.scan_slots.hold(access, request.remote or ""):
        if not memory.try_hold(SCAN_BYTES):
            raise memory.memory.exhausted()
        try:
            logs = [topic.stream(one) for one in asked.partitions]
            await make_ready(logs)
            bounds = {one: bounds_of(one, asked.rules.is_committed) for one in logs}
            browsing = await Browsing.begin(services, request, access, asked, bounds)
            return await browsing.run()
        finally:
            memory.release()


async def one_record(services: TopicServices, request: web.Request) -> web.Response:
    query = query_of(request, RecordQuery)
    partition_log = find_log(await find_topic(services.topics, request), request)
    offset = number_in_path(request, "offset")
    rules = ScanRules(RecordFilter(), WHOLE, query.isolation == "read_committed")
    found: list[FoundRecord] = []
    await partition_log.ready()
    bounds = bounds_of(partition_log, rules.is_committed)
    if bounds.start <= offset < bounds.end:
        counts = ScanCounts()
        cursor = RecordCursor(partition_log, offset, offset + 1, rules, counts)
        while not cursor.is_done and not found:
            needed = cursor.read(found, 1)
            await (asyncio.sleep(0) if needed is None else needed.wait())
        if counts.gaps:
            raise Refusal(
                f"offset {offset} cannot be read: {counts.gaps[0].reason}", code="CORRUPT_MESSAGE", status=503
            )
    if not found:
        raise Refusal(f"there is no record at offset {offset}", code="RecordNotFound", status=404)
    return json_answer(shown_record(found[0], query.encoding))


# --- scans


class Browsing:
    """One scan, from its first to its last line."""

    def __init__(
        self,
        services: TopicServices,
        request: web.Request,
        access: RequestAccess,
        asked: ScanRequest,
        bounds: dict[StreamLog, ScanBounds],
        scans: Sequence[PartitionScan],
        counts: ScanCounts,
    ) -> None:
        self._request = request
        self._access = access
        self._asked = asked
        self._bounds = bounds
        self._counts = counts
        self._merged = MergedScan(scans)
        self._writer = ScanWriter(
            request,
            counts,
            services.port.quotas,
            access.principal.name,
            is_sse=accepts(request, EVENT_STREAM),
            positions=lambda: (self._merged.offsets_left, self._merged.next_offsets()),
            release=lambda: self._merged.release(),
        )

    @classmethod
    async def begin(
        cls,
        services: TopicServices,
        request: web.Request,
        access: RequestAccess,
        asked: ScanRequest,
        bounds: dict[StreamLog, ScanBounds],
    ) -> "Browsing":
        """Find the start in each partition. Raises KafkaError."""
        counts = ScanCounts()
        scans: list[PartitionScan] = []
        for one, (start, end) in bounds.items():
            if asked.start.kind is StartKind.NEWEST:
                top = min(end, asked.continues.get(one.partition, end))
                scans.append(BackwardScan(one, start, top, asked.rules, counts))
                continue
            first = asked.continues.get(one.partition)
            if first is None:
                first = await first_offset(one, asked.start, bounds[one])
            scans.append(ForwardScan(one, max(first, start), end, asked.rules, counts))
        return cls(services, request, access, asked, bounds, scans, counts)

    async def run(self) -> web.StreamResponse:
        writer = self._writer
        await writer.begin()
        streams = self._request.app[STREAMS]
        try:
            async with asyncio.timeout(None) as until_stop:
                stream = LineStream(self._access, until_stop)
                streams.add(stream)
                reason = await self._scan()
            await self._end(reason)
        except TimeoutError:
            # The node is stopping, or the client has lost its rights.
            if stream.loss is None:
                await self._end("stopped")
            else:
                await self._end("forbidden", error_facts(self._access.shown_error(stream.loss)))
        except KafkaError as error:
            is_gone = any(scan.log.is_gone for scan in self._merged.scans)
            await self._end("deleted" if is_gone else "error", error_facts(self._access.shown_error(error)))
        except ConnectionError:
            raise
        except Exception as error:
            # The status is already sent. Only an aborted connection shows the client that the answer is incomplete.
            if self._request.transport is not None:
                self._request.transport.abort()
            log.error("a scan failed", exc_info=error)
            raise ConnectionResetError("the scan was aborted") from error
        finally:
            streams.discard(stream)
        return writer.response

    async def _end(self, reason: EndReason, error: ErrorFacts | None = None) -> None:
        following = {str(partition): offset for partition, offset in self._merged.next_offsets().items()}
        await self._writer.end(End(reason=reason, next=following, error=error))

    async def _scan(self) -> EndReason:
        query = self._asked.query
        if query.live:
            await self._scan_history()
            return await self._follow()
        async with aclosing(self._merged.records(self._writer, query.limit)) as records:
            async for record in records:
                await self._write(record)
        return "end" if self._merged.is_done else "limit"

    async def _scan_history(self) -> None:
        """Send the records that exist already, the oldest first. Then scan forwards from the end of each partition."""
        merged = self._merged
        if self._asked.start.kind is not StartKind.NEWEST:
            while not merged.is_done:
                async with aclosing(merged.records(self._writer, LIMIT_MAX)) as records:
                    async for record in records:
                        await self._write(record)
            return
        newest: list[FoundRecord] = []
        kept_bytes = 0
        async with aclosing(merged.records(self._writer, self._asked.query.limit)) as records:
            async for record in records:
                newest.append(record)
                kept_bytes += record.kept_bytes
                if kept_bytes > PENDING_BYTES_MAX:
                    break
        self._merged = MergedScan(
            [ForwardScan(one, end, end, self._asked.rules, self._counts) for one, (_, end) in self._bounds.items()]
        )
        for record in reversed(newest):
            await self._write(record)

    async def _follow(self) -> EndReason:
        """Send new records until the topic is deleted."""
        scans = [scan for scan in self._merged.scans if isinstance(scan, ForwardScan)]
        has_risen = asyncio.Event()

        def note_rise(risen: StreamLog) -> None:
            has_risen.set()

        for scan in scans:
            scan.log.watch(note_rise)
        try:
            await self._writer.report_progress()
            while not any(scan.log.is_gone for scan in scans):
                has_risen.clear()
                for scan in scans:
                    is_committed = self._asked.rules.is_committed
                    scan.extend(scan.log.committed_end if is_committed else scan.log.high_watermark)
                while behind := [scan for scan in scans if not scan.is_done]:
                    for scan in behind:
                        await scan.advance(self._writer, PENDING_PER_CHUNK_MAX)
                        while scan.pending:
                            await self._write(scan.pending.popleft().record)
                self._merged.release()
                await self._writer.flush()
                await self._wait_for_rise(has_risen)
        finally:
            for scan in scans:
                scan.log.unwatch(note_rise)
        return "deleted"

    async def _wait_for_rise(self, has_risen: asyncio.Event) -> None:
        while not has_risen.is_set():
            try:
                async with asyncio.timeout(PROGRESS_SECONDS):
                    await has_risen.wait()
            except TimeoutError:
                pass
            await self._writer.keep_up(IDLE_PROGRESS_SECONDS)

    async def _write(self, record: FoundRecord) -> None:
        await self._writer.record(shown_record(record, self._asked.query.encoding))


_LINE = AnyOf((RecordLine, ProgressLine, UnreadableLine, EndLine))

ROUTES: tuple[Route[TopicServices], ...] = (
    Route(
        "GET",
        "/topics/{topic}/records",
        browse,
        summary="Browse the records of a topic, with filters",
        description=(
            "The filters `key`, `value`, `header.NAME` and `path` are combined with AND. `header.NAME=TEXT` passes "
            "records with a header NAME whose value contains TEXT; with an empty TEXT, the header exists. The records "
            "of all partitions are merged by timestamp. Lines with the progress follow at least twice a second. The "
            "last line says why the scan has ended, and where another request continues. With the Accept header "
            "`text/event-stream`, lines are Server-Sent Events. Closing the connection ends the scan."
        ),
        tag="topics",
        query=BrowseQuery,
        parameters={"topic": TOPIC},
        answers={200: Answer("The lines of the scan.", {NDJSON: _LINE, EVENT_STREAM: None})},
        needs=(READ_TOPIC,),
        charges=QuotaKind.CONSUME,
        is_streaming=True,
    ),
    Route(
        "GET",
        "/topics/{topic}/partitions/{partition}/records/{offset}",
        one_record,
        summary="Read one record whole",
        description="Keys and values above 4 MiB are cut.",
        tag="topics",
        query=RecordQuery,
        parameters={"topic": TOPIC, "partition": PARTITION, "offset": PARTITION},
        answers={200: BrowsedRecord},
        needs=(READ_TOPIC,),
        charges=QuotaKind.CONSUME,
    ),
)
