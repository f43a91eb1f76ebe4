"""DeleteRecords 0-2: delete the records below an offset; the response is sent when the deletion is durable.

- Offset -1 is the high watermark. Any other offset below 0, or above the high watermark, is OFFSET_OUT_OF_RANGE. An
  offset below the log start offset changes nothing. The response has the new log start offset, or -1 with an error.
- A topic needs DELETE. A topic whose cleanup.policy does not include `delete` is POLICY_VIOLATION. An internal topic is
  INVALID_TOPIC_EXCEPTION, and the audit topic is TOPIC_AUTHORIZATION_FAILED.
- A repeated partition has one result, for its last offset. A topic without partitions is left out of the response.
- Every partition has its own result. If the disk does not respond within `timeout_ms` (at least 1 second), the error is
  REQUEST_TIMED_OUT.
- Version 1 is the same as version 0. Version 2 is flexible.
"""

import asyncio

from kwire.access.acl import Operation
from kwire.broker.admin.delete_records import Deletion, delete_records
from kwire.broker.chunked_answers import OPENS_PER_CHUNK
from kwire.broker.partition import Partition
from kwire.broker.topics.topics import protected_topic
from kwire.concurrency.chunking import spread, spread_nested, yield_to_loop
from kwire.errors import ErrorCode, KafkaError, as_value
from kwire.handlers.shared.context import Context
from kwire.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK = -1
# Minimum timeout, even if `timeout_ms` is shorter. The timeout is needed only for a disk that does not respond. Kafka
# with one replica also waits longer than `timeout_ms`.
WAIT_SECONDS_MIN = 1.0
# Partitions that are looked up between two yields to the event loop. A lookup takes some microseconds.
LOOKUPS_PER_CHUNK = 1000

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
            outcomes[name, index] = as_value(error)
        if number % LOOKUPS_PER_CHUNK == 0:
            await yield_to_loop()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(request.timeout_ms / 1000, WAIT_SECONDS_MIN)
    names = list(found)
    lane = context.services.topics.lanes.settle
    for first in range(0, len(names), OPENS_PER_CHUNK):
        some = names[first : first + OPENS_PER_CHUNK]
        left_seconds = deadline - loop.time()
        if left_seconds <= 0:
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            outcomes.update(dict.fromkeys(names[first:], late))
            break
        deleted = await delete_records([found[name] for name in some], left_seconds, lane)
        outcomes.update(zip(some, deleted, strict=True))
        await yield_to_loop()
    results: dict[str, list[DeleteRecordsPartitionResult]] = {}
    async for name, index in spread(wanted):
        results.setdefault(name, []).append(_result(index, outcomes[name, index]))
    answers = [DeleteRecordsTopicResult(name=name, partitions=partitions) for name, partitions in results.items()]
    return DeleteRecordsResponse(topics=answers)


def _find(context: Context, name: str, index: int) -> Partition:
    partition = context.topics.leader_of(Operation.DELETE, name, index)
    topic = context.topics.get(Operation.DELETE, name)
    if topic is not None and topic.is_server_owned:
        raise protected_topic(name) if topic.is_protected else KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    return partition


def _result(index: int, outcome: int | KafkaError) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, KafkaError):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=outcome.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=outcome, error_code=0)
