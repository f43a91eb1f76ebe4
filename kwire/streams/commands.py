"""Commands that are not operations on a log, addressed to the owner of what they change.

Today the owner is this process (`local_commands`). Arguments and results are plain data and errors are StreamError or
KafkaError, so that a command can be sent to the node that owns a topic, a room or a webhook.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kwire.broker.rooms.settings import RoomOverrides
from kwire.broker.store.event_ids import EventId
from kwire.broker.store.event_store import EventDraft
from kwire.broker.subscriptions.start import Start
from kwire.broker.webhooks.consumer import Attempt, DeadLetter
from kwire.broker.webhooks.definition import Asked, Definition
from kwire.broker.webhooks.sending import Response
from kwire.broker.webhooks.webhooks import ShownPlace


class CommittedEvents(NamedTuple):
    """The ids of the events in the order given. `is_repeated`: an earlier commit with the same key stored them."""

    event_ids: Sequence[str]
    is_repeated: bool


class EventCommands(Protocol):
    async def commit(self, drafts: Sequence[EventDraft], *, idempotency_key: str | None = None) -> CommittedEvents:
        """Store events of one or several topics, all or none, if the versions they expect are current."""
        ...


class TopicCommands(Protocol):
    async def create(self, name: str, partition_count: int, configs: Mapping[str, str]) -> None: ...

    async def create_if_missing(self, name: str) -> None:
        """Create a topic as a Kafka producer does with `auto.create.topics.enable`."""
        ...

    async def add_partitions(self, name: str, partition_count: int) -> None:
        """Give a topic `partition_count` partitions, which is more than it has."""
        ...

    async def delete(self, name: str) -> None: ...

    async def create_event_topic(
        self, name: str, schemas: object, configs: Mapping[str, str] | None = None
    ) -> None: ...

    async def change_schemas(self, name: str, schemas: object, *, is_whole: bool) -> None:
        """Replace the schemas of a topic of the event store, or add to them (`is_whole` False)."""
        ...


class RoomCommands(Protocol):
    async def create(self, name: str, overrides: RoomOverrides) -> bool:
        """Create a room, or change the settings of an existing one; whether it was created."""
        ...

    async def delete(self, name: str) -> None: ...


class WebhookView(NamedTuple):
    """A webhook at one moment. `places` are its positions by topic."""

    definition: Definition
    places: Mapping[str, ShownPlace]
    delivered_count: int
    failed_count: int
    dead_count: int


class WebhookCommands(Protocol):
    async def get(self, webhook_id: str) -> WebhookView: ...

    async def page(self, after: str, limit: int, topic: str | None = None) -> list[WebhookView]:
        """Up to `limit` webhooks whose ids sort after `after`."""
        ...

    async def register(self, asked: Asked) -> WebhookView: ...

    async def change(self, webhook_id: str, asked: Asked) -> WebhookView: ...

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
    """`webhooks` is None where they are not served."""

    events: EventCommands
    topics: TopicCommands
    rooms: RoomCommands
    webhooks: WebhookCommands | None
