"""A subscription to a room. It yields items in order, also after a reconnect.

The WebSocket connection puts items into a bounded queue, and the caller takes them out. If the caller is too slow, the
connection unsubscribes from the room: the subscription is paused. When the caller has emptied the queue, the connection
subscribes again, after the last queued item. So memory is bounded, and the other rooms of the connection do not wait.
Events that arrive during the pause stay in the server's log.

The connection refers to the queue only. So a `Subscription` that its user has dropped is freed, and closes its queue.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from kwire.client.cursor import Cursor
from kwire.client.errors import ClientClosed, ClientError, Refused
from kwire.client.events import Event, Gap, Item, Position, event_of
from kwire.client.item_iterator import ItemIterator

QUEUE_ITEMS_MAX = 1_000
QUEUE_BYTES_MAX = 8 * 1024 * 1024
CONTROL_BYTES = 100


class Feed(Protocol):
    """The methods of a WebSocket connection that a queue calls."""

    async def reattach(self, queue: "ItemQueue") -> None: ...

    async def leave(self, queue: "ItemQueue") -> None: ...

    def leave_soon(self, queue: "ItemQueue") -> None: ...


class _Queued(NamedTuple):
    # None if only the position changed, without an item to yield.
    item: Item | None
    position: Position
    size_bytes: int


class ItemQueue:
    """The items of one subscription that have arrived and were not taken. Create it in a running event loop."""

    def __init__(self, cursor: Cursor, feed: Feed) -> None:
        self._cursor = cursor
        self._feed = feed
        self._queue: deque[_Queued] = deque()
        self._queue_bytes = 0
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()
        self._end: ClientError | None = None
        self.position = cursor.position
        # Whether arriving events belong to the current subscribe request. While False, events are ignored, because they
        # belong to an earlier request.
        self.is_attached = False
        # Whether the connection unsubscribed from the room because the queue was full.
        self.is_paused = False
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = self._loop.create_future()

    @property
    def room(self) -> str:
        return self._cursor.room

    @property
    def is_over(self) -> bool:
        return self._end is not None

    def __len__(self) -> int:
        return len(self._queue)

    # Called by the subscription

    def take(self) -> Item | None:
        """Return the next item, or None if none is queued."""
        item = None
        while self._queue and item is None:
            item, self.position, size_bytes = self._queue.popleft()
            self._queue_bytes -= size_bytes
        if self.has_space:
            self._drained.set()
        return item

    async def wait(self) -> None:
        """Wait until something changes. Subscribe again if the queue was full. Raises the error that ended it."""
        if self.is_paused:
            await self._feed.reattach(self)
        elif self._end is not None:
            raise self._end
        else:
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        self.end(ClientClosed(f"the subscription to {self.room} was closed"))
        await self._feed.leave(self)

    def close_soon(self) -> None:
        """Close without waiting. Any thread may call this."""
        with suppress(RuntimeError):  # the event loop is closed, and the connection with it
            self._loop.call_soon_threadsafe(self._feed.leave_soon, self)

    # Called by the connection

    @property
    def has_space(self) -> bool:
        return len(self._queue) < QUEUE_ITEMS_MAX and self._queue_bytes < QUEUE_BYTES_MAX

    @property
    def has_started(self) -> bool:
        return self.started.done()

    async def wait_for_space(self) -> None:
        """Wait until the queue has space."""
        self._drained.clear()
        if not self.has_space:
            await self._drained.wait()

    def request(self) -> dict[str, Any]:
        return self._cursor.request()

    def subscribed(self, result: Mapping[str, Any]) -> bool:
        """Process the response to a subscribe request. Return True if the connection must subscribe again."""
        outcome = self._cursor.subscribed(result)
        self.is_attached, self.is_paused = not outcome.must_resubscribe, False
        self._put_gaps(outcome.gaps)
        if not self.started.done():
            self.position = self.position or self._cursor.position
            self.started.set_result(None)
        return outcome.must_resubscribe

    def refused(self, error: Refused) -> bool:
        """Process a refused subscribe request. Return True if the connection can subscribe again, after a gap."""
        gaps = self._cursor.refused(error)
        if gaps is None:
            return False
        self._put_gaps(gaps)
        return True

    def end(self, error: ClientError) -> None:
        self.is_attached = self.is_paused = False
        if self._end is None:
            self._end = error
            if not self.started.done():
                self.started.set_exception(error)
                # Mark the exception as retrieved. Otherwise asyncio logs an error if no task waits for `started`.
                self.started.exception()
        self._changed.set()

    def event(self, frame: Mapping[str, Any], size_bytes: int) -> None:
        if self.is_attached and self._cursor.take(frame["offset"]):
            self._put(event_of(frame, self.room), size_bytes)

    def control(self, frame: Mapping[str, Any]) -> None:
        """Process a control message, except `closed`, which the connection handles."""
        if not self.is_attached:
            return
        item = self._cursor.control(frame)
        # A checkpoint yields no item, but it changes the position.
        if item is not None or frame["control"] == "checkpoint":
            self._put(item)

    def _put_gaps(self, gaps: Sequence[Gap]) -> None:
        for gap in gaps:
            self._put(gap)

    def _put(self, item: Item | None, size_bytes: int = CONTROL_BYTES) -> None:
        position = self._cursor.position
        assert position is not None
        self._queue.append(_Queued(item, position, size_bytes))
        self._queue_bytes += size_bytes
        self._changed.set()


class Subscription(ItemIterator[Event, Item]):
    """A subscription to a room: iterate over it (`async for event in subscription`), or call `next_event`.

    After `close`, items that have already arrived are still returned.
    """

    def __init__(self, room: str, resume: Position | None, start: Callable[[], Awaitable[ItemQueue]]) -> None:
        """`start` subscribes to the room and returns the queue of the subscription."""
        super().__init__(Event)
        self.room = room
        self._resume = resume
        self._start = start
        self._queue: ItemQueue | None = None
        self._is_closed = False

    @property
    def position(self) -> Position | None:
        return self._resume if self._queue is None else self._queue.position

    @property
    def is_over(self) -> bool:
        return self._is_closed or (self._queue is not None and self._queue.is_over)

    async def close(self) -> None:
        self._is_closed = True
        if self._queue is not None:
            await self._queue.close()

    async def _ensure_started(self) -> None:
        if self._queue is not None:
            return
        if self._is_closed:
            raise ClientClosed(f"the subscription to {self.room} was closed")
        self._queue = await self._start()
        if self.is_over:  # closed meanwhile, by another task
            await self._queue.close()

    def _take(self) -> Item | None:
        return None if self._queue is None else self._queue.take()

    async def _wait(self) -> None:
        assert self._queue is not None
        await self._queue.wait()

    def __del__(self) -> None:
        queue = getattr(self, "_queue", None)
        if queue is not None and not queue.is_over:
            queue.close_soon()
