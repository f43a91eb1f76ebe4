"""Items of a subscription for programs without an event loop."""

from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from kwire.client.errors import ClientClosed, GapFound
from kwire.client.events import Gap, Position
from kwire.client.loop_thread import LoopThread

# Items fetched from the loop at once; waking a thread for each would be most of the work.
BATCH_ITEMS = 100

Item = TypeVar("Item")
OneEvent = TypeVar("OneEvent")
Found = TypeVar("Found", covariant=True)


class Source(Protocol[Found]):
    """The same for programs with one."""

    @property
    def position(self) -> Position | None: ...

    def next_batch(
        self, count_max: int, timeout_s: float | None = None
    ) -> Coroutine[Any, Any, Sequence[tuple[Found, Position]]]: ...

    def close(self) -> Coroutine[Any, Any, None]: ...


class SyncItems(Generic[Item, OneEvent]):
    """Iterate over it (`for item in items`), or pull with `next` or `next_event`."""

    def __init__(self, loop: LoopThread, source: Source[Item], event_class: type[OneEvent]) -> None:
        self._loop = loop
        self._source = source
        self._event_class = event_class
        self._fetched: deque[tuple[Item, Position]] = deque()
        self._position = source.position

    @property
    def position(self) -> Position | None:
        """Behind the last item taken. Store it to go on from here in another process (`resume=`)."""
        return self._position

    def next(self, timeout_s: float | None = None) -> Item:
        """The next item. TimeoutError if none comes in time; what ended the subscription, if something did."""
        if not self._fetched:
            self._fetched.extend(self._loop.run(self._source.next_batch(BATCH_ITEMS, timeout_s)))
        item, self._position = self._fetched.popleft()
        return item

    def next_event(self, timeout_s: float | None = None) -> OneEvent:
        """The next event, without the marks between; a gap is raised as `GapFound`, and the call after it goes on."""
        while True:
            item = self.next(timeout_s)
            if isinstance(item, self._event_class):
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
        self._loop.run(self._source.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
