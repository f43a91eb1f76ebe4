"""Metadata of topics in the format of REST Proxy v2: GET /topics, GET /topics/{topic}, GET /brokers, and the routes for
the partitions of a topic and their offsets.

The body of a successful answer is the same for all clients. If a request accepts REST Proxy's media type, the answer
has that Content-Type, and errors have REST Proxy's format. GET /topics lists rooms too, because rooms are topics. It
does not list internal topics.
"""

import asyncio
from typing import Annotated, Any

import msgspec
from aiohttp import web

from kwire.access.acl import Operation
from kwire.streams.topic_directory import PlacedPartition, StreamTopic
from kwire.web.needs import AUTHENTICATED, DESCRIBE_TOPIC, DESCRIBE_TOPICS
from kwire.web.proxy.errors import ProxyError
from kwire.web.proxy.media import PROXY, proxy_answer
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.requests.bodies import query_of
from kwire.web.requests.origin_policy import INTERNAL_PREFIX
from kwire.web.route import JSON, Answer, Route
from kwire.web.services import TopicServices
from kwire.web.topics.lookup import PARTITION, TOPIC, find_log, find_topic

# The handler yields to the event loop after this many names or partitions. A name takes a tenth of a microsecond, a
# partition one microsecond.
NAMES_PER_CHUNK = 5000
PARTITIONS_PER_CHUNK = 500
# The same for names on which the rights of the client are checked. Each takes some microseconds.
CHECKS_PER_CHUNK = 200
NAMES_MAX = 1_000_000


class TopicListQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    prefix: Annotated[str, msgspec.Meta(description="Only names with this prefix.")] = ""
    after: Annotated[str, msgspec.Meta(description="Only names that sort after this one.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=NAMES_MAX, description="The maximum number of names.")] = NAMES_MAX
    events: Annotated[bool, msgspec.Meta(description="Only topics of the event store.")] = False


class Replica(msgspec.Struct, kw_only=True):
    broker: int
    leader: bool
    in_sync: bool


class PartitionFacts(msgspec.Struct, kw_only=True):
    partition: int
    leader: int
    replicas: list[Replica]


class TopicDescription(msgspec.Struct, kw_only=True):
    """A topic. `configs` has the effective values of all settings, by Kafka's names. It is empty for clients that may
    not DESCRIBE_CONFIGS. A topic of the event store also has `schemas`, and the number of its last event as
    `sequence`."""

    name: str
    configs: dict[str, str | None]
    partitions: list[PartitionFacts]
    sequence: int | msgspec.UnsetType = msgspec.UNSET
    schemas: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


class PartitionOffsets(msgspec.Struct, kw_only=True):
    """The offsets of a partition. `beginning_offset` is the first readable offset. `end_offset` is one more than the
    last readable offset."""

    beginning_offset: int
    end_offset: int


class Brokers(msgspec.Struct, kw_only=True):
    brokers: list[int]


async def list_topics(services: TopicServices, request: web.Request) -> web.Response:
    query = query_of(request, TopicListQuery)
    access = access_of(request)
    prefix, after = access.full_name(query.prefix), access.full_name(query.after)
    if query.events:
        found = [one for one in services.event_topics.names() if one.startswith(prefix) and one > after]
        found = await _visible(access, found)
        return proxy_answer(request, found[: query.limit])
    names: list[str] = []
    start = max(prefix, after + "\0" if query.after else "")
    while len(names) < query.limit:
        page = await services.topics.names_from(start, NAMES_PER_CHUNK)
        taken = [one for one in page if one.startswith(prefix)]
        names += [one for one in await _visible(access, taken) if not one.startswith(INTERNAL_PREFIX)]
        if len(taken) < NAMES_PER_CHUNK:
            break
        start = page[-1] + "\0"
        await asyncio.sleep(0)
    return proxy_answer(request, names[: query.limit])


async def _visible(access: RequestAccess, names: list[str]) -> list[str]:
    """Return the names of the topics that the client may describe, as the client sees them."""
    if not access.is_restricted:
        return names
    found: list[str] = []
    for first in range(0, len(names), CHECKS_PER_CHUNK):
        some = names[first : first + CHECKS_PER_CHUNK]
        found += [access.shown(one) for one in some if access.allows_topic(Operation.DESCRIBE, one)]
        await asyncio.sleep(0)
    return found


async def describe_topic(services: TopicServices, request: web.Request) -> web.Response:
    topic = await find_topic(services.topics, request)
    configs = {}
    access = access_of(request)
    if access.allows_topic(Operation.DESCRIBE_CONFIGS, topic.name):
        configs = dict(await services.topics.configs(topic))
    description = TopicDescription(
        name=access.shown(topic.name), configs=configs, partitions=await _partitions(services, topic)
    )
    if topic.is_event_topic:
        description.sequence = services.event_topics.find(topic.name).stream().bounds().committed_end
        description.schemas = services.event_topics.schemas(topic).as_json()
    return proxy_answer(request, description)


async def list_partitions(services: TopicServices, request: web.Request) -> web.Response:
    return proxy_answer(request, await _partitions(services, await find_topic(services.topics, request)))


async def describe_partition(services: TopicServices, request: web.Request) -> web.Response:
    topic = await find_topic(services.topics, request)
    log = find_log(topic, request)
    placed = await services.topics.placement(topic)
    return proxy_answer(request, _facts(placed[log.partition]))


async def partition_offsets(services: TopicServices, request: web.Request) -> web.Response:
    log = find_log(await find_topic(services.topics, request), request)
    await log.ready()
    bounds = log.bounds()
    return proxy_answer(request, PartitionOffsets(beginning_offset=bounds.start, end_offset=bounds.committed_end))


async def list_brokers(services: TopicServices, request: web.Request) -> web.Response:
    return proxy_answer(request, Brokers(brokers=list(await services.topics.broker_ids())))


async def _partitions(services: TopicServices, topic: StreamTopic) -> list[PartitionFacts]:
    partitions = []
    for placed in await services.topics.placement(topic):
        partitions.append(_facts(placed))
        if len(partitions) % PARTITIONS_PER_CHUNK == 0:
            await asyncio.sleep(0)
    return partitions


def _facts(placed: PlacedPartition) -> PartitionFacts:
    """Return a partition in the format of REST Proxy."""
    replicas = [
        Replica(broker=broker, leader=broker == placed.leader, in_sync=broker in placed.in_sync)
        for broker in placed.replicas
    ]
    return PartitionFacts(partition=placed.partition, leader=placed.leader, replicas=replicas)


def _answer(shape: object, description: str) -> Answer:
    return Answer(description, {JSON: shape, PROXY: shape})


REFUSALS = {PROXY: ProxyError}

ROUTES: tuple[Route[TopicServices], ...] = (
    Route(
        "GET",
        "/topics",
        list_topics,
        summary="List the names of all topics, including rooms, sorted",
        tag="topics",
        query=TopicListQuery,
        answers={200: _answer(list[str], "Names.")},
        more_refusals=REFUSALS,
        needs=(DESCRIBE_TOPICS,),
    ),
    Route(
        "GET",
        "/topics/{topic}",
        describe_topic,
        summary="Describe a topic: its settings and partitions",
        tag="topics",
        parameters={"topic": TOPIC},
        answers={200: _answer(TopicDescription, "The topic.")},
        more_refusals=REFUSALS,
        needs=(DESCRIBE_TOPIC,),
    ),
    Route(
        "GET",
        "/topics/{topic}/partitions",
        list_partitions,
        summary="List the partitions of a topic",
        tag="topics",
        parameters={"topic": TOPIC},
        answers={200: _answer(list[PartitionFacts], "The partitions.")},
        more_refusals=REFUSALS,
        needs=(DESCRIBE_TOPIC,),
    ),
    Route(
        "GET",
        "/topics/{topic}/partitions/{partition}",
        describe_partition,
        summary="Describe a partition",
        tag="topics",
        parameters={"topic": TOPIC, "partition": PARTITION},
        answers={200: _answer(PartitionFacts, "The partition.")},
        more_refusals=REFUSALS,
        needs=(DESCRIBE_TOPIC,),
    ),
    Route(
        "GET",
        "/topics/{topic}/partitions/{partition}/offsets",
        partition_offsets,
        summary="The first and the end offset of a partition",
        tag="topics",
        parameters={"topic": TOPIC, "partition": PARTITION},
        answers={200: _answer(PartitionOffsets, "The offsets.")},
        more_refusals=REFUSALS,
        needs=(DESCRIBE_TOPIC,),
    ),
    Route(
        "GET",
        "/brokers",
        list_brokers,
        summary="List the ids of all nodes",
        tag="topics",
        answers={200: _answer(Brokers, "The nodes.")},
        more_refusals=REFUSALS,
        needs=AUTHENTICATED,
    ),
)
