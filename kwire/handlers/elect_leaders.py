"""ElectLeaders 0-2: every partition has its one replica as leader, so no election is needed.

- Partitions that exist get ELECTION_NOT_NEEDED, others UNKNOWN_TOPIC_OR_PARTITION, each on its own.
- Null partitions asks for all; those that need no election are left out, so their topics come without partitions.
- Version 1 can ask for an unclean election (KIP-460) and has an error for the whole request: a kind of election that
  does not exist is INVALID_REQUEST, for the request and for every partition in it. Version 2 is flexible.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from kwire.broker.turns import answer_in_turns, portions
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

PREFERRED, UNCLEAN = 0, 1

# Who judges a partition: the error for a topic's partition by its index.
Judge = Callable[[int], KafkaError]


def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse | Awaitable[ElectLeadersResponse]:
    if request.election_type not in (PREFERRED, UNCLEAN):
        error = KafkaError(ErrorCode.INVALID_REQUEST, f"{request.election_type} is no kind of election.")
        return _answer(context, _results(request.topic_partitions or [], lambda name: lambda index: error), error.code)
    if request.topic_partitions is None:
        names = context.services.topics.catalogue.names()
        return _answer(context, (ReplicaElectionResult(topic=name, partition_result=[]) for name in names))
    return _answer(context, _results(request.topic_partitions, partial(_judge, context)))


def _answer(
    context: Context, results: Iterator[ReplicaElectionResult], code: ErrorCode = ErrorCode.NONE
) -> ElectLeadersResponse | Awaitable[ElectLeadersResponse]:
    return answer_in_turns(
        results,
        lambda result: 1 + len(result.partition_result),
        partial(_response, code),
        lambda some: elements_encoder(ElectLeadersResponse, "replica_election_results", context.api_version)(some),
        lambda count, portions: _response(code, EncodedElements(count, b"".join(portions))),
    )


def _response(code: ErrorCode, results: Any) -> ElectLeadersResponse:
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _results(asked: list[TopicPartitions], judge_of: Callable[[str], Judge]) -> Iterator[ReplicaElectionResult]:
    for one in asked:
        judge = judge_of(one.topic)
        for indexes in portions(one.partitions):
            yield ReplicaElectionResult(topic=one.topic, partition_result=[_result(index, judge) for index in indexes])


def _result(index: int, judge: Judge) -> PartitionResult:
    error = judge(index)
    return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)


def _judge(context: Context, name: str) -> Judge:
    facts = context.services.topics.catalogue.find(name)
    if facts is None:
        unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
        return lambda index: unknown
    elected = KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The partition's only replica is its leader.")

    def judge(index: int) -> KafkaError:
        if 0 <= index < facts.partition_count:
            return elected
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{index}.")

    return judge
