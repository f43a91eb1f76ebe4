"""Iteration over the items of a subscription, for programs without an event loop."""

import time
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from kwire.client.errors import ClientClosed, GapFound
from kwire.client.events import Gap, Position
from kwire.client.sync.loop_thread import LoopThread

# The maximum number of items per call to the event loop's thread. A thread switch for every item would take more time
# than processing the item.
BATCH_ITEMS = 100

ItemT = TypeVar("ItemT")
EventT = TypeVar("EventT")
SourceItemT = TypeVar("SourceItemT", covariant=True)


class Source(Protocol[SourceItemT]):
    """The asynchronous subscription from which `SyncItemIterator` fetches items."""

    @property
    def position(self) -> Position | None: ...

    def next_batch(
        self, count_max: int, timeout_s: float | None = None
    ) -> Coroutine[Any, Any, Sequence[tuple[SourceItemT, Position]]]: ...

    def close(self) -> Coroutine[Any, Any, None]: ...


class SyncItemIterator(Generic[ItemT, EventT]):
    """A subscription: iterate over its events (`for event in subscription`), or call `next_event`.

    `for item in subscription.items()` also yields the items between events. A subscription that is no longer
    referenced is closed.
    """

    def __init__(self, loop: LoopThread, source: Source[ItemT], event_class: type[EventT]) -> None:
        self._loop = loop
        self._source = source
        self._event_class = event_class
        self._fetched: deque[tuple[ItemT, Position]] = deque()
        self._position = source.position

    @property
    def position(self) -> Position | None:
        """The position after the last returned item. Pass it as `resume` to continue, also in another process."""
        return self._position

    def next_item(self, timeout_s: float | None = None) -> ItemT:
        """Wait for the next item and return it: an event, or a `CaughtUp`, `Lagging` or `Gap`.

        Raises TimeoutError if no item arrives within `timeout_s`, or the error that ended the subscription.
        """
        if not self._fetched:
            self._fetched.extend(self._loop.run(self._source.next_batch(BATCH_ITEMS, timeout_s)))
        item, self._position = self._fetched.popleft()
        return item

    def next_event(self, timeout_s: float | None = None) -> EventT:
        """Wait for the next event and return it. `CaughtUp` and `Lagging` are skipped.

        A gap raises `GapFound`. The next call continues after the gap. `timeout_s` limits the whole call.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            item = self.next_item(None if deadline is None else max(deadline - time.monotonic(), 0))
            if isinstance(item, self._event_class):
                return item
            if isinstance(item, Gap):
                raise GapFound(item)

    def items(self) -> Iterator[ItemT]:
        """Yield events and the items between them, until the subscription is closed."""
        while True:
            try:
                item = self.next_item()
            except ClientClosed:
                return
            yield item

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> EventT:
        try:
            return self.next_event()
        except ClientClosed:
            raise StopIteration from None

    def close(self) -> None:
        self._loop.run(self._source.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
