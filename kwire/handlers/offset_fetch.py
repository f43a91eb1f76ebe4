"""OffsetFetch 1-10: read the positions of one or more groups.

- A partition without a committed offset is answered -1 and no error; the leader epoch is the committed one or -1.
- An offset committed for a topic that has been deleted does not count, also if the name has come back since.
- 2: null topics means all, and an error of the whole group. 3: throttling. 5: leader epoch.
- 7: require_stable, by which a partition with offsets of an open transaction is UNSTABLE_OFFSET_COMMIT: ask again. 8:
  several groups. 9: member id and epoch of consumer-protocol groups. 10: topic ids instead of names.
"""

from collections.abc import Awaitable, Iterable, Iterator

from msgspec.structs import replace

from kwire.broker.chunking import eager, next_turn, spread
from kwire.broker.turns import portions
from kwire.coordinator.asking import all_of, answer_of, settled
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
# Partitions that the coordinator looks up without a pause, about.
PARTITIONS_PER_FETCH_MAX = 1_000


def handle(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    if context.api_version >= FIRST_VERSION_OF_SEVERAL_GROUPS:
        answers = (_fetch_group(context, group, request.require_stable) for group in request.groups)
        return all_of(answers, lambda groups: OffsetFetchResponse(groups=groups))
    return eager(_fetch_single(context, request))


async def _fetch(context: Context, command: FetchOffsets) -> FetchAnswer:
    """Ask the coordinator, for at most as many partitions at a time as it can answer without a pause."""
    if command.topics is None:
        return await settled(answer_of(context.services.groups, command, _as_it_is))
    fetched: list[FetchedTopic] = []
    for number, some in enumerate(_portions(command.topics)):
        if number:
            await next_turn()
        portion = replace(command, topics=some)
        answer = await settled(answer_of(context.services.groups, portion, _as_it_is))
        if answer.error is not ErrorCode.NONE:
            return answer
        fetched += answer.topics
    return FetchAnswer(ErrorCode.NONE, fetched)


def _as_it_is(answer: FetchAnswer) -> FetchAnswer:
    return answer


def _portions(topics: Iterable[TopicToFetch]) -> Iterator[list[TopicToFetch]]:
    """At least one. A topic with more partitions than fit in one portion is named in several."""
    some: list[TopicToFetch] = []
    weight = 0
    for topic in topics:
        for partitions in portions(topic.partitions):
            if weight > PARTITIONS_PER_FETCH_MAX:
                yield some
                some, weight = [], 0
            some.append(TopicToFetch(topic.topic, partitions))
            weight += 1 + len(partitions)
    yield some


def _to_fetch(asked: OffsetFetchRequestTopic | OffsetFetchRequestTopics) -> TopicToFetch:
    return TopicToFetch(asked.name, asked.partition_indexes)


async def _current(context: Context, answer: FetchAnswer, asked: object | None) -> list[FetchedTopic]:
    """What was committed for topics that still exist: others have no offset, or are left out if all were asked for."""
    topics = []
    async for fetched in spread(answer.topics, weigh=_weight):
        topic = context.services.topics.get(fetched.topic)
        ids = (ZERO_UUID, topic.topic_id) if topic else ()
        unstable = fetched.unstable if topic else frozenset()
        offsets = [(index, found if found and found.topic_id in ids else None) for index, found in fetched.offsets]
        if asked is None:
            offsets = [(index, found) for index, found in offsets if found or index in unstable]
        if offsets or asked is not None:
            topics.append(FetchedTopic(fetched.topic, offsets, unstable))
    return topics


def _weight(topic: FetchedTopic) -> int:
    return 1 + len(topic.offsets)


def _error(topic: FetchedTopic, partition: int) -> ErrorCode:
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if partition in topic.unstable else ErrorCode.NONE


# Versions 1-7: one group, its error at the top


async def _fetch_single(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    topics = None if request.topics is None else [_to_fetch(topic) async for topic in spread(request.topics)]
    command = FetchOffsets(group_id=request.group_id, topics=topics, require_stable=request.require_stable)
    answer = await _fetch(context, command)
    if answer.error is not ErrorCode.NONE and context.api_version < FIRST_VERSION_OF_GROUP_ERRORS:
        return OffsetFetchResponse(topics=[_failed_topic(asked, answer.error) async for asked in spread(topics or ())])
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
            async for topic in spread(await _current(context, answer, topics), weigh=_weight)
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
    return eager(_fetch_one_of_several(context, asked, require_stable))


async def _fetch_one_of_several(
    context: Context, asked: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    unknown: list[OffsetFetchResponseTopics] = []
    topics = None
    if asked.topics is not None and context.api_version >= FIRST_VERSION_OF_TOPIC_IDS:
        topics = await _by_id(context, asked.topics, unknown)
    elif asked.topics is not None:
        topics = [_to_fetch(topic) async for topic in spread(asked.topics)]
    command = FetchOffsets(
        group_id=asked.group_id,
        topics=topics,
        require_stable=require_stable,
        member_id=asked.member_id,
        member_epoch=asked.member_epoch,
    )
    answer = await _fetch(context, command)
    if answer.error is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=answer.error)
    found = await _topics(context, command, answer)
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=[*found, *unknown])


async def _by_id(
    context: Context, asked: Iterable[OffsetFetchRequestTopics], unknown: list[OffsetFetchResponseTopics]
) -> list[TopicToFetch]:
    """Topics by name, for those whose id is known; the others are answered right here."""
    found = []
    async for one in spread(asked):
        topic = context.services.topics.get_by_id(one.topic_id)
        if topic is not None:
            found.append(TopicToFetch(topic.name, one.partition_indexes))
            continue
        partitions = [
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            async for index in spread(one.partition_indexes)
        ]
        unknown.append(OffsetFetchResponseTopics(topic_id=one.topic_id, partitions=partitions))
    return found


async def _topics(context: Context, command: FetchOffsets, answer: FetchAnswer) -> list[OffsetFetchResponseTopics]:
    topics = []
    async for fetched in spread(await _current(context, answer, command.topics), weigh=_weight):
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
