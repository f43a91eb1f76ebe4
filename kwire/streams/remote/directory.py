"""RemoteTopics: the TopicDirectory of the topics of a cluster.

What it knows of a topic is at most FIND_SECONDS old: a deleted topic may be found that long. A topic that it does not
know is asked for at once.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kwire.broker.topics.names import check_name
from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.errors import refusal
from kwire.kafka_client.metadata import TopicMetadata
from kwire.kafka_client.topic_names import INTERNAL_PREFIX, ListedTopic, TopicNames
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import MISSING_MAX, RemoteLogs
from kwire.streams.remote.topic_limits import TopicLimits
from kwire.streams.topic_directory import PlacedPartition, StreamTopic
from kwire.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse

log = logging.getLogger("kwire.streams.remote")

# A topic that is used is asked for again after REFRESH_SECONDS, in the background. A request waits for the response if
# what is known is older than FIND_SECONDS.
REFRESH_SECONDS: Final = 3.0
FIND_SECONDS: Final = 10.0
# The same for max.message.bytes, which is a request for each topic.
LIMIT_SECONDS: Final = 30.0
# The maximum number of topics that are known. The topics that were not used for the longest time are forgotten first.
TOPICS_MAX: Final = 10_000


class TopicMarks:
    """Which topics of the cluster have a meaning for this process. A feature replaces the function for its topics.

    A topic id tells whether it is still the topic that was marked, or one that was created later under the name.
    """

    def __init__(self) -> None:
        self.is_room: Callable[[str, bytes], bool] = lambda name, topic_id: False
        self.is_event_topic: Callable[[str, bytes], bool] = lambda name, topic_id: False
        self.is_protected: Callable[[str], bool] = lambda name: False


class RemoteTopic:
    """A topic of a cluster. It keeps up with new partitions, but not with a topic created again under its name."""

    __slots__ = (
        "_logs",
        "_marks",
        "asked_at",
        "limit_asked_at",
        "max_message_bytes",
        "name",
        "partition_count",
        "replication_factor",
        "topic_id",
    )

    def __init__(self, logs: RemoteLogs, marks: TopicMarks, facts: TopicMetadata, max_message_bytes: int) -> None:
        self._logs = logs
        self._marks = marks
        self.name = facts.name
        self.topic_id = facts.topic_id
        self.max_message_bytes = max_message_bytes
        self.limit_asked_at = 0.0
        self.learn(facts, 0.0)

    @property
    def is_room(self) -> bool:
        return self._marks.is_room(self.name, self.topic_id)

    @property
    def is_event_topic(self) -> bool:
        return self._marks.is_event_topic(self.name, self.topic_id)

    @property
    def is_protected(self) -> bool:
        return self._marks.is_protected(self.name)

    def stream(self, index: int = 0) -> RemoteLog:
        return self._logs.log_of(self.name, self.topic_id, index, self.max_message_bytes)

    def learn(self, facts: TopicMetadata, now: float) -> None:
        """The cluster has described this topic."""
        self.partition_count = len(facts.leaders)
        self.replication_factor = facts.replication_factor
        self.asked_at = now


class RemoteTopics:
    """Use it in the event loop's thread, and `close` it before the logs."""

    def __init__(self, logs: RemoteLogs, marks: TopicMarks) -> None:
        self.marks = marks
        # Called with the name of each topic that a request has found.
        self.on_use: Callable[[str], None] = lambda name: None
        self._logs = logs
        self._cluster = logs.cluster
        self._admin = logs.admin
        self._limits = TopicLimits(self._admin)
        self._names = TopicNames(logs.cluster)
        self._known: OrderedDict[str, RemoteTopic] = OrderedDict()
        self._asking: dict[str, asyncio.Task[RemoteTopic | None]] = {}
        logs.cluster.on_metadata(self._learn)

    async def close(self) -> None:
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    # --- finding

    async def find(self, name: str) -> RemoteTopic | None:
        found = await self._find(name)
        if found is not None:
            self.on_use(name)
        return found

    async def _find(self, name: str) -> RemoteTopic | None:
        if not _may_be_found(name):
            return None
        known = self._known.get(name)
        age = FIND_SECONDS if known is None else _now() - known.asked_at
        if known is None or age >= FIND_SECONDS:
            return await asyncio.shield(self._ask(name))
        self._known.move_to_end(name)
        if age >= REFRESH_SECONDS:
            self._ask(name)
        return known

    async def ask(self, name: str) -> RemoteTopic | None:
        """Find a topic as the cluster describes it now."""
        return await asyncio.shield(self._ask(name)) if _may_be_found(name) else None

    def forget(self, name: str) -> None:
        """This process has created, changed or deleted a topic. The next request asks the cluster."""
        self._known.pop(name, None)
        self._names.forget()

    async def names_from(self, start: str, limit: int) -> Sequence[str]:
        return await self._names.names_from(start, limit)

    async def topics_from(self, start: str, limit: int) -> Sequence[ListedTopic]:
        """Return up to `limit` topics whose names do not sort before `start`, in order."""
        return await self._names.topics_from(start, limit)

    async def settings(self, names: Sequence[str], keys: Sequence[str]) -> Mapping[str, Mapping[str, str | None]]:
        """Return some settings of several topics. Topics whose settings the cluster does not show are left out."""
        return await self._admin.configs_of_topics(names, keys)

    def _ask(self, name: str) -> "asyncio.Task[RemoteTopic | None]":
        """Return the task that asks the cluster for a topic. Callers at the same time share it."""
        asking = self._asking.get(name)
        if asking is None:
            asking = self._asking[name] = asyncio.get_running_loop().create_task(self._ask_cluster(name))
            asking.add_done_callback(lambda task: self._asked(name, task))
        return asking

    def _asked(self, name: str, task: "asyncio.Task[RemoteTopic | None]") -> None:
        del self._asking[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            # Without a caller that waits, the next one finds out.
            log.debug("topic %r cannot be described: %s", name, error)

    async def _ask_cluster(self, name: str) -> RemoteTopic | None:
        facts = await self._facts_of(name)
        if facts is None:
            self._known.pop(name, None)
            return None
        known = self._known.get(name)
        if known is None or known.topic_id != facts.topic_id or _now() - known.limit_asked_at >= LIMIT_SECONDS:
            limit = await self._limits.max_batch_bytes(name)
            known = self._known.get(name)
            if known is None or known.topic_id != facts.topic_id:
                known = self._known[name] = RemoteTopic(self._logs, self.marks, facts, limit)
                self._forget_unused()
            known.max_message_bytes = limit
            known.limit_asked_at = _now()
            self._logs.set_max_batch_bytes(name, limit)
        known.learn(facts, _now())
        return known

    async def _facts_of(self, name: str) -> TopicMetadata | None:
        metadata = self._cluster.metadata
        is_known = name in self._known
        while True:
            await self._cluster.refresh([name])
            code, missing_count = metadata.errors.get(name), metadata.missing.get(name, 0)
            facts = metadata.topics.get(name)
            if code is None and facts is not None and not missing_count:
                return facts
            # One broker may lag behind and not know a topic that others know.
            if code is None and missing_count < MISSING_MAX and facts is not None and is_known:
                continue
            if not self._logs.has_logs(name):
                metadata.forget(name)
            if code is not None:
                raise refusal(f"topic {name!r} of the cluster", code)
            if missing_count or is_known:
                return None
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r} has no leader")

    def _learn(self, names: frozenset[str]) -> None:
        """A response to a Metadata request has described these topics."""
        metadata = self._cluster.metadata
        for name in names & self._known.keys():
            known, facts = self._known[name], metadata.topics.get(name)
            if facts is None or facts.topic_id != known.topic_id:
                del self._known[name]
            elif name not in metadata.missing:
                known.learn(facts, _now())

    def _forget_unused(self) -> None:
        while len(self._known) > TOPICS_MAX:
            name, _ = self._known.popitem(last=False)
            if not self._logs.has_logs(name):
                self._cluster.metadata.forget(name)

    # --- facts that are asked for each time

    async def configs(self, topic: StreamTopic) -> Mapping[str, str | None]:
        return await self._admin.topic_configs(topic.name)

    async def placement(self, topic: StreamTopic) -> Sequence[PlacedPartition]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)], allow_auto_topic_creation=False)
        response: MetadataResponse = await self._cluster.request_any(METADATA, request)
        described = response.topics[0]
        if described.error_code:
            raise refusal(f"topic {topic.name!r}", described.error_code)
        return sorted(
            PlacedPartition(one.partition_index, one.leader_id, one.replica_nodes, one.isr_nodes)
            for one in described.partitions
        )

    async def sizes(self, topic: StreamTopic) -> Sequence[int]:
        return await self._logs.usage.sizes(topic.name, topic.partition_count)

    async def broker_ids(self) -> Sequence[int]:
        await self._cluster.refresh()
        return sorted(self._cluster.metadata.brokers)


def _may_be_found(name: str) -> bool:
    """Whether a topic of this name can exist and is not internal."""
    if name.startswith(INTERNAL_PREFIX):
        return False
    try:
        check_name(name)
    except KafkaError:
        return False
    return True


def _now() -> float:
    return asyncio.get_running_loop().time()
