"""Topics over HTTP: POST /topics/{topic} creates a topic, PUT /topics/{topic}/partitions adds partitions to it, and
DELETE /topics/{topic} deletes it. The routes that list and describe topics are in `proxy/metadata.py`.

The settings `kwire.streams.*` are the defaults for fields that a request omits. They do not apply to topics that Kafka
clients create. `configs` accepts any topic setting and overrides the retention policy. A POST with a media type of REST
Proxy does not create a topic: it produces records.
"""

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec
from aiohttp import web

from kwire.access.acl import Operation
from kwire.access.quotas.kinds import QuotaKind
from kwire.broker.topics.catalogue import ROOM_CONFIG
from kwire.broker.topics.names import PARTITIONS_MAX
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.topic_directory import StreamTopic
from kwire.web.answers.errors import Refusal
from kwire.web.needs import ALTER_TOPIC, CREATE_TOPICS, DELETE_TOPIC, WRITE_TOPICS
from kwire.web.proxy import produce as proxy_produce
from kwire.web.proxy.errors import ProxyError
from kwire.web.proxy.media import BINARY, JSON_RECORDS, PROXY, TEXT_RECORDS, sends_records
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import body_of, check_is_json, decoded, json_answer, raw_body_of
from kwire.web.requests.quotas import charge_partitions
from kwire.web.route import JSON, Answer, Route
from kwire.web.services import PortServices, TopicServices
from kwire.web.topics.lookup import TOPIC, find_topic
from kwire.web.topics.retention import (
    MESSAGES_CONFIG,
    NO_LIMIT,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    RetentionPolicy,
    configs_of,
    default_policy,
)

T = TypeVar("T")

REPLICAS_MAX = 2**15 - 1

PartitionCount = Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)]


class CreateTopic(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A topic to create. The node's settings are the defaults for absent fields."""

    num_partitions: PartitionCount | None = None
    replication_factor: (
        Annotated[
            int,
            msgspec.Meta(ge=1, le=REPLICAS_MAX, description="1 on a server. A bridge has the default of its cluster."),
        ]
        | None
    ) = None
    retention_policy: RetentionPolicy | None = None
    segment_bytes: Annotated[int, msgspec.Meta(ge=SEGMENT_BYTES_MIN, le=SEGMENT_BYTES_MAX)] | None = None
    configs: Annotated[
        dict[str, str],
        msgspec.Meta(description="Any of Kafka's topic settings, by name; they override the other fields."),
    ] = {}


class CreatedTopic(msgspec.Struct, kw_only=True):
    success: bool
    topic: str
    num_partitions: int
    replication_factor: int


class PartitionIncrease(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request for more partitions. `num_partitions` is the new total number."""

    num_partitions: PartitionCount


class Deleted(msgspec.Struct, kw_only=True):
    success: bool
    topic: str


def check_enabled(port: PortServices) -> None:
    if not port.config.streams.is_enabled:
        raise Refusal(
            "partitioned topics over REST are disabled: set kwire.streams.enable to true",
            code="StreamsDisabled",
            status=403,
        )


async def optional_body_of(request: web.Request, shape: type[T]) -> T:
    """Return the request's JSON body. Without a body, return `shape` with the defaults of all its fields."""
    raw = await raw_body_of(request)
    if not raw:
        return shape()
    check_is_json(request)
    return decoded(raw, shape)


async def create_or_produce(services: TopicServices, request: web.Request) -> web.Response:
    if sends_records(request):
        access_of(request).authorize_topic(Operation.WRITE, request.match_info["topic"])
        return await proxy_produce.produce_to_topic(services, request)
    return await create_topic(services, request)


async def create_topic(services: TopicServices, request: web.Request) -> web.Response:
    access_of(request).authorize_creation(request.match_info["topic"])
    check_enabled(services.port)
    asked = await optional_body_of(request, CreateTopic)
    count = asked.num_partitions or services.port.config.streams.partition_count
    name = request.match_info["topic"]
    configs = _configs(services, asked)
    charge_partitions(services.port.quotas, access_of(request), count)
    await services.commands.create(name, count, configs, asked.replication_factor)
    return json_answer(_created(request, await find_topic(services.topics, request), count), status=201)


def _configs(services: TopicServices, asked: CreateTopic) -> Mapping[str, str]:
    if ROOM_CONFIG in asked.configs:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{ROOM_CONFIG} cannot be set here: use PUT /rooms/{{room}} to create a room."
        )
    streams = services.port.config.streams
    policy = asked.retention_policy or default_policy(streams)
    configs = configs_of(policy, asked.segment_bytes, streams.segment_bytes)
    is_asked_for = asked.retention_policy is not None and configs[MESSAGES_CONFIG] != str(NO_LIMIT)
    if not services.has_message_limits and not is_asked_for:
        del configs[MESSAGES_CONFIG]
    return {**configs, **asked.configs}


def _created(request: web.Request, topic: StreamTopic, partition_count: int) -> CreatedTopic:
    return CreatedTopic(
        success=True,
        topic=access_of(request).shown(topic.name),
        num_partitions=partition_count,
        replication_factor=topic.replication_factor,
    )


async def increase_partitions(services: TopicServices, request: web.Request) -> web.Response:
    check_enabled(services.port)
    count = (await body_of(request, PartitionIncrease)).num_partitions
    topic = await find_topic(services.topics, request)
    now = topic.partition_count
    if topic.is_room and count > 1:
        raise Refusal(
            f"topic {topic.name} is a room, and a room always has one partition", code="RoomHasOnePartition", status=409
        )
    if topic.is_event_topic and count > 1:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"topic {topic.name} belongs to the event store and always has one partition."
        )
    if count < now:
        raise Refusal(
            f"topic {topic.name} has {now} partitions, and partitions cannot be removed",
            code=ErrorCode.INVALID_PARTITIONS.name,
            status=409,
        )
    if count > now:
        charge_partitions(services.port.quotas, access_of(request), count - now)
        await services.commands.add_partitions(topic.name, count)
    return json_answer(_created(request, topic, count))


