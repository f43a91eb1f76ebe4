"""Metadata 0-13: this node, its topics and their partitions; creates unknown topics if it may.

- Null topics (an empty list in version 0) asks for all, an empty list for none.
- The node is named by the address the client connected to, unless `advertised.listeners` says otherwise.
- An unknown topic is created if server and client both allow it; the answer waits until that is durable, so a client
  need not ask twice.
- Version 1 adds rack, controller and whether a topic is internal, 2 the cluster id, 3 the throttle time, 4 whether
  topics may be created, 5 offline replicas, 7 leader epochs, 8 authorized operations (those of the cluster up to 10),
  9 is flexible. Version 10 gives topic ids, version 12 can ask by them; an id, or a topic without a name, before that
  makes the whole request invalid. Version 13 has an error code of its own, for a client that must begin anew.
- A topic that is named twice is answered once.
- A partition that is offline has no leader (LEADER_NOT_AVAILABLE), and its replica is offline.
- Topics are described from the catalogue: none is made live for it. An answer about many is made in turns.
"""

import inspect
from collections.abc import Awaitable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from kwire.broker.catalogue import TopicFacts
from kwire.broker.chunking import next_turn
from kwire.broker.topic_names import check_name
from kwire.broker.turns import answer_in_turns
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.wire.types import ZERO_UUID
from storage.partition_metadata import partition_folder

FIRST_VERSION_BY_ID = 12
NO_LEADER = -1

# Every operation Kafka knows on a topic and on the cluster, as bits: without authorisation, everyone may do everything.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


NO_REFUSALS: Mapping[str, ErrorCode] = MappingProxyType({})
# Looking one up takes some microseconds; from this many on the loop gets its turn.
LOOKUPS_PER_TURN = 1000


def handle(context: Context, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    asked = request.topics
    if asked is None or (context.api_version == 0 and not asked):
        describe = _Describer(context, request)
        return _answer(context, request, map(describe, context.services.topics.catalogue.facts()))
    by_id = any(one.name is None or one.topic_id != ZERO_UUID for one in asked)
    if by_id and context.api_version < FIRST_VERSION_BY_ID:
        return _answer(context, request, map(_invalid, asked))
    may_create = request.allow_auto_topic_creation and context.services.config.topics.is_auto_create
    if may_create and (len(asked) > LOOKUPS_PER_TURN or any(_is_missing(context, one) for one in asked)):
        return _create_and_answer(context, request, asked)
    return _answer(context, request, _lookups(context, request, asked))


async def _create_and_answer(
    context: Context, request: MetadataRequest, asked: list[MetadataRequestTopic]
) -> MetadataResponse:
    refusals: dict[str, ErrorCode] = {}
    for number, one in enumerate(asked, start=1):
        if one.name is not None and _is_missing(context, one):
            try:
                await context.services.topics.get_or_create(one.name)
            except KafkaError as error:
                refusals[one.name] = error.code
        if number % LOOKUPS_PER_TURN == 0:
            await next_turn()
    answer = _answer(context, request, _lookups(context, request, asked, refusals))
    return await answer if inspect.isawaitable(answer) else answer


def _is_missing(context: Context, one: MetadataRequestTopic) -> bool:
    is_named = bool(one.name) and one.topic_id == ZERO_UUID
    return is_named and one.name is not None and context.services.topics.catalogue.find(one.name) is None


def _lookups(
    context: Context,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic],
    refusals: Mapping[str, ErrorCode] = NO_REFUSALS,
) -> Iterator[MetadataResponseTopic]:
    catalogue = context.services.topics.catalogue
    describe = _Describer(context, request)
    seen: set[str | bytes | None] = set()
    for one in asked:
        # An id counts before a name: else one topic could be had as often as there are names.
        key = one.topic_id if one.topic_id != ZERO_UUID else one.name
        if key in seen:
            continue
        seen.add(key)
        name = catalogue.name_of(one.topic_id) if one.topic_id != ZERO_UUID else one.name
        facts = catalogue.find(name) if name is not None else None
        if facts is not None:
            yield describe(facts)
        elif name is None or one.topic_id != ZERO_UUID:
            yield _failed(one, ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            yield _failed(one, refusals.get(name) or _why_unknown(name))


def _why_unknown(name: str) -> ErrorCode:
    try:
        check_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _failed(one: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=one.name, topic_id=one.topic_id, partitions=[])


def _invalid(one: MetadataRequestTopic) -> MetadataResponseTopic:
    # Before version 12 an answer always has a name.
    return MetadataResponseTopic(
        error_code=ErrorCode.INVALID_REQUEST, name=one.name or "", topic_id=one.topic_id, partitions=[]
    )


class _Describer:
    """Facts of the catalogue as Metadata tells them."""

    def __init__(self, context: Context, request: MetadataRequest) -> None:
        self._node_id = context.services.node.node_id
        self._leader_epoch = context.services.topics.leader_epoch
        self._with_operations = request.include_topic_authorized_operations
        self._offline = context.services.topics.offline_partitions
        # Topics with one partition are alike in it, and on a large node nearly all are such.
        self._one_partition = self._partitions(1)

    def __call__(self, facts: TopicFacts) -> MetadataResponseTopic:
        count = facts.partition_count
        answer = MetadataResponseTopic(
            error_code=0,
            name=facts.name,
            topic_id=facts.topic_id,
            is_internal=facts.is_internal,
            partitions=self._one_partition if count == 1 else self._partitions(count),
        )
        if self._offline:
            answer.partitions = self._without_offline(facts.name, answer.partitions)
        if self._with_operations:
            answer.topic_authorized_operations = TOPIC_OPERATIONS
        return answer

    def _without_offline(
        self, name: str, partitions: list[MetadataResponsePartition]
    ) -> list[MetadataResponsePartition]:
        """As Kafka describes partitions whose log is not available: no leader, and the replica is offline."""
        return [
            one
            if partition_folder(name, one.partition_index) not in self._offline
            else MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=one.partition_index,
                leader_id=NO_LEADER,
                leader_epoch=one.leader_epoch,
                replica_nodes=one.replica_nodes,
                isr_nodes=one.isr_nodes,
                offline_replicas=[self._node_id],
            )
            for one in partitions
        ]

    def _partitions(self, count: int) -> list[MetadataResponsePartition]:
        return [
            MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=self._node_id,
                leader_epoch=self._leader_epoch,
                replica_nodes=[self._node_id],
                isr_nodes=[self._node_id],
            )
            for index in range(count)
        ]


def _weight(topic: MetadataResponseTopic) -> int:
    return 1 + len(topic.partitions)


def _answer(
    context: Context, request: MetadataRequest, topics: Iterator[MetadataResponseTopic]
) -> MetadataResponse | Awaitable[MetadataResponse]:
    def encode(some: list[MetadataResponseTopic]) -> bytes:
        return elements_encoder(MetadataResponse, "topics", context.api_version)(some)

    def make_encoded(count: int, portions: list[bytes]) -> MetadataResponse:
        return _response(context, request, EncodedElements(count, b"".join(portions)))

    return answer_in_turns(topics, _weight, partial(_response, context, request), encode, make_encoded)


def _response(context: Context, request: MetadataRequest, topics: Any) -> MetadataResponse:
    node = context.services.node
    host, port = context.endpoint
    answer = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node.node_id, host=host, port=port, rack=node.rack)],
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer
