"""OffsetFetch 1-10: read the positions of one or more groups.

- A partition without a committed offset is answered -1 and no error; the leader epoch is the committed one or -1.
- An offset committed for a topic that has been deleted does not count, also if the name has come back since.
- 2: null topics means all, and an error of the whole group. 3: throttling. 5: leader epoch.
- 7: require_stable, by which a partition with offsets of an open transaction is UNSTABLE_OFFSET_COMMIT: ask again. 8:
  several groups. 9: member id and epoch of consumer-protocol groups. 10: topic ids instead of names.
"""

from collections.abc import Awaitable, Iterable

from kwire.coordinator.asking import all_of, answer_of
from kwire.coordinator.group.commands import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    FetchAnswer,
    FetchedTopic,
    FetchOffsets,
    TopicToFetch,
)
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kwire.wire.types import ZERO_UUID

FIRST_VERSION_OF_GROUP_ERRORS = 2
FIRST_VERSION_OF_SEVERAL_GROUPS = 8
FIRST_VERSION_OF_TOPIC_IDS = 10


def handle(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    if context.api_version >= FIRST_VERSION_OF_SEVERAL_GROUPS:
        answers = (_fetch_group(context, group, request.require_stable) for group in request.groups)
        return all_of(answers, lambda groups: OffsetFetchResponse(groups=groups))
    topics = None if request.topics is None else [_to_fetch(topic) for topic in request.topics]
    command = FetchOffsets(group_id=request.group_id, topics=topics, require_stable=request.require_stable)
    return answer_of(context.services.groups, command, lambda answer: _single(context, command, answer))


def _to_fetch(asked: OffsetFetchRequestTopic | OffsetFetchRequestTopics) -> TopicToFetch:
    return TopicToFetch(asked.name, asked.partition_indexes)


def _current(context: Context, answer: FetchAnswer, asked: object | None) -> list[FetchedTopic]:
    """What was committed for topics that still exist: others have no offset, or are left out if all were asked for."""
    topics = []
    for fetched in answer.topics:
        topic = context.services.topics.get(fetched.topic)
        ids = (ZERO_UUID, topic.topic_id) if topic else ()
        unstable = fetched.unstable if topic else frozenset()
        offsets = [(index, found if found and found.topic_id in ids else None) for index, found in fetched.offsets]
        if asked is None:
            offsets = [(index, found) for index, found in offsets if found or index in unstable]
        if offsets or asked is not None:
            topics.append(FetchedTopic(fetched.topic, offsets, unstable))
    return topics


def _error(topic: FetchedTopic, partition: int) -> ErrorCode:
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if partition in topic.unstable else ErrorCode.NONE


# Versions 1-7: one group, its error at the top


def _single(context: Context, command: FetchOffsets, answer: FetchAnswer) -> OffsetFetchResponse:
    if answer.error is not ErrorCode.NONE and context.api_version < FIRST_VERSION_OF_GROUP_ERRORS:
        return OffsetFetchResponse(topics=[_failed_topic(asked, answer.error) for asked in command.topics or ()])
    return OffsetFetchResponse(
        error_code=answer.error,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.topic,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition,
                        committed_offset=committed.offset if committed else NO_OFFSET,
                        committed_leader_epoch=committed.leader_epoch if committed else NO_LEADER_EPOCH,
                        metadata=committed.metadata if committed else "",
                        error_code=_error(topic, partition),
                    )
                    for partition, committed in topic.offsets
                ],
            )
            for topic in _current(context, answer, command.topics)
        ],
    )


def _failed_topic(asked: TopicToFetch, error: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=asked.topic,
        partitions=[
            OffsetFetchResponsePartition(partition_index=index, committed_offset=NO_OFFSET, error_code=error)
            for index in asked.partitions
        ],
    )


# Versions 8-10: several groups


def _fetch_group(
    context: Context, asked: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup | Awaitable[OffsetFetchResponseGroup]:
    unknown: list[OffsetFetchResponseTopics] = []
    topics = None
    if asked.topics is not None and context.api_version >= FIRST_VERSION_OF_TOPIC_IDS:
        topics = _by_id(context, asked.topics, unknown)
    elif asked.topics is not None:
        topics = [_to_fetch(topic) for topic in asked.topics]
    command = FetchOffsets(
        group_id=asked.group_id,
        topics=topics,
        require_stable=require_stable,
        member_id=asked.member_id,
        member_epoch=asked.member_epoch,
    )

    def shape(answer: FetchAnswer) -> OffsetFetchResponseGroup:
        if answer.error is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=answer.error)
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=[*_topics(context, command, answer), *unknown])

    return answer_of(context.services.groups, command, shape)


def _by_id(
    context: Context, asked: Iterable[OffsetFetchRequestTopics], unknown: list[OffsetFetchResponseTopics]
) -> list[TopicToFetch]:
    """Topics by name, for those whose id is known; the others are answered right here."""
    found = []
    for one in asked:
        topic = context.services.topics.get_by_id(one.topic_id)
        if topic is not None:
            found.append(TopicToFetch(topic.name, one.partition_indexes))
            continue
        partitions = [
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            for index in one.partition_indexes
        ]
        unknown.append(OffsetFetchResponseTopics(topic_id=one.topic_id, partitions=partitions))
    return found


def _topics(context: Context, command: FetchOffsets, answer: FetchAnswer) -> list[OffsetFetchResponseTopics]:
    topics = []
    for fetched in _current(context, answer, command.topics):
        topic = context.services.topics.get(fetched.topic)
        partitions = [
            OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=committed.offset if committed else NO_OFFSET,
                committed_leader_epoch=committed.leader_epoch if committed else NO_LEADER_EPOCH,
                metadata=committed.metadata if committed else "",
                error_code=_error(fetched, partition),
            )
            for partition, committed in fetched.offsets
        ]
        topic_id = topic.topic_id if topic else ZERO_UUID
        topics.append(OffsetFetchResponseTopics(name=fetched.topic, topic_id=topic_id, partitions=partitions))
    return topics
