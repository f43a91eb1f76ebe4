"""AlterPartitionReassignments 0-1: no effect, because this node is the only possible replica.

- The request needs ALTER on the cluster.
- A target that consists of this node only is accepted and changes nothing.
- Any other target is INVALID_REPLICA_ASSIGNMENT, because no other broker is registered.
- Null replicas cancel a reassignment. The result is NO_REASSIGNMENT_IN_PROGRESS, because there is never one.
- Version 1 can forbid changes of the replication factor (KIP-860), and the response repeats this flag. The flag has no
  effect, because no accepted target changes the factor.
"""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.chunked_answers import answer_in_chunks, partition_chunks
from kwire.broker.topics.catalogue import TopicFacts
from kwire.broker.topics.topics import Topics
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.replicas import check_assignments
from kwire.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

Response = AlterPartitionReassignmentsResponse


def handle(context: Context, request: AlterPartitionReassignmentsRequest) -> Response | Awaitable[Response]:
    make = partial(_response, request.allow_replication_factor_change)
    try:
        topics = context.cluster.topics(Operation.ALTER)
    except KafkaError as error:
        return Response(error_code=error.code, error_message=error.message, responses=[])
    return answer_in_chunks(
        (
            _result(context, topics, asked.name, some)
            for asked in request.topics
            for some in partition_chunks(asked.partitions)
        ),
        lambda result: 1 + len(result.partitions),
        make,
        context.elements_encoder(Response, "responses"),
        lambda count, chunks: make(context.encoded_elements(count, chunks)),
    )


def _response(may_change_factor: bool, results: Any) -> Response:
    return Response(
        allow_replication_factor_change=may_change_factor, error_code=0, error_message=None, responses=results
    )


def _result(
    context: Context, topics: Topics, name: str, targets: Sequence[ReassignablePartition]
) -> ReassignableTopicResponse:
    facts = topics.catalogue.find(name)
    results = []
    for target in targets:
        result = ReassignablePartitionResponse(partition_index=target.partition_index, error_code=0, error_message=None)
        try:
            _check(context, name, facts, target)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return ReassignableTopicResponse(name=name, partitions=results)


def _check(context: Context, name: str, facts: TopicFacts | None, target: ReassignablePartition) -> None:
    if facts is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} does not exist.")
    if not 0 <= target.partition_index < facts.partition_count:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {name}-{target.partition_index} does not exist."
        )
    if target.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition is being moved to other brokers.")
    check_assignments(context, [target.replicas])
