"""Reads: fetches batches for readers that are not at the head of a log. Equal reads share one fetch."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from kwire.errors import ErrorCode, KafkaError, as_value
from kwire.kafka_client.link import Purpose
from kwire.streams.log import Completed, NotReady
from kwire.streams.remote.batch_cache import BatchCache, FirstOfTransaction, Run
from kwire.streams.remote.fetch_session import FINAL_EPOCH, NO_SESSION
from kwire.streams.remote.leader_requests import READ_COMMITTED, READ_UNCOMMITTED, LeaderRequests
from kwire.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, PartitionData

if TYPE_CHECKING:
    from kwire.streams.remote.log import RemoteLog

# Reads of all logs that are made at the same time. Further ones wait.
READS_MAX: Final = 16
# The bytes of one read: at least the first, even if the reader wants less, because it is going to read on. A larger
# batch is returned whole.
READ_BYTES_MIN: Final = 256 * 1024
READ_BYTES_MAX: Final = 1024 * 1024


class RemoteRead(NotReady):
    """A read that has to be fetched."""

    __slots__ = ("_is_committed", "_log", "_max_bytes", "_offset", "_reads")

    def __init__(self, reads: "Reads", log: "RemoteLog", offset: int, max_bytes: int, is_committed: bool) -> None:
        self._reads = reads
        self._log = log
        self._offset = offset
        self._max_bytes = max_bytes
        self._is_committed = is_committed

    def begin(self, completed: Completed) -> None:
        self._reads.begin(self._log, self._offset, self._max_bytes, self._is_committed, completed)


class Reads:
    def __init__(self, requests: LeaderRequests, cache: BatchCache) -> None:
        self._requests = requests
        self._cache = cache
        self._room = asyncio.Semaphore(READS_MAX)
        self._current: dict[tuple[RemoteLog, int, bool], list[Completed]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def begin(self, log: "RemoteLog", offset: int, max_bytes: int, is_committed: bool, completed: Completed) -> None:
        """Fetch batches into the cache, and call `completed` then."""
        key = log, offset, is_committed
        waiting = self._current.get(key)
        if waiting is not None:
            waiting.append(completed)
            return
        self._current[key] = [completed]
        task = asyncio.get_running_loop().create_task(self._read(log, offset, max_bytes, is_committed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, log: "RemoteLog", offset: int, max_bytes: int, is_committed: bool) -> None:
        error: KafkaError | None = None
        try:
            async with self._room:
                await self.fetch(log, offset, max_bytes, is_committed=is_committed)
        except KafkaError as failure:
            error = as_value(failure)
        finally:
            waiting = self._current.pop((log, offset, is_committed))
        for completed in waiting:
            completed(error)

    async def fetch(self, log: "RemoteLog", offset: int, max_bytes: int, *, is_committed: bool) -> Run | None:
        """Fetch batches into the cache, and return them; None if the offset is at the end or out of range."""
        asked = FetchPartition(
            partition=log.partition,
            fetch_offset=offset,
            partition_max_bytes=max(READ_BYTES_MIN, min(max_bytes, READ_BYTES_MAX)),
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=READ_BYTES_MAX,
            isolation_level=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
            session_id=NO_SESSION,
            session_epoch=FINAL_EPOCH,
            topics=[FetchTopic(topic=log.topic, topic_id=log.topic_id, partitions=[asked])],
        )
        try:
            response = await self._requests.ask(log, FETCH, request, _code_of, Purpose.READ)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # The bounds that the caller knows are out of date. With the new ones it finds out what is wrong.
            await log.ask_bounds(is_exact=True)
            return None
        data = response.responses[0].partitions[0]
        log.learn(data.log_start_offset, data.last_stable_offset, data.high_watermark)
        run = run_of(data, offset)
        if run is None:
            end = data.last_stable_offset if is_committed else data.high_watermark
            if end <= offset:
                return None
            # A fetch of one partition returns a batch if there is one: compaction has removed these records.
            run = Run(offset, memoryview(b""), next_offset=end)
        log.check()
        self._cache.add(log.runs if is_committed else log.uncommitted_runs, run)
        return run


def run_of(data: PartitionData, offset: int) -> Run | None:
    """Return the batches of a response, from `offset` on; None if there are none."""
    if not data.records:
        return None
    begun = [FirstOfTransaction(one.first_offset, one.producer_id) for one in data.aborted_transactions or ()]
    run = Run(offset, memoryview(data.records), begun)
    return run if run.next_offset > offset else None


def _code_of(response: Any) -> int:
    return response.error_code or int(response.responses[0].partitions[0].error_code)
