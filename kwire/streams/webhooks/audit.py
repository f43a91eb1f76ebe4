"""What happens to webhooks, as events of the topic `kwire-audit`, so that people and programs can follow it.

Types: webhook.registered, webhook.changed, webhook.removed, webhook.paused, webhook.resumed, webhook.disabled,
webhook.failed (an event became a dead letter) and webhook.gap (events were gone before they could be delivered).

The topic is an ordinary one with one partition. A webhook may deliver it; what becomes of those deliveries is not noted
there again, or two failing webhooks would feed each other for ever.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Protocol

import msgspec

from kwire.broker.catalogue import AUDIT_TOPIC
from kwire.broker.events.event import NewEvent
from kwire.broker.events.publishing import Publisher
from kwire.broker.topics import NewTopic, Topics
from kwire.errors import ErrorCode, KafkaError, StreamError
from kwire.streams.log import StreamLog

log = logging.getLogger("kwire.webhooks")

AUDIT_SOURCE = b"/kwire/webhooks"
# Notes that wait for the disk; then the oldest goes, and the log of the server alone has it.
WAITING_MAX = 10_000
PUBLISHED_AT_ONCE_MAX = 500
CLOSE_SECONDS = 5.0


class Audit(Protocol):
    def note(self, what: str, facts: Mapping[str, object]) -> None: ...


class AuditTopic:
    """Called from the event loop; nobody waits for it. The topic is made with the first note."""

    def __init__(self, topics: Topics, publisher: Publisher) -> None:
        self._topics = topics
        self._publisher = publisher
        self._waiting: deque[NewEvent] = deque()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0

    def note(self, what: str, facts: Mapping[str, object]) -> None:
        log.info("%s %s", what, facts)
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(NewEvent(what, msgspec.json.encode(dict(facts))))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._publish())

    async def close(self) -> None:
        """Wait for what is on its way, but not for long."""
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
                log.warning("%d notes could not be written to %s: %s", len(some), AUDIT_TOPIC, error)

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
