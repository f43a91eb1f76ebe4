"""OffsetDelete 0: forget what a group committed for some partitions.

- Refused for topics that a member is subscribed to (GROUP_SUBSCRIBED_TO_TOPIC); the others of the request are deleted.
  A group that is not of consumers must be empty (NON_EMPTY_GROUP), because nobody knows what its members read.
- A topic or partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; a partition without an offset is no error.
- An error of the whole group leaves the topics out.
"""

from collections.abc import Awaitable

from kwire.coordinator.asking import answer_of
from kwire.coordinator.group.commands import DeleteOffsets, DeleteOffsetsAnswer, PartitionOfTopic
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    partitions: list[PartitionOfTopic] = []
    places: list[OffsetDeleteResponsePartition] = []
    topics = []
    for asked in request.topics:
        topic = context.services.topics.get(asked.name)
        partition_count = len(topic.partitions) if topic is not None else 0
        answered = []
        for one in asked.partitions:
            place = OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=ErrorCode.NONE)
            answered.append(place)
            if 0 <= one.partition_index < partition_count:
                places.append(place)
                partitions.append(PartitionOfTopic(asked.name, one.partition_index))
            else:
                place.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics.append(OffsetDeleteResponseTopic(name=asked.name, partitions=answered))

    def fill(answer: DeleteOffsetsAnswer) -> OffsetDeleteResponse:
        if answer.error is not ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=answer.error, topics=[])
        for place, error in zip(places, answer.errors, strict=True):
            place.error_code = error
        return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)

    # Asked also if no partition is left: whether there is such a group is told in any case.
    command = DeleteOffsets(group_id=request.group_id, partitions=partitions)
    return answer_of(context.services.groups, command, fill)
