"""CountRetention: deletes the oldest events of rooms that have more than their retention allows.

A cluster limits topics by time and by bytes, but not by the number of records. So the bridge does it with
DeleteRecords, in rounds over the rooms whose logs are open. A room that nobody uses through the bridge keeps all its
events until somebody does.
"""

import asyncio
import logging
from typing import Final

from kwire.errors import KafkaError
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote_rooms.rooms import RemoteRooms

log = logging.getLogger("kwire.bridge")

ROUND_SECONDS: Final = 1.0
# The maximum number of DeleteRecords requests without a response.
REQUESTS_MAX: Final = 16
# A room is trimmed when it has this share of its limit too much, so that large rooms need few requests.
SLACK_DIVISOR: Final = 100
# The number of logs that are looked at in one iteration of the event loop.
LOGS_PER_ITERATION: Final = 500
# The rooms whose topic ids are compared with the cluster's by one request, before they are trimmed.
TRIMS_PER_REFRESH: Final = 200


class CountRetention:
    """The background task. `trimmed_count` is the number of deleted events, and `failures` that of failed requests."""

    def __init__(self, rooms: RemoteRooms, logs: RemoteLogs) -> None:
        self._rooms = rooms
        self._logs = logs
        self._admin = logs.admin
        self._requests = asyncio.Semaphore(REQUESTS_MAX)
        self.trimmed_count = 0
        self.failures = 0
        self._task = asyncio.get_running_loop().create_task(self._repeat())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            try:
                await self.round()
            except KafkaError as error:
                self.failures += 1
                log.info("a round of count retention ended early and will be repeated: %s", error)
            except Exception:
                self.failures += 1
                log.exception("a round of count retention failed")

    async def round(self) -> None:
        excessive: list[tuple[RemoteLog, int]] = []
        for number, one in enumerate(self._logs.open_logs(), 1):
            start = self._wanted_start(one)
            if start is not None:
                excessive.append((one, start))
            if number % LOGS_PER_ITERATION == 0:
                await asyncio.sleep(0)
        for first in range(0, len(excessive), TRIMS_PER_REFRESH):
            chunk = excessive[first : first + TRIMS_PER_REFRESH]
            # DeleteRecords has names only. Another client may have created a topic again, which keeps its records.
            await self._logs.cluster.refresh([one.topic for one, _ in chunk])
            await asyncio.gather(*(self._trim(one, start) for one, start in chunk))

    def _wanted_start(self, one: RemoteLog) -> int | None:
        """Return the offset before which the events of a log are deleted; None if there is nothing to delete."""
        record = self._rooms.record_of(one) if one.is_known else None
        if record is None or record.retention.max_events is None:
            return None
        max_events = record.retention.max_events
        start = one.committed_end - max_events
        return start if start > one.start_offset + max_events // SLACK_DIVISOR else None

    async def _trim(self, one: RemoteLog, start: int) -> None:
        async with self._requests:
            before = one.start_offset
            try:
                self._admin.check_id(one.topic, one.topic_id)
                await self._admin.delete_records(one.topic, one.partition, start)
            except KafkaError as error:
                # The next round tries again.
                self.failures += 1
                log.info("the oldest events of topic %r could not be deleted: %s", one.topic, error)
                return
            one.learn(start, one.committed_end, one.high_watermark)
            self.trimmed_count += start - before
