"""DescribeTransactions 0: the state of transactional ids, with a result per id.

- Each id needs DESCRIBE on it. Otherwise its result is TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Topics that the client
  may not describe are left out.
- An unknown or expired id is TRANSACTIONAL_ID_NOT_FOUND. Partitions are returned only while a transaction is in
  progress.
- A repeated id has one result.
"""

from collections.abc import Awaitable
from functools import partial

from kwire.access.acl import Operation
from kwire.coordinator.client_requests import answer_of, combined_answers
from kwire.coordinator.transaction.commands import DescribeAnswer, DescribeTransaction
from kwire.errors import KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(
    context: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Awaitable[DescribeTransactionsResponse]:
    described = (_described(context, one) for one in dict.fromkeys(request.transactional_ids))
    return combined_answers(described, lambda states: DescribeTransactionsResponse(transaction_states=states))


def _described(context: Context, transactional_id: str) -> TransactionState | Awaitable[TransactionState]:
    shape = partial(_state, context, transactional_id)
    try:
        transactions = context.transactions.coordinator(Operation.DESCRIBE, transactional_id)
    except KafkaError as error:
        return shape(DescribeAnswer(error=error.code))
    return answer_of(transactions, DescribeTransaction(transactional_id=transactional_id), shape)


def _state(context: Context, transactional_id: str, answer: DescribeAnswer) -> TransactionState:
    by_topic: dict[str, list[int]] = {}
    for topic, index in answer.partitions:
        by_topic.setdefault(topic, []).append(index)
    return TransactionState(
        error_code=answer.error,
        transactional_id=transactional_id,
        transaction_state=answer.state,
        transaction_timeout_ms=answer.timeout_ms,
        transaction_start_time_ms=answer.start_ms,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=sorted(indexes))
            for topic, indexes in sorted(by_topic.items())
            if context.topics.allows(Operation.DESCRIBE, topic)
        ],
    )
