"""Waiting calls and watchers of a partition.

A waiting call is a callback that is called once, when an offset is committed or synced. A watcher is a callback that is
called at each rise of the high watermark.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from kwire.errors import ErrorCode, KafkaError

# Called once. The argument is None if the offset was reached. It is an error if the deadline has passed, or if the
# offset cannot be reached.
OnReached = Callable[[KafkaError | None], None]
# Called with the partition.
Watcher = Callable[[Any], None]

# The default timeout of a wait.
WAIT_MS_MAX = 30_000


class Awaited(NamedTuple):
    """A call that waits for an offset. `deadline` is a time of the partition's monotonic clock."""

    offset: int
    deadline: float
    call: OnReached


class Waiting:
    """The part of a partition that stores its waiting calls and its watchers.

    The collections are created on first use, because most partitions of a large node are idle.
    """

    __slots__ = ("_awaited", "_awaited_syncs", "_watchers")

    def __init__(self) -> None:
        self._watchers: set[Watcher] | None = None
        self._awaited: deque[Awaited] | None = None
        self._awaited_syncs: deque[Awaited] | None = None

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` at each rise of the high watermark. The watcher must not block and must not append."""
        if self._watchers is None:
            self._watchers = set()
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        if self._watchers is not None:
            self._watchers.discard(watcher)

    @property
    def has_waiting(self) -> bool:
        """Whether a call waits for an offset to be committed or synced."""
        return bool(self._awaited or self._awaited_syncs)

    def _await(self, one: Awaited) -> None:
        if self._awaited is None:
            self._awaited = deque()
        self._awaited.append(one)

    def _await_sync(self, one: Awaited) -> None:
        if self._awaited_syncs is None:
            self._awaited_syncs = deque()
        self._awaited_syncs.append(one)

    def _notify_committed(self, high_watermark: int) -> None:
        awaited = self._awaited
        while awaited and awaited[0].offset <= high_watermark:
            awaited.popleft().call(None)

    def _notify_synced(self, synced_offset: int) -> None:
        awaited = self._awaited_syncs
        while awaited and awaited[0].offset <= synced_offset:
            awaited.popleft().call(None)

    def _notify_watchers(self) -> None:
        for watcher in tuple(self._watchers or ()):
            watcher(self)

    def _give_up_overdue(self, now: float) -> None:
        """Notify the waiting calls whose deadline has passed. They get the error REQUEST_TIMED_OUT."""
        if any(one.deadline <= now for awaited in (self._awaited, self._awaited_syncs) for one in awaited or ()):
            error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the records are not durable within the request's timeout")
            self._give_up(lambda one: one.deadline <= now, error)

    def _give_up(self, is_over: Callable[[Awaited], bool], error: KafkaError) -> None:
        awaited = [*(self._awaited or ()), *(self._awaited_syncs or ())]
        self._awaited = _kept(self._awaited, is_over)
        self._awaited_syncs = _kept(self._awaited_syncs, is_over)
        for one in awaited:
            if is_over(one):
                one.call(error)


def _kept(awaited: deque[Awaited] | None, is_over: Callable[[Awaited], bool]) -> deque[Awaited] | None:
    return deque(one for one in awaited or () if not is_over(one)) or None
