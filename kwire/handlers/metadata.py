"""Metadata 0-13: this node, its topics and their partitions. Missing topics are created if that is allowed.

- Null topics request all topics, and an empty list requests none. In version 0 an empty list requests all topics.
- The node's address is the one that the client connected to, unless `advertised.listeners` is set.
- A topic needs DESCRIBE. All topics are all that the client may describe. A requested topic that the client may not
  describe is TOPIC_AUTHORIZATION_FAILED, whether it exists or not. If it was requested by id, its name is not in the
  response.
- A missing topic is created if the server and the client allow it. The response is sent when the topic is durable, so
  that the client need not retry. This needs CREATE on the cluster or on the topic; otherwise the topic is
  TOPIC_AUTHORIZATION_FAILED.
- The authorized operations are those of the client. As in Kafka, those of the cluster are 0 without DESCRIBE on the
  cluster.
- Version 1 adds the rack, the controller and whether a topic is internal. Version 2 adds the cluster id. Version 3 adds
  the throttle time. Version 4 adds whether topics may be created. Version 5 adds offline replicas. Version 7 adds
  leader epochs. Version 8 adds authorized operations; those of the cluster are only in versions 8 to 10. Version 9 is
  flexible.
- Version 10 returns topic ids. Version 12 can request topics by id. In versions 10 and 11 a request with a topic id, or
  with a topic without a name, is invalid as a whole. Version 13 adds an error code for the whole response, for a client
  that must rebootstrap.
- A repeated topic has one result.
- A partition that is offline has no leader (LEADER_NOT_AVAILABLE), and its replica is offline.
- The partitions are read from the catalogue; the topics are not loaded. A large response is built in chunks.
"""

from collections.abc import Awaitable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.chunked_answers import answer_in_chunks
from kwire.broker.topics.catalogue import PROTECTED_TOPICS, TopicFacts
from kwire.broker.topics.names import check_name
from kwire.concurrency.chunking import eager, spread, yield_to_loop
from kwire.coordinator.client_requests import resolved_answer
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.wire.types import ZERO_UUID
from storage.data_directory.partition_metadata import partition_folder

FIRST_VERSION_WITH_IDS = 10
FIRST_VERSION_BY_ID = 12
NO_LEADER = -1

NO_REFUSALS: Mapping[str, ErrorCode] = MappingProxyType({})
# Topics that are looked up between two yields to the event loop. A lookup takes some microseconds.
LOOKUPS_PER_CHUNK = 1000
# A version that no request has. As in Kafka, topics that are created on first use are charged, and never refused.
NEVER_STRICT = 2**15


