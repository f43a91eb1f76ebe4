"""LocalAppends: appends of batches to a partition of this process, in the order of the calls.

A batch whose validation would block the event loop is validated by the worker process. Such a batch has many records to
check, or has to be compressed with another codec. Later batches wait for this batch, so that the order is kept.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from kwire.broker.batch_validation import TooLongForLoop, Validate, Validated, skip_validation, validate_on_loop
from kwire.broker.partition import WAIT_MS_MAX, Partition, code_of
from kwire.config.resources.topic import TopicSettings
from kwire.errors import ErrorCode, KafkaError, as_value
from kwire.streams.log import Appended
from storage.batch.record_batch import BatchHeader
from storage.errors import StorageError

log = logging.getLogger("kwire.broker")

# The maximum number of bytes that wait per log. Batches wait for the worker process, or for an earlier batch. Above
# this limit, appends are refused.
WAITING_BYTES_MAX = 16 * 1024 * 1024

# Validates a batch outside the event loop; raises StorageError or KafkaError.
ValidateElsewhere = Callable[[memoryview, BatchHeader, TopicSettings], Awaitable[Validated]]


class _PendingAppend(NamedTuple):
    batch: memoryview
    header: BatchHeader
    appended: Appended


class LocalAppends:
    """The append queue of one partition."""

    __slots__ = ("_partition", "_task", "_validate_elsewhere", "_waiting", "_waiting_bytes")

    def __init__(self, partition: Partition, validate_elsewhere: ValidateElsewhere) -> None:
        self._partition = partition
        self._validate_elsewhere = validate_elsewhere
        self._waiting: deque[_PendingAppend] | None = None
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = None

    def append(self, batch: memoryview, header: BatchHeader, appended: Appended) -> None:
        """Append a batch. Calls `appended` once, with the base offset when the batch is committed, or with an error."""
        if self._waiting is None:
            try:
                self._store(batch, header, validate_on_loop, appended)
                return
            except TooLongForLoop:
                self._waiting = deque()
                self._task = asyncio.get_running_loop().create_task(self._drain(self._waiting))
        if self._waiting_bytes + len(batch) > WAITING_BYTES_MAX:
            appended(
                KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    "too many events are waiting for compression",
                )
            )
            return
        self._waiting_bytes += len(batch)
        self._waiting.append(_PendingAppend(batch, header, appended))

    async def _drain(self, waiting: deque[_PendingAppend]) -> None:
        try:
            while waiting:
                one = waiting.popleft()
                self._waiting_bytes -= len(one.batch)
                try:
                    self._store(one.batch, one.header, validate_on_loop, one.appended)
                except TooLongForLoop:
                    await self._store_validated(one)
        finally:
            self._waiting = self._task = None
            for one in waiting:  # the task was cancelled because the server is stopping
                self._waiting_bytes -= len(one.batch)
                one.appended(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the server is stopping"))

    async def _store_validated(self, one: _PendingAppend) -> None:
        try:
            async with asyncio.timeout(WAIT_MS_MAX / 1000):
                batch, header = await self._validate_elsewhere(one.batch, one.header, self._partition.settings)
        except TimeoutError:
            one.appended(
                KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the events could not be compressed within {WAIT_MS_MAX} ms")
            )
        except StorageError as error:
            one.appended(as_kafka_error(error))
        except KafkaError as error:
            one.appended(as_value(error))
        else:
            self._store(batch, header, skip_validation, one.appended)

    def _store(self, batch: memoryview, header: BatchHeader, validate: Validate, appended: Appended) -> None:
        """Append a batch now. Raises only TooLongForLoop, if `validate` does."""
        partition = self._partition
        try:
            stored = partition.append(batch, header, None, validate)
        except TooLongForLoop:
            raise
        except StorageError as error:
            appended(as_kafka_error(error))
            return
        except KafkaError as error:
            appended(as_value(error))
            return
        except Exception as error:  # a watcher may have failed, for example: `appended` must be called anyway
            log.exception("records could not be appended to %s-%d", partition.topic_name, partition.index)
            appended(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}"))
            return
        base_offset, end = stored.base_offset, stored.last_offset + 1
        if partition.high_watermark >= end:
            appended(base_offset)
        else:
            partition.on_reached(end, lambda error: appended(error or base_offset))


def as_kafka_error(error: StorageError) -> KafkaError:
    return KafkaError(code_of(error), str(error))
