"""AlterPartitionReassignments 0-1: the only place a replica can be is this node, where it is.

- A target of exactly this node is accepted: it is so already, and nothing is done.
- Any other target is INVALID_REPLICA_ASSIGNMENT: no other broker is registered.
- Null replicas ask to cancel a reassignment: NO_REASSIGNMENT_IN_PROGRESS, there is never one.
- Version 1 can forbid that the number of replicas changes (KIP-860) and is told again what it asked. Here no accepted
  target changes it.
"""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from kwire.broker.catalogue import TopicFacts
from kwire.broker.turns import answer_in_turns, portions
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.replicas import check_assignments
from kwire.wire.codec import EncodedElements, elements_encoder
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
    return answer_in_turns(
        (_result(context, asked.name, some) for asked in request.topics for some in portions(asked.partitions)),
        lambda result: 1 + len(result.partitions),
        make,
        lambda some: elements_encoder(Response, "responses", context.api_version)(some),
        lambda count, portions: make(EncodedElements(count, b"".join(portions))),
    )


def _response(may_change_factor: bool, results: Any) -> Response:
    return Response(
        allow_replication_factor_change=may_change_factor, error_code=0, error_message=None, responses=results
    )


def _result(context: Context, name: str, targets: Sequence[ReassignablePartition]) -> ReassignableTopicResponse:
    facts = context.services.topics.catalogue.find(name)
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
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
    if not 0 <= target.partition_index < facts.partition_count:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{target.partition_index}."
        )
    if target.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition is being moved to other brokers.")
    check_assignments(context, [target.replicas])
