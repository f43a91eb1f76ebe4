"""DeleteRecords 0-2: records below an offset are gone, durably before the answer.

- Offset -1 is the high watermark. An offset below 0, or above the high watermark, is OFFSET_OUT_OF_RANGE; one below the
  log start changes nothing. The answer has the log start of now; beside an error it is -1.
- A topic whose cleanup.policy has no `delete` is POLICY_VIOLATION, an internal one INVALID_TOPIC_EXCEPTION.
- A partition that is named twice is answered once, and its last offset counts. A topic without partitions is not
  answered.
- Every partition is judged on its own; a disk that does not answer in `timeout_ms` is REQUEST_TIMED_OUT.
- Version 1 is as 0. Version 2 is flexible.
"""

import asyncio

from kwire.broker.chunking import next_turn, spread, spread_nested
from kwire.broker.partition import Partition
from kwire.broker.record_deletion import Deletion, delete_records
from kwire.broker.turns import OPENS_PER_TURN
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK = -1
# The time is for a disk that hangs: what it takes to be written is always waited for, as Kafka with one replica does.
WAIT_SECONDS_MIN = 1.0
# To look one up takes some microseconds; after this many the loop gets its turn.
LOOKUPS_PER_TURN = 1000

Name = tuple[str, int]


async def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    named = spread_nested(request.topics, lambda topic: topic.partitions)
    wanted = {(topic.name, one.partition_index): one.offset async for topic, one in named}
    outcomes: dict[Name, int | KafkaError] = {}
    found: dict[Name, Deletion] = {}
    for number, ((name, index), offset) in enumerate(wanted.items(), start=1):
        try:
            found[name, index] = Deletion(_find(context, name, index), offset)
        except KafkaError as error:
            outcomes[name, index] = error
        if number % LOOKUPS_PER_TURN == 0:
            await next_turn()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(request.timeout_ms / 1000, WAIT_SECONDS_MIN)
    names = list(found)
    for first in range(0, len(names), OPENS_PER_TURN):
        some = names[first : first + OPENS_PER_TURN]
        left_seconds = deadline - loop.time()
        if left_seconds <= 0:
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            outcomes.update(dict.fromkeys(names[first:], late))
            break
        told = await delete_records([found[name] for name in some], left_seconds)
        outcomes.update(zip(some, told, strict=True))
        await next_turn()
    results: dict[str, list[DeleteRecordsPartitionResult]] = {}
    async for name, index in spread(wanted):
        results.setdefault(name, []).append(_result(index, outcomes[name, index]))
    answers = [DeleteRecordsTopicResult(name=name, partitions=partitions) for name, partitions in results.items()]
    return DeleteRecordsResponse(topics=answers)


def _find(context: Context, name: str, index: int) -> Partition:
    partition = context.services.topics.leader_of(name, index)
    topic = context.services.topics.get(name)
    if topic is not None and topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    return partition


def _result(index: int, outcome: int | KafkaError) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, KafkaError):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=outcome.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=outcome, error_code=0)
