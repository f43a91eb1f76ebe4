"""The limits of the client's key for one Produce request: each record counts as a published event.

- Above `max_events` no batch of the request is appended. Each has the error POLICY_VIOLATION, which producers do not
  retry.
- The records of a request may exceed `publish_rate`, because a batch cannot be divided. As with Kafka's quotas the
  response then has a throttle time, and the connection is muted for this time. A request that arrives meanwhile on
  another connection of the key waits for up to its timeout. If that is too short, it is refused with
  THROTTLING_QUOTA_EXCEEDED, and its connection is muted.
- Records that were not appended, or were appended before (a producer that sends a batch again), are uncounted.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from kwire.access.quotas.client_quota import MS
from kwire.access.usage.client_limits import ClientLimits
from kwire.access.usage.event_allowances import EventLimitReached
from kwire.access.usage.publish_rates import RateExceeded
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.produce.append import PartitionAppend
from kwire.metastore import Conflict
from kwire.wire.messages.produce import ProduceRequest
from storage.batch.format import HEADER_BYTES
from storage.errors import StorageError

# The maximum throttle time. A client that is still above the rate afterwards is throttled again. Without a maximum, one
# that has published many events at once would not notice for days that the rate was raised.
THROTTLE_MS_MAX = 30_000

# The positions in the header of a batch.
_LAST_OFFSET_DELTA = slice(23, 27)
_RECORD_COUNT = slice(57, 61)

Admission = Callable[[], Coroutine[Any, Any, None]]


class CountedRecords:
    """Counts the records of one request against the limits of the client's key."""

    __slots__ = ("_counted", "_counts", "_limits", "_refused_ms", "_timeout_s")

    def __init__(self, limits: ClientLimits, request: ProduceRequest, timeout_ms: int) -> None:
        """`timeout_ms` is the maximum time to wait until the records may be appended."""
        self._limits = limits
        self._timeout_s = timeout_ms / MS
        # The number of records of each partition, in the order of the request.
        self._counts = [_record_count(one.records) for topic in request.topic_data for one in topic.partition_data]
        self._counted = 0
        # The time that a client has to wait whose request was refused because of the rate.
        self._refused_ms = 0

    def admit(self) -> Admission | None:
        """Count the records. Returns None if they may be appended now, otherwise a function that waits until they may.

        Both raise KafkaError.
        """
        try:
            storing = self._take()
        except RateExceeded as error:
            return partial(self._wait, error.wait_s)
        return None if storing is None else partial(self._wait_for, storing)

    def settle(self, appends: Iterable[PartitionAppend]) -> None:
        """Uncount the records that were not appended. `appends` are those of the request, in its order, and their
        outcome is known, unless the client does not wait for it. If the request was abandoned, the last are missing."""
        if self._counted:
            stored = sum(count for count, one in zip(self._counts, appends, strict=False) if _is_counted(one))
            self._limits.give_back(self._counted - stored)
            self._counted = 0

    def throttle_ms(self) -> int:
        """Return the time for which the connection has to be muted, at most THROTTLE_MS_MAX."""
        return min(self._refused_ms or round(self._limits.throttle_s() * MS), THROTTLE_MS_MAX)

    def _take(self) -> "asyncio.Future[None] | None":
        count = sum(self._counts)
        try:
            storing = self._limits.admit(count)
        except EventLimitReached as error:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, str(error)) from None
        self._counted = count
        return storing

    async def _wait(self, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while wait_s <= deadline - loop.time():
            await asyncio.sleep(wait_s)
            try:
                storing = self._take()
            except RateExceeded as error:
                # Another connection of the key was faster.
                wait_s = error.wait_s
                continue
            if storing is not None:
                await self._wait_for(storing)
            return
        self._refused_ms = round(wait_s * MS)
        raise KafkaError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the key has published more events per second than it may"
        )

    async def _wait_for(self, storing: "asyncio.Future[None]") -> None:
        try:
            await asyncio.shield(storing)
        except BaseException as error:
            self._limits.give_back(self._counted)
            self._counted = 0
            if isinstance(error, StorageError | Conflict):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the records could not be counted: {error}") from error
            raise


def _record_count(batch: Any) -> int:
    """Return the number of records in the header of a batch, which is not checked yet; 0 if it is not valid.

    Such a batch is refused later. If the number is wrong for another reason, the batch is refused and uncounted.
    """
    if not batch or len(batch) < HEADER_BYTES:
        return 0
    count = int.from_bytes(batch[_RECORD_COUNT], "big", signed=True)
    last_offset_delta = int.from_bytes(batch[_LAST_OFFSET_DELTA], "big", signed=True)
    return count if count > 0 and count == last_offset_delta + 1 else 0


def _is_counted(append: PartitionAppend) -> bool:
    """Whether the records of a batch stay counted: they are stored, or may be."""
    if append.failure is not None:
        return append.failure.code is ErrorCode.REQUEST_TIMED_OUT
    return not append.appended.is_duplicate
