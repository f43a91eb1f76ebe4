"""SubscribedMessages: a subscription as an asynchronous iterator, for Python code in the same process.

The iterator keeps at most one batch in memory. Later events stay in the log. A live reader that does not request its
next message is treated like a socket that is not writable: if it lags or stalls for too long, its `on_lag` rule
applies.
"""

import asyncio
from collections import deque
from typing import Self

from kwire.errors import BroadcastFailed, RoomNotFound, StreamError, SubscriptionFailed
from kwire.streams.events.event import Event
from kwire.streams.subscriptions.control_messages import (
    BROADCAST_FAILED,
    ROOM_NOT_FOUND,
    CaughtUp,
    Checkpoint,
    Closed,
    ControlMessage,
    Gap,
    Lagging,
)
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.streams.subscriptions.subscription import Subscription

Message = Event | CaughtUp | Lagging | Gap | Checkpoint


class SubscribedMessages:
    """The messages of one subscription, for one reader.

    The iteration ends after `close`. If the server ends the subscription, the iteration raises a StreamError whose
    details contain `last_offset`.
    """

    subscription: Subscription

    def __init__(self) -> None:
        # At most one batch, and some control messages.
        self._unread: deque[Message] = deque()
        self._closed: Closed | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._waiting is not None:
            raise RuntimeError("another task is already waiting for the next message")
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
        """End the subscription. A task that waits for the next message gets StopAsyncIteration."""
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

    # --- the interface Sink

    def is_writable(self) -> bool:
        return self._waiting is not None and not self._unread

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        self._unread += batch.events
        self._wake()

    def send_control(self, subscription: Subscription, message: ControlMessage) -> None:
        if isinstance(message, Closed):
            self._closed = message
        else:
            self._unread.append(message)
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
    # No error class for lag or deleted events takes a reason, so SubscriptionFailed is used. The detail `closed` is the
    # code.
    error.details |= {"last_offset": closed.offset, "closed": closed.code}
    return error
