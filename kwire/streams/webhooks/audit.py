"""The audit log of webhooks: their changes and failures as events of the topic `kwire-audit`.

The event types are webhook.registered, webhook.changed, webhook.removed, webhook.paused, webhook.resumed,
webhook.disabled, webhook.failed (an event became a dead letter) and webhook.gap (events could not be read).

The topic is an ordinary topic with one partition, and webhooks may deliver its events. Dead letters and gaps of these
deliveries are not recorded in the topic. Otherwise two failing webhooks would trigger each other forever.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Protocol

import msgspec

from kwire.broker.topics.catalogue import AUDIT_TOPIC
from kwire.broker.topics.topics import NewTopic, Topics
from kwire.errors import ErrorCode, KafkaError, StreamError
from kwire.streams.events.event import NewEvent
from kwire.streams.events.publishing import Publisher
from kwire.streams.log import StreamLog

log = logging.getLogger("kwire.webhooks")

AUDIT_SOURCE = b"/kwire/webhooks"
# Entries that wait to be written. If there are more, the oldest is dropped. All entries are also in the server's log.
WAITING_MAX = 10_000
PUBLISHED_AT_ONCE_MAX = 500
CLOSE_SECONDS = 5.0


class Audit(Protocol):
    """A destination of audit entries."""

    def record(self, what: str, facts: Mapping[str, object]) -> None: ...


class AuditTopic:
    """Writes audit entries to the topic in the background. The first entry creates the topic."""

    def __init__(self, topics: Topics, publisher: Publisher) -> None:
        self._topics = topics
        self._publisher = publisher
        self._waiting: deque[NewEvent] = deque()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0

    def record(self, what: str, facts: Mapping[str, object]) -> None:
        log.info("%s %s", what, facts)
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(NewEvent(what, msgspec.json.encode(dict(facts))))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._publish())

    async def close(self) -> None:
        """Wait until pending entries are written, for at most CLOSE_SECONDS."""
        if self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
            if not done:
                self._task.cancel()

    async def _publish(self) -> None:
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(len(self._waiting), PUBLISHED_AT_ONCE_MAX))]
            try:
                await self._publisher.publish_and_wait(await self._audit_log(), AUDIT_SOURCE, some)
            except (KafkaError, StreamError) as error:
                self.dropped += len(some)
                log.warning("%d audit entries could not be written to topic %s: %s", len(some), AUDIT_TOPIC, error)

    async def _audit_log(self) -> StreamLog:
        topic = self._topics.get(AUDIT_TOPIC)
        if topic is None:
            try:
                (topic,) = await self._topics.create([NewTopic(AUDIT_TOPIC, 1, {})])
            except KafkaError as error:
                topic = self._topics.get(AUDIT_TOPIC)
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or topic is None:
                    raise
        return topic.stream()
