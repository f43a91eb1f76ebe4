"""The client for programs without an event loop. Its calls run in the event loop of a separate thread."""

import ssl
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from kwire.client.backoff import DELAY_S_MAX, DELAY_S_MIN
from kwire.client.client import DEFAULT_URL, TIMEOUT_S, AsyncClient
from kwire.client.errors import ClientClosed
from kwire.client.events import Event, History, Item, NewEvent, Position, Published
from kwire.client.rooms import RoomInfo
from kwire.client.stream import OnLag
from kwire.client.subscription import Subscription
from kwire.client.sync.event_store import SyncEventStore
from kwire.client.sync.item_iterator import SyncItemIterator
from kwire.client.sync.loop_thread import LoopThread


class SyncSubscription(SyncItemIterator[Item, Event]):
    """A subscription to a room; see `kwire.client.subscription.Subscription`."""

    def __init__(self, loop: LoopThread, subscription: Subscription) -> None:
        super().__init__(loop, subscription, Event)
        self.room = subscription.room


class SyncStream:
    """Calls on events of rooms; see `kwire.client.stream.Stream`."""

    def __init__(self, loop: LoopThread, client: AsyncClient) -> None:
        self._loop = loop
        self._stream = client.stream

    def publish(
        self,
        room: str,
        event_type: str,
        data: Any,
        *,
        metadata: Mapping[str, str] | None = None,
        event_id: str | None = None,
        key: str | None = None,
    ) -> Published:
        return self._loop.run(
            self._stream.publish(room, event_type, data, metadata=metadata, event_id=event_id, key=key)
        )

    def publish_many(self, room: str, events: Sequence[NewEvent]) -> Sequence[Published]:
        return self._loop.run(self._stream.publish_many(room, events))

    def subscribe(
        self,
        room: str,
        *,
        from_offset: int | None = None,
        replay: bool | None = None,
        from_time: str | int | None = None,
        resume: Position | None = None,
        on_lag: OnLag | None = None,
        types: Collection[str] | None = None,
    ) -> SyncSubscription:
        async def opened() -> Subscription:
            return await self._stream.subscribe(
                room,
                from_offset=from_offset,
                replay=replay,
                from_time=from_time,
                resume=resume,
                on_lag=on_lag,
                types=types,
            )

        return SyncSubscription(self._loop, self._loop.run(opened()))

    def history(
        self, room: str, *, from_offset: int | None = None, to_offset: int | None = None, limit: int | None = None
    ) -> History:
        return self._loop.run(self._stream.history(room, from_offset=from_offset, to_offset=to_offset, limit=limit))

    def event(self, room: str, offset: int) -> Event:
        return self._loop.run(self._stream.event(room, offset))


class SyncRooms:
    """Calls that manage rooms; see `kwire.client.rooms.Rooms`."""

    def __init__(self, loop: LoopThread, client: AsyncClient) -> None:
        self._loop = loop
        self._rooms = client.rooms

    def list(self, prefix: str = "") -> Sequence[str]:
        async def names() -> list[str]:
            return [name async for name in self._rooms.list(prefix)]

        return self._loop.run(names())

    def create(self, room: str, **settings: Any) -> RoomInfo:
        return self._loop.run(self._rooms.create(room, **settings))

    def get(self, room: str) -> RoomInfo:
        return self._loop.run(self._rooms.get(room))

    def delete(self, room: str) -> None:
        self._loop.run(self._rooms.delete(room))


class Client:
    """The client, used as `with Client(url) as client:`. Several threads may use it at the same time."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        timeout_s: float = TIMEOUT_S,
        retry_delay_s_min: float = DELAY_S_MIN,
        retry_delay_s_max: float = DELAY_S_MAX,
        headers: Mapping[str, str] | None = None,
        user: str | None = None,
        password: str = "",
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        async def make() -> AsyncClient:
            return AsyncClient(
                url,
                timeout_s=timeout_s,
                retry_delay_s_min=retry_delay_s_min,
                retry_delay_s_max=retry_delay_s_max,
                headers=headers,
                user=user,
                password=password,
                ssl_context=ssl_context,
            )

        self._loop = LoopThread()
        self._client = self._loop.run(make())
        self.stream = SyncStream(self._loop, self._client)
        self.rooms = SyncRooms(self._loop, self._client)
        self.events = SyncEventStore(self._loop, self._client)

    def close(self) -> None:
        try:
            self._loop.run(self._client.close())
        except ClientClosed:
            return
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
