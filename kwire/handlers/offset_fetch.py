"""OffsetFetch 1-10: the committed offsets of one or more groups.

- A group needs DESCRIBE on it, otherwise the error of the group is GROUP_AUTHORIZATION_FAILED. A topic without DESCRIBE
  is TOPIC_AUTHORIZATION_FAILED; if all topics are requested, it is left out.
- A partition without a committed offset has offset -1 and no error. Its leader epoch is -1.
- An offset that was committed for a deleted topic is ignored, even if a topic with the same name was created later.
- Since version 2, `topics` may be null, which requests all topics, and the response has an error field for the whole
  group. Version 3 adds the throttle time. Version 5 adds the leader epoch of the committed offset.
- Version 7 adds require_stable. If it is true, a partition with offsets of an open transaction is
  UNSTABLE_OFFSET_COMMIT, which clients retry. Version 8 adds several groups per request. Version 9 adds the id and the
  epoch of the member, for groups of the consumer protocol. Version 10 has topic ids instead of names.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator

from msgspec.structs import replace

from kwire.access.acl import Operation
from kwire.broker.chunked_answers import partition_chunks
from kwire.concurrency.chunking import eager, spread, yield_to_loop
from kwire.coordinator.client_requests import answer_of, combined_answers, resolved_answer
from kwire.coordinator.group.commands import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    FetchAnswer,
    FetchedTopic,
    FetchOffsets,
    TopicToFetch,
)
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
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
# Approximate number of partitions that the coordinator looks up in one command, without a pause.
PARTITIONS_PER_FETCH_MAX = 1_000


def handle(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    if context.api_version >= FIRST_VERSION_OF_SEVERAL_GROUPS:
        answers = (_fetch_group(context, group, request.require_stable) for group in request.groups)
        return combined_answers(answers, lambda groups: OffsetFetchResponse(groups=groups))
    return eager(_fetch_single(context, request))


async def _fetch(context: Context, command: FetchOffsets) -> FetchAnswer:
    """Send the coordinator one command for each chunk of topics, and return all offsets."""
    try:
        groups = context.groups.coordinator(Operation.DESCRIBE, command.group_id)
    except KafkaError as refusal:
        return FetchAnswer(refusal.code, [])
    if command.topics is None:
        return await resolved_answer(answer_of(groups, command, _unchanged))
    fetched: list[FetchedTopic] = []
    for number, some in enumerate(_chunks(command.topics)):
        if number:
            await yield_to_loop()
        chunk = replace(command, topics=some)
        answer = await resolved_answer(answer_of(groups, chunk, _unchanged))
        if answer.error is not ErrorCode.NONE:
            return answer
        fetched += answer.topics
    return FetchAnswer(ErrorCode.NONE, fetched)


def _unchanged(answer: FetchAnswer) -> FetchAnswer:
    return answer


def _chunks(topics: Iterable[TopicToFetch]) -> Iterator[list[TopicToFetch]]:
    """Split the topics into chunks. A topic with too many partitions for one chunk is in several chunks."""
    some: list[TopicToFetch] = []
    weight = 0
    for topic in topics:
        for partitions in partition_chunks(topic.partitions):
            if weight > PARTITIONS_PER_FETCH_MAX:
                yield some
                some, weight = [], 0
            some.append(TopicToFetch(topic.topic, partitions))
            weight += 1 + len(partitions)
    yield some


def _to_fetch(asked: OffsetFetchRequestTopic | OffsetFetchRequestTopics) -> TopicToFetch:
    return TopicToFetch(asked.name, asked.partition_indexes)


async def _by_right(context: Context, topics: Iterable[TopicToFetch]) -> tuple[list[TopicToFetch], list[TopicToFetch]]:
    """Return the topics that the client may describe, and the others."""
    allowed: list[TopicToFetch] = []
    refused: list[TopicToFetch] = []
    async for one in spread(topics):
        (allowed if context.topics.permits(Operation.DESCRIBE, one.topic) else refused).append(one)
    return allowed, refused


async def _existing(
    context: Context, found: deque[FetchedTopic], asked: object | None
) -> AsyncIterator[tuple[FetchedTopic, bytes]]:
    """Yield the topics and their ids. Offsets that were committed for a deleted topic are removed.

    If all topics were requested, partitions without an offset and topics that the client may not describe are left out.
    `found` is emptied step by step, because freeing the offsets of 240,000 partitions at once takes ten milliseconds.
    """
    async for fetched in spread(_drain(found), weigh=_weight):
        try:
            topic = context.topics.get(Operation.DESCRIBE, fetched.topic)
        except KafkaError:
            # All topics were requested, or the right was taken away while the offsets were fetched.
            topic = None
        ids = (ZERO_UUID, topic.topic_id) if topic else ()
        unstable = fetched.unstable if topic else frozenset()
        offsets = [(index, found if found and found.topic_id in ids else None) for index, found in fetched.offsets]
        if asked is None:
            offsets = [(index, found) for index, found in offsets if found or index in unstable]
        if offsets or asked is not None:
            yield FetchedTopic(fetched.topic, offsets, unstable), topic.topic_id if topic else ZERO_UUID


def _drain(found: deque[FetchedTopic]) -> Iterator[FetchedTopic]:
    while found:
        yield found.popleft()


def _weight(topic: FetchedTopic) -> int:
    return 1 + len(topic.offsets)


def _error(topic: FetchedTopic, partition: int) -> ErrorCode:
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if partition in topic.unstable else ErrorCode.NONE


# Versions 1-7: one group, whose error is a field of the response


async def _fetch_single(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    requested = None if request.topics is None else [_to_fetch(topic) async for topic in spread(request.topics)]
    topics = requested
    refused: list[TopicToFetch] = []
    if requested is not None and not context.access.is_unrestricted:
        topics, refused = await _by_right(context, requested)
    command = FetchOffsets(group_id=request.group_id, topics=topics, require_stable=request.require_stable)
    answer = await _fetch(context, command)
    if answer.error is not ErrorCode.NONE:
        if context.api_version < FIRST_VERSION_OF_GROUP_ERRORS:
            failed = [_failed_topic(asked, answer.error) async for asked in spread(requested or ())]
            return OffsetFetchResponse(topics=failed)
        return OffsetFetchResponse(error_code=answer.error, topics=[])
    found = deque(answer.topics)
    del answer
    fetched = [
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
        async for topic, _ in _existing(context, found, topics)
    ]
    refusals = [_failed_topic(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED) async for asked in spread(refused)]
    return OffsetFetchResponse(error_code=ErrorCode.NONE, topics=fetched + refusals)


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
    failed: list[OffsetFetchResponseTopics] = []
    topics = None
    if asked.topics is not None and context.api_version >= FIRST_VERSION_OF_TOPIC_IDS:
        topics = await _by_id(context, asked.topics, failed)
    elif asked.topics is not None:
        topics = [_to_fetch(topic) async for topic in spread(asked.topics)]
        if not context.access.is_unrestricted:
            topics, refused = await _by_right(context, topics)
            async for one in spread(refused):
                partitions = await _failed_partitions(one.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                failed.append(OffsetFetchResponseTopics(name=one.topic, partitions=partitions))
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
    found = deque(answer.topics)
    del answer
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=[*await _topics(context, command, found), *failed])


async def _by_id(
    context: Context, asked: Iterable[OffsetFetchRequestTopics], failed: list[OffsetFetchResponseTopics]
) -> list[TopicToFetch]:
    """Return the topics with known ids that the client may describe, by name. The others are added to `failed`."""
    found = []
    async for one in spread(asked):
        error = ErrorCode.UNKNOWN_TOPIC_ID
        try:
            topic = context.topics.get_by_id(Operation.DESCRIBE, one.topic_id)
            if topic is not None:
                found.append(TopicToFetch(topic.name, one.partition_indexes))
                continue
        except KafkaError as refusal:
            error = refusal.code
        partitions = await _failed_partitions(one.partition_indexes, error)
        failed.append(OffsetFetchResponseTopics(topic_id=one.topic_id, partitions=partitions))
    return found


async def _failed_partitions(indexes: Iterable[int], error: ErrorCode) -> list[OffsetFetchResponsePartitions]:
    return [
        OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=error)
        async for index in spread(indexes)
    ]


async def _topics(
    context: Context, command: FetchOffsets, found: deque[FetchedTopic]
) -> list[OffsetFetchResponseTopics]:
    topics = []
    async for fetched, topic_id in _existing(context, found, command.topics):
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
        topics.append(OffsetFetchResponseTopics(name=fetched.topic, topic_id=topic_id, partitions=partitions))
    return topics
