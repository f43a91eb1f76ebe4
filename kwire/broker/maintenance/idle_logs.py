"""Periodic maintenance of all open logs, and the limit on the number of open logs.

If more logs are open than the limit allows, logs are parked: they are closed until they are used again. The logs that
were opened longest ago are parked first. A log that was written to since it was last considered is skipped once, as in
the CLOCK algorithm of page caches.
"""

import asyncio
from collections.abc import Callable

from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topics
from kwire.clock import Clock

ROUND_SECONDS = 60.0
# The maintenance of one log takes microseconds. After this many logs, the event loop runs other work.
LOGS_PER_CHUNK = 200
# The interval of the check whether too many logs are open. The check takes constant time.
COUNT_SECONDS = 1.0
# Parking a log takes a few system calls. Skipping a log takes a microsecond. For each log that was opened since the
# last chunk, PARKS_PER_OPENED logs are parked. Otherwise the number of open logs would have no bound. To park one log,
# at most TRIES_PER_PARK logs are tried.
PARKS_PER_CHUNK = 4
PARKS_PER_OPENED = 2
TRIES_PER_PARK = 25
NO_BOUND = 2**63


class IdleLogs:
    """Periodically expires producers and releases idle segments in all open logs, and parks logs above a limit.

    `open_max` is the limit on open logs. `producer_id_expiration_ms` may be changed at any time. `parked_count` is the
    number of logs that were parked since the start.
    """

    def __init__(
        self,
        topics: Topics,
        clock: Clock,
        producer_id_expiration_ms: int,
        open_max: int = NO_BOUND,
        is_short_of_descriptors: Callable[[], bool] = lambda: False,
    ) -> None:
        """While `is_short_of_descriptors` returns True, idle segments are released every second, not every minute."""
        self._topics = topics
        self._is_short_of_descriptors = is_short_of_descriptors
        self._clock = clock
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self._open_max = open_max
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle = self._loop.call_later(ROUND_SECONDS, self.begin_round)
        self._parking: asyncio.Handle = self._loop.call_later(COUNT_SECONDS, self._park_some)
        self._is_parking = False
        # The value of `appended_bytes` of each partition when it was last considered for parking.
        self._bytes_when_tried: dict[Partition, int] = {}
        self._skipped_count = 0
        self._opened_count = 0
        self.parked_count = 0
        topics.on_opened = self.on_log_opened

    def close(self) -> None:
        self._timer.cancel()
        self._parking.cancel()

    # --- rounds

    def begin_round(self) -> None:
        self._continue_round(list(self._topics.open_partitions))

    def _continue_round(self, left: list[Partition]) -> None:
        now_ms = self._clock.now_ms()
        for partition in left[:LOGS_PER_CHUNK]:
            if partition.is_open:  # the log may have been parked since the round began
                partition.maintenance().tidy(now_ms, self.producer_id_expiration_ms)
        rest = left[LOGS_PER_CHUNK:]
        if rest:
            self._timer = self._loop.call_soon(self._continue_round, rest)
        else:
            self._timer = self._loop.call_later(ROUND_SECONDS, self.begin_round)

    # --- the limit on open logs

    def on_log_opened(self) -> None:
        """Begin to park logs if too many are open. Called after a log was opened, and after `Topics.touch`."""
        self._opened_count += 1
        if not self._is_parking and len(self._topics.open_partitions) > self._open_max:
            self._parking.cancel()
            self._is_parking = True
            self._parking = self._loop.call_soon(self._park_some)

    def _park_some(self) -> None:
        """Park a chunk of logs. While too many logs are open, the next loop iteration parks the next chunk.

        If all logs are in use, the next chunk follows after COUNT_SECONDS.
        """
        opened = self._topics.open_partitions
        excess = len(opened) - self._open_max
        if excess > 0:
            self._try_to_park(min(excess, max(PARKS_PER_CHUNK, PARKS_PER_OPENED * self._opened_count)))
        self._opened_count = 0
        self._is_parking = len(opened) > self._open_max and self._skipped_count < len(opened)
        if self._is_parking:
            self._parking = self._loop.call_soon(self._park_some)
            return
        if self._is_short_of_descriptors():
            self._timer.cancel()
            self.begin_round()
        self._skipped_count = 0
        self._bytes_when_tried = {
            partition: size for partition, size in self._bytes_when_tried.items() if partition in opened
        }
        self._parking = self._loop.call_later(COUNT_SECONDS, self._park_some)

    def _try_to_park(self, wanted: int) -> None:
        """Try to park `wanted` logs, oldest first. Logs that cannot be parked are moved to the end of the queue."""
        opened = self._topics.open_partitions
        for _ in range(wanted * TRIES_PER_PARK):
            partition = next(iter(opened), None)
            if partition is None:
                return
            appended_bytes = partition.appended_bytes
            if self._bytes_when_tried.get(partition, 0) != appended_bytes or not self._topics.park(partition):
                self._bytes_when_tried[partition] = appended_bytes
                self._topics.touch(partition)
                self._skipped_count += 1
                continue
            self._bytes_when_tried.pop(partition, None)
            self._skipped_count = 0
            self.parked_count += 1
            wanted -= 1
            if not wanted:
                return
