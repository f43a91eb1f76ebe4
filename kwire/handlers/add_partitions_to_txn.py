"""AddPartitionsToTxn 0-5: partitions that a transaction is about to write to.

- A partition that does not exist, or is internal, fails its whole transaction: the others are OPERATION_NOT_ATTEMPTED.
- Answered when the coordinator has it on record; until then no batch of the transaction is stored in the partition.
- 2: a fenced producer is PRODUCER_FENCED, before it was INVALID_PRODUCER_EPOCH. 3 is flexible. From 4 on many
  transactions in one request, or only the question whether partitions are in one: what brokers ask each other. 5 knows
  TRANSACTION_ABORTABLE.
"""

from collections.abc import Awaitable, Iterator, Sequence

from kwire.broker.chunking import eager, spread, spread_nested
from kwire.broker.topics import OFFSETS_TOPIC
from kwire.coordinator.asking import all_of, answer_of, settled
from kwire.coordinator.transaction.commands import AddPartitions, VerifyPartitions
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.handlers.transaction_errors import fenced_error
from kwire.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FIRST_FENCED_VERSION = 2
FIRST_BATCHED_VERSION = 4
FIRST_ABORTABLE_VERSION = 5


def handle(
    context: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    if context.api_version >= FIRST_BATCHED_VERSION:
        return all_of(
            (_answer(context, asked) for asked in request.transactions),
            lambda results: AddPartitionsToTxnResponse(results_by_transaction=results),
        )
    asked = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return all_of(
        (_answer(context, asked),),
        lambda results: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results),
    )


def _answer(
    context: Context, asked: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult | Awaitable[AddPartitionsToTxnResult]:
    return eager(_answer_one(context, asked))


async def _answer_one(context: Context, asked: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    named = spread_nested(asked.topics, lambda topic: topic.partitions)
    places = [(topic.name, index) async for topic, index in named]
    problems = [_problem(context, place, asked.verify_only) async for place in spread(places)]
    if any(problems):
        return await _result(asked, [problem or ErrorCode.OPERATION_NOT_ATTEMPTED for problem in problems])
    transactions = context.services.transactions
    if asked.verify_only:
        question = VerifyPartitions(
            transactional_id=asked.transactional_id,
            producer_id=asked.producer_id,
            producer_epoch=asked.producer_epoch,
            partitions=places,
        )
        errors = await settled(answer_of(transactions, question, lambda errors: errors))
        return await _result(asked, [_told(context, error) for error in errors])
    addition = AddPartitions(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        # A partition that is named often is added once.
        partitions=list(dict.fromkeys(places)),
        is_v2=context.api_version >= FIRST_BATCHED_VERSION,
    )
    error = await settled(answer_of(transactions, addition, lambda error: error))
    return await _result(asked, [_told(context, error)] * len(places))


def _problem(context: Context, place: TopicPartition, verifies: bool) -> ErrorCode | None:
    """What is wrong with a partition whatever the coordinator says. Groups' offsets have a request of their own."""
    name, index = place
    topic = context.services.topics.get(name)
    if topic is not None and topic.is_internal and not (verifies and topic.name == OFFSETS_TOPIC):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic is None or topic.partition(index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


def _told(context: Context, error: ErrorCode) -> ErrorCode:
    if error is ErrorCode.TRANSACTION_ABORTABLE and context.api_version < FIRST_ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return fenced_error(error, knows_fenced=context.api_version >= FIRST_FENCED_VERSION)


async def _result(asked: AddPartitionsToTxnTransaction, errors: Sequence[ErrorCode]) -> AddPartitionsToTxnResult:
    left = iter(errors)
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=[await _topic_result(topic, left) async for topic in spread(asked.topics)],
    )


async def _topic_result(topic: AddPartitionsToTxnTopic, errors: Iterator[ErrorCode]) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=next(errors))
            async for index in spread(topic.partitions)
        ],
    )
