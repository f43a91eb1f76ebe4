"""OffsetCommit 2-10: commit the offsets of a group.

- The client needs READ on the group and on each topic. Without the right on the group every partition is
  GROUP_AUTHORIZATION_FAILED; a topic without the right is TOPIC_AUTHORIZATION_FAILED.
- Topics and partitions that do not exist have an error each. The other offsets are stored, at most
  OFFSETS_PER_COMMIT_MAX in one append.
- Versions 2-4 have a retention time in the request. Version 3 adds the throttle time. Version 6 adds the leader epoch.
  Version 7 adds the group instance id.
- Version 9 adds consumer-protocol groups and the error for a stale member epoch. If the group does not exist, a commit
  with a generation is GROUP_ID_NOT_FOUND; in earlier versions it is ILLEGAL_GENERATION. Version 10 has topic ids
  instead of names.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from kwire.coordinator.client_requests import answer_of
from kwire.coordinator.group.commands import CommitOffsets, OffsetToCommit
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.offset_commits import READ, CommitApi, commit, refuse
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
    try:
        groups = context.views.groups.coordinator(READ, request.group_id)
    except KafkaError as error:
        return refuse(request.topics, API, error.code)
    return commit(context, request.topics, API, partial(_ask, groups, context.api_version, request))


def _ask(
    groups: GroupCoordinator,
    version: int,
    request: OffsetCommitRequest,
    offsets: list[OffsetToCommit],
    shape: Callable[[list[ErrorCode]], R],
) -> R | Awaitable[R]:
    return answer_of(groups, command_of(request, version, offsets), shape)


def command_of(request: OffsetCommitRequest, version: int, offsets: list[OffsetToCommit]) -> CommitOffsets:
    """Create the coordinator command for a request of this version."""
    return CommitOffsets(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        knows_group_id_not_found=version >= FIRST_VERSION_OF_NOT_FOUND,
        offsets=offsets,
    )
