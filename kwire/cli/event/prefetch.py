"""Prefetches the elements of an iterator in a thread, while the caller processes earlier elements."""

from collections.abc import Iterator
from queue import Full, Queue
from threading import Event, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.1


class Prefetcher(Generic[T]):
    """A context manager that returns an iterator over the prefetched elements. At most `count_max` of them are queued.

    If the source raises an exception, the iterator raises it after the elements that precede it. When the `with` block
    ends, the thread stops as soon as the source yields its next element.
    """

    def __init__(self, source: Iterator[T], count_max: int) -> None:
        self._source = source
        self._queue: Queue[tuple[list[T], BaseException | None]] = Queue(count_max)
        self._is_closed = Event()
        # A daemon thread, because the source may wait for a server that does not answer. A daemon thread does not delay
        # the exit of the program.
        self._thread = Thread(target=self._fill, name="prefetch", daemon=True)

    def __enter__(self) -> Iterator[T]:
        self._thread.start()
        return self._elements()

    def __exit__(self, *error: object) -> None:
        self._is_closed.set()

    def _elements(self) -> Iterator[T]:
        while True:
            elements, error = self._queue.get()
            yield from elements
            if error is not None:
                raise error
            if not elements:
                return

    def _fill(self) -> None:
        try:
            for element in self._source:
                self._put([element])
                if self._is_closed.is_set():
                    return
        except BaseException as error:
            self._put([], error)
        else:
            self._put([])

    def _put(self, elements: list[T], error: BaseException | None = None) -> None:
        while not self._is_closed.is_set():
            try:
                self._queue.put((elements, error), timeout=POLL_SECONDS)
            except Full:
                continue
            return
