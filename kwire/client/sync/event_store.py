"""The event store client for programs without an event loop."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from kwire.client.client import AsyncClient
from kwire.client.event_store import PAGE_EVENTS
from kwire.client.events import EventPage, EventToStore, Position, StoredEvent, StoredItem
from kwire.client.store_subscription import EventStream
from kwire.client.stream import OnLag
from kwire.client.sync.item_iterator import SyncItemIterator
from kwire.client.sync.loop_thread import LoopThread


class SyncEventStream(SyncItemIterator[StoredItem, StoredEvent]):
    """A subscription to the event store; see `kwire.client.store_subscription.EventStream`."""

    def __init__(self, loop: LoopThread, stream: EventStream) -> None:
        super().__init__(loop, stream, StoredEvent)
        self.name = stream.name


class SyncEventStore:
    """Calls on the event store; see `kwire.client.event_store.EventStore`."""

    def __init__(self, loop: LoopThread, client: AsyncClient) -> None:
        self._loop = loop
        self._events = client.events

    def create_topic(
        self, topic: str, schemas: Mapping[str, Mapping[str, Any]], *, configs: Mapping[str, str] | None = None
    ) -> None:
        self._loop.run(self._events.create_topic(topic, schemas, configs=configs))

    def publish(
        self,
        topic: str,
        event_type: str,
        payload: Any,
        *,
        metadata: Mapping[str, str] | None = None,
        key: str | None = None,
        event_id: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> str:
        return self._loop.run(
            self._events.publish(
                topic,
                event_type,
                payload,
                metadata=metadata,
                key=key,
                event_id=event_id,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def publish_many(self, events: Sequence[EventToStore], *, idempotency_key: str | None = None) -> Sequence[str]:
        return self._loop.run(self._events.publish_many(events, idempotency_key=idempotency_key))

    def read(
        self,
        topic: str,
        *,
        since: str | None = None,
        before: str | None = None,
        date: str | None = None,
        limit: int | None = None,
        is_backwards: bool = False,
    ) -> EventPage:
        return self._loop.run(
            self._events.read(topic, since=since, before=before, date=date, limit=limit, is_backwards=is_backwards)
        )

    def read_all(self, topic: str, *, since: str | None = None, date: str | None = None) -> Iterator[StoredEvent]:
        """Yield all stored events of the topic. The client requests the events page by page."""
        after = since
        while True:
            page = self.read(topic, since=after, date=date, limit=PAGE_EVENTS)
            yield from page.events
            if page.next is None:
                return
            after = page.next

    def last(self, topic: str) -> StoredEvent | None:
        return self._loop.run(self._events.last(topic))

    def event(self, event_id: str) -> StoredEvent:
        return self._loop.run(self._events.event(event_id))

    def subscribe_all(
        self,
        *,
        from_position: int | Literal["oldest"] | None = None,
        resume: Position | None = None,
        on_lag: OnLag = "catchup",
        types: Collection[str] | None = None,
    ) -> SyncEventStream:
        async def opened() -> EventStream:
            return await self._events.subscribe_all(
                from_position=from_position, resume=resume, on_lag=on_lag, types=types
            )

        return SyncEventStream(self._loop, self._loop.run(opened()))

    def subscribe_stream(
        self,
        topic: str,
        *,
        from_version: int | Literal["oldest"] | None = None,
        resume: Position | None = None,
        on_lag: OnLag = "catchup",
        types: Collection[str] | None = None,
    ) -> SyncEventStream:
        async def opened() -> EventStream:
            return await self._events.subscribe_stream(
                topic, from_version=from_version, resume=resume, on_lag=on_lag, types=types
            )

        return SyncEventStream(self._loop, self._loop.run(opened()))
