"""Deleting the records at the beginning of partitions because somebody asked for it: the log start moves.

Readers are kept away from them at once. Who asked is answered when the new start is on the disk, so a record that was
said to be gone does not come back. Files wholly below the start are removed by the next round of retention.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kwire.broker.partition import Partition, code_of
from kwire.errors import ErrorCode, KafkaError
from storage.errors import LogClosed, StorageError
from storage.log_start import begin_durable_start

HIGH_WATERMARK = -1
# A log that is put away, or moved, while its start is being written is looked at again; that often is no chance.
TRIES_MAX = 3

Job = Callable[[], bool]


class Deletion(NamedTuple):
    """Records below `offset` are to go; -1 is everything that can be read."""

    partition: Partition
    offset: int


class _Begun(NamedTuple):
    place: int
    partition: Partition
    log_start_offset: int
    job: Job


async def delete_records(wanted: Sequence[Deletion], timeout_seconds: float) -> list[int | KafkaError]:
    """The log start of each partition, durable, or why it is not known to be. Opens logs: a few at a time."""
    outcomes: list[int | KafkaError] = [0] * len(wanted)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    left = list(range(len(wanted)))
    for _ in range(TRIES_MAX):
        begun = _begin(wanted, left, outcomes)
        if not begun:
            return outcomes
        # Not cancelled with the wait: a thread that hangs in the disk cannot be.
        work = loop.run_in_executor(None, _run, [one.job for one in begun])
        try:
            done = await asyncio.wait_for(asyncio.shield(work), max(deadline - loop.time(), 0))
        except TimeoutError:
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the disk has not taken the new log start in time")
            done = [late] * len(begun)
        left = []
        for one, outcome in zip(begun, done, strict=True):
            if isinstance(outcome, KafkaError):
                outcomes[one.place] = outcome
            elif outcome:
                outcomes[one.place] = one.log_start_offset
            else:
                outcomes[one.place] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is being put away, try again")
                left.append(one.place)
    return outcomes


def _begin(wanted: Sequence[Deletion], places: Sequence[int], outcomes: list[int | KafkaError]) -> list[_Begun]:
    """Move the starts; what remains to be done by a thread."""
    begun = []
    for place in places:
        partition = wanted[place].partition
        try:
            _move_start(partition, wanted[place].offset)
            log = partition.log
            outcomes[place] = log.log_start_offset
            job = begin_durable_start(log)
        except KafkaError as error:
            outcomes[place] = error
        except StorageError as error:
            outcomes[place] = KafkaError(code_of(error), str(error))
        else:
            if job is not None:
                begun.append(_Begun(place, partition, log.log_start_offset, job))
    return begun


def _move_start(partition: Partition, offset: int) -> None:
    if not partition.settings.is_deleted:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {partition.topic_name} does not let records be deleted"
        )
    log = partition.log  # the high watermark is known once it is open
    upto = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= upto <= partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not from 0 to {partition.high_watermark}")
    if log.is_closed:
        raise LogClosed("the topic is deleted")
    if not log.is_writable:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is damaged or failed, and is left as it is")
    if upto > log.log_start_offset:
        log.advance_log_start_offset(upto)


def _run(jobs: Sequence[Job]) -> list[bool | KafkaError]:
    """In a thread."""
    outcomes: list[bool | KafkaError] = []
    for job in jobs:
        try:
            outcomes.append(job())
        except StorageError as error:
            outcomes.append(KafkaError(code_of(error), str(error)))
    return outcomes
