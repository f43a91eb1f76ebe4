"""The implementation of `commands` for topics, rooms and webhooks that this process owns."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kwire.broker.topics.catalogue import PROTECTED_TOPICS
from kwire.broker.topics.topics import NewTopic, Topic, Topics, protected_topic
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.commands import Commands, CommittedEvents, WebhookView
from kwire.streams.event_store.drafts import EventDraft
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.event_store.event_store import EventStore
from kwire.streams.event_store.event_topics import EventTopics
from kwire.streams.event_store.pending_commit import event_id_texts
from kwire.streams.rooms.names import topic_of_room
from kwire.streams.rooms.rooms import Rooms
from kwire.streams.rooms.settings import RoomOverrides
from kwire.streams.subscriptions.start import Start
from kwire.streams.webhooks.consumer import Attempt, Consumer, DeadLetter
from kwire.streams.webhooks.definition import WebhookRequest
from kwire.streams.webhooks.delivery.sender import Response
from kwire.streams.webhooks.webhooks import Webhooks

# A server keeps one copy of each partition.
REPLICATION_FACTOR: Final = 1


def local_commands(
    topics: Topics, event_store: EventStore, event_topics: EventTopics, rooms: Rooms, webhooks: Webhooks | None
) -> Commands:
    return Commands(
        LocalEvents(topics, event_store),
        LocalTopics(topics),
        LocalEventTopics(event_topics),
        LocalRooms(rooms),
        None if webhooks is None else LocalWebhooks(webhooks),
    )


class LocalEvents:
    def __init__(self, topics: Topics, event_store: EventStore) -> None:
        self._topics = topics
        self._event_store = event_store

    async def commit(self, drafts: Sequence[EventDraft], *, idempotency_key: str | None = None) -> CommittedEvents:
        stored = await self._event_store.store(drafts, idempotency_key=idempotency_key)
        return CommittedEvents(event_id_texts(stored, self._topics.catalogue.name_of), stored.is_repeated)


class LocalTopics:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    async def create(
        self, name: str, partition_count: int, configs: Mapping[str, str], replication_factor: int | None = None
    ) -> None:
        if replication_factor not in (None, REPLICATION_FACTOR):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication_factor must be {REPLICATION_FACTOR} on a server, got {replication_factor}",
            )
        new = NewTopic(name, partition_count, configs)
        self._topics.check(new)
        await self._topics.create([new])

    async def create_if_missing(self, name: str) -> None:
        await self._topics.get_or_create(name)

    async def add_partitions(self, name: str, partition_count: int) -> None:
        await self._topics.create_partitions(self._topic_to_change(name), partition_count)

    async def delete(self, name: str) -> None:
        await self._topics.delete(self._topic_to_change(name))

    def _topic_to_change(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        if topic.is_protected:
            raise protected_topic(name)
        return topic


class LocalEventTopics:
    def __init__(self, event_topics: EventTopics) -> None:
        self._event_topics = event_topics

    async def create_event_topic(self, name: str, schemas: object, configs: Mapping[str, str] | None = None) -> None:
        await self._event_topics.create(name, schemas, configs)

    async def change_schemas(self, name: str, schemas: object, *, is_whole: bool) -> None:
        await self._event_topics.evolve(self._event_topics.find(name), schemas, is_whole=is_whole)


class LocalRooms:
    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def create(self, name: str, overrides: RoomOverrides) -> bool:
        _check_room(name)
        _, is_new = await self._rooms.create(name, overrides)
        return is_new

    async def delete(self, name: str) -> None:
        _check_room(name)
        await self._rooms.delete(name)


def _check_room(name: str) -> None:
    """Raise KafkaError if only the server may change the topic of this room."""
    if topic_of_room(name) in PROTECTED_TOPICS:
        raise protected_topic(name)


class LocalWebhooks:
    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    async def get(self, webhook_id: str) -> WebhookView:
        return self._view(self._webhooks.get(webhook_id))

    async def page(self, after: str, limit: int, topic: str | None = None) -> list[WebhookView]:
        views: list[WebhookView] = []
        for consumer in self._webhooks.page(after, limit, topic):
            views.append(self._view(consumer))
            # Yield to the event loop after each webhook, because a webhook may have a hundred topics.
            await asyncio.sleep(0)
        return views

    async def register(self, asked: WebhookRequest) -> WebhookView:
        return self._view(await self._webhooks.register(asked))

    async def change(self, webhook_id: str, asked: WebhookRequest) -> WebhookView:
        return self._view(await self._webhooks.change(webhook_id, asked))

    async def pause(self, webhook_id: str, reason: str) -> WebhookView:
        return self._view(await self._webhooks.pause(webhook_id, reason))

    async def resume(self, webhook_id: str) -> WebhookView:
        return self._view(await self._webhooks.resume(webhook_id))

    async def rotate_secret(self, webhook_id: str, secret: str | None, overlap_ms: int | None) -> WebhookView:
        return self._view(await self._webhooks.rotate_secret(webhook_id, secret, overlap_ms))

    async def remove(self, webhook_id: str) -> None:
        await self._webhooks.remove(webhook_id)

    async def attempts(self, webhook_id: str, before: int | None, limit: int, *, is_failed_only: bool) -> list[Attempt]:
        return self._webhooks.attempts(webhook_id, before, limit, is_failed_only=is_failed_only)

    async def dead_letters(
        self, webhook_id: str, after: EventId | None, limit: int
    ) -> list[tuple[EventId, DeadLetter]]:
        return self._webhooks.dead_letters(webhook_id, after, limit)

    async def resend(self, webhook_id: str, event_ids: Iterable[EventId]) -> int:
        return await self._webhooks.resend(webhook_id, event_ids)

    async def resend_dead(self, webhook_id: str, event_ids: Iterable[EventId] | None) -> int:
        return await self._webhooks.resend_dead(webhook_id, event_ids)

    async def drop_dead(self, webhook_id: str, event_ids: Iterable[EventId] | None) -> int:
        return await self._webhooks.drop_dead(webhook_id, event_ids)

    async def replay(self, webhook_id: str, start: Start, topic: str | None) -> dict[str, str | None]:
        return await self._webhooks.replay(webhook_id, start, topic)

    async def test(self, webhook_id: str) -> Response:
        return await self._webhooks.test(webhook_id)

    def _view(self, consumer: Consumer) -> WebhookView:
        return WebhookView(
            consumer.definition,
            self._webhooks.progress(consumer),
            consumer.delivered_count,
            consumer.failed_count,
            len(consumer.dead),
        )
