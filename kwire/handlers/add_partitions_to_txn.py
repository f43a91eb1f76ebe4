"""AddPartitionsToTxn 0-5: add partitions to a transaction before it writes to them.

- Up to version 3 the client needs WRITE on the transactional id and on each topic. From version 4 on it needs
  CLUSTER_ACTION on the cluster, and no other right.
- If a partition does not exist, belongs to the server or may not be written, no partition of its transaction is added.
  The other partitions of the transaction are OPERATION_NOT_ATTEMPTED.
- The response is sent when the coordinator has stored the added partitions. Until then these partitions accept no batch
  of the transaction.
- Version 2 reports a fenced producer as PRODUCER_FENCED, earlier versions as INVALID_PRODUCER_EPOCH. Version 3 is
  flexible. From version 4 on a request may have several transactions, and may only verify that partitions are in a
  transaction. Kafka uses these versions between brokers. Version 5 adds TRANSACTION_ABORTABLE.
"""

from collections.abc import Awaitable, Iterator, Sequence

from kwire.access.acl import Operation
from kwire.broker.topics.topics import OFFSETS_TOPIC, Topic
from kwire.concurrency.chunking import eager, spread, spread_nested
from kwire.coordinator.client_requests import answer_of, combined_answers, resolved_answer
from kwire.coordinator.transaction.commands import AddPartitions, VerifyPartitions
from kwire.coordinator.transaction.coordinator import TransactionCoordinator
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.transaction_errors import fenced_error
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
        if not context.cluster.permits(Operation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return combined_answers(
            (_answer(context, asked) for asked in request.transactions),
            lambda results: AddPartitionsToTxnResponse(results_by_transaction=results),
        )
    asked = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return combined_answers(
        (_answer(context, asked),),
        lambda results: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results),
    )


def _answer(
    context: Context, asked: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult | Awaitable[AddPartitionsToTxnResult]:
    return eager(_answer_one(context, asked))


async def _answer_one(context: Context, asked: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    named = spread_nested(asked.topics, lambda topic: topic.partitions)
    partitions = [(topic.name, index) async for topic, index in named]
    try:
        transactions = _coordinator(context, asked.transactional_id)
    except KafkaError as error:
        return await _result(asked, [error.code] * len(partitions))
    partition_errors = [_partition_error(context, one, asked.verify_only) async for one in spread(partitions)]
    if any(partition_errors):
        return await _result(asked, [error or ErrorCode.OPERATION_NOT_ATTEMPTED for error in partition_errors])
    if asked.verify_only:
        question = VerifyPartitions(
            transactional_id=asked.transactional_id,
            producer_id=asked.producer_id,
            producer_epoch=asked.producer_epoch,
            partitions=partitions,
        )
        errors = await resolved_answer(answer_of(transactions, question, lambda errors: errors))
        return await _result(asked, [_error_for_version(context, error) for error in errors])
    addition = AddPartitions(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        # A repeated partition is added once, but has a result for each occurrence.
        partitions=list(dict.fromkeys(partitions)),
        is_v2=context.api_version >= FIRST_BATCHED_VERSION,
    )
    added = await resolved_answer(answer_of(transactions, addition, lambda error: error))
    return await _result(asked, [_error_for_version(context, added)] * len(partitions))


def _coordinator(context: Context, transactional_id: str) -> TransactionCoordinator:
    """Return the coordinator. Requests of brokers have been authorized as a whole, by CLUSTER_ACTION."""
    if context.api_version >= FIRST_BATCHED_VERSION:
        return context.transactions.coordinator_of_all()
    return context.transactions.coordinator(Operation.WRITE, transactional_id)


def _partition_error(context: Context, partition: TopicPartition, verifies: bool) -> ErrorCode | None:
    """Return the error of a partition that cannot be added, or None.

    `__consumer_offsets` can be verified, but not added: AddOffsetsToTxn adds it.
    """
    name, index = partition
    try:
        topic = _topic(context, name)
    except KafkaError as error:
        return error.code
    if topic is not None and topic.is_server_owned and not (verifies and topic.name == OFFSETS_TOPIC):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic is None or topic.partition(index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


def _topic(context: Context, name: str) -> Topic | None:
    if context.api_version >= FIRST_BATCHED_VERSION:
        return context.topics.get_as_broker(name)
    return context.topics.get(Operation.WRITE, name)


def _error_for_version(context: Context, error: ErrorCode) -> ErrorCode:
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
