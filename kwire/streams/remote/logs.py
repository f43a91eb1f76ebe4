"""RemoteLogs: the logs of a cluster that this process uses, and what they share.

logs = RemoteLogs(cluster, lane)
log = await logs.open("orders", 0)      raises KafkaError if there is no such partition
logs.find("orders", 0)                  the same log without I/O; None if it is not open
logs.log_of("orders", topic_id, 0, …)   a log of a topic that the caller knows, without I/O
await logs.close()
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final

from kwire.concurrency.disk_lanes import Lane
from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.admin import Admin
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import refusal
from kwire.streams.remote.batch_cache import CACHE_BYTES_MAX, BatchCache
from kwire.streams.remote.followers import Followers
from kwire.streams.remote.leader_requests import LeaderRequests
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.partition_queue import PartitionQueue, WaitingBytes
from kwire.streams.remote.producer import Producer
from kwire.streams.remote.reads import Reads
from kwire.streams.remote.topic_limits import TopicLimits
from kwire.streams.remote.usage import Usages

log = logging.getLogger("kwire.streams.remote")

# A topic is deleted if this number of responses in a row do not know it. Fewer may come from a broker that lags behind.
MISSING_MAX: Final = 4
# The leaders and ids of all open topics are asked for after this time, even if nothing fails.
METADATA_SECONDS: Final = 300.0
# How long a topic that was created just now may be missing.
OPEN_SECONDS: Final = 15.0


class RemoteLogs:
    """Use it in the event loop's thread. `lane` runs work of readers that would block the event loop."""

    def __init__(self, cluster: Cluster, lane: Lane, *, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        self.cluster = cluster
        self.admin = Admin(cluster)
        self.lane = lane
        self.cache = BatchCache(cache_bytes_max)
        self.requests = LeaderRequests(cluster)
        self.reads = Reads(self.requests, self.cache)
        self.followers = Followers(cluster, self.cache, self.requests, self.reads)
        self.producer = Producer(cluster)
        self.usage = Usages(cluster, self.requests)
        # Why events cannot be appended to a topic with an id, except by the writer that owns it.
        self.append_refusal_of: Callable[[str, bytes], KafkaError | None] = lambda topic, topic_id: None
        self._limits = TopicLimits(self.admin)
        self._waiting = WaitingBytes()
        self._logs: dict[str, dict[int, RemoteLog]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._checking: set[str] = set()
        cluster.on_metadata(self._check_topics)
        self._start(self._refresh_regularly())

    async def close(self) -> None:
        """Give up all appends and reads. The caller closes the cluster."""
        self.producer.close()
        self.followers.close()
        self.reads.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def find(self, topic: str, partition: int = 0) -> RemoteLog | None:
        """Return a log that is open."""
        return self._logs.get(topic, {}).get(partition)

    async def open(self, topic: str, partition: int = 0) -> RemoteLog:
        """Return a log, after a look at the cluster if it is not open yet. Raises KafkaError if it does not exist."""
        known = self.find(topic, partition)
        if known is not None:
            return known
        topic_id = await self._topic_id(topic, partition)
        max_batch_bytes = await self._limits.max_batch_bytes(topic)
        # Another caller may have opened it meanwhile.
        return self.find(topic, partition) or self._add(topic, topic_id, partition, max_batch_bytes)

    def log_of(self, topic: str, topic_id: bytes, partition: int, max_batch_bytes: int) -> RemoteLog:
        """Return the log of a partition that the caller knows to exist. It is deleted if the topic is another one."""
        known = self.find(topic, partition)
        if known is not None and known.topic_id == topic_id:
            return known
        facts = self.cluster.metadata.topics.get(topic)
        if facts is not None and facts.topic_id == topic_id and known is None:
            return self._add(topic, topic_id, partition, max_batch_bytes)
        former = self._new(topic, topic_id, partition, max_batch_bytes)
        former.delete()
        return former

    def _add(self, topic: str, topic_id: bytes, partition: int, max_batch_bytes: int) -> RemoteLog:
        added = self._new(topic, topic_id, partition, max_batch_bytes)
        self._logs.setdefault(topic, {})[partition] = added
        return added

    def _new(self, topic: str, topic_id: bytes, partition: int, max_batch_bytes: int) -> RemoteLog:
        queue = PartitionQueue(f"topic {topic!r} partition {partition}", max_batch_bytes, self._waiting)
        made = RemoteLog(self, topic, topic_id, partition, queue)
        made.append_refusal = self.append_refusal_of(topic, topic_id)
        return made

    def has_logs(self, topic: str) -> bool:
        return topic in self._logs

    def logs_of(self, topic: str) -> list[RemoteLog]:
        """Return the open logs of a topic."""
        return list(self._logs.get(topic, {}).values())

    def open_logs(self) -> list[RemoteLog]:
        return [one for by_partition in self._logs.values() for one in by_partition.values()]

    @property
    def waiting_bytes(self) -> int:
        """The bytes of all appends without an outcome."""
        return self._waiting.used

    def drop(self, topic: str) -> None:
        """Close the logs of a topic that this process has deleted."""
        self.cluster.metadata.forget(topic)
        for one in self._logs.pop(topic, {}).values():
            one.delete()

    def check_max_batch_bytes(self, topic: str) -> None:
        """A batch was too large: ask for the topic's limit again, which may have changed."""
        if topic not in self._checking:
            self._checking.add(topic)
            self._start(self._ask_max_batch_bytes(topic))

    async def _topic_id(self, topic: str, partition: int) -> bytes:
        metadata = self.cluster.metadata
        backoff = self.cluster.backoff()
        deadline = asyncio.get_running_loop().time() + OPEN_SECONDS
        while True:
            await self.cluster.refresh([topic])
            if (code := metadata.errors.get(topic)) is not None:
                raise refusal(f"topic {topic!r}", code)
            if topic in metadata.missing:
                metadata.forget(topic)
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
            known = metadata.topics.get(topic)
            if known is not None:
                if partition not in known.leaders:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has no partition {partition}"
                    )
                return known.topic_id
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic!r} has no leader")
            await asyncio.sleep(backoff.next_seconds())

    async def _ask_max_batch_bytes(self, topic: str) -> None:
        try:
            limit = await self._limits.max_batch_bytes(topic)
        except KafkaError as error:
            log.info("the largest batch of topic %r is not known: %s", topic, error)
            return
        finally:
            self._checking.discard(topic)
        self.set_max_batch_bytes(topic, limit)

    def set_max_batch_bytes(self, topic: str, limit: int) -> None:
        """The cluster has told the largest batch of a topic."""
        for one in self._logs.get(topic, {}).values():
            one.queue.max_batch_bytes = limit

    # --- deleted topics

    def _check_topics(self, topics: frozenset[str]) -> None:
        """Look for deleted topics after a Metadata response."""
        metadata = self.cluster.metadata
        for topic in topics & self._logs.keys():
            known = metadata.topics.get(topic)
            missing_count = metadata.missing.get(topic, 0)
            gone = [
                one
                for one in self._logs[topic].values()
                if missing_count >= MISSING_MAX or (known is not None and known.topic_id != one.topic_id)
            ]
            for one in gone:
                del self._logs[topic][one.partition]
            if not self._logs[topic]:
                del self._logs[topic]
                if missing_count:
                    metadata.forget(topic)
            elif missing_count:
                self._start(self._look_again(topic))
            for one in gone:
                one.delete()

    async def _look_again(self, topic: str) -> None:
        await self.requests.refresh(topic)

    async def _refresh_regularly(self) -> None:
        while True:
            await asyncio.sleep(METADATA_SECONDS)
            try:
                await self.cluster.refresh(self._logs)
            except KafkaError as error:
                log.info("no broker of the cluster answers: %s", error)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
