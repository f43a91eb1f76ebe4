"""One subscription as its user sees it: items in order, across connections that come and go.

A link feeds it from one side, the user takes from the other; between them is a bounded queue. A user who takes too
slowly makes the link let go of the room (`detach`); once there is room again it subscribes where the queue ends. So no
memory grows, no other room of the connection waits, and nothing is lost: the server's log is the long queue.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kwire.client.cursor import Cursor
from kwire.client.errors import ClientClosed, ClientError, Refused
from kwire.client.events import Event, Gap, Item, Position, event_of
from kwire.client.items import Items

QUEUE_ITEMS_MAX = 1_000
QUEUE_BYTES_MAX = 8 * 1024 * 1024
MARK_BYTES = 100


class Feed(Protocol):
    """The link, as its subscriptions know it."""

    async def reattach(self, subscription: "Subscription") -> None: ...

    async def leave(self, subscription: "Subscription") -> None: ...


class _Queued(NamedTuple):
    # None: only the position has moved.
    item: Item | None
    position: Position
    size_bytes: int


class Subscription(Items[Event, Item]):
    """Iterate over it (`async for item in subscription`), or pull with `next` or `next_event`."""

    def __init__(self, cursor: Cursor, feed: Feed) -> None:
        super().__init__(Event, cursor.position)
        self._cursor = cursor
        self._feed = feed
        self._queue: deque[_Queued] = deque()
        self._queue_bytes = 0
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()
        # Events that arrive now were caused by the present subscribe answer.
        self.is_attached = False
        # Let go because the queue was full.
        self.is_paused = False
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # What the user does

    @property
    def room(self) -> str:
        return self._cursor.room

    async def next(self, timeout_s: float | None = None) -> Item:
        for item, _ in self._taken(1):
            return item
        async with asyncio.timeout(timeout_s):
            while True:
                for item, _ in self._taken(1):
                    return item
                if self.is_paused:
                    await self._feed.reattach(self)
                elif self._end is not None:
                    raise self._end
                else:
                    self._changed.clear()
                    await self._changed.wait()

    async def next_batch(self, count_max: int, timeout_s: float | None = None) -> list[tuple[Item, Position]]:
        """At least one item, and with it what else is already here; beside each the position behind it."""
        first = await self.next(timeout_s)
        assert self._position is not None
        return [(first, self._position), *self._taken(count_max - 1)]

    async def close(self) -> None:
        """Leave the room. What is queued can still be taken."""
        self.ended(ClientClosed(f"the subscription to {self.room} was closed"))
        await self._feed.leave(self)

    def _taken(self, count_max: int) -> list[tuple[Item, Position]]:
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

    # What the link does

    @property
    def has_space(self) -> bool:
        return len(self._queue) < QUEUE_ITEMS_MAX and self._queue_bytes < QUEUE_BYTES_MAX

    @property
    def has_begun(self) -> bool:
        return self.started.done()

    async def space(self) -> None:
        """Wait until the user has taken something."""
        self._drained.clear()
        if not self.has_space:
            await self._drained.wait()

    def request(self) -> dict[str, Any]:
        return self._cursor.request()

    def answered(self, result: Mapping[str, Any]) -> bool:
        """Subscribed; True if it must be asked again from another place."""
        answer = self._cursor.answered(result)
        self.is_attached, self.is_paused = not answer.must_ask_again, False
        self._tell(answer.gaps)
        if not self.started.done():
            self._position = self._position or self._cursor.position
            self.started.set_result(None)
        return answer.must_ask_again

    def refused(self, error: Refused) -> bool:
        """Not subscribed; True if it can be asked again behind a gap."""
        gaps = self._cursor.refused(error)
        if gaps is None:
            return False
        self._tell(gaps)
        return True

    def ended(self, error: ClientError) -> None:
        self.is_attached = self.is_paused = False
        if self._end is None:
            self._end = error
            if not self.started.done():
                self.started.set_exception(error)
                # Nobody may be waiting for it any more.
                self.started.exception()
        self._changed.set()

    def event(self, frame: Mapping[str, Any], size_bytes: int) -> None:
        if self.is_attached and self._cursor.take(frame["offset"]):
            self._put(event_of(frame, self.room), size_bytes)

    def mark(self, frame: Mapping[str, Any]) -> None:
        """All marks but `closed`, which is the link's to act on."""
        if not self.is_attached:
            return
        item = self._cursor.mark(frame)
        # A checkpoint is not an item, but it moves the position.
        if item is not None or frame["control"] == "checkpoint":
            self._put(item)

    def _tell(self, gaps: Sequence[Gap]) -> None:
        for gap in gaps:
            self._put(gap)

    def _put(self, item: Item | None, size_bytes: int = MARK_BYTES) -> None:
        position = self._cursor.position
        assert position is not None
        self._queue.append(_Queued(item, position, size_bytes))
        self._queue_bytes += size_bytes
        self._changed.set()
