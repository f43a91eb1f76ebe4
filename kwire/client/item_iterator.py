"""The items of a subscription, as its user takes them: what is the same for rooms and for the event store."""

import asyncio
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from kwire.client.errors import ClientClosed, ClientError, GapFound
from kwire.client.events import Gap, Position

EventT = TypeVar("EventT")
ItemT = TypeVar("ItemT")


class Items(Generic[EventT, ItemT]):
    """Iterate over it (`async for item in subscription`), or pull with `next` or `next_event`."""

    def __init__(self, event_type: type[EventT], position: Position | None) -> None:
        self._event_type = event_type
        self._position = position
        self._end: ClientError | None = None

    @property
    def position(self) -> Position | None:
        """Behind the last item taken. Store it to go on from here in another process (`resume=`)."""
        return self._position

    @property
    def is_over(self) -> bool:
        return self._end is not None

    async def next(self, timeout_s: float | None = None) -> ItemT:
        """The next item. TimeoutError if none comes in time; what ended the subscription, if something did."""
        raise NotImplementedError

    async def next_event(self, timeout_s: float | None = None) -> EventT:
        """The next event, without the marks between; a gap is raised as `GapFound`, and the call after it goes on."""
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
