"""OffsetCommit 2-10: store the positions of a group.

- Topics and partitions that do not exist are refused one by one; the others are stored, up to OFFSETS_PER_COMMIT_MAX
  of them in one append.
- 2-4: a retention time of its own. 3: throttling. 6: leader epoch. 7: group instance id.
- 9: consumer-protocol groups (errors for a stale member epoch); a generation of a group that does not exist is
  GROUP_ID_NOT_FOUND, before it was ILLEGAL_GENERATION. 10: topic ids instead of names.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from kwire.coordinator.asking import answer_of
from kwire.coordinator.group.commands import CommitOffsets, OffsetToCommit
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.handlers.offset_commits import CommitApi, commit
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_VERSION_OF_NOT_FOUND = 9
FIRST_VERSION_OF_TOPIC_IDS = 10

API = CommitApi(
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetCommitResponsePartition,
    first_version_of_topic_ids=FIRST_VERSION_OF_TOPIC_IDS,
)

R = TypeVar("R")


def handle(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    return commit(context, request.topics, API, partial(_ask, context, request))


def _ask(
    context: Context,
    request: OffsetCommitRequest,
    offsets: list[OffsetToCommit],
    shape: Callable[[list[ErrorCode]], R],
) -> R | Awaitable[R]:
    return answer_of(context.services.groups, command_of(request, context.api_version, offsets), shape)


def command_of(request: OffsetCommitRequest, version: int, offsets: list[OffsetToCommit]) -> CommitOffsets:
    """What the coordinator is asked to do for a request of this version."""
    return CommitOffsets(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        knows_group_id_not_found=version >= FIRST_VERSION_OF_NOT_FOUND,
        offsets=offsets,
    )
