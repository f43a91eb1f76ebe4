"""The open WebSockets of this API on this node, by topic, with their limit and their metrics."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kwire.streams.log import StreamLog
from kwire.streams.subscriptions.event_batches import EventBatch

if TYPE_CHECKING:
    from kwire.web.db_events.event_session import EventSession

log = logging.getLogger("kwire.web")

# The maximum number of warnings about sessions within a second, so that clients cannot fill the disk with messages.
WARNINGS_PER_SECOND = 10


@dataclass(slots=True)
class DbEventMetrics:
    """Counters since the start."""

    published: int = 0
    # Events that arrived at this node for a topic with sessions, each once, however many sessions the topic has.
    received: int = 0
    refused_events: int = 0
    refused_rate: int = 0
    refused_slots: int = 0
    refused_connections: int = 0
    opened: int = 0
    closed_expected: int = 0
    closed_unexpected: int = 0


class TopicSessions:
    """The sessions of one topic on this node."""

    __slots__ = ("_metrics", "_received_to", "sessions")

    def __init__(self, metrics: DbEventMetrics, position: int) -> None:
        self.sessions: set[EventSession] = set()
        self._metrics = metrics
        # Events before this offset are counted as received.
        self._received_to = position

    def note_received(self, batch: EventBatch) -> None:
        """Count the events of a batch that is sent to a session, unless another session has received them."""
        if batch.next_offset > self._received_to:
            if batch.start_offset >= self._received_to:
                self._metrics.received += len(batch.events)
            else:
                self._metrics.received += sum(event.offset >= self._received_to for event in batch.events)
            self._received_to = batch.next_offset


class EventSessions:
    """All sessions. `connections_max` is `kwire.sessions.max.connections`."""

    def __init__(self, connections_max: int) -> None:
        self.connections_max = connections_max
        self.metrics = DbEventMetrics()
        # Requests that are being upgraded, and open sessions.
        self.connection_count = 0
        self._topics: dict[StreamLog, TopicSessions] = {}
        self._second = 0
        self._warnings = 0

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    def sessions_of(self, topic: StreamLog) -> int:
        found = self._topics.get(topic)
        return 0 if found is None else len(found.sessions)

    def enter(self) -> bool:
        """Count a connection, or return False if there are `connections_max`. Call `leave` when it ends."""
        if self.connection_count >= self.connections_max:
            self.metrics.refused_connections += 1
            return False
        self.connection_count += 1
        return True

    def leave(self) -> None:
        self.connection_count -= 1

    def register(self, session: "EventSession", topic: StreamLog, position: int) -> TopicSessions:
        """Add a session whose first event is at `position`."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicSessions(self.metrics, position)
        found.sessions.add(session)
        self.metrics.opened += 1
        return found

    def unregister(self, session: "EventSession", topic: StreamLog) -> None:
        found = self._topics.get(topic)
        if found is not None:
            found.sessions.discard(session)
            if not found.sessions:
                del self._topics[topic]

    def log_end(self, key_id: str, reason: str, *, is_expected: bool, now: float) -> None:
        """Log the end of a session: a warning if it is not an expected one."""
        if is_expected:
            self.metrics.closed_expected += 1
            log.debug("a subscription of key %s has ended: %s", key_id, reason)
            return
        self.metrics.closed_unexpected += 1
        if int(now) != self._second:
            self._second, self._warnings = int(now), 0
        self._warnings += 1
        if self._warnings <= WARNINGS_PER_SECOND:
            log.warning("a subscription of key %s has ended unexpectedly: %s", key_id, reason)
