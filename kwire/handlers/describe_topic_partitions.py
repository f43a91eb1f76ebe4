"""DescribeTopicPartitions 0: topics and their partitions in the order of their names, a page at a time.

- No names asks for all topics. An answer has at most `response_partition_limit` partitions, and no more than
  `max.request.partition.size.limit`; if something is left, the cursor says where the next request goes on.
- A cursor names the first topic and partition of the page. Its topic need not exist any more when all topics are asked
  for; among named topics it must be one of them, and its partition is not negative: else INVALID_REQUEST for all.
- A name is answered once. Unknown and illegal ones are told with their errors, and count for nothing.
- Topics are described from the catalogue: none is made live for it.
"""

from collections.abc import Awaitable, Iterator
from heapq import heapify, heappop
from typing import Any

from kwire.broker.catalogue import Catalogue, TopicFacts
from kwire.broker.chunking import eager, spread
from kwire.broker.topic_names import check_name
from kwire.broker.turns import answer_in_turns
from kwire.coordinator.asking import settled
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.metadata import NO_LEADER, TOPIC_OPERATIONS
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kwire.wire.types import ZERO_UUID
from storage.partition_metadata import partition_folder


def handle(
    context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse | Awaitable[DescribeTopicPartitionsResponse]:
    return eager(_answer(context, request))


async def _answer(context: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    asked = {one.name async for one in spread(request.topics)}
    try:
        page = _Page(context, request, asked)
    except KafkaError as error:
        refused = [_refused(one.name, error.code) async for one in spread(request.topics)]
        return DescribeTopicPartitionsResponse(topics=refused)
    # The cursor is known when the page has been read to its end.
    answer = answer_in_turns(
        iter(page),
        lambda topic: 1 + len(topic.partitions),
        lambda topics: _response(topics, page.next_cursor),
        elements_encoder(DescribeTopicPartitionsResponse, "topics", context.api_version),
        lambda count, portions: _response(EncodedElements(count, b"".join(portions)), page.next_cursor),
    )
    return await settled(answer)


def _response(topics: Any, next_cursor: Cursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)


class _Page:
    """The topics of one answer, one after the other; `next_cursor` is set when they have all been taken."""

    def __init__(self, context: Context, request: DescribeTopicPartitionsRequest, asked: set[str]) -> None:
        self._catalogue = context.services.topics.catalogue
        self._node_id = context.services.node.node_id
        self._leader_epoch = context.services.topics.leader_epoch
        self._offline = context.services.topics.offline_partitions
        limit = min(context.services.config.topics.described_partitions_max, request.response_partition_limit)
        self._left_count = max(limit, 1)
        self._first = request.cursor or Cursor(topic_name="", partition_index=0)
        self._names: Iterator[str]
        self._is_all = not request.topics
        if self._is_all:
            self._names = _names_from(self._catalogue, self._first.topic_name, self._left_count + 1)
        else:
            if request.cursor is not None and request.cursor.topic_name not in asked:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            self._names = _in_order([name for name in asked if name >= self._first.topic_name])
        if self._first.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self.next_cursor: Cursor | None = None

    def __iter__(self) -> Iterator[DescribeTopicPartitionsResponseTopic]:
        for name in self._names:
            if not self._left_count:
                self.next_cursor = Cursor(topic_name=name, partition_index=0)
                return
            facts = self._catalogue.find(name)
            if facts is not None:
                yield self._describe(facts)
                if self.next_cursor is not None:
                    return
            elif not self._is_all:
                unknown = _refused(name, _why_unknown(name))
                unknown.topic_authorized_operations = TOPIC_OPERATIONS
                yield unknown

    def _describe(self, facts: TopicFacts) -> DescribeTopicPartitionsResponseTopic:
        first = self._first.partition_index if facts.name == self._first.topic_name else 0
        end = min(facts.partition_count, first + self._left_count)
        if end < facts.partition_count:
            self.next_cursor = Cursor(topic_name=facts.name, partition_index=end)
        partitions = [self._partition(facts.name, index) for index in range(first, end)]
        self._left_count -= len(partitions)
        return DescribeTopicPartitionsResponseTopic(
            error_code=0,
            name=facts.name,
            topic_id=facts.topic_id,
            is_internal=facts.is_internal,
            partitions=partitions,
            topic_authorized_operations=TOPIC_OPERATIONS,
        )

    def _partition(self, name: str, index: int) -> DescribeTopicPartitionsResponsePartition:
        here = [self._node_id]
        is_offline = bool(self._offline) and partition_folder(name, index) in self._offline
        return DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE if is_offline else 0,
            partition_index=index,
            leader_id=NO_LEADER if is_offline else self._node_id,
            leader_epoch=self._leader_epoch,
            replica_nodes=here,
            isr_nodes=here,
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=here if is_offline else [],
        )


def _in_order(names: list[str]) -> Iterator[str]:
    """As `sorted`, which would take a tenth of a second for a large request: each name is found when it is needed."""
    heapify(names)
    while names:
        yield heappop(names)


def _names_from(catalogue: Catalogue, first: str, count: int) -> Iterator[str]:
    """All names from `first` on. Some at a time: topics come and go while a page is made."""
    while some := catalogue.names_from(first, count):
        yield from some
        first = some[-1] + "\0"


def _why_unknown(name: str) -> ErrorCode:
    try:
        check_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID, partitions=[])
