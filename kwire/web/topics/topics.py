"""Topics over REST: POST /topics/{topic} makes one, PUT /topics/{topic}/partitions gives it more partitions, DELETE
/topics/{topic} removes it. What is there is told by `proxy_metadata.py`, in the shape that other products have.

A request without a field gets its default from `kwire.streams.*`; topics made elsewhere have Kafka's own. `configs`
takes any setting of a topic, and wins over the retention policy. A body of one of REST Proxy's types produces instead.
"""

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec
from aiohttp import web

from kwire.broker.catalogue import ROOM_CONFIG
from kwire.broker.topic_names import PARTITIONS_MAX
from kwire.errors import ErrorCode, KafkaError
from kwire.web.bodies import body_of, check_is_json, decoded, json_answer, raw_body_of
from kwire.web.errors import Refusal
from kwire.web.proxy import produce as proxy_produce
from kwire.web.proxy.errors import ProxyError
from kwire.web.proxy.media import BINARY, JSON_RECORDS, PROXY, TEXT_RECORDS, sends_records
from kwire.web.route import JSON, Answer, Route
from kwire.web.services import WebServices
from kwire.web.topics.lookup import TOPIC, find_topic
from kwire.web.topics.retention import (
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    RetentionPolicy,
    configs_of,
    default_policy,
)

T = TypeVar("T")

PartitionCount = Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)]


class CreateTopic(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What is left out has the default of the node."""

    num_partitions: PartitionCount | None = None
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=1, description="One node keeps one copy.")] | None = None
    retention_policy: RetentionPolicy | None = None
    segment_bytes: Annotated[int, msgspec.Meta(ge=SEGMENT_BYTES_MIN, le=SEGMENT_BYTES_MAX)] | None = None
    configs: Annotated[
        dict[str, str], msgspec.Meta(description="Any of Kafka's topic settings, by name; they win over the others.")
    ] = {}


class CreatedTopic(msgspec.Struct, kw_only=True):
    success: bool
    topic: str
    num_partitions: int
    replication_factor: int


class Widen(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The number of partitions that there should be."""

    num_partitions: PartitionCount


class Deleted(msgspec.Struct, kw_only=True):
    success: bool
    topic: str


def check_enabled(services: WebServices) -> None:
    if not services.config.streams.is_enabled:
        raise Refusal(
            "partitioned topics are not served over REST here: kwire.streams.enable is false",
            code="StreamsDisabled",
            status=403,
        )


async def optional_body_of(request: web.Request, shape: type[T]) -> T:
    """A JSON body of which every field has a default, so that it may be left out."""
    raw = await raw_body_of(request)
    if not raw:
        return shape()
    check_is_json(request)
    return decoded(raw, shape)


async def create_or_produce(services: WebServices, request: web.Request) -> web.Response:
    if sends_records(request):
        return await proxy_produce.produce_to_topic(services, request)
    return await create_topic(services, request)


async def create_topic(services: WebServices, request: web.Request) -> web.Response:
    check_enabled(services)
    asked = await optional_body_of(request, CreateTopic)
    count = asked.num_partitions or services.config.streams.partition_count
    name = request.match_info["topic"]
    await services.commands.topics.create(name, count, _configs(services, asked))
    return json_answer(_told(name, count), status=201)


def _configs(services: WebServices, asked: CreateTopic) -> Mapping[str, str]:
    if ROOM_CONFIG in asked.configs:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{ROOM_CONFIG} cannot be set here: PUT /rooms/{{room}} makes a room."
        )
    streams = services.config.streams
    policy = asked.retention_policy or default_policy(streams)
    return {**configs_of(policy, asked.segment_bytes, streams.segment_bytes), **asked.configs}


def _told(name: str, partition_count: int) -> CreatedTopic:
    return CreatedTopic(success=True, topic=name, num_partitions=partition_count, replication_factor=1)


async def widen_topic(services: WebServices, request: web.Request) -> web.Response:
    check_enabled(services)
    count = (await body_of(request, Widen)).num_partitions
    topic = find_topic(services, request)
    now = len(topic.partitions)
    if topic.settings.is_room and count > 1:
        raise Refusal(f"{topic.name} is a room, and a room has one partition", code="RoomHasOnePartition", status=409)
    if topic.settings.is_event_topic and count > 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{topic.name} is of the event store: it has one for ever.")
    if count < now:
        raise Refusal(
            f"topic {topic.name} has {now} partitions, and never gets fewer",
            code=ErrorCode.INVALID_PARTITIONS.name,
            status=409,
        )
    if count > now:
        await services.commands.topics.add_partitions(topic.name, count)
    return json_answer(_told(topic.name, count))


async def delete_topic(services: WebServices, request: web.Request) -> web.Response:
    topic = find_topic(services, request)
    if not topic.settings.is_event_topic:
        check_enabled(services)
    if not services.config.topics.is_delete_allowed:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false.")
    await services.commands.topics.delete(topic.name)
    return json_answer(Deleted(success=True, topic=topic.name))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/topics/{topic}",
        create_or_produce,
        summary="Make a topic, or produce to it",
        description="A JSON body makes a topic. A body of one of REST Proxy's media types produces its records to the "
        "topic: to the partition a record names, else by the hash of its key, else by turns.",
        tag="topics",
        parameters={"topic": TOPIC},
        request=CreateTopic,
        more_requests={
            BINARY: proxy_produce.BinaryRecords,
            JSON_RECORDS: proxy_produce.JsonRecords,
            TEXT_RECORDS: proxy_produce.TextRecords,
        },
        answers={
            200: Answer("The records were produced, or each says why not.", {PROXY: proxy_produce.Produced}),
            201: Answer("The topic was made.", {JSON: CreatedTopic}),
        },
        more_refusals={PROXY: ProxyError},
    ),
    Route(
        "PUT",
        "/topics/{topic}/partitions",
        widen_topic,
        summary="Give a topic more partitions",
        description="The same number again changes nothing. Keys move to other partitions when the number changes.",
        tag="topics",
        parameters={"topic": TOPIC},
        request=Widen,
        answers={200: CreatedTopic},
    ),
    Route(
        "DELETE",
        "/topics/{topic}",
        delete_topic,
        summary="Delete a topic",
        tag="topics",
        parameters={"topic": TOPIC},
        answers={200: Deleted},
    ),
)
