"""A subscription as an asynchronous iterator, for Python in the same process.

What the reader has not asked for stays in the log: it holds one portion at most. A reader who is live and does not ask
for its next message is as slow as a socket that takes nothing, and its `on_lag` rule acts in the same way.
"""

import asyncio
from collections import deque
from typing import Self

from kwire.broker.events.event import Event
from kwire.broker.subscriptions.marks import (
    BROADCAST_FAILED,
    ROOM_NOT_FOUND,
    CaughtUp,
    Checkpoint,
    Closed,
    Gap,
    Lagging,
    Mark,
)
from kwire.broker.subscriptions.portions import Portion
from kwire.broker.subscriptions.subscription import Subscription
from kwire.errors import BroadcastFailed, RoomNotFound, StreamError, SubscriptionFailed

Message = Event | CaughtUp | Lagging | Gap | Checkpoint


class SubscribedMessages:
    """For one reader. It ends by an error that has `last_offset` among its details, or by `close`."""

    subscription: Subscription

    def __init__(self) -> None:
        # A portion and some marks.
        self._unread: deque[Message] = deque()
        self._closed: Closed | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._waiting is not None:
            raise RuntimeError("somebody waits for the next message already")
        while not self._unread:
            if self._is_over:
                raise StopAsyncIteration
            if self._closed is not None:
                self._is_over = True
                raise _error_for(self.subscription.name, self._closed)
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                self.subscription.resume()
                await self._waiting
            finally:
                self._waiting = None
        return self._unread.popleft()

    def close(self) -> None:
        """Nothing more is wanted; who waits is told that it is over."""
        self.subscription.close()
        self._unread.clear()
        self._is_over = True
        self._wake()

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # --- the sink

    def is_writable(self) -> bool:
        return self._waiting is not None and not self._unread

    def send_events(self, subscription: Subscription, portion: Portion) -> None:
        self._unread += portion.events
        self._wake()

    def send_mark(self, subscription: Subscription, mark: Mark) -> None:
        if isinstance(mark, Closed):
            self._closed = mark
        else:
            self._unread.append(mark)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


def _error_for(name: str, closed: Closed) -> StreamError:
    error: StreamError
    if closed.code == ROOM_NOT_FOUND:
        error = RoomNotFound(name)
    elif closed.code == BROADCAST_FAILED:
        error = BroadcastFailed(closed.reason)
    else:
        error = SubscriptionFailed(closed.reason)
    # Lagging and retention have no error class that takes a reason; the code says which it was.
    error.details |= {"last_offset": closed.offset, "closed": closed.code}
    return error
