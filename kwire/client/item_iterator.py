"""The base class of subscriptions to rooms and to the event store: opening, and iteration over events or items."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Generator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from kwire.client.errors import ClientClosed, GapFound
from kwire.client.events import Gap, Position

EventT = TypeVar("EventT")
ItemT = TypeVar("ItemT")


class ItemIterator(ABC, Generic[EventT, ItemT]):
    """A subscription. It is opened by the first use: `async for`, `async with`, `await` or a call that waits for items.

    `async for event in subscription` yields events. `async for item in subscription.items()` also yields the items
    between them. A subscription that is no longer referenced is closed.
    """

    def __init__(self, event_class: type[EventT]) -> None:
        self._event_class = event_class
        self._open_lock = asyncio.Lock()

    @property
    @abstractmethod
    def position(self) -> Position | None:
        """The position after the last returned item. Pass it as `resume` to continue, also in another process."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether the subscription was closed or has failed."""

    async def open(self) -> Self:
        """Open the subscription, unless it is open. It begins at the position of this moment.

        If this fails or is cancelled, the next call tries again.
        """
        async with self._open_lock:
            await self._ensure_started()
        return self

    async def next_event(self, timeout_s: float | None = None) -> EventT:
        """Wait for the next event and return it. `CaughtUp` and `Lagging` are skipped.

        A gap raises `GapFound`. The next call continues after the gap.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                item: Any = await self.next_item()
                if isinstance(item, self._event_class):
                    return item
                if isinstance(item, Gap):
                    raise GapFound(item)

    async def next_item(self, timeout_s: float | None = None) -> ItemT:
        """Wait for the next item and return it: an event, or a `CaughtUp`, `Lagging` or `Gap`.

        Raises TimeoutError if no item arrives within `timeout_s`, or the error that ended the subscription.
        """
        item = self._take()
        if item is not None:
            return item
        async with asyncio.timeout(timeout_s):
            await self.open()
            while (item := self._take()) is None:
                await self._wait()
            return item

    async def next_batch(self, count_max: int, timeout_s: float | None = None) -> list[tuple[ItemT, Position]]:
        """Wait for the next item, and return it with the items that have already arrived.

        At most `count_max` items are returned, each with the position after it.
        """
        item: ItemT | None = await self.next_item(timeout_s)
        found: list[tuple[ItemT, Position]] = []
        while item is not None:
            assert self.position is not None
            found.append((item, self.position))
            item = self._take() if len(found) < count_max else None
        return found

    async def items(self) -> AsyncIterator[ItemT]:
        """Yield events and the items between them, until the subscription is closed."""
        while True:
            try:
                item = await self.next_item()
            except ClientClosed:
                return
            yield item

    @abstractmethod
    async def close(self) -> None:
        """Close the subscription. A loop over it ends."""

    @abstractmethod
    async def _ensure_started(self) -> None:
        """Start the subscription if it is not started. Raises the error that ended it if it is over."""

    @abstractmethod
    def _take(self) -> ItemT | None:
        """Return the next item that has arrived, or None."""

    @abstractmethod
    async def _wait(self) -> None:
        """Wait until something arrives. Raises the error that ended the subscription if it is over."""

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventT:
        try:
            return await self.next_event()
        except ClientClosed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
