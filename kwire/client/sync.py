"""The same client for programs without an event loop: a thread of its own runs one, and the calls wait for it."""

import asyncio
import threading
from collections import deque
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from kwire.client.backoff import DELAY_S_MAX, DELAY_S_MIN
from kwire.client.client import DEFAULT_URL, TIMEOUT_S, AsyncClient
from kwire.client.errors import ClientClosed, GapFound
from kwire.client.events import Event, Gap, History, Item, NewEvent, Position, Published
from kwire.client.rooms import RoomInfo
from kwire.client.stream import OnLag
from kwire.client.subscription import Subscription

T = TypeVar("T")

# Items fetched from the loop at once; waking a thread for each would be most of the work.
BATCH_ITEMS = 100


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kwire client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise ClientClosed("the client was closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C ends the wait here; the work over there must not go on without anybody.
            future.cancel()
            raise

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class SyncSubscription:
    """Iterate over it (`for item in subscription`), or pull with `next` or `next_event`."""

    def __init__(self, loop: _Loop, subscription: Subscription) -> None:
        self._loop = loop
        self._subscription = subscription
        self._fetched: deque[tuple[Item, Position]] = deque()
        self._position = subscription.position

    @property
    def room(self) -> str:
        return self._subscription.room

    @property
    def position(self) -> Position | None:
        """Behind the last item taken. Store it to go on from here in another process (`resume=`)."""
        return self._position

    def next(self, timeout_s: float | None = None) -> Item:
        """The next item. TimeoutError if none comes in time; what ended the subscription, if something did."""
        if not self._fetched:
            self._fetched.extend(self._loop.run(self._subscription.next_batch(BATCH_ITEMS, timeout_s)))
        item, self._position = self._fetched.popleft()
        return item

    def next_event(self, timeout_s: float | None = None) -> Event:
        """The next event, without the marks between; a gap is raised as `GapFound`, and the call after it goes on."""
        while True:
            item = self.next(timeout_s)
            if isinstance(item, Event):
                return item
            if isinstance(item, Gap):
                raise GapFound(item)

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        try:
            return self.next()
        except ClientClosed:
            raise StopIteration from None

    def close(self) -> None:
        self._loop.run(self._subscription.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncStream:
    """See `kwire.client.stream.Stream`, whose calls these are."""

    def __init__(self, loop: _Loop, client: AsyncClient) -> None:
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
        subscription = self._loop.run(
            self._stream.subscribe(
                room,
                from_offset=from_offset,
                replay=replay,
                from_time=from_time,
                resume=resume,
                on_lag=on_lag,
                types=types,
            )
        )
        return SyncSubscription(self._loop, subscription)

    def history(
        self, room: str, *, from_offset: int | None = None, to_offset: int | None = None, limit: int | None = None
    ) -> History:
        return self._loop.run(self._stream.history(room, from_offset=from_offset, to_offset=to_offset, limit=limit))

    def event(self, room: str, offset: int) -> Event:
        return self._loop.run(self._stream.event(room, offset))


class SyncRooms:
    """See `kwire.client.rooms.Rooms`, whose calls these are."""

    def __init__(self, loop: _Loop, client: AsyncClient) -> None:
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
    """`with Client(url) as client:`; may be used by several threads at once."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        timeout_s: float = TIMEOUT_S,
        retry_delay_s_min: float = DELAY_S_MIN,
        retry_delay_s_max: float = DELAY_S_MAX,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        async def make() -> AsyncClient:
            return AsyncClient(
                url,
                timeout_s=timeout_s,
                retry_delay_s_min=retry_delay_s_min,
                retry_delay_s_max=retry_delay_s_max,
                headers=headers,
            )

        self._loop = _Loop()
        self._client = self._loop.run(make())
        self.stream = SyncStream(self._loop, self._client)
        self.rooms = SyncRooms(self._loop, self._client)

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
