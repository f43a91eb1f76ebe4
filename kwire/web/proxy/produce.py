"""Produce requests of REST Proxy v2: POST /topics/{topic} and POST /topics/{topic}/partitions/{partition}, with REST
Proxy's media types.

Keys and values of `binary` records are in base64. Keys and values of `json` records are any JSON values, which are
stored without whitespace. Keys and values of `text` records are strings. null means that the record has no key or no
value. `headers` (with base64 values) and `timestamp` (in milliseconds) are as in Strimzi's bridge.

If the path or the record names a partition, the record is stored there. Otherwise the hash of the key determines the
partition, as in Kafka's Java client. Records without a key are distributed round-robin. If the topic does not exist and
`auto.create.topics.enable` is true, the topic is created, as for any Kafka producer.

If one record is invalid, the request is refused and no record is stored. Otherwise each record has its own result: its
partition and offset, or an error code. The code is 50003 if the record may be sent again, else 50002. As in REST Proxy,
the status is then 200 even if records failed.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from aiohttp import web

from kwire.access.quotas.kinds import QuotaKind
from kwire.broker.topics.topics import protected_topic
from kwire.errors import InvalidEvent, KafkaError
from kwire.streams.events.event import checked_json
from kwire.streams.events.traceparent import TRACEPARENT
from kwire.streams.log import StreamLog
from kwire.streams.topic_directory import StreamTopic
from kwire.web.answers.errors import BadRequest
from kwire.web.needs import CREATE_TOPICS, WRITE_TOPIC
from kwire.web.proxy.errors import ProxyError, record_code
from kwire.web.proxy.media import BINARY, JSON_RECORDS, PROXY, TEXT_RECORDS, format_of, proxy_answer
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.requests.bodies import checked_and_decoded, raw_body_of
from kwire.web.requests.body_limits import check_objects
from kwire.web.requests.key_limits import CountedEvents
from kwire.web.requests.quotas import charge_partitions
from kwire.web.requests.request_ids import traceparent_of
from kwire.web.route import Answer, Route
from kwire.web.services import TopicServices
from kwire.web.topics.chunk_budget import ChunkBudget
from kwire.web.topics.lookup import (
    PARTITION,
    TOPIC,
    TopicNotFound,
    find_log,
    find_topic,
    no_partition,
    partition_index,
)
from storage.batch.builder import batch_bytes_max, build_batch_from_bodies, encode_record_body, header_bytes

# The handler yields to the event loop after this many records. Preparing and encoding a record takes about ten
# microseconds.
RECORDS_PER_CHUNK = 500
# The handler also yields to the event loop after this many batches. Appending a batch takes about ninety microseconds,
# and records with different timestamps are in separate batches.
BATCHES_PER_CHUNK = 50
RECORDS_MAX = 10_000
HEADERS_MAX = 1000
TIMESTAMP_MAX = 2**63 - 1

PartitionIndex = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Timestamp = Annotated[int, msgspec.Meta(ge=0, le=TIMESTAMP_MAX, description="Milliseconds since 1970.")]
Base64 = Annotated[
    bytes,
    msgspec.Meta(
        extra_json_schema={"pattern": "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
    ),
]


def _null() -> msgspec.Raw:
    """Return the default of a Raw field. The default needs a factory, because a JSON schema cannot contain a default
    value of the type Raw."""
    return msgspec.Raw(b"null")


class ProxyHeader(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    key: str
    value: Base64 | None = None


Headers = Annotated[list[ProxyHeader], msgspec.Meta(max_length=HEADERS_MAX)]


class _ProxyRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    partition: PartitionIndex | None = None
    headers: Headers | None = None
    timestamp: Timestamp | None = None


class BinaryRecord(_ProxyRecord, kw_only=True, forbid_unknown_fields=True):
    """A record whose key and value are in base64."""

    key: Base64 | None = None
    value: Base64 | None = None


class JsonRecord(_ProxyRecord, kw_only=True, forbid_unknown_fields=True):
    """A record whose key and value are JSON values."""

    key: msgspec.Raw = msgspec.field(default_factory=_null)
    value: msgspec.Raw = msgspec.field(default_factory=_null)


class TextRecord(_ProxyRecord, kw_only=True, forbid_unknown_fields=True):
    key: str | None = None
    value: str | None = None


class _ProxyRecords(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The common fields of all produce requests. Some clients send these schema fields with every format. They are
    ignored."""

    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


