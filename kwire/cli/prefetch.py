"""What an iterator yields, worked out by a thread while the one before is being used: two waits become one."""

from collections.abc import Iterator
from queue import Full, Queue
from threading import Event, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

LOOK_SECONDS = 0.1


class Ahead(Generic[T]):
    """Used in a `with`: at its end the thread takes nothing more from the iterator. What that raises is raised here."""

    def __init__(self, source: Iterator[T], count_max: int) -> None:
        self._source = source
        self._queue: Queue[tuple[list[T], BaseException | None]] = Queue(count_max)
        self._is_over = Event()
        # It may wait for a server that does not answer: nobody waits for it.
        self._thread = Thread(target=self._work, name="ahead", daemon=True)

    def __enter__(self) -> Iterator[T]:
        self._thread.start()
        return self._items()

    def __exit__(self, *error: object) -> None:
        self._is_over.set()

    def _items(self) -> Iterator[T]:
        while True:
            found, error = self._queue.get()
            yield from found
            if error is not None:
                raise error
            if not found:
                return

    def _work(self) -> None:
        try:
            for one in self._source:
                self._hand_over([one])
                if self._is_over.is_set():
                    return
        except BaseException as error:
            self._hand_over([], error)
        else:
            self._hand_over([])

    def _hand_over(self, found: list[T], error: BaseException | None = None) -> None:
        while not self._is_over.is_set():
            try:
                self._queue.put((found, error), timeout=LOOK_SECONDS)
            except Full:
                continue
            return
