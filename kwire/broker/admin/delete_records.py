"""DeleteRecords: deletes the records at the beginning of partitions by raising the log start offset.

The new log start offset is first made durable. Then it becomes visible to readers, and then the request is answered. So
a record that was reported as deleted never reappears. The next round of retention removes the segments that end at or
below the new log start offset.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kwire.broker.partition import LogMaintenance, Partition, code_of
from kwire.concurrency.disk_lanes import Lane
from kwire.errors import ErrorCode, KafkaError, as_value
from storage.errors import LogClosed, StorageError
from storage.log.start_offset import LogStartUpdate

HIGH_WATERMARK = -1
# If a log is parked or relocated while its start offset is being written, the write is repeated. This is the maximum
# number of writes.
TRIES_MAX = 3


class Deletion(NamedTuple):
    """A request to delete the records below `offset`. The offset -1 stands for the high watermark."""

    partition: Partition
    offset: int


class _StartedUpdate(NamedTuple):
    """An update of a log start offset that has begun. `number` is its index in the argument of `delete_records`."""

    number: int
    log: LogMaintenance
    update: LogStartUpdate


async def delete_records(wanted: Sequence[Deletion], timeout_seconds: float, lane: Lane) -> list[int | KafkaError]:
    """Delete records. Returns the new, durable log start offset or the error for each request.

    All logs are opened in one loop iteration, so callers pass at most OPENS_PER_CHUNK requests at a time
    (`chunked_answers.py`). `lane` runs the disk writes.
    """
    outcomes: list[int | KafkaError] = [0] * len(wanted)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    left = list(range(len(wanted)))
    for _ in range(TRIES_MAX):
        begun = _begin(wanted, left, outcomes)
        if not begun:
            return outcomes
        work = lane.run(_run, [one.update for one in begun])
        # `_end` is a callback for two reasons: it runs before the request is answered, and it also runs if the writes
        # end only after the timeout. A thread that waits for the disk cannot be cancelled.
        work.add_done_callback(partial(_end, begun))
        try:
            done = await asyncio.wait_for(asyncio.shield(work), max(deadline - loop.time(), 0))
        except TimeoutError:
            late = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "the new log start offset was not written within the request's timeout"
            )
            done = [late] * len(begun)
        left = []
        for one, outcome in zip(begun, done, strict=True):
            if isinstance(outcome, KafkaError):
                outcomes[one.number] = outcome
            elif outcome:
                outcomes[one.number] = one.update.offset
            else:
                outcomes[one.number] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is being closed, try again")
                left.append(one.number)
    return outcomes


def _begin(
    wanted: Sequence[Deletion], numbers: Sequence[int], outcomes: list[int | KafkaError]
) -> list[_StartedUpdate]:
    """Check the requests, and return the updates that a thread has to run.

    The results of requests that need no update are stored in `outcomes`.
    """
    begun = []
    for number in numbers:
        partition = wanted[number].partition
        try:
            start = _new_start(partition, wanted[number].offset)
            outcomes[number] = start
            if start > 0:  # 0 deletes nothing
                log = partition.maintenance()
                begun.append(_StartedUpdate(number, log, log.begin_start_update(start)))
        except KafkaError as error:
            outcomes[number] = as_value(error)
        except StorageError as error:
            outcomes[number] = KafkaError(code_of(error), str(error))
    return begun


def _end(begun: Sequence[_StartedUpdate], work: "asyncio.Future[list[bool | KafkaError]]") -> None:
    outcomes = [False] * len(begun) if work.cancelled() or work.exception() is not None else work.result()
    for one, outcome in zip(begun, outcomes, strict=True):
        if outcome is True and one.log.is_current:
            one.update.finish()
        else:
            one.update.fail()


def _new_start(partition: Partition, offset: int) -> int:
    if not partition.settings.has_delete_policy:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {partition.topic_name} does not allow deleting records"
        )
    partition.open()  # the high watermark is not known before the log is open
    upto = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= upto <= partition.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not between 0 and {partition.high_watermark}"
        )
    if partition.is_closed:
        raise LogClosed("the topic is deleted")
    if not partition.is_writable:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, "the log is damaged or has failed, so its records cannot be deleted"
        )
    return max(upto, partition.log_start_offset)


def _run(updates: Sequence[LogStartUpdate]) -> list[bool | KafkaError]:
    """Run the updates, and return the result or error of each. Runs in a thread."""
    outcomes: list[bool | KafkaError] = []
    for update in updates:
        try:
            outcomes.append(update.run())
        except StorageError as error:
            outcomes.append(KafkaError(code_of(error), str(error)))
    return outcomes
