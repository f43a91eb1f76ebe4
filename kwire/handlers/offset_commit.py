"""OffsetCommit 2-10: store the positions of a group.

- Topics and partitions that do not exist are refused one by one; the others are stored in one append.
- 2-4: a retention time of its own. 3: throttling. 6: leader epoch. 7: group instance id.
- 9: consumer-protocol groups (errors for a stale member epoch); a generation of a group that does not exist is
  GROUP_ID_NOT_FOUND, before it was ILLEGAL_GENERATION. 10: topic ids instead of names.
"""

from collections.abc import Awaitable

from kwire.broker.topics import Topic
from kwire.coordinator.asking import answer_of
from kwire.coordinator.group.commands import CommitOffsets, OffsetToCommit
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_VERSION_OF_NOT_FOUND = 9
FIRST_VERSION_OF_TOPIC_IDS = 10


def handle(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    offsets: list[OffsetToCommit] = []
    places: list[OffsetCommitResponsePartition] = []
    topics = []
    for asked in request.topics:
        topic = _find(context, asked)
        partitions = []
        for one in asked.partitions:
            place = OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=ErrorCode.NONE)
            partitions.append(place)
            if topic is None:
                place.error_code = _not_found(context)
            elif not 0 <= one.partition_index < len(topic.partitions):
                place.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                places.append(place)
                offsets.append(
                    OffsetToCommit(
                        topic.name,
                        one.partition_index,
                        one.committed_offset,
                        one.committed_leader_epoch,
                        one.committed_metadata or "",
                        topic.topic_id,
                    )
                )
        topics.append(OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=partitions))
    response = OffsetCommitResponse(topics=topics)
    if not offsets:
        return response

    def fill(errors: list[ErrorCode]) -> OffsetCommitResponse:
        for place, error in zip(places, errors, strict=True):
            place.error_code = error
        return response

    command = CommitOffsets(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        knows_group_id_not_found=context.api_version >= FIRST_VERSION_OF_NOT_FOUND,
        offsets=offsets,
    )
    return answer_of(context.services.groups, command, fill)


def _find(context: Context, asked: OffsetCommitRequestTopic) -> Topic | None:
    if context.api_version >= FIRST_VERSION_OF_TOPIC_IDS:
        return context.services.topics.get_by_id(asked.topic_id)
    return context.services.topics.get(asked.name)


def _not_found(context: Context) -> ErrorCode:
    if context.api_version >= FIRST_VERSION_OF_TOPIC_IDS:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
