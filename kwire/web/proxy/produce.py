"""REST Proxy v2 produce: POST /topics/{topic} and POST /topics/{topic}/partitions/{partition} with its media types.

`binary` records have base64 keys and values, `json` ones any JSON, which is stored without spaces, `text` ones strings;
null is no key, or no value. `headers` (base64 values) and `timestamp` (milliseconds) are as in Strimzi's bridge. A
record goes to the partition it names, else by the hash of its key as with Kafka's Java client, else by turns; a topic
that is not there is made first if `auto.create.topics.enable` says so, as for any Kafka producer.

A request that is wrong in one record is refused whole and nothing is stored. After that each record is answered for
itself: its partition and offset, or an error code of 50002, or 50003 if it may be sent again. As with the original, the
status is 200 then, whatever became of the records.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from aiohttp import web

from kwire.broker.events.event import checked_json
from kwire.broker.topics import Topic
from kwire.errors import InvalidEvent, KafkaError
from kwire.streams.log import StreamLog
from kwire.web.bodies import checked_and_decoded, raw_body_of
from kwire.web.body_bounds import check_objects
from kwire.web.errors import BadRequest
from kwire.web.proxy.errors import ProxyError, record_code
from kwire.web.proxy.media import BINARY, JSON_RECORDS, PROXY, TEXT_RECORDS, format_of, proxy_answer
from kwire.web.route import Answer, Route
from kwire.web.services import WebServices
from kwire.web.topics.lookup import (
    PARTITION,
    TOPIC,
    TopicNotFound,
    find_log,
    find_topic,
    no_partition,
    partition_index,
)
from kwire.web.turns import BodyTurns
from storage.batch_writing import batch_bytes_max, batch_of_tails, header_bytes, record_tail

# To check, place and encode a record takes some ten microseconds; after this many the loop gets its turn.
RECORDS_PER_TURN = 500
# Records of different times are batches of their own, and to append one takes some ninety microseconds.
BATCHES_PER_TURN = 50
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
    """Made by a function: a default of this type is not one that a schema could show."""
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
    """Key and value in base64."""

    key: Base64 | None = None
    value: Base64 | None = None


class JsonRecord(_ProxyRecord, kw_only=True, forbid_unknown_fields=True):
    """Key and value as JSON."""

    key: msgspec.Raw = msgspec.field(default_factory=_null)
    value: msgspec.Raw = msgspec.field(default_factory=_null)


class TextRecord(_ProxyRecord, kw_only=True, forbid_unknown_fields=True):
    key: str | None = None
    value: str | None = None


class _ProxyRecords(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Clients send the four names of schemas with every format; these three have none, so they say nothing."""

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
    """Where a record is, or why it is not stored."""

    partition: int | None
    offset: int | None
    error_code: int | None = None
    error: str | None = None


class Produced(msgspec.Struct, kw_only=True):
    """One entry for each record, in the order of the request."""

    offsets: list[ProducedRecord]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


_SHAPES: dict[str, Any] = {BINARY: BinaryRecords, JSON_RECORDS: JsonRecords, TEXT_RECORDS: TextRecords}


class _Placed(NamedTuple):
    """A record on its way; `number` is its place in the request."""

    number: int
    log: StreamLog
    tail: bytes
    timestamp_ms: int


async def produce_to_topic(services: WebServices, request: web.Request) -> web.Response:
    records = await _records_of(request)
    topic = await _find_or_create(services, request, records, 0)
    return await _produce(services, request, topic, None, records)


async def produce_to_partition(services: WebServices, request: web.Request) -> web.Response:
    records = await _records_of(request)
    topic = await _find_or_create(services, request, records, partition_index(request))
    return await _produce(services, request, topic, find_log(topic, request), records)


async def _records_of(request: web.Request) -> Sequence[Any]:
    shape = _SHAPES[format_of(request)]
    raw = await raw_body_of(request)
    records: Sequence[Any] = checked_and_decoded(raw, shape, check_objects).records
    return records


async def _find_or_create(services: WebServices, request: web.Request, records: Sequence[Any], partition: int) -> Topic:
    topics = services.config.topics
    try:
        return find_topic(services, request)
    except TopicNotFound:
        if not topics.is_auto_create:
            raise
    name = request.match_info["topic"]
    # A request that cannot be met makes no topic either.
    for index in (partition, *(one.partition for one in records if one.partition is not None)):
        if not 0 <= index < topics.partition_count:
            raise no_partition(name, topics.partition_count, index)
    await services.commands.topics.create_if_missing(name)
    return find_topic(services, request)


