"""OffsetDelete 0: forget what a group committed for some partitions.

- Refused for topics that a member is subscribed to (GROUP_SUBSCRIBED_TO_TOPIC); the others of the request are deleted.
  A group that is not of consumers must be empty (NON_EMPTY_GROUP), because nobody knows what its members read.
- A topic or partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; a partition without an offset is no error.
- An error of the whole group leaves the topics out.
"""

from collections.abc import Awaitable

from kwire.broker.chunking import eager, next_turn, spread
from kwire.coordinator.asking import answer_of, settled
from kwire.coordinator.group.commands import DeleteOffsets, DeleteOffsetsAnswer, PartitionOfTopic
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

# More partitions than these are deleted in several steps: the coordinator decides one without a pause.
PARTITIONS_PER_DELETION_MAX = 1_000


def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    return eager(_answer(context, request))


async def _answer(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    partitions: list[PartitionOfTopic] = []
    places: list[OffsetDeleteResponsePartition] = []
    topics = []
    async for asked in spread(request.topics):
        topic = context.services.topics.get(asked.name)
        partition_count = len(topic.partitions) if topic is not None else 0
        answered = []
        async for one in spread(asked.partitions):
            place = OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=ErrorCode.NONE)
            answered.append(place)
            if 0 <= one.partition_index < partition_count:
                places.append(place)
                partitions.append(PartitionOfTopic(asked.name, one.partition_index))
            else:
                place.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics.append(OffsetDeleteResponseTopic(name=asked.name, partitions=answered))

    # Asked also if no partition is left: whether there is such a group is answered in any case.
    for first in range(0, max(len(partitions), 1), PARTITIONS_PER_DELETION_MAX):
        if first:
            await next_turn()
        some = slice(first, first + PARTITIONS_PER_DELETION_MAX)
        command = DeleteOffsets(group_id=request.group_id, partitions=partitions[some])
        answer = await settled(answer_of(context.services.groups, command, _as_it_is))
        if answer.error is not ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=answer.error, topics=[])
        for place, error in zip(places[some], answer.errors, strict=True):
            place.error_code = error
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)


def _as_it_is(answer: DeleteOffsetsAnswer) -> DeleteOffsetsAnswer:
    return answer
