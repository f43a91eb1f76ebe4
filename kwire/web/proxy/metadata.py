"""What topics there are, as REST Proxy v2 and its relatives tell it: GET /topics, /topics/{topic}, its partitions and
their offsets, and /brokers.

One shape for everybody; who asks for REST Proxy's media type gets it under that, and errors with its codes. Rooms are
topics and stand among them. Internal topics are not told.
"""

import asyncio
from typing import Annotated, Any

import msgspec
from aiohttp import web

from kwire import topic_config
from kwire.broker.topics import Topic
from kwire.web.bodies import query_of
from kwire.web.proxy.errors import ProxyError
from kwire.web.proxy.media import PROXY, proxy_answer
from kwire.web.route import JSON, Answer, Route
from kwire.web.safety import INTERNAL_PREFIX
from kwire.web.services import WebServices
from kwire.web.topics.lookup import PARTITION, TOPIC, find_log, find_topic

# A name takes a tenth of a microsecond, a partition one; after so many the loop gets its turn.
NAMES_PER_TURN = 5000
PARTITIONS_PER_TURN = 500
NAMES_MAX = 1_000_000


class TopicListQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    prefix: Annotated[str, msgspec.Meta(description="Only names that begin so.")] = ""
    after: Annotated[str, msgspec.Meta(description="Only names behind this one, in the order of names.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=NAMES_MAX, description="So many names at most.")] = NAMES_MAX
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
    """`configs` has every setting that is in force, by Kafka's names. Topics of the event store have two fields more:
    the number of their last event, and their schemas."""

    name: str
    configs: dict[str, str | None]
    partitions: list[PartitionFacts]
    sequence: int | msgspec.UnsetType = msgspec.UNSET
    schemas: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


class PartitionOffsets(msgspec.Struct, kw_only=True):
    """The first offset that can be read, and the one behind the last."""

    beginning_offset: int
    end_offset: int


class Brokers(msgspec.Struct, kw_only=True):
    brokers: list[int]


async def list_topics(services: WebServices, request: web.Request) -> web.Response:
    query = query_of(request, TopicListQuery)
    if query.events:
        found = [one for one in services.event_topics.names() if one.startswith(query.prefix) and one > query.after]
        return proxy_answer(request, found[: query.limit])
    names: list[str] = []
    start = max(query.prefix, query.after + "\0" if query.after else "")
    while len(names) < query.limit:
        page = services.topics.catalogue.names_from(start, NAMES_PER_TURN)
        taken = [one for one in page if one.startswith(query.prefix)]
        names += [one for one in taken if not one.startswith(INTERNAL_PREFIX)]
        if len(taken) < NAMES_PER_TURN:
            break
        start = page[-1] + "\0"
        await asyncio.sleep(0)
    return proxy_answer(request, names[: query.limit])


async def describe_topic(services: WebServices, request: web.Request) -> web.Response:
    topic = find_topic(services, request)
    configs = {entry.name: entry.value for entry in topic_config.describe(topic.configs, services.config)}
    told = TopicDescription(name=topic.name, configs=configs, partitions=await _partitions(services, topic))
    if topic.settings.is_event_topic:
        told.sequence = topic.stream().bounds().committed_end
        told.schemas = services.event_topics.schemas(topic).as_json()
    return proxy_answer(request, told)


async def list_partitions(services: WebServices, request: web.Request) -> web.Response:
    return proxy_answer(request, await _partitions(services, find_topic(services, request)))


async def describe_partition(services: WebServices, request: web.Request) -> web.Response:
    log = find_log(find_topic(services, request), request)
    return proxy_answer(request, _facts(services, log.partition))


async def partition_offsets(services: WebServices, request: web.Request) -> web.Response:
    log = find_log(find_topic(services, request), request)
    await log.ready()
    bounds = log.bounds()
    return proxy_answer(request, PartitionOffsets(beginning_offset=bounds.start, end_offset=bounds.committed_end))


async def list_brokers(services: WebServices, request: web.Request) -> web.Response:
    return proxy_answer(request, Brokers(brokers=[services.config.node_id]))


async def _partitions(services: WebServices, topic: Topic) -> list[PartitionFacts]:
    told = []
    for index in range(len(topic.partitions)):
        told.append(_facts(services, index))
        if len(told) % PARTITIONS_PER_TURN == 0:
            await asyncio.sleep(0)
    return told


def _facts(services: WebServices, index: int) -> PartitionFacts:
    """One node has the one copy of everything."""
    here = services.config.node_id
    return PartitionFacts(partition=index, leader=here, replicas=[Replica(broker=here, leader=True, in_sync=True)])


def _told(shape: object, description: str) -> Answer:
    return Answer(description, {JSON: shape, PROXY: shape})


REFUSALS = {PROXY: ProxyError}

ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/topics",
        list_topics,
        summary="The names of all topics, rooms among them, in order",
        tag="topics",
        query=TopicListQuery,
        answers={200: _told(list[str], "Names.")},
        more_refusals=REFUSALS,
    ),
    Route(
        "GET",
        "/topics/{topic}",
        describe_topic,
        summary="A topic: its settings and partitions",
        tag="topics",
        parameters={"topic": TOPIC},
        answers={200: _told(TopicDescription, "The topic.")},
        more_refusals=REFUSALS,
    ),
    Route(
        "GET",
        "/topics/{topic}/partitions",
        list_partitions,
        summary="The partitions of a topic",
        tag="topics",
        parameters={"topic": TOPIC},
        answers={200: _told(list[PartitionFacts], "The partitions.")},
        more_refusals=REFUSALS,
    ),
    Route(
        "GET",
        "/topics/{topic}/partitions/{partition}",
        describe_partition,
        summary="One partition",
        tag="topics",
        parameters={"topic": TOPIC, "partition": PARTITION},
        answers={200: _told(PartitionFacts, "The partition.")},
        more_refusals=REFUSALS,
    ),
    Route(
        "GET",
        "/topics/{topic}/partitions/{partition}/offsets",
        partition_offsets,
        summary="Where a partition begins and ends",
        tag="topics",
        parameters={"topic": TOPIC, "partition": PARTITION},
        answers={200: _told(PartitionOffsets, "The offsets.")},
        more_refusals=REFUSALS,
    ),
    Route(
        "GET",
        "/brokers",
        list_brokers,
        summary="The ids of all nodes",
        tag="topics",
        answers={200: _told(Brokers, "The nodes.")},
        more_refusals=REFUSALS,
    ),
)
