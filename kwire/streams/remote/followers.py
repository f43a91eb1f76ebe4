"""Followers: keeps every watched log in the fetch session with the broker that leads it, wherever that moves."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import STALE_METADATA, error_code
from kwire.streams.remote.batch_cache import BatchCache
from kwire.streams.remote.fetcher import PARTITION_BYTES_MAX, Fetcher
from kwire.streams.remote.leader_requests import BrokerSlots, LeaderRequests
from kwire.streams.remote.reads import Reads

if TYPE_CHECKING:
    from kwire.streams.remote.log import RemoteLog

log = logging.getLogger("kwire.streams.remote")

# Logs of one broker that join its fetch session at the same time. Each asks for its bounds.
JOINS_MAX: Final = 50


class Followers:
    def __init__(self, cluster: Cluster, cache: BatchCache, requests: LeaderRequests, reads: Reads) -> None:
        self._cluster = cluster
        self._cache = cache
        self._requests = requests
        self._reads = reads
        self._fetchers: dict[int, Fetcher] = {}
        # The fetcher of each log, and the tasks of the logs that have none yet.
        self._placed: dict[RemoteLog, Fetcher] = {}
        self._joining: dict[RemoteLog, asyncio.Task[None]] = {}
        self._slots = BrokerSlots(JOINS_MAX)
        cluster.on_metadata(self._follow_leaders)

    def close(self) -> None:
        for task in self._joining.values():
            task.cancel()
        for fetcher in self._fetchers.values():
            fetcher.close()

    @property
    def count(self) -> int:
        """The number of followed logs."""
        return len(self._placed) + len(self._joining)

    def is_fetching(self, one: "RemoteLog") -> bool:
        """Whether new records of a log arrive without being asked for."""
        fetcher = self._placed.get(one)
        return fetcher is not None and fetcher.is_fetching(one)

    def add(self, one: "RemoteLog") -> None:
        """Follow a log until `remove`."""
        if one not in self._placed and one not in self._joining:
            self._join(one, 0)

    def remove(self, one: "RemoteLog") -> None:
        joining = self._joining.pop(one, None)
        if joining is not None:
            joining.cancel()
        fetcher = self._placed.pop(one, None)
        if fetcher is not None:
            fetcher.remove(one)
        one.position = None

    def _join(self, one: "RemoteLog", code: int) -> None:
        task = asyncio.get_running_loop().create_task(self._place(one, code))
        self._joining[one] = task

    async def _place(self, one: "RemoteLog", code: int) -> None:
        """Add a log to the fetcher of its leader, after an error with this code."""
        backoff = self._cluster.backoff()
        while True:
            try:
                async with self._slots.of(self._cluster.metadata.leader(one.topic, one.partition).node):
                    if code in STALE_METADATA or self._leader(one) is None:
                        await self._cluster.refresh([one.topic])
                    await self._find_position(one, code)
                if (leader := self._leader(one)) is not None:
                    break
            except KafkaError as error:
                if one.is_gone:
                    return
                log.debug("%r is not followed yet: %s", one, error)
                code = error.code
            except Exception:
                log.exception("%r cannot be followed", one)
            await asyncio.sleep(backoff.next_seconds())
        del self._joining[one]
        self._place_at(one, *leader)

    async def _find_position(self, one: "RemoteLog", code: int) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Retention has removed the records, or a new leader has lost them.
            before = one.position
            await one.ask_bounds(is_exact=True)
            start, end, _ = one.bounds()
            if before is None or not start <= before <= end:
                one.position = start if before is not None and before < start else end
        elif one.position is None:
            await one.ready()
            one.position = one.committed_end
        elif code == 0:
            run = await self._reads.fetch(one, one.position, PARTITION_BYTES_MAX, is_committed=True)
            if run is not None and run.start == one.position:
                one.fetched(len(run.data), run.last_timestamp_ms, run.next_offset)

    def _leader(self, one: "RemoteLog") -> tuple[int, int] | None:
        leader = self._cluster.metadata.leader(one.topic, one.partition)
        return leader if leader.node in self._cluster.metadata.brokers else None

    def _place_at(self, one: "RemoteLog", node: int, leader_epoch: int) -> None:
        fetcher = self._fetchers.get(node)
        if fetcher is None:
            fetcher = self._fetchers[node] = Fetcher(self._cluster, self._cache, node, self._refused)
        self._placed[one] = fetcher
        fetcher.add(one, leader_epoch)

    def _refused(self, one: "RemoteLog", code: int) -> None:
        """A broker does not serve a log."""
        fetcher = self._placed.pop(one, None)
        if fetcher is None:
            return
        if code:
            log.info("broker %d does not serve %r: %s", fetcher.node, one, error_code(code).name)
            self._cluster.metadata.lose_leader(one.topic, one.partition, fetcher.node)
        fetcher.remove(one)
        self._join(one, code)

    def _follow_leaders(self, topics: frozenset[str]) -> None:
        """Move the logs whose leaders have changed."""
        moved = [
            one
            for one, fetcher in self._placed.items()
            if one.topic in topics and (leader := self._leader(one)) is not None and leader[0] != fetcher.node
        ]
        for one in moved:
            self._placed.pop(one).remove(one)
            leader = self._leader(one)
            assert leader is not None
            self._place_at(one, *leader)