async def _produce(
    services: WebServices, request: web.Request, topic: Topic, log: StreamLog | None, records: Sequence[Any]
) -> web.Response:
    now_ms = services.clock.now_ms()
    placed: list[_Placed] = []
    turns = BodyTurns()
    for index, record in enumerate(records):
        placed.append(_place(services, topic, log, index, record, now_ms))
        if turns.is_over(len(placed[-1].tail)):
            await asyncio.sleep(0)
    told: list[ProducedRecord] = [ProducedRecord(partition=None, offset=None)] * len(placed)
    waits = []
    for first in range(0, len(placed), RECORDS_PER_TURN):
        for batch in _batches(placed[first : first + RECORDS_PER_TURN]):
            waits.append((batch, _append(batch)))
            if len(waits) % BATCHES_PER_TURN == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
    for batch, answered in waits:
        outcome = await answered
        for at, one in enumerate(batch):
            told[one.number] = _told(one.log.partition, outcome, at)
    return proxy_answer(request, Produced(offsets=told))


def _place(services: WebServices, topic: Topic, log: StreamLog | None, index: int, record: Any, now_ms: int) -> _Placed:
    bytes_max = topic.settings.max_message_bytes
    key = _bytes_of(record.key, f"records[{index}].key", bytes_max)
    value = _bytes_of(record.value, f"records[{index}].value", bytes_max)
    if record.partition is None:
        chosen = log or topic.stream(services.partitioner.choose(topic.name, key, len(topic.partitions)))
    elif not 0 <= record.partition < len(topic.partitions):
        raise no_partition(topic.name, len(topic.partitions), record.partition)
    else:
        chosen = topic.stream(record.partition)
        if log not in (None, chosen):
            raise BadRequest(f"records[{index}] names partition {record.partition}, the path another one")
    headers = [header_bytes(one.key.encode(), one.value) for one in record.headers or ()]
    tail = record_tail(key, value, len(headers), b"".join(headers))
    return _Placed(index, chosen, tail, now_ms if record.timestamp is None else record.timestamp)


def _bytes_of(given: bytes | str | msgspec.Raw | None, field: str, bytes_max: int) -> bytes | None:
    """A key or a value, in whichever format it came."""
    if isinstance(given, msgspec.Raw):
        try:
            compact = checked_json(bytes(given), field, bytes_max)
        except InvalidEvent as error:
            raise BadRequest(error.message) from None
        return None if compact == b"null" else compact
    return given.encode() if isinstance(given, str) else given


def _batches(placed: Sequence[_Placed]) -> Iterator[list[_Placed]]:
    """Records of one partition and one time together, in order, as many as the topic takes as one batch."""
    open_batches: dict[StreamLog, list[_Placed]] = {}
    sizes: dict[StreamLog, int] = {}
    for one in placed:
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


def _append(records: Sequence[_Placed]) -> "asyncio.Future[int | KafkaError]":
    """The offset of the first record, once all are as durable as the topic promises; or why they are not stored."""
    answered: asyncio.Future[int | KafkaError] = asyncio.get_running_loop().create_future()

    def appended(outcome: int | KafkaError) -> None:
        if not answered.done():  # the request may be gone
            answered.set_result(outcome)

    records[0].log.append(*batch_of_tails([one.tail for one in records], records[0].timestamp_ms), appended)
    return answered


def _told(partition_index: int, outcome: int | KafkaError, at: int) -> ProducedRecord:
    if isinstance(outcome, KafkaError):
        return ProducedRecord(partition=None, offset=None, error_code=record_code(outcome), error=str(outcome))
    return ProducedRecord(partition=partition_index, offset=outcome + at)


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/topics/{topic}/partitions/{partition}",
        produce_to_partition,
        summary="Produce to one partition, as with REST Proxy v2",
        tag="rest proxy",
        parameters={"topic": TOPIC, "partition": PARTITION},
        more_requests={BINARY: BinaryRecords, JSON_RECORDS: JsonRecords, TEXT_RECORDS: TextRecords},
        answers={200: Answer("The records were produced, or each says why not.", {PROXY: Produced})},
        more_refusals={PROXY: ProxyError},
    ),
)
