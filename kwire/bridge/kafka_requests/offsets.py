"""Committed offsets on a bridge: OffsetFetch, OffsetCommit and OffsetDelete.

The coordinator of the group answers. Topics that a client names by id are sent to it by name, because the rights are
those on names.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from kwire.access.acl import Operation
from kwire.access.audit.entries import GROUP as GROUP_RESOURCE
from kwire.bridge.kafka_requests.context import RequestContext
from kwire.bridge.kafka_requests.upstream import GROUP, code_of
from kwire.concurrency.chunking import spread
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kwire.wire.messages.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kwire.wire.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kwire.wire.types import ZERO_UUID

FIRST_VERSION_OF_TOPIC_IDS: Final = 10
LAST_VERSION_OF_NAMES: Final = 9
FIRST_FETCH_OF_SEVERAL_GROUPS: Final = 8
FIRST_FETCH_WITH_GROUP_ERRORS: Final = 2
NO_OFFSET: Final = -1
NO_MEMBER: Final = -1
# Groups whose offsets are fetched at the same time.
GROUPS_AT_ONCE: Final = 16
# Topics that an entry of the audit log names.
TOPICS_NAMED_MAX: Final = 100


async def _names_of(context: RequestContext, ids: Iterable[bytes]) -> dict[bytes, str]:
    """Return the names of topics that exist for the client: those of other scopes do not."""
    found = await context.upstream.topics(ids=ids)
    return {one.topic_id: one.name for one in found if one.name.startswith(context.prefix)}


def _topic_name(context: RequestContext, operation: Operation, name: str | None) -> str:
    """Return the name of a topic. Raises KafkaError if it does not exist, or if the client may not do the operation."""
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    context.topics.authorize(operation, name)
    return name


# --- OffsetFetch


async def offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.api_version >= FIRST_FETCH_OF_SEVERAL_GROUPS:
        groups: list[OffsetFetchResponseGroup] = []
        for at in range(0, len(request.groups), GROUPS_AT_ONCE):
            some = request.groups[at : at + GROUPS_AT_ONCE]
            groups += await asyncio.gather(*(_fetch(context, one, is_stable=request.require_stable) for one in some))
        return OffsetFetchResponse(groups=groups)
    asked = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if request.topics is None
        else [
            OffsetFetchRequestTopics(name=one.name, partition_indexes=one.partition_indexes) for one in request.topics
        ],
    )
    return _of_one_group(context, asked, await _fetch(context, asked, is_stable=request.require_stable))


async def _fetch(
    context: RequestContext, asked: OffsetFetchRequestGroup, *, is_stable: bool
) -> OffsetFetchResponseGroup:
    if not context.groups.permits(Operation.DESCRIBE, asked.group_id):
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    has_ids = context.api_version >= FIRST_VERSION_OF_TOPIC_IDS
    names = await _names_of(context, [bytes(one.topic_id) for one in asked.topics or ()]) if has_ids else {}
    topics: list[OffsetFetchRequestTopics] = []
    refused: list[OffsetFetchResponseTopics] = []
    async for one in spread(asked.topics or ()):
        try:
            name = _topic_name(context, Operation.DESCRIBE, names.get(bytes(one.topic_id)) if has_ids else one.name)
            topics.append(OffsetFetchRequestTopics(name=name, partition_indexes=one.partition_indexes))
        except KafkaError as error:
            refused.append(_failed_topic(one, error))
    message = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=asked.group_id,
                member_id=asked.member_id,
                member_epoch=asked.member_epoch,
                topics=None if asked.topics is None else topics,
            )
        ],
        require_stable=is_stable,
    )
    version = min(max(context.api_version, FIRST_FETCH_OF_SEVERAL_GROUPS), LAST_VERSION_OF_NAMES)
    outcome = await context.upstream.ask_coordinator(GROUP, asked.group_id, OFFSET_FETCH, version, message)
    if isinstance(outcome, KafkaError):
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code_of(outcome))
    found: OffsetFetchResponseGroup = outcome.groups[0]
    found.topics = [one for one in found.topics if context.topics.allows(Operation.DESCRIBE, one.name)]
    if has_ids:
        ids = {one.name: one.topic_id for one in await context.upstream.topics([one.name for one in found.topics])}
        found.topics = [one for one in found.topics if one.name in ids]
        for topic in found.topics:
            topic.topic_id = ids[topic.name]
    found.topics += refused
    return found


def _failed_topic(asked: OffsetFetchRequestTopics, error: KafkaError) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=code_of(error))
            for index in asked.partition_indexes
        ],
    )


def _of_one_group(
    context: RequestContext, asked: OffsetFetchRequestGroup, found: OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    """Return the response of the versions before 8, which have one group."""
    topics = found.topics
    if found.error_code and context.api_version < FIRST_FETCH_WITH_GROUP_ERRORS:
        error = KafkaError(ErrorCode(found.error_code))
        topics = [_failed_topic(one, error) for one in asked.topics or ()]
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        metadata=one.metadata,
                        error_code=one.error_code,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


# --- OffsetCommit


async def offset_commit(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    has_ids = context.api_version >= FIRST_VERSION_OF_TOPIC_IDS
    names = await _names_of(context, [bytes(one.topic_id) for one in request.topics]) if has_ids else {}
    ids = {name: topic_id for topic_id, name in names.items()}
    is_allowed = context.groups.permits(Operation.READ, request.group_id)
    allowed: list[OffsetCommitRequestTopic] = []
    topics: list[OffsetCommitResponseTopic] = []
    async for one in spread(request.topics):
        try:
            if not is_allowed:
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            name = _topic_name(context, Operation.READ, names.get(bytes(one.topic_id)) if has_ids else one.name)
            allowed.append(OffsetCommitRequestTopic(name=name, partitions=one.partitions))
        except KafkaError as error:
            topics.append(_failed_commit(one, error))
    if not allowed:
        return OffsetCommitResponse(topics=topics)
    request.topics = allowed
    version = min(context.api_version, LAST_VERSION_OF_NAMES)
    outcome = await context.upstream.ask_coordinator(GROUP, request.group_id, OFFSET_COMMIT, version, request)
    if isinstance(outcome, KafkaError):
        committed = [_failed_commit(one, outcome) for one in allowed]
    else:
        committed = outcome.topics
        _record_commit(context, request, committed)
    for topic in committed:
        topic.topic_id = ids.get(topic.name, ZERO_UUID)
    return OffsetCommitResponse(topics=[*committed, *topics])


def _failed_commit(asked: OffsetCommitRequestTopic, error: KafkaError) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code_of(error))
            for one in asked.partitions
        ],
    )


def _record_commit(
    context: RequestContext, request: OffsetCommitRequest, committed: Iterable[OffsetCommitResponseTopic]
) -> None:
    """Record offsets that were set by a client that is not a member of the group."""
    if request.generation_id_or_member_epoch != NO_MEMBER:
        return
    names = _changed(committed)
    if names:
        context.audit.changed_again("group.offsets_set", GROUP_RESOURCE, request.group_id, {"topics": names})


def _changed(
    topics: Iterable[OffsetCommitResponseTopic | OffsetDeleteResponseTopic],
) -> tuple[str, ...]:
    names = [topic.name for topic in topics if any(not one.error_code for one in topic.partitions)]
    return tuple(names[:TOPICS_NAMED_MAX])


# --- OffsetDelete


async def offset_delete(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    if not context.groups.permits(Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])
    allowed: list[OffsetDeleteRequestTopic] = []
    refused: list[OffsetDeleteResponseTopic] = []
    async for one in spread(request.topics):
        if context.topics.permits(Operation.READ, one.name):
            allowed.append(one)
            continue
        partitions = [
            OffsetDeleteResponsePartition(
                partition_index=partition.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            for partition in one.partitions
        ]
        refused.append(OffsetDeleteResponseTopic(name=one.name, partitions=partitions))
    request.topics = allowed
    outcome = await context.upstream.ask_coordinator(
        GROUP, request.group_id, OFFSET_DELETE, context.api_version, request
    )
    if isinstance(outcome, KafkaError):
        return OffsetDeleteResponse(error_code=code_of(outcome), topics=[])
    deleted: OffsetDeleteResponse = outcome
    if names := _changed(deleted.topics):
        context.audit.changed("group.offsets_deleted", GROUP_RESOURCE, request.group_id, {"topics": names})
    if not deleted.error_code:
        deleted.topics += refused
    return deleted
