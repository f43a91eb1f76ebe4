"""OffsetCommit 2-10: store the positions of a group.

- Topics and partitions that do not exist are refused one by one; the others are stored, up to OFFSETS_PER_COMMIT_MAX
  of them in one append.
- 2-4: a retention time of its own. 3: throttling. 6: leader epoch. 7: group instance id.
- 9: consumer-protocol groups (errors for a stale member epoch); a generation of a group that does not exist is
  GROUP_ID_NOT_FOUND, before it was ILLEGAL_GENERATION. 10: topic ids instead of names.
"""

from collections.abc import Awaitable

from kwire.broker.chunking import eager, spread
from kwire.broker.topics import Topic
from kwire.coordinator.asking import answer_of
from kwire.coordinator.group.commands import CommitOffsets, OffsetToCommit
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.handlers.offset_commits import AskedTopic, commit, offsets_to_commit
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
    return eager(_commit(context, request))


async def _commit(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    topics = [
        OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=[])
        async for asked in spread(request.topics)
    ]
    asked_topics = (
        AskedTopic(_find(context, asked), asked.partitions, answer.partitions)
        for asked, answer in zip(request.topics, topics, strict=True)
    )
    offsets = await offsets_to_commit(asked_topics, OffsetCommitResponsePartition, _not_found(context))

    def ask(some: list[OffsetToCommit]) -> list[ErrorCode] | Awaitable[list[ErrorCode]]:
        command = CommitOffsets(
            group_id=request.group_id,
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            knows_group_id_not_found=context.api_version >= FIRST_VERSION_OF_NOT_FOUND,
            offsets=some,
        )
        return answer_of(context.services.groups, command, lambda errors: errors)

    await commit(offsets, ask)
    return OffsetCommitResponse(topics=topics)


def _find(context: Context, asked: OffsetCommitRequestTopic) -> Topic | None:
    if context.api_version >= FIRST_VERSION_OF_TOPIC_IDS:
        return context.services.topics.get_by_id(asked.topic_id)
    return context.services.topics.get(asked.name)


def _not_found(context: Context) -> ErrorCode:
    if context.api_version >= FIRST_VERSION_OF_TOPIC_IDS:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
