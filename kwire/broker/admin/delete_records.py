"""Deleting the records at the beginning of partitions because somebody asked for it: the log start moves.

The new start is put on the disk first, then readers are kept away from the records, then the request is answered. So a
record that was gone for anybody does not come back. Files wholly below the start are removed by the next round of
retention.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kwire.broker.partition import LogMaintenance, Partition, code_of
from kwire.disk_lanes import Lane
from kwire.errors import ErrorCode, KafkaError, as_value
from storage.errors import LogClosed, StorageError
from storage.log_start import StartMove

HIGH_WATERMARK = -1
# A log that is put away, or moved, while its start is being written is looked at again; that often is no chance.
TRIES_MAX = 3


class Deletion(NamedTuple):
    """Records below `offset` are to go; -1 is everything that can be read."""

    partition: Partition
    offset: int


class _Begun(NamedTuple):
    place: int
    log: LogMaintenance
    move: StartMove


async def delete_records(wanted: Sequence[Deletion], timeout_seconds: float, lane: Lane) -> list[int | KafkaError]:
    """The log start of each partition, durable, or why it is not known to be. Opens logs: a few at a time.

    `lane` waits for the disk.
    """
    outcomes: list[int | KafkaError] = [0] * len(wanted)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    left = list(range(len(wanted)))
    for _ in range(TRIES_MAX):
        begun = _begin(wanted, left, outcomes)
        if not begun:
            return outcomes
        # Not cancelled with the wait: a thread that hangs in the disk cannot be.
        work = lane.run(_run, [one.move for one in begun])
        # Even if no caller waits any longer, and before the callers that do are answered.
        work.add_done_callback(partial(_end, begun))
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
                outcomes[one.place] = one.move.offset
            else:
                outcomes[one.place] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is being put away, try again")
                left.append(one.place)
    return outcomes


def _begin(wanted: Sequence[Deletion], places: Sequence[int], outcomes: list[int | KafkaError]) -> list[_Begun]:
    """The moves that a thread has to run."""
    begun = []
    for place in places:
        partition = wanted[place].partition
        try:
            start = _new_start(partition, wanted[place].offset)
            outcomes[place] = start
            if start > 0:  # where every log starts
                log = partition.maintenance()
                begun.append(_Begun(place, log, log.begin_start_move(start)))
        except KafkaError as error:
            outcomes[place] = as_value(error)
        except StorageError as error:
            outcomes[place] = KafkaError(code_of(error), str(error))
    return begun


def _end(begun: Sequence[_Begun], work: "asyncio.Future[list[bool | KafkaError]]") -> None:
    outcomes = [False] * len(begun) if work.cancelled() or work.exception() is not None else work.result()
    for one, outcome in zip(begun, outcomes, strict=True):
        if outcome is True and one.log.is_current:
            one.move.finish()
        else:
            one.move.fail()


def _new_start(partition: Partition, offset: int) -> int:
    if not partition.settings.is_deleted:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {partition.topic_name} does not let records be deleted"
        )
    partition.open()  # the high watermark is known then
    upto = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= upto <= partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not from 0 to {partition.high_watermark}")
    if partition.is_closed:
        raise LogClosed("the topic is deleted")
    if not partition.is_writable:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is damaged or failed, and is left as it is")
    return max(upto, partition.log_start_offset)


def _run(moves: Sequence[StartMove]) -> list[bool | KafkaError]:
    """In a thread."""
    outcomes: list[bool | KafkaError] = []
    for move in moves:
        try:
            outcomes.append(move.run())
        except StorageError as error:
            outcomes.append(KafkaError(code_of(error), str(error)))
    return outcomes
