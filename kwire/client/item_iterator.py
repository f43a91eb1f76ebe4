"""The base class of subscriptions to rooms and to the event store: iteration over their items."""

import asyncio
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from kwire.client.errors import ClientClosed, ClientError, GapFound
from kwire.client.events import Gap, Position

EventT = TypeVar("EventT")
ItemT = TypeVar("ItemT")


class ItemIterator(Generic[EventT, ItemT]):
    """A source of items: iterate over it (`async for item in subscription`), or call `next` or `next_event`."""

    def __init__(self, event_type: type[EventT], position: Position | None) -> None:
        self._event_type = event_type
        self._position = position
        self._end: ClientError | None = None

    @property
    def position(self) -> Position | None:
        """The position after the last returned item. Pass it as `resume` to continue, also in another process."""
        return self._position

    @property
    def is_over(self) -> bool:
        return self._end is not None

    async def next(self, timeout_s: float | None = None) -> ItemT:
        """Wait for the next item and return it.

        Raises TimeoutError if no item arrives within `timeout_s`, or the error that ended the subscription.
        """
        raise NotImplementedError

    async def next_event(self, timeout_s: float | None = None) -> EventT:
        """Wait for the next event and return it. `CaughtUp` and `Lagging` are skipped.

        A gap raises `GapFound`. The next call continues after the gap.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                item: Any = await self.next()
                if isinstance(item, self._event_type):
                    return item
                if isinstance(item, Gap):
                    raise GapFound(item)

    async def close(self) -> None:
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ItemT:
        try:
            return await self.next()
        except ClientClosed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
