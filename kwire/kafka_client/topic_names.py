"""TopicNames: the names of all topics of a cluster with some facts, which are asked for again after some seconds."""

import asyncio
import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import refusal
from kwire.wire.messages.metadata import METADATA, MetadataRequest, MetadataResponse

# A list that is older than this is asked for again. It is one response of the cluster for all topics.
NAMES_SECONDS: Final = 5.0
# Some brokers may not know of a change for this long. Their responses are not kept.
CHANGE_SECONDS: Final = 1.0
# Names that begin so belong to the cluster itself or to its tools.
INTERNAL_PREFIX: Final = "__"


class ListedTopic(NamedTuple):
    """A topic in the list of all topics."""

    name: str
    topic_id: bytes
    partition_count: int


class TopicNames:
    """The names, in order, without those of internal topics. Callers at the same time share a request."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names: Sequence[str] = ()
        # In the order of the names.
        self._topics: Sequence[ListedTopic] = ()
        self._asked_at = -math.inf
        self._changed_at = -math.inf
        self._asking: asyncio.Task[bool] | None = None

    async def names_from(self, start: str, limit: int) -> Sequence[str]:
        """Return up to `limit` names that do not sort before `start`. Raises KafkaError."""
        await self._ask_if_old()
        first = bisect_left(self._names, start)
        return self._names[first : first + limit]

    async def topics_from(self, start: str, limit: int) -> Sequence[ListedTopic]:
        """Return up to `limit` topics whose names do not sort before `start`. Raises KafkaError."""
        await self._ask_if_old()
        first = bisect_left(self._names, start)
        return self._topics[first : first + limit]

    async def _ask_if_old(self) -> None:
        loop = asyncio.get_running_loop()
        is_old = loop.time() - self._asked_at >= NAMES_SECONDS
        while is_old:
            if self._asking is None:
                self._asking = loop.create_task(self._ask())
                self._asking.add_done_callback(self._asked)
            is_old = not await asyncio.shield(self._asking)

    def forget(self) -> None:
        """A topic was created or deleted: the next caller asks again, and a response on its way does not count."""
        self._asked_at = -math.inf
        self._changed_at = asyncio.get_running_loop().time()
        self._asking = None

    async def _ask(self) -> bool:
        """Return whether the response counts."""
        this = asyncio.current_task()
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response: MetadataResponse = await self._cluster.request_any(METADATA, request)
        if response.error_code:
            raise refusal("Metadata", response.error_code)
        if self._asking is not this:
            return False
        self._topics = sorted(
            ListedTopic(one.name, bytes(one.topic_id), len(one.partitions))
            for one in response.topics
            if one.name is not None and not one.is_internal and not one.name.startswith(INTERNAL_PREFIX)
        )
        self._names = [one.name for one in self._topics]
        now = asyncio.get_running_loop().time()
        if now - self._changed_at >= CHANGE_SECONDS:
            self._asked_at = now
        return True

    def _asked(self, task: "asyncio.Task[bool]") -> None:
        if self._asking is task:
            self._asking = None
        if not task.cancelled():
            # All callers may have been cancelled. Then nobody looks at the error.
            task.exception()
