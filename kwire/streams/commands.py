"""Commands: all requests about topics, rooms and webhooks, except operations on a log.

They are sent to the node that owns the topic, room or webhook. Today that is this process (`local_commands`). Arguments
and results are plain data, and errors are StreamError or KafkaError, so that a command could be sent to another node.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kwire.streams.event_store.drafts import EventDraft
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.rooms.settings import RoomOverrides
from kwire.streams.subscriptions.start import Start
from kwire.streams.webhooks.consumer import Attempt, DeadLetter
from kwire.streams.webhooks.definition import Definition, WebhookRequest
from kwire.streams.webhooks.delivery.sender import Response
from kwire.streams.webhooks.statistics import TopicProgress


class CommittedEvents(NamedTuple):
    """The result of a commit: the ids of the events, in the given order.

    `is_repeated` is True if an earlier commit with the same idempotency key has already stored the events.
    """

    event_ids: Sequence[str]
    is_repeated: bool


class EventCommands(Protocol):
    async def commit(self, drafts: Sequence[EventDraft], *, idempotency_key: str | None = None) -> CommittedEvents:
        """Store events in one or several topics, all or none.

        Raises WrongExpectedVersion if the last event of a topic does not have a draft's `expected_version`.
        """
        ...


class TopicCommands(Protocol):
    async def create(
        self, name: str, partition_count: int, configs: Mapping[str, str], replication_factor: int | None = None
    ) -> None:
        """Create a topic. It can be found when this returns. Without `replication_factor`, the default applies."""
        ...

    async def create_if_missing(self, name: str) -> None:
        """Create a topic with default settings if it does not exist, like Kafka's `auto.create.topics.enable`."""
        ...

    async def add_partitions(self, name: str, partition_count: int) -> None:
        """Increase the number of partitions of a topic to `partition_count`."""
        ...

    async def delete(self, name: str) -> None: ...


class EventTopicCommands(Protocol):
    async def create_event_topic(
        self, name: str, schemas: object, configs: Mapping[str, str] | None = None
    ) -> None: ...

    async def change_schemas(self, name: str, schemas: object, *, is_whole: bool) -> None:
        """Replace the schemas of an event-store topic, or add to them if `is_whole` is False."""
        ...


class RoomCommands(Protocol):
    async def create(self, name: str, overrides: RoomOverrides) -> bool:
        """Create a room, or change the settings of an existing room. Returns True if the room was created."""
        ...

    async def delete(self, name: str) -> None: ...


class WebhookView(NamedTuple):
    """The state of a webhook at one moment. `places` has the positions of the webhook by topic name."""

    definition: Definition
    places: Mapping[str, TopicProgress]
    delivered_count: int
    failed_count: int
    dead_count: int


class WebhookCommands(Protocol):
    async def get(self, webhook_id: str) -> WebhookView: ...

    async def page(self, after: str, limit: int, topic: str | None = None) -> list[WebhookView]:
        """Return up to `limit` webhooks whose ids sort after `after`. With `topic`, only webhooks of this topic."""
        ...

    async def register(self, asked: WebhookRequest) -> WebhookView: ...

    async def change(self, webhook_id: str, asked: WebhookRequest) -> WebhookView: ...

    async def pause(self, webhook_id: str, reason: str) -> WebhookView: ...

    async def resume(self, webhook_id: str) -> WebhookView: ...

    async def rotate_secret(self, webhook_id: str, secret: str | None, overlap_ms: int | None) -> WebhookView: ...

    async def remove(self, webhook_id: str) -> None: ...

    async def attempts(
        self, webhook_id: str, before: int | None, limit: int, *, is_failed_only: bool
    ) -> list[Attempt]: ...

    async def dead_letters(
        self, webhook_id: str, after: EventId | None, limit: int
    ) -> list[tuple[EventId, DeadLetter]]: ...

    async def resend(self, webhook_id: str, event_ids: Iterable[EventId]) -> int: ...

    async def resend_dead(self, webhook_id: str, event_ids: Iterable[EventId] | None) -> int: ...

    async def drop_dead(self, webhook_id: str, event_ids: Iterable[EventId] | None) -> int: ...

    async def replay(self, webhook_id: str, start: Start, topic: str | None) -> dict[str, str | None]: ...

    async def test(self, webhook_id: str) -> Response: ...


class Commands(NamedTuple):
    """All commands. `webhooks` is None if webhooks are disabled."""

    events: EventCommands
    topics: TopicCommands
    event_topics: EventTopicCommands
    rooms: RoomCommands
    webhooks: WebhookCommands | None
