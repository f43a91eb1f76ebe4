"""A subscription to a room. It yields items in order, also after a reconnect.

The WebSocket connection puts items into a bounded queue, and the caller takes them out. If the caller is too slow, the
connection unsubscribes from the room: the subscription is paused. When the caller has emptied the queue, the connection
subscribes again, after the last queued item. So memory is bounded, and the other rooms of the connection do not wait.
Events that arrive during the pause stay in the server's log.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kwire.client.cursor import Cursor
from kwire.client.errors import ClientClosed, ClientError, Refused
from kwire.client.events import Event, Gap, Item, Position, event_of
from kwire.client.item_iterator import ItemIterator

QUEUE_ITEMS_MAX = 1_000
QUEUE_BYTES_MAX = 8 * 1024 * 1024
CONTROL_BYTES = 100


class Feed(Protocol):
    """The methods of a WebSocket connection that a subscription calls."""

    async def reattach(self, subscription: "Subscription") -> None: ...

    async def leave(self, subscription: "Subscription") -> None: ...


class _Queued(NamedTuple):
    # None if only the position changed, without an item to yield.
    item: Item | None
    position: Position
    size_bytes: int


class Subscription(ItemIterator[Event, Item]):
    """A subscription to a room: iterate over it (`async for item in subscription`), or call `next` or `next_event`."""

    def __init__(self, cursor: Cursor, feed: Feed) -> None:
        super().__init__(Event, cursor.position)
        self._cursor = cursor
        self._feed = feed
        self._queue: deque[_Queued] = deque()
        self._queue_bytes = 0
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()
        # Whether arriving events belong to the current subscribe request. While False, events are ignored, because they
        # belong to an earlier request.
        self.is_attached = False
        # Whether the connection unsubscribed from the room because the queue was full.
        self.is_paused = False
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # Called by the user

    @property
    def room(self) -> str:
        return self._cursor.room

    async def next(self, timeout_s: float | None = None) -> Item:
        for item, _ in self._take_queued(1):
            return item
        async with asyncio.timeout(timeout_s):
            while True:
                for item, _ in self._take_queued(1):
                    return item
                if self.is_paused:
                    await self._feed.reattach(self)
                elif self._end is not None:
                    raise self._end
                else:
                    self._changed.clear()
                    await self._changed.wait()

    async def next_batch(self, count_max: int, timeout_s: float | None = None) -> list[tuple[Item, Position]]:
        """Wait for the next item, and return it with the items that are already queued.

        At most `count_max` items are returned, each with the position after it.
        """
        first = await self.next(timeout_s)
        assert self._position is not None
        return [(first, self._position), *self._take_queued(count_max - 1)]

    async def close(self) -> None:
        """Unsubscribe from the room. `next` still returns the items that are already queued."""
        self.end(ClientClosed(f"the subscription to {self.room} was closed"))
        await self._feed.leave(self)

    def _take_queued(self, count_max: int) -> list[tuple[Item, Position]]:
        taken: list[tuple[Item, Position]] = []
        while self._queue and len(taken) < count_max:
            queued = self._queue.popleft()
            self._queue_bytes -= queued.size_bytes
            self._position = queued.position
            if queued.item is not None:
                taken.append((queued.item, queued.position))
        if self.has_space:
            self._drained.set()
        return taken

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
            self._position = self._position or self._cursor.position
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