async def delete_topic(services: TopicServices, request: web.Request) -> web.Response:
    topic = await find_topic(services.topics, request)
    if not topic.is_event_topic:
        check_enabled(services.port)
    if not services.port.config.topics.is_delete_allowed:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false.")
    charge_partitions(services.port.quotas, access_of(request), topic.partition_count)
    await services.commands.delete(topic.name)
    return json_answer(Deleted(success=True, topic=access_of(request).shown(topic.name)))


ROUTES: tuple[Route[TopicServices], ...] = (
    Route(
        "POST",
        "/topics/{topic}",
        create_or_produce,
        summary="Create a topic, or produce records to it",
        description="A JSON body creates a topic. A body with one of REST Proxy's media types produces its records to "
        "the topic: to the partition a record names, else by the hash of its key, else round-robin.",
        tag="topics",
        parameters={"topic": TOPIC},
        request=CreateTopic,
        more_requests={
            BINARY: proxy_produce.BinaryRecords,
            JSON_RECORDS: proxy_produce.JsonRecords,
            TEXT_RECORDS: proxy_produce.TextRecords,
        },
        answers={
            200: Answer("The result of each record.", {PROXY: proxy_produce.Produced}),
            201: Answer("The topic was created.", {JSON: CreatedTopic}),
        },
        more_refusals={PROXY: ProxyError},
        needs=(CREATE_TOPICS, WRITE_TOPICS),
    ),
    Route(
        "PUT",
        "/topics/{topic}/partitions",
        increase_partitions,
        summary="Add partitions to a topic",
        description="`num_partitions` is the new total number. If the number changes, keys map to other partitions.",
        tag="topics",
        parameters={"topic": TOPIC},
        request=PartitionIncrease,
        answers={200: CreatedTopic},
        needs=(ALTER_TOPIC,),
        charges=QuotaKind.MUTATION,
    ),
    Route(
        "DELETE",
        "/topics/{topic}",
        delete_topic,
        summary="Delete a topic",
        tag="topics",
        parameters={"topic": TOPIC},
        answers={200: Deleted},
        needs=(DELETE_TOPIC,),
        charges=QuotaKind.MUTATION,
    ),
)
