"""DescribeTopicPartitions 0: topics and their partitions, sorted by name, one page per request.

- A request without names describes all topics. A response has at most `response_partition_limit` and at most
  `max.request.partition.size.limit` partitions. If there are more, the cursor of the response is the start of the next
  page.
- A cursor names the first topic and the first partition of the page. If all topics are requested, the cursor's topic
  need not exist. Otherwise the cursor's topic must be one of the requested topics. The cursor's partition must not be
  negative. If the cursor is not valid, every topic is INVALID_REQUEST.
- A repeated name has one result. Unknown and invalid names have an error and do not count towards the limit.
- A topic needs DESCRIBE. All topics are all that the client may describe. A requested topic that the client may not
  describe is TOPIC_AUTHORIZATION_FAILED, whether it exists or not.
- The partitions are read from the catalogue; the topics are not loaded.
"""

from collections.abc import Awaitable, Iterator
from heapq import heapify, heappop
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.chunked_answers import answer_in_chunks
from kwire.broker.topics.catalogue import TopicFacts
from kwire.broker.topics.names import check_name
from kwire.concurrency.chunking import eager, spread
from kwire.coordinator.client_requests import resolved_answer
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.metadata import NO_LEADER
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.views import TopicsView
from kwire.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kwire.wire.types import ZERO_UUID
from storage.data_directory.partition_metadata import partition_folder


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
    weight = 1 + context.topics.operations_weight
    # The cursor of the next page is known only after all topics of this page were yielded.
    answer = answer_in_chunks(
        iter(page),
        lambda topic: weight + len(topic.partitions),
        lambda topics: _response(topics, page.next_cursor),
        context.elements_encoder(DescribeTopicPartitionsResponse, "topics"),
        lambda count, chunks: _response(context.encoded_elements(count, chunks), page.next_cursor),
    )
    return await resolved_answer(answer)


def _response(topics: Any, next_cursor: Cursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)


class _Page:
    """An iterator over the topics of one response. `next_cursor` is set when the iterator is exhausted."""

    def __init__(self, context: Context, request: DescribeTopicPartitionsRequest, asked: set[str]) -> None:
        self._topics = context.topics
        self._node_id = context.services.node.node_id
        self._leader_epoch = context.services.topics.leader_epoch
        self._offline = context.services.topics.offline_partitions
        limit = min(context.services.config.topics.described_partitions_max, request.response_partition_limit)
        self._left_count = max(limit, 1)
        self._first = request.cursor or Cursor(topic_name="", partition_index=0)
        self._names: Iterator[str]
        self._is_all = not request.topics
        if self._is_all:
            self._names = _names_from(self._topics, self._first.topic_name, self._left_count + 1)
        else:
            if request.cursor is not None and request.cursor.topic_name not in asked:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            self._names = _in_order([name for name in asked if name >= self._first.topic_name])
        if self._first.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self.next_cursor: Cursor | None = None

    def __iter__(self) -> Iterator[DescribeTopicPartitionsResponseTopic | None]:
        topics = self._topics
        for name in self._names:
            if not (topics.allows if self._is_all else topics.permits)(Operation.DESCRIBE, name):
                yield None if self._is_all else _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                continue
            if not self._left_count:
                self.next_cursor = Cursor(topic_name=name, partition_index=0)
                return
            facts = topics.find(Operation.DESCRIBE, name)
            if facts is not None:
                yield self._describe(facts)
                if self.next_cursor is not None:
                    return
            elif not self._is_all:
                unknown = _refused(name, _unknown_topic_error(name))
                unknown.topic_authorized_operations = topics.operations(name)
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
            topic_authorized_operations=self._topics.operations(facts.name),
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
    """Yield the names in sorted order, from a heap. `sorted` would block the event loop until all names are sorted."""
    heapify(names)
    while names:
        yield heappop(names)


def _names_from(topics: TopicsView, first: str, count: int) -> Iterator[str]:
    """Yield all names from `first` on. They are read in batches, because topics may change while a page is built."""
    while some := topics.names_from(first, count):
        yield from some
        first = some[-1] + "\0"


def _unknown_topic_error(name: str) -> ErrorCode:
    try:
        check_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID, partitions=[])
