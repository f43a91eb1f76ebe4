"""Fetcher: one fetch session with one broker. It feeds all logs that are followed and led by this broker."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kwire.errors import KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import refusal
from kwire.kafka_client.link import Purpose
from kwire.streams.remote.batch_cache import BatchCache
from kwire.streams.remote.fetch_session import FetchKey, FetchPosition, FetchSession, SessionRequest
from kwire.streams.remote.leader_requests import READ_COMMITTED
from kwire.streams.remote.reads import run_of
from kwire.wire.messages.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kwire.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from kwire.streams.remote.log import RemoteLog

log = logging.getLogger("kwire.streams.remote")

# How long the broker waits for new records. A log that is added meanwhile is fetched after that time at the latest.
WAIT_MS: Final = 250
RESPONSE_BYTES_MAX: Final = 8 * 1024 * 1024
PARTITION_BYTES_MAX: Final = 1024 * 1024
# Other callbacks run after this number of partitions of a response.
PARTITIONS_PER_TURN: Final = 100
# The longest pause between two requests that a broker with a quota may ask for.
THROTTLE_SECONDS_MAX: Final = 30.0

# Called with a log that this broker cannot serve, and with the error code (0: there is a gap in the log).
Refused = Callable[["RemoteLog", int], None]


class Fetcher:
    """`node` is the broker. The fetcher runs while it has logs."""

    def __init__(self, cluster: Cluster, cache: BatchCache, node: int, refused: Refused) -> None:
        self.node = node
        self._cluster = cluster
        self._cache = cache
        self._refused = refused
        self._session = FetchSession()
        self._logs: dict[FetchKey, RemoteLog] = {}
        # The logs as a response names them: by name or id of the topic, and partition.
        self._answered_logs: dict[tuple[str | bytes, int], RemoteLog] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_connected = False

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def logs(self) -> list["RemoteLog"]:
        return list(self._logs.values())

    def is_fetching(self, one: "RemoteLog") -> bool:
        """Whether the broker sends new records of a log as soon as there are any."""
        return self._is_connected and self._session.asked(key_of(one)) is not None

    def add(self, one: "RemoteLog", leader_epoch: int) -> None:
        """Fetch a log from its position on."""
        assert one.position is not None
        key = key_of(one)
        self._logs[key] = one
        for name in _names_of(one):
            self._answered_logs[name] = one
        self._session.want(key, FetchPosition(one.position, leader_epoch))
        if self._task is None:
            self._begin()

    def remove(self, one: "RemoteLog") -> None:
        key = key_of(one)
        if self._logs.pop(key, None) is not None:
            self._session.remove(key)
            for name in _names_of(one):
                # A topic that was created again may have taken the name.
                if self._answered_logs.get(name) is one:
                    del self._answered_logs[name]
            one.end_waits()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        backoff = self._cluster.backoff()
        while self._logs:
            try:
                await self._fetch()
                backoff.reset()
            except KafkaError as error:
                self._disconnect()
                log.debug("broker %d does not answer a Fetch: %s", self.node, error)
                await asyncio.sleep(backoff.next_seconds())
                try:
                    # The leaders may have moved. `Followers` moves the logs, then.
                    await self._cluster.refresh({one.topic for one in self._logs.values()})
                except KafkaError as unreachable:
                    log.debug("no broker answers: %s", unreachable)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        self._disconnect()
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.error("the fetcher of broker %d failed", self.node, exc_info=error)
            for one in self.logs():
                self._refused(one, -1)
        elif self._logs:
            # They were added after the task had found none, and before this callback.
            self._begin()

    def _disconnect(self) -> None:
        """The session is lost. Readers fetch on their own, until another one has begun."""
        self._is_connected = False
        self._session.reset()
        for one in self.logs():
            one.end_waits()

    async def _fetch(self) -> None:
        link = self._cluster.link(self.node, Purpose.FETCH)
        if link.current is None:
            self._disconnect()
        connection = await link.connection()
        asked = self._session.request()
        pending = connection.send(FETCH, self._request(asked), wait_seconds=WAIT_MS / 1000)
        self._is_connected = True
        response: FetchResponse = await pending
        if not self._session.answered(response.error_code, response.session_id):
            self._disconnect()
            return
        if response.error_code:
            raise refusal(f"the Fetch of broker {self.node}", response.error_code)
        await self._take(response)
        if response.throttle_time_ms:
            # The answer of a broker that enforces a quota may be empty. It does not end the session.
            await asyncio.sleep(min(response.throttle_time_ms / 1000, THROTTLE_SECONDS_MAX))
        elif response.responses:
            # New events are delivered before the next request is made and sent, which takes time on the event loop.
            await asyncio.sleep(0)

    def _request(self, asked: SessionRequest) -> FetchRequest:
        topics: dict[tuple[str, bytes], list[FetchPartition]] = {}
        for key, position in asked.partitions.items():
            topics.setdefault(key[:2], []).append(
                FetchPartition(
                    partition=key.partition,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    partition_max_bytes=PARTITION_BYTES_MAX,
                )
            )
        forgotten: dict[tuple[str, bytes], list[int]] = {}
        for key in asked.forgotten:
            forgotten.setdefault(key[:2], []).append(key.partition)
        return FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=RESPONSE_BYTES_MAX,
            isolation_level=READ_COMMITTED,
            session_id=asked.session_id,
            session_epoch=asked.epoch,
            topics=[FetchTopic(topic=name, topic_id=id_, partitions=one) for (name, id_), one in topics.items()],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=id_, partitions=one) for (name, id_), one in forgotten.items()
            ],
        )

    async def _take(self, response: FetchResponse) -> None:
        size = sum(len(data.records or b"") for topic in response.responses for data in topic.partitions)
        count = 0
        for topic in response.responses:
            name = topic.topic or bytes(topic.topic_id)
            for data in topic.partitions:
                one = self._answered_logs.get((name, data.partition_index))
                if one is not None:
                    self._take_partition(one, data, size)
                count += 1
                if not count % PARTITIONS_PER_TURN:
                    await asyncio.sleep(0)

    def _take_partition(self, one: "RemoteLog", data: PartitionData, response_bytes: int) -> None:
        key = key_of(one)
        asked = self._session.asked(key)
        if asked is None or asked.offset != one.position:
            return
        if data.error_code:
            self._refused(one, data.error_code)
            return
        try:
            run = run_of(data, asked.offset)
        except KafkaError as error:
            self._refused(one, error.code)
            return
        if run is not None:
            if 2 * len(run.data) < response_bytes:
                run.own()
            self._cache.add(one.runs, run)
            one.fetched(len(run.data), run.last_timestamp_ms, run.next_offset)
            self._session.want(key, FetchPosition(run.next_offset, asked.leader_epoch))
        one.follow(data.log_start_offset, data.last_stable_offset, data.high_watermark)
        one.end_waits()
        if run is None and data.last_stable_offset > asked.offset and response_bytes < RESPONSE_BYTES_MAX // 2:
            self._refused(one, 0)


def _names_of(one: "RemoteLog") -> list[tuple[str | bytes, int]]:
    names: list[tuple[str | bytes, int]] = [(one.topic, one.partition)]
    if one.topic_id != ZERO_UUID:
        names.append((one.topic_id, one.partition))
    return names


def key_of(one: "RemoteLog") -> FetchKey:
    return FetchKey(one.topic, one.topic_id, one.partition)
