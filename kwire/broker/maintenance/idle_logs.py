"""What has to be done now and then on every open log, a little at a time, and how many logs stay open.

Logs beyond the bound are parked: those that were opened longest ago first, except that one that was written to since
it was last in turn gets another round, as a page does in a cache with a clock.
"""

import asyncio
from collections.abc import Callable

from kwire.broker.partition import Partition
from kwire.broker.topics import Topics
from kwire.clock import Clock

ROUND_SECONDS = 60.0
# One log takes microseconds; after this many the loop gets its turn.
LOGS_PER_TURN = 200
# How often somebody looks whether too many logs are open; that takes no longer for many than for few.
COUNT_SECONDS = 1.0
# To park a log takes a few system calls, to pass one by takes a microsecond. Who opens many in a turn brings as much
# parking: otherwise the number would rise without a bound.
PARKS_PER_TURN = 4
PARKS_PER_OPENED = 2
TRIES_PER_PARK = 25
NO_BOUND = 2**63


class Upkeep:
    """A round over all open logs every minute: forgets silent producers, gives back what idle segments hold.

    `open_max` bounds how many logs are open; `producer_id_expiration_ms` may be changed at any time.
    `parked_count` counts the logs that were put away for it.
    """

    def __init__(
        self,
        topics: Topics,
        clock: Clock,
        producer_id_expiration_ms: int,
        open_max: int = NO_BOUND,
        is_short_of_descriptors: Callable[[], bool] = lambda: False,
    ) -> None:
        """While ``is_short_of_descriptors``, idle segments give theirs back every second instead of every minute."""
        self._topics = topics
        self._is_short_of_descriptors = is_short_of_descriptors
        self._clock = clock
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self._open_max = open_max
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle = self._loop.call_later(ROUND_SECONDS, self.begin_round)
        self._parking: asyncio.Handle = self._loop.call_later(COUNT_SECONDS, self._park_some)
        self._is_parking = False
        # What had been appended to a partition when it was last in turn to be parked.
        self._marks: dict[Partition, int] = {}
        self._passed_count = 0
        self._opened_count = 0
        self.parked_count = 0
        topics.on_opened = self.opened

    def close(self) -> None:
        self._timer.cancel()
        self._parking.cancel()

    # --- rounds

    def begin_round(self) -> None:
        self._go_on(list(self._topics.open_partitions))

    def _go_on(self, left: list[Partition]) -> None:
        now_ms = self._clock.now_ms()
        for partition in left[:LOGS_PER_TURN]:
            if partition.is_open:  # it may have been parked since the round began
                partition.maintenance().tidy(now_ms, self.producer_id_expiration_ms)
        rest = left[LOGS_PER_TURN:]
        if rest:
            self._timer = self._loop.call_soon(self._go_on, rest)
        else:
            self._timer = self._loop.call_later(ROUND_SECONDS, self.begin_round)

    # --- the bound

    def opened(self) -> None:
        """A log has been opened: begin to park at once if they are too many."""
        self._opened_count += 1
        if not self._is_parking and len(self._topics.open_partitions) > self._open_max:
            self._parking.cancel()
            self._is_parking = True
            self._parking = self._loop.call_soon(self._park_some)

    def _park_some(self) -> None:
        """One turn of it; the next one comes soon while there are too many, and later when all are in use."""
        opened = self._topics.open_partitions
        excess = len(opened) - self._open_max
        if excess > 0:
            self._try_to_park(min(excess, max(PARKS_PER_TURN, PARKS_PER_OPENED * self._opened_count)))
        self._opened_count = 0
        self._is_parking = len(opened) > self._open_max and self._passed_count < len(opened)
        if self._is_parking:
            self._parking = self._loop.call_soon(self._park_some)
            return
        if self._is_short_of_descriptors():
            self._timer.cancel()
            self.begin_round()
        self._passed_count = 0
        self._marks = {partition: mark for partition, mark in self._marks.items() if partition in opened}
        self._parking = self._loop.call_later(COUNT_SECONDS, self._park_some)

    def _try_to_park(self, wanted: int) -> None:
        """Go on at the partition that is next in turn; those that cannot be parked go to the end of the queue."""
        opened = self._topics.open_partitions
        for _ in range(wanted * TRIES_PER_PARK):
            partition = next(iter(opened), None)
            if partition is None:
                return
            appended_bytes = partition.appended_bytes
            if self._marks.get(partition, 0) != appended_bytes or not self._topics.park(partition):
                self._marks[partition] = appended_bytes
                self._topics.touch(partition)
                self._passed_count += 1
                continue
            self._marks.pop(partition, None)
            self._passed_count = 0
            self.parked_count += 1
            wanted -= 1
            if not wanted:
                return
