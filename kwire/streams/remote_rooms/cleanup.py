"""RemoteCleanup: forgets rooms whose topics somebody else has deleted, and deletes rooms that nobody has used.

A room is deleted only with `kwire.bridge.cleanup=true`, only if this bridge has created its topic, and if for
`kwire.rooms.inactive.timeout.hours` it had no event, and no subscriber, webhook, group or request of this bridge. Each
round and each comparison record the rooms that have subscribers, webhooks or groups as used, so the time begins when
the last one leaves.
Requests under `/topics`, of REST Proxy and of HTTP groups count like those under `/rooms`.

The time of the last event is that of the cluster, so events of other clients count. Reads of other clients do not: a
cluster does not show them. Uses before the start of the bridge are not known, so all rooms count as used at its start.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.remote.log import RemoteLog, incarnation_of
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote.partition_queue import State
from kwire.streams.remote_rooms.rooms import PARTITION, RemoteRooms
from kwire.streams.rooms.interface import Subscribers
from kwire.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse

log = logging.getLogger("kwire.bridge")

# The time between two comparisons of the records with the topics of the cluster.
COMPARISON_SECONDS: Final = 300.0
TOPICS_PER_REQUEST: Final = 1000
# A room is forgotten if this number of comparisons in a row have not found its topic.
MISSING_MAX: Final = 2
# The number of rooms that are checked in one iteration of the event loop.
ROOMS_PER_ITERATION: Final = 200
NEVER_MS: Final = -1


class RemoteCleanup:
    """The background tasks. `removed_count` is the number of deleted rooms, `failures` that of failed rounds."""

    def __init__(
        self,
        rooms: RemoteRooms,
        logs: RemoteLogs,
        subscribers: Subscribers,
        clock: Clock,
        *,
        is_enabled: bool,
        is_in_use: Callable[[str], bool],
    ) -> None:
        """`is_in_use` tells whether a webhook may deliver events of a topic, or a group of this bridge is for it."""
        self._rooms = rooms
        self._logs = logs
        self._subscribers = subscribers
        self._clock = clock
        self._is_in_use = is_in_use
        self._started_ms = clock.now_ms()
        # By topic name: the last round that found the room used, and the number of comparisons that missed its topic.
        self._used_ms: dict[str, int] = {}
        self._missing: dict[str, int] = {}
        self.removed_count = 0
        self.failures = 0
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._repeat(self.compare, COMPARISON_SECONDS))]
        timeout_ms = rooms.config.inactive_timeout_ms
        if is_enabled and timeout_ms != NEVER_MS:
            self._tasks.append(loop.create_task(self._repeat(self.round, rooms.config.cleanup_interval_ms / 1000)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except KafkaError as error:
                self.failures += 1
                log.warning("a clean-up round of rooms ended early and will be repeated: %s", error)
            except Exception:
                self.failures += 1
                log.exception("a clean-up round of rooms failed")

    # --- topics that somebody else has deleted

    async def compare(self) -> None:
        """Forget the rooms whose topics the cluster does not have."""
        await self._record_use()
        self._used_ms = {topic: used_ms for topic, used_ms in self._used_ms.items() if self._rooms.records.get(topic)}
        names = iter(list(self._rooms.records.names()))
        while chunk := list(islice(names, TOPICS_PER_REQUEST)):
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in chunk], allow_auto_topic_creation=False
            )
            response: MetadataResponse = await self._logs.cluster.request_any(METADATA, request)
            for topic in response.topics:
                if topic.name is not None:
                    await self._compare_one(topic.name, topic.error_code, bytes(topic.topic_id))

    async def _compare_one(self, topic: str, code: int, topic_id: bytes) -> None:
        record = self._rooms.records.get(topic)
        is_missing = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_other = not code and record is not None and incarnation_of(topic_id) != record.incarnation
        if not (is_missing or is_other):
            self._missing.pop(topic, None)
            return
        count = self._missing[topic] = self._missing.get(topic, 0) + 1
        if count >= MISSING_MAX:
            del self._missing[topic]
            log.info("the topic of the room %r was deleted on the cluster", topic)
            await self._rooms.records.remove(topic)

    # --- rooms that nobody has used

    async def round(self) -> None:
        """Check every room once, and delete the unused ones."""
        limit_ms = self._clock.now_ms() - self._rooms.config.inactive_timeout_ms
        await self._record_use()
        # While rooms are disabled, clients cannot use them, so unused ones must not be deleted.
        is_wanted = self._rooms.is_delete_allowed and self._rooms.config.is_enabled
        if not is_wanted or self._started_ms > limit_ms:
            return
        self._used_ms = {topic: used_ms for topic, used_ms in self._used_ms.items() if used_ms > limit_ms}
        for topic in await self._without_use(limit_ms):
            await self._delete_if_idle(topic, limit_ms)

    def _record_requests(self) -> None:
        now_ms = self._clock.now_ms()
        for topic in self._rooms.take_used():
            self._used_ms[topic] = now_ms

    async def _record_use(self) -> None:
        """Record which rooms requests have used, and which have a subscriber, a webhook or a group now."""
        self._record_requests()
        now_ms = self._clock.now_ms()
        for number, topic in enumerate(list(self._rooms.records.names()), 1):
            one = self._logs.find(topic, PARTITION)
            if (one is not None and self._subscribers.count_of(one)) or self._is_in_use(topic):
                self._used_ms[topic] = now_ms
            if number % ROOMS_PER_ITERATION == 0:
                await asyncio.sleep(0)

    async def _without_use(self, limit_ms: int) -> Sequence[str]:
        found: list[str] = []
        for number, (topic, record) in enumerate(list(self._rooms.records.items()), 1):
            if record.created_ms <= limit_ms and topic not in self._used_ms:
                found.append(topic)
            if number % ROOMS_PER_ITERATION == 0:
                await asyncio.sleep(0)
        return found

    async def _delete_if_idle(self, topic: str, limit_ms: int) -> None:
        try:
            one = await self._logs.open(topic, PARTITION)
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return  # `compare` forgets it
            raise
        if self._rooms.record_of(one) is None or self._subscribers.count_of(one):
            return
        end = await self._idle_end(one, limit_ms)
        if end is None:
            return
        # A request that found the room before this moment has set the mark that `_is_unused` looks for.
        if await self._rooms.delete_topic(one, lambda: self._is_unused(one, end)):
            self.removed_count += 1
            log.info("deleted the room %r: nobody has used it", topic)

    async def _idle_end(self, one: RemoteLog, limit_ms: int) -> int | None:
        """Return the end of a log without a recent event; None if it has one, or if the cluster does not tell."""
        await one.ask_bounds()
        bounds = one.bounds()
        if bounds.start == bounds.end:
            return bounds.end
        last_ms = (await self._logs.usage.ask(one)).last_timestamp_ms
        return bounds.end if last_ms is not None and last_ms <= limit_ms else None

    def _is_unused(self, one: RemoteLog, end: int) -> bool:
        return (
            self._is_not_used(one.topic)
            and one.high_watermark == end
            and one.queue.state is State.IDLE
            and not self._subscribers.count_of(one)
        )

    def _is_not_used(self, topic: str) -> bool:
        """Return whether no request has used the room since the round began."""
        self._record_requests()
        return topic not in self._used_ms and not self._is_in_use(topic)
