"""GET /overview/topics of a bridge: all topics of its cluster that the client may describe, with kind and retention.

The names and the numbers of partitions are one response of the cluster, and the settings of each chunk of topics are
another one. Sizes are not asked for.
"""

import asyncio
from collections.abc import Mapping

from aiohttp import web

from kwire.access.acl import Operation
from kwire.kafka_client.topic_names import ListedTopic as ClusterTopic
from kwire.web.bridge.services import BridgeTopicListServices
from kwire.web.console import topic_list
from kwire.web.console.topic_list import ListedTopic, TopicList, TopicListQuery
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import json_answer, query_of
from kwire.web.route import Route

TOPICS_PER_CHUNK = 200
CLEANUP_POLICY, RETENTION_MS = "cleanup.policy", "retention.ms"


async def list_topics(services: BridgeTopicListServices, request: web.Request) -> web.Response:
    query = query_of(request, TopicListQuery)
    access = access_of(request)
    start = access.full_name(query.after) + "\0" if query.after else access.full_name("")
    found: list[ListedTopic] = []
    while True:
        chunk = await services.topics.topics_from(start, TOPICS_PER_CHUNK)
        visible = {
            one.name: one
            for one in chunk
            if access.shown(one.name) and access.allows_topic(Operation.DESCRIBE, one.name)
        }
        settings = await services.topics.settings(list(visible), (CLEANUP_POLICY, RETENTION_MS)) if visible else {}
        for one in visible.values():
            if len(found) == query.limit:
                return json_answer(TopicList(topics=found, next=found[-1].name))
            found.append(_listed(services, access.shown(one.name), one, settings.get(one.name, {})))
        if len(chunk) < TOPICS_PER_CHUNK or (access.scope is not None and not access.shown(chunk[-1].name)):
            return json_answer(TopicList(topics=found, next=None))
        start = chunk[-1].name + "\0"
        await asyncio.sleep(0)


def _listed(
    services: BridgeTopicListServices, shown: str, topic: ClusterTopic, settings: Mapping[str, str | None]
) -> ListedTopic:
    policy, retention_ms = settings.get(CLEANUP_POLICY) or "", settings.get(RETENTION_MS)
    return ListedTopic(
        name=shown,
        kind=services.kind(topic.name, topic.topic_id),
        partitions=topic.partition_count,
        size_bytes=None,
        cleanup_policy=policy,
        retention_ms=int(retention_ms) if retention_ms is not None and "delete" in policy else None,
        created_ms=services.created_ms(topic.name, topic.topic_id),
    )


(_OF_SERVER,) = topic_list.ROUTES

ROUTES: tuple[Route[BridgeTopicListServices], ...] = (
    Route(
        _OF_SERVER.method,
        _OF_SERVER.path,
        list_topics,
        summary=_OF_SERVER.summary,
        description="Includes rooms and topics of the event store. Sizes are not asked for, and the creation time "
        "is known of rooms only.",
        tag=_OF_SERVER.tag,
        query=TopicListQuery,
        answers={200: TopicList},
        needs=_OF_SERVER.needs,
    ),
)
