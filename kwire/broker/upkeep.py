"""What has to be done now and then on every open log, a little at a time."""

import asyncio

from kwire.broker.partition import Partition
from kwire.broker.topics import Topics
from kwire.clock import Clock

ROUND_SECONDS = 60.0
# One log takes microseconds; after this many the loop gets its turn.
LOGS_PER_TURN = 200


class Upkeep:
    """A round over all open logs every minute: forgets silent producers, gives back what idle segments hold."""

    def __init__(self, topics: Topics, clock: Clock, producer_id_expiration_ms: int) -> None:
        self._topics = topics
        self._clock = clock
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle = self._loop.call_later(ROUND_SECONDS, self.begin_round)

    def close(self) -> None:
        self._timer.cancel()

    def begin_round(self) -> None:
        opened = [partition for topic in self._topics for partition in topic.partitions if partition.is_open]
        self._go_on(opened)

    def _go_on(self, left: list[Partition]) -> None:
        now_ms = self._clock.now_ms()
        for partition in left[:LOGS_PER_TURN]:
            log = partition.log
            log.producers.expire(now_ms, self._producer_id_expiration_ms)
            log.release()
        rest = left[LOGS_PER_TURN:]
        if rest:
            self._timer = self._loop.call_soon(self._go_on, rest)
        else:
            self._timer = self._loop.call_later(ROUND_SECONDS, self.begin_round)
