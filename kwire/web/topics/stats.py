"""GET /topics/{topic}/stats: what each partition holds.

Offsets are those that can be read; an empty partition has its next offset as the smallest and one less as the largest.
`message_count` counts offsets, so where a topic is compacted there are fewer records than that. `last_compaction` tells
how many seconds ago old records were looked for last; it is null before the first time.
"""

import asyncio

import msgspec
from aiohttp import web

from kwire.web.bodies import json_answer
from kwire.web.route import Route
from kwire.web.services import WebServices
from kwire.web.topics.lookup import TOPIC, find_topic
from kwire.web.topics.topics import check_enabled

# To look at an open log takes a few microseconds.
PARTITIONS_PER_TURN = 500


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


async def topic_stats(services: WebServices, request: web.Request) -> web.Response:
    check_enabled(services)
    topic = find_topic(services, request)
    last_round_ms = services.keepers.retention.last_round_ms
    ago = None if last_round_ms is None else max(0, services.clock.now_ms() - last_round_ms) // 1000
    told = []
    for number, log in enumerate(map(topic.stream, range(len(topic.partitions))), start=1):
        await log.ready()
        bounds = log.bounds()
        told.append(
            PartitionStats(
                partition_id=log.partition,
                topic=topic.name,
                message_count=bounds.committed_end - bounds.start,
                total_bytes=log.usage().size_bytes,
                min_offset=bounds.start,
                max_offset=bounds.newest,
                last_compaction=ago,
            )
        )
        if number % PARTITIONS_PER_TURN == 0:
            await asyncio.sleep(0)
    return json_answer(TopicStats(topic=topic.name, partitions=told))


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/topics/{topic}/stats",
        topic_stats,
        summary="What each partition holds",
        description="An empty partition has a `max_offset` one below its `min_offset`. `last_compaction` is how many "
        "seconds ago old records were looked for last.",
        tag="topics",
        parameters={"topic": TOPIC},
        answers={200: TopicStats},
    ),
)
