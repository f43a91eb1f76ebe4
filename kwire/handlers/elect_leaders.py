"""ElectLeaders 0-2: no effect, because the only replica of every partition is its leader.

- The request needs ALTER on the cluster. Otherwise the error of the request and of every partition in it is
  CLUSTER_AUTHORIZATION_FAILED.
- An existing partition is ELECTION_NOT_NEEDED, any other is UNKNOWN_TOPIC_OR_PARTITION.
- If `topic_partitions` is null, the request is for all partitions. Partitions that need no election are left out of the
  response, so every topic has an empty list.
- Version 1 can request an unclean election (KIP-460) and adds an error for the whole request. An unknown election type
  is INVALID_REQUEST, for the request and for every partition in it. Version 2 is flexible.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.chunked_answers import answer_in_chunks, partition_chunks
from kwire.broker.topics.topics import Topics
from kwire.errors import ErrorCode, KafkaError, as_value
from kwire.handlers.shared.context import Context
from kwire.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

PREFERRED, UNCLEAN = 0, 1

# Maps the index of a topic's partition to the partition's error.
PartitionError = Callable[[int], KafkaError]


def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse | Awaitable[ElectLeadersResponse]:
    try:
        topics = context.cluster.topics(Operation.ALTER)
        if request.election_type not in (PREFERRED, UNCLEAN):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}.")
    except KafkaError as refusal:
        error = as_value(refusal)
        return _answer(context, _results(request.topic_partitions or [], lambda name: lambda index: error), error.code)
    if request.topic_partitions is None:
        names = topics.catalogue.names()
        return _answer(context, (ReplicaElectionResult(topic=name, partition_result=[]) for name in names))
    return _answer(context, _results(request.topic_partitions, partial(_partition_error, topics)))


def _answer(
    context: Context, results: Iterator[ReplicaElectionResult], code: ErrorCode = ErrorCode.NONE
) -> ElectLeadersResponse | Awaitable[ElectLeadersResponse]:
    return answer_in_chunks(
        results,
        lambda result: 1 + len(result.partition_result),
        partial(_response, code),
        context.elements_encoder(ElectLeadersResponse, "replica_election_results"),
        lambda count, chunks: _response(code, context.encoded_elements(count, chunks)),
    )


def _response(code: ErrorCode, results: Any) -> ElectLeadersResponse:
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _results(
    asked: list[TopicPartitions], partition_error: Callable[[str], PartitionError]
) -> Iterator[ReplicaElectionResult]:
    for one in asked:
        error_of = partition_error(one.topic)
        for indexes in partition_chunks(one.partitions):
            results = [_result(index, error_of(index)) for index in indexes]
            yield ReplicaElectionResult(topic=one.topic, partition_result=results)


def _result(index: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)


def _partition_error(topics: Topics, name: str) -> PartitionError:
    facts = topics.catalogue.find(name)
    if facts is None:
        unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} does not exist.")
        return lambda index: unknown
    elected = KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The partition's only replica is its leader.")

    def error_of(index: int) -> KafkaError:
        if 0 <= index < facts.partition_count:
            return elected
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {name}-{index} does not exist.")

    return error_of
