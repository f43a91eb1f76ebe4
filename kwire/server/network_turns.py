"""Work of clients that the server does not know yet, which waits for a later loop iteration: networks take turns.

Thousands of such clients may connect, or send a request, at the same time. A few of them are handled in each iteration,
so that they delay neither the requests of other clients nor, for longer than a turn, each other's networks.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Generic, TypeVar

from kwire.access.hosts import network_of
from kwire.concurrency.chunking import offer_processor
from kwire.concurrency.fair_queue import FairQueue

Member = TypeVar("Member")

# The time after which a turn handles no further member. It is short, because several turns may be part of one loop
# iteration: those of new connections of each listener, of logins, and of HTTP requests.
TURN_SECONDS = 0.0001


class NetworkTurns(Generic[Member]):
    """The members that wait, by the network of their hosts."""

    __slots__ = ("_count_max", "_is_scheduled", "_schedule", "_serve", "_served", "_waiting")

    def __init__(
        self,
        schedule: Callable[[Callable[[], None]], object],
        serve: Callable[[Member], object],
        count_max: int,
        *,
        is_newest_first: bool = False,
    ) -> None:
        """`schedule` calls a function in a later loop iteration. A turn calls `serve` for at most `count_max` members.

        `is_newest_first`: of the members of one network, the newest is next. It is for work that is often abandoned.
        """
        self._schedule = schedule
        self._serve = serve
        self._count_max = count_max
        self._is_scheduled = False
        # The number of members that were handled since the last turn began.
        self._served = 0
        self._waiting: FairQueue[str, Member] = FairQueue(is_newest_first=is_newest_first)

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> bool:
        """Return whether the caller may handle a member now: none waits, and the turn has handled fewer than it may."""
        if self._waiting or self._served >= self._count_max:
            return False
        self._served += 1
        self._schedule_turn()
        return True

    def add(self, host: str, member: Member) -> None:
        self._waiting.add(network_of(host), member)
        self._schedule_turn()

    def discard(self, host: str, member: Member) -> None:
        """Forget a member that was closed. Its turn may not come for a long time."""
        if self._waiting:
            self._waiting.discard(network_of(host), member)

    def pop(self) -> Member:
        """Remove and return the next member, out of turn."""
        return self._waiting.pop()

    def _schedule_turn(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._schedule(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        self._served = 0
        # While members wait, turns follow one another without a pause.
        offer_processor()
        deadline = perf_counter() + TURN_SECONDS
        waiting = self._waiting
        try:
            while waiting and self._served < self._count_max:
                self._served += 1
                self._serve(waiting.pop())
                if perf_counter() >= deadline:
                    break
        finally:
            # Also after an exception, which the event loop logs: the other members would wait for ever.
            if waiting or self._served:
                self._schedule_turn()
