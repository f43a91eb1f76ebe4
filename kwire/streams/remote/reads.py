"""Reads: fetches batches for readers that are not at the head of a log. Equal reads share one fetch."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kwire.errors import ErrorCode, KafkaError, as_value
from kwire.kafka_client.link import Purpose
from kwire.streams.log import Completed, NotReady
from kwire.streams.remote.batch_cache import BatchCache, FirstOfTransaction, Run
from kwire.streams.remote.fetch_session import FINAL_EPOCH, NO_SESSION
from kwire.streams.remote.leader_requests import READ_COMMITTED, READ_UNCOMMITTED, BrokerSlots, LeaderRequests
from kwire.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

if TYPE_CHECKING:
    from kwire.streams.remote.log import RemoteLog

log = logging.getLogger("kwire.streams.remote")

# Fetches of one broker at the same time. Further ones wait.
READS_MAX: Final = 16
# How long the broker waits for records in tiered storage. It answers a read of its own log at once, because the request
# accepts 0 bytes.
TIERED_WAIT_MS: Final = 2000
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
        self._slots = BrokerSlots(READS_MAX)
        self._current: dict[tuple[RemoteLog, int, bool], list[Completed]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def begin(self, one: "RemoteLog", offset: int, max_bytes: int, is_committed: bool, completed: Completed) -> None:
        """Fetch batches into the cache, and call `completed` then."""
        key = one, offset, is_committed
        waiting = self._current.get(key)
        if waiting is not None:
            waiting.append(completed)
            return
        self._current[key] = [completed]
        task = asyncio.get_running_loop().create_task(self._read(one, offset, max_bytes, is_committed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, one: "RemoteLog", offset: int, max_bytes: int, is_committed: bool) -> None:
        error: KafkaError | None = None
        try:
            await self.fetch(one, offset, max_bytes, is_committed=is_committed)
        except KafkaError as failure:
            error = as_value(failure)
        except Exception:
            # Readers that were not called would wait for ever.
            log.exception("%r cannot be read at offset %d", one, offset)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{one.queue.what}: the read failed")
        finally:
            waiting = self._current.pop((one, offset, is_committed))
        for completed in waiting:
            completed(error)

    async def fetch(self, one: "RemoteLog", offset: int, max_bytes: int, *, is_committed: bool) -> Run | None:
        """Fetch batches into the cache, and return them; None if the offset is at the end or out of range."""
        asked = FetchPartition(
            partition=one.partition,
            fetch_offset=offset,
            partition_max_bytes=max(READ_BYTES_MIN, min(max_bytes, READ_BYTES_MAX)),
        )
        request = FetchRequest(
            max_wait_ms=TIERED_WAIT_MS,
            min_bytes=0,
            max_bytes=READ_BYTES_MAX,
            isolation_level=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
            session_id=NO_SESSION,
            session_epoch=FINAL_EPOCH,
            topics=[FetchTopic(topic=one.topic, topic_id=one.topic_id, partitions=[asked])],
        )
        try:
            data = await self._ask(one, request, _code_of)
            run = run_of(data, offset)
            end = data.last_stable_offset if is_committed else data.high_watermark
            if run is None and end > offset:
                if await self._requests.is_local(one, offset):
                    # The leader returns the next batch of its log if there is one. Compaction has removed the others.
                    run = Run(offset, memoryview(b""), next_offset=end)
                else:
                    # The records are in tiered storage, and were not read in time.
                    data = await self._ask(one, request, partial(_code_with_records, offset))
                    run = run_of(data, offset)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # The bounds that the caller knows are out of date. With the new ones it finds out what is wrong.
            await one.ask_bounds(is_exact=True)
            return None
        if run is None:
            return None
        one.check()
        self._cache.add(one.runs if is_committed else one.uncommitted_runs, run)
        return run

    async def _ask(
        self, one: "RemoteLog", request: FetchRequest, code_of: Callable[[FetchResponse], int]
    ) -> PartitionData:
        response: FetchResponse = await self._requests.ask(one, FETCH, request, code_of, Purpose.READ, self._slots)
        data = response.responses[0].partitions[0]
        one.learn(data.log_start_offset, data.last_stable_offset, data.high_watermark)
        return data


def run_of(data: PartitionData, offset: int) -> Run | None:
    """Return the batches of a response, from `offset` on; None if there are none."""
    if not data.records:
        return None
    begun = [FirstOfTransaction(one.first_offset, one.producer_id) for one in data.aborted_transactions or ()]
    run = Run(offset, memoryview(data.records), begun)
    return run if run.next_offset > offset else None


def _code_of(response: FetchResponse) -> int:
    """Return the error code of the partition. A broker that enforces a quota answers without partitions."""
    if response.error_code:
        return response.error_code
    if not response.responses:
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return response.responses[0].partitions[0].error_code


def _code_with_records(offset: int, response: FetchResponse) -> int:
    """Return the error code of a partition that has records: REQUEST_TIMED_OUT if there are none."""
    code = _code_of(response)
    if not code and run_of(response.responses[0].partitions[0], offset) is None:
        return ErrorCode.REQUEST_TIMED_OUT
    return code