def handle(context: Context, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    asked = request.topics
    if asked is None or (context.api_version == 0 and not asked):
        describe = _Describer(context, request)
        return _answer(context, request, (one and describe(one) for one in context.topics.all(Operation.DESCRIBE)))
    if FIRST_VERSION_WITH_IDS <= context.api_version < FIRST_VERSION_BY_ID:
        return eager(_answer_without_ids(context, request, asked))
    return _answer_requested(context, request, asked)


async def _answer_without_ids(
    context: Context, request: MetadataRequest, asked: list[MetadataRequestTopic]
) -> MetadataResponse:
    """Handle versions 10 and 11, which have a field for the topic id but do not allow requests by id."""
    async for one in spread(asked):
        if one.name is None or one.topic_id != ZERO_UUID:
            return await resolved_answer(_answer(context, request, map(_invalid, asked)))
    return await resolved_answer(_answer_requested(context, request, asked))


def _answer_requested(
    context: Context, request: MetadataRequest, asked: list[MetadataRequestTopic]
) -> MetadataResponse | Awaitable[MetadataResponse]:
    may_create = request.allow_auto_topic_creation and context.services.config.topics.is_auto_create
    if may_create and (len(asked) > LOOKUPS_PER_CHUNK or any(_is_missing(context, one) for one in asked)):
        return _create_and_answer(context, request, asked)
    return _answer(context, request, _lookups(context, request, asked))


async def _create_and_answer(
    context: Context, request: MetadataRequest, asked: list[MetadataRequestTopic]
) -> MetadataResponse:
    refusals: dict[str, ErrorCode] = {}
    quota = context.mutation_quota(NEVER_STRICT)
    for number, one in enumerate(asked, start=1):
        if one.name is not None and _is_missing(context, one):
            try:
                await context.topics.create_missing(one.name)
                quota.take(context.services.config.topics.partition_count)
            except KafkaError as error:
                refusals[one.name] = error.code
        if number % LOOKUPS_PER_CHUNK == 0:
            await yield_to_loop()
    return await resolved_answer(_answer(context, request, _lookups(context, request, asked, refusals)))


def _is_missing(context: Context, one: MetadataRequestTopic) -> bool:
    """Return whether a topic that the client may describe does not exist and can be created."""
    name, topics = one.name, context.topics
    if not name or one.topic_id != ZERO_UUID or name in PROTECTED_TOPICS:
        return False
    return topics.allows(Operation.DESCRIBE, name) and topics.find(Operation.DESCRIBE, name) is None


def _lookups(
    context: Context,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic],
    refusals: Mapping[str, ErrorCode] = NO_REFUSALS,
) -> Iterator[MetadataResponseTopic]:
    topics = context.topics
    describe = _Describer(context, request)
    seen: set[str | bytes | None] = set()
    for one in asked:
        # An entry with an id is identified by its id alone. Otherwise a request could repeat an id with many names.
        key = one.topic_id if one.topic_id != ZERO_UUID else one.name
        if key in seen:
            continue
        seen.add(key)
        name = topics.name_of(one.topic_id) if one.topic_id != ZERO_UUID else one.name
        if name is not None and not topics.permits(Operation.DESCRIBE, name):
            yield _refused(one)
            continue
        facts = topics.find(Operation.DESCRIBE, name) if name is not None else None
        if facts is not None:
            yield describe(facts)
        elif name is None or one.topic_id != ZERO_UUID:
            yield _failed(one, ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            yield describe.unknown(one, refusals.get(name) or _unknown_topic_error(name))


def _unknown_topic_error(name: str) -> ErrorCode:
    try:
        check_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _failed(one: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=one.name, topic_id=one.topic_id, partitions=[])


def _refused(one: MetadataRequestTopic) -> MetadataResponseTopic:
    """Return the result of a topic that the client may not describe. It has the name or the id of the request."""
    name = one.name if one.topic_id == ZERO_UUID else None
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return MetadataResponseTopic(error_code=code, name=name, topic_id=one.topic_id, partitions=[])


def _invalid(one: MetadataRequestTopic) -> MetadataResponseTopic:
    # Before version 12 the name is not nullable.
    return MetadataResponseTopic(
        error_code=ErrorCode.INVALID_REQUEST, name=one.name or "", topic_id=one.topic_id, partitions=[]
    )


class _Describer:
    """Builds the topics of a Metadata response from entries of the catalogue."""

    def __init__(self, context: Context, request: MetadataRequest) -> None:
        self._node_id = context.services.node.node_id
        self._leader_epoch = context.services.topics.leader_epoch
        self._topics = context.topics
        self._with_operations = request.include_topic_authorized_operations
        self._offline = context.services.topics.offline_partitions
        # All topics with one partition share this list. On a large node nearly all topics have one partition.
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
            answer.topic_authorized_operations = self._topics.operations(facts.name)
        return answer

    def unknown(self, one: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
        """Return the result of a requested name that does not exist."""
        answer = _failed(one, code)
        if self._with_operations and one.name is not None and code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            answer.topic_authorized_operations = self._topics.operations(one.name)
        return answer

    def _without_offline(
        self, name: str, partitions: list[MetadataResponsePartition]
    ) -> list[MetadataResponsePartition]:
        """Return the partitions; offline ones have no leader and an offline replica, as in Kafka."""
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


def _answer(
    context: Context, request: MetadataRequest, topics: Iterator[MetadataResponseTopic | None]
) -> MetadataResponse | Awaitable[MetadataResponse]:
    def encode(some: list[MetadataResponseTopic]) -> bytes:
        return context.elements_encoder(MetadataResponse, "topics")(some)

    def make_encoded(count: int, chunks: list[bytes]) -> MetadataResponse:
        return _response(context, request, context.encoded_elements(count, chunks))

    weight = 1 + (context.topics.operations_weight if request.include_topic_authorized_operations else 0)

    def weigh(topic: MetadataResponseTopic) -> int:
        return weight + len(topic.partitions)

    return answer_in_chunks(topics, weigh, partial(_response, context, request), encode, make_encoded)


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
        answer.cluster_authorized_operations = context.cluster.operations
    return answer