class BinaryRecords(_ProxyRecords, kw_only=True, forbid_unknown_fields=True):
    records: Annotated[list[BinaryRecord], msgspec.Meta(min_length=1, max_length=RECORDS_MAX)]


class JsonRecords(_ProxyRecords, kw_only=True, forbid_unknown_fields=True):
    records: Annotated[list[JsonRecord], msgspec.Meta(min_length=1, max_length=RECORDS_MAX)]


class TextRecords(_ProxyRecords, kw_only=True, forbid_unknown_fields=True):
    records: Annotated[list[TextRecord], msgspec.Meta(min_length=1, max_length=RECORDS_MAX)]


class ProducedRecord(msgspec.Struct, kw_only=True):
    """The result of a record: its partition and offset, or its error."""

    partition: int | None
    offset: int | None
    error_code: int | None = None
    error: str | None = None


class Produced(msgspec.Struct, kw_only=True):
    """The result of a produce request. `offsets` has one entry for each record, in the order of the request."""

    offsets: list[ProducedRecord]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


_SHAPES: dict[str, Any] = {BINARY: BinaryRecords, JSON_RECORDS: JsonRecords, TEXT_RECORDS: TextRecords}


class _PendingRecord(NamedTuple):
    """A record to append. `number` is its index in the request. `tail` is its encoded body: key, value and headers."""

    number: int
    log: StreamLog
    tail: bytes
    timestamp_ms: int


async def produce_to_topic(services: TopicServices, request: web.Request) -> web.Response:
    records = await _records_of(request)
    topic = await _find_or_create(services, request, records, 0)
    return await _produce(services, request, topic, None, records)


async def produce_to_partition(services: TopicServices, request: web.Request) -> web.Response:
    records = await _records_of(request)
    topic = await _find_or_create(services, request, records, partition_index(request))
    return await _produce(services, request, topic, find_log(topic, request), records)


async def _records_of(request: web.Request) -> Sequence[Any]:
    shape = _SHAPES[format_of(request)]
    raw = await raw_body_of(request)
    records: Sequence[Any] = checked_and_decoded(raw, shape, check_objects).records
    return records


async def _find_or_create(
    services: TopicServices, request: web.Request, records: Sequence[Any], partition: int
) -> StreamTopic:
    topics = services.port.config.topics
    try:
        topic = await find_topic(services.topics, request)
        if topic.is_protected:
            raise protected_topic(topic.name)
        return topic
    except TopicNotFound:
        if not topics.is_auto_create:
            raise
    name = request.match_info["topic"]
    access_of(request).authorize_creation(name)
    # A request that names an invalid partition is refused, and does not create the topic.
    for index in (partition, *(one.partition for one in records if one.partition is not None)):
        if not 0 <= index < topics.partition_count:
            raise no_partition(name, topics.partition_count, index)
    charge_partitions(services.port.quotas, access_of(request), topics.partition_count)
    await services.commands.create_if_missing(name)
    return await find_topic(services.topics, request)


async def _produce(
    services: TopicServices, request: web.Request, topic: StreamTopic, log: StreamLog | None, records: Sequence[Any]
) -> web.Response:
    now_ms = services.port.clock.now_ms()
    pending: list[_PendingRecord] = []
    budget = ChunkBudget()
    traceparent = traceparent_of(request)
    trace = None if traceparent is None else header_bytes(TRACEPARENT.encode(), traceparent.encode())
    for index, record in enumerate(records):
        pending.append(_prepare(services, topic, log, index, record, now_ms, trace))
        if budget.is_spent(len(pending[-1].tail)):
            await asyncio.sleep(0)
    access = access_of(request)
    results: list[ProducedRecord] = [ProducedRecord(partition=None, offset=None)] * len(pending)
    waits = []
    async with CountedEvents(access, len(pending)) as counted:
        for first in range(0, len(pending), RECORDS_PER_CHUNK):
            for batch in _batches(pending[first : first + RECORDS_PER_CHUNK]):
                waits.append((batch, _append(batch)))
                if len(waits) % BATCHES_PER_CHUNK == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
        for batch, answered in waits:
            outcome = await answered
            for at, one in enumerate(batch):
                results[one.number] = _produced_record(access, one.log.partition, outcome, at)
        counted.give_back(sum(one.offset is None for one in results))
    return proxy_answer(request, Produced(offsets=results))


def _prepare(
    services: TopicServices,
    topic: StreamTopic,
    log: StreamLog | None,
    index: int,
    record: Any,
    now_ms: int,
    trace: bytes | None,
) -> _PendingRecord:
    """Encode a record. `trace` is the header of the trace context, for records that have none."""
    bytes_max = topic.max_message_bytes
    key = _bytes_of(record.key, f"records[{index}].key", bytes_max)
    value = _bytes_of(record.value, f"records[{index}].value", bytes_max)
    if record.partition is None:
        chosen = log or topic.stream(services.partitioner.choose(topic.name, key, topic.partition_count))
    elif not 0 <= record.partition < topic.partition_count:
        raise no_partition(topic.name, topic.partition_count, record.partition)
    else:
        chosen = topic.stream(record.partition)
        if log is not None and log.partition != record.partition:
            raise BadRequest(f"records[{index}] names partition {record.partition}, but the path names another one")
    given = record.headers or ()
    headers = [header_bytes(one.key.encode(), one.value) for one in given]
    if trace is not None and len(given) < HEADERS_MAX and all(one.key != TRACEPARENT for one in given):
        headers.append(trace)
    tail = encode_record_body(key, value, len(headers), b"".join(headers))
    return _PendingRecord(index, chosen, tail, now_ms if record.timestamp is None else record.timestamp)


def _bytes_of(given: bytes | str | msgspec.Raw | None, field: str, bytes_max: int) -> bytes | None:
    """Return the bytes of a key or a value in any of the three formats; None if it is null."""
    if isinstance(given, msgspec.Raw):
        try:
            compact = checked_json(bytes(given), field, bytes_max)
        except InvalidEvent as error:
            raise BadRequest(error.message) from None
        return None if compact == b"null" else compact
    return given.encode() if isinstance(given, str) else given


def _batches(pending: Sequence[_PendingRecord]) -> Iterator[list[_PendingRecord]]:
    """Group records with the same partition and timestamp, in order, so that each group fits into one record batch. A
    single record that may be too large is a group of its own."""
    open_batches: dict[StreamLog, list[_PendingRecord]] = {}
    sizes: dict[StreamLog, int] = {}
    for one in pending:
        log = one.log
        batch = open_batches.get(log)
        size_bytes = sizes.get(log, 0) + len(one.tail)
        if batch is not None and (
            batch[0].timestamp_ms != one.timestamp_ms
            or batch_bytes_max(size_bytes, len(batch) + 1) > log.max_batch_bytes
        ):
            yield open_batches.pop(log)
            batch, size_bytes = None, len(one.tail)
        if batch is None:
            batch = open_batches[log] = []
        batch.append(one)
        sizes[log] = size_bytes
    yield from open_batches.values()


def _append(records: Sequence[_PendingRecord]) -> "asyncio.Future[int | KafkaError]":
    """Append the records as one batch. Return a future with the offset of the first record, or with the error. The
    future is done when the records are as durable as the topic requires."""
    answered: asyncio.Future[int | KafkaError] = asyncio.get_running_loop().create_future()

    def appended(outcome: int | KafkaError) -> None:
        if not answered.done():  # the request may have been cancelled
            answered.set_result(outcome)

    records[0].log.append(*build_batch_from_bodies([one.tail for one in records], records[0].timestamp_ms), appended)
    return answered


def _produced_record(access: RequestAccess, partition_index: int, outcome: int | KafkaError, at: int) -> ProducedRecord:
    if isinstance(outcome, KafkaError):
        shown = access.shown_text(str(outcome))
        return ProducedRecord(partition=None, offset=None, error_code=record_code(outcome), error=shown)
    return ProducedRecord(partition=partition_index, offset=outcome + at)


ROUTES: tuple[Route[TopicServices], ...] = (
    Route(
        "POST",
        "/topics/{topic}/partitions/{partition}",
        produce_to_partition,
        summary="Produce to one partition (REST Proxy v2)",
        tag="rest proxy",
        parameters={"topic": TOPIC, "partition": PARTITION},
        more_requests={BINARY: BinaryRecords, JSON_RECORDS: JsonRecords, TEXT_RECORDS: TextRecords},
        answers={200: Answer("The result of each record.", {PROXY: Produced})},
        more_refusals={PROXY: ProxyError},
        needs=(WRITE_TOPIC, CREATE_TOPICS),
        charges=QuotaKind.PRODUCE,
    ),
)
