"""What the brokers of a cluster agree on: whether a change of a topic is made, and whether a topic was deleted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import Unreachable, refusal
from kwire.kafka_client.link import Purpose
from kwire.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire.wire.types import ZERO_UUID

log = logging.getLogger("kwire.streams.remote")

# How long the brokers of a cluster may take to agree that a topic exists, or that it does not.
AGREEMENT_SECONDS: Final = 15.0
# A topic counts as deleted if all brokers that answer do not know it for this time, and two if there are several.
DELETION_SECONDS: Final = 3.0
_DELETION_ANSWERS_MIN: Final = 2


async def agreement(cluster: Cluster, is_reached: Callable[[], Awaitable[bool]]) -> bool:
    """Ask until `is_reached` returns True. Returns False if that takes longer than AGREEMENT_SECONDS."""
    loop, backoff = asyncio.get_running_loop(), cluster.backoff()
    deadline = loop.time() + AGREEMENT_SECONDS
    while not await is_reached():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(backoff.next_seconds())
    return True


async def await_deletion(cluster: Cluster, topic: str, topic_id: bytes) -> None:
    """A broker may still describe a deleted topic. Its successor has another id."""
    metadata = cluster.metadata

    async def is_gone() -> bool:
        await cluster.refresh([topic])
        known = metadata.topics.get(topic)
        metadata.forget(topic)
        return known is None or known.topic_id != topic_id

    if not await agreement(cluster, is_gone):
        log.info("a broker still describes the deleted topic %r", topic)


async def is_deleted(cluster: Cluster, topic: str, topic_id: bytes) -> bool:
    """Whether a topic was deleted, as several brokers say. One alone may lag behind.

    Raises KafkaError if too few brokers answer, or if one may not say it.
    """
    loop, backoff = asyncio.get_running_loop(), cluster.backoff()
    deadline = loop.time() + DELETION_SECONDS
    while True:
        ids = await _ids_by_broker(cluster, topic)
        if topic_id in ids:
            return False
        # A topic with another id everywhere is a successor.
        if None not in ids or loop.time() > deadline:
            return True
        await asyncio.sleep(backoff.next_seconds())


async def _ids_by_broker(cluster: Cluster, topic: str) -> list[bytes | None]:
    """Return what the brokers that answer say of a topic: its id, or None if they do not know it."""
    await cluster.refresh()
    nodes = list(cluster.metadata.brokers)
    found = await asyncio.gather(*(_response_of(cluster, node, topic) for node in nodes))
    ids: list[bytes | None] = []
    for response in found:
        for described in () if response is None else response.topics:
            match described.error_code:
                case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION | ErrorCode.UNKNOWN_TOPIC_ID:
                    ids.append(None)
                case ErrorCode.NONE | ErrorCode.LEADER_NOT_AVAILABLE:
                    ids.append(bytes(described.topic_id) or ZERO_UUID)
                case code:
                    raise refusal(f"topic {topic!r}", code)
    if len(ids) < min(_DELETION_ANSWERS_MIN, len(nodes)):
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"too few brokers answer to know whether the topic {topic!r} was deleted"
        )
    return ids


async def _response_of(cluster: Cluster, node: int, topic: str) -> MetadataResponse | None:
    """Return the response of a broker; None if it does not answer."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    try:
        response: MetadataResponse = await cluster.link(node, Purpose.CONTROL).request(METADATA, request)
    except Unreachable as error:
        log.info("broker %d does not say whether the topic %r exists: %s", node, topic, error)
        return None
    return response
