"""Waits until the brokers of a cluster agree on a change of a topic."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kwire.kafka_client.cluster import Cluster

log = logging.getLogger("kwire.streams.remote")

# How long the brokers of a cluster may take to agree that a topic exists, or that it does not.
AGREEMENT_SECONDS: Final = 15.0


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
