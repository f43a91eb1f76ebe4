"""GET /topics/{topic}/stats: size and offsets of each partition.

`min_offset` and `max_offset` are the first and the last readable offset. In an empty partition `min_offset` is the next
offset and `max_offset` is one less. `message_count` is the number of readable offsets. A compacted partition has fewer
records than offsets. `last_compaction` is the number of seconds since the last retention pass. It is null before the
first retention pass, and on a bridge, which does not see those of its cluster.
"""

import asyncio

import msgspec
from aiohttp import web

from kwire.web.needs import DESCRIBE_TOPIC
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import json_answer
from kwire.web.route import Route
from kwire.web.services import TopicServices
from kwire.web.topics.lookup import TOPIC, find_topic, make_ready
from kwire.web.topics.topics import check_enabled

# The handler yields to the event loop after this many partitions. Each takes a few microseconds if its log is open.
PARTITIONS_PER_CHUNK = 500


class PartitionStats(msgspec.Struct, kw_only=True):
    partition_id: int
    topic: str
    message_count: int
    total_bytes: int
    min_offset: int
    max_offset: int
    last_compaction: int | None


class TopicStats(msgspec.Struct, kw_only=True):
    topic: str
    partitions: list[PartitionStats]


async def topic_stats(services: TopicServices, request: web.Request) -> web.Response:
    check_enabled(services.port)
    topic = await find_topic(services.topics, request)
    last_round_ms = services.last_retention_ms()
    ago = None if last_round_ms is None else max(0, services.port.clock.now_ms() - last_round_ms) // 1000
    shown_name = access_of(request).shown(topic.name)
    logs = list(map(topic.stream, range(topic.partition_count)))
    await make_ready(logs)
    sizes = await services.topics.sizes(topic)
    found = []
    for number, (log, size_bytes) in enumerate(zip(logs, sizes, strict=False), start=1):
        bounds = log.bounds()
        found.append(
            PartitionStats(
                partition_id=log.partition,
                topic=shown_name,
                message_count=bounds.committed_end - bounds.start,
                total_bytes=size_bytes,
                min_offset=bounds.start,
                max_offset=bounds.newest,
                last_compaction=ago,
            )
        )
        if number % PARTITIONS_PER_CHUNK == 0:
            await asyncio.sleep(0)
    return json_answer(TopicStats(topic=shown_name, partitions=found))


ROUTES: tuple[Route[TopicServices], ...] = (
    Route(
        "GET",
        "/topics/{topic}/stats",
        topic_stats,
        summary="Size and offsets of each partition",
        description="An empty partition has a `max_offset` one below its `min_offset`. `last_compaction` is the time "
        "in seconds since the last retention pass.",
        tag="topics",
        parameters={"topic": TOPIC},
        answers={200: TopicStats},
        needs=(DESCRIBE_TOPIC,),
    ),
)
