"""OffsetDelete 0: delete a group's committed offsets of some partitions.

- The client needs DELETE on the group and READ on each topic. A topic without this right is
  TOPIC_AUTHORIZATION_FAILED.
- If a member is subscribed to a topic, the partitions of the topic are GROUP_SUBSCRIBED_TO_TOPIC. The other offsets are
  deleted. A group whose protocol type is not consumer must be empty (NON_EMPTY_GROUP), because its subscriptions are
  unknown.
- A topic or partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION. A partition without an offset is not an error.
- If the whole group has an error, the response has no topics.
"""

from collections.abc import Awaitable

from kwire.access.acl import Operation
from kwire.concurrency.chunking import eager, spread, yield_to_loop
from kwire.coordinator.client_requests import answer_of, resolved_answer
from kwire.coordinator.group.commands import DeleteOffsets, DeleteOffsetsAnswer, PartitionOfTopic
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

# Maximum number of partitions in one command. The coordinator handles a command without a pause, so larger requests
# are split.
PARTITIONS_PER_DELETION_MAX = 1_000


def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    return eager(_answer(context, request))


async def _answer(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    try:
        groups = context.groups.coordinator(Operation.DELETE, request.group_id)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code, topics=[])
    partitions: list[PartitionOfTopic] = []
    found: list[OffsetDeleteResponsePartition] = []
    topics = []
    async for asked in spread(request.topics):
        topic, refusal = None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            topic = context.topics.get(Operation.READ, asked.name)
        except KafkaError as error:
            refusal = error.code
        partition_count = len(topic.partitions) if topic is not None else 0
        answered = []
        async for one in spread(asked.partitions):
            response = OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=ErrorCode.NONE)
            answered.append(response)
            if 0 <= one.partition_index < partition_count:
                found.append(response)
                partitions.append(PartitionOfTopic(asked.name, one.partition_index))
            else:
                response.error_code = refusal
        topics.append(OffsetDeleteResponseTopic(name=asked.name, partitions=answered))

    # Send a command even if there are no partitions, because the coordinator reports whether the group exists.
    for first in range(0, max(len(partitions), 1), PARTITIONS_PER_DELETION_MAX):
        if first:
            await yield_to_loop()
        some = slice(first, first + PARTITIONS_PER_DELETION_MAX)
        command = DeleteOffsets(group_id=request.group_id, partitions=partitions[some])
        answer = await resolved_answer(answer_of(groups, command, _unchanged))
        if answer.error is not ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=answer.error, topics=[])
        for response, partition_error in zip(found[some], answer.errors, strict=True):
            response.error_code = partition_error
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)


def _unchanged(answer: DeleteOffsetsAnswer) -> DeleteOffsetsAnswer:
    return answer
