"""DescribeTransactions 0: the state of transactional ids, with a result per id.

- An unknown or expired id is TRANSACTIONAL_ID_NOT_FOUND. Partitions are returned only while a transaction is in
  progress.
- A repeated id has one result.
"""

from collections.abc import Awaitable
from functools import partial

from kwire.coordinator.client_requests import answer_of, combined_answers
from kwire.coordinator.transaction.commands import DescribeAnswer, DescribeTransaction
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
    transactions = context.services.transactions
    described = (
        answer_of(transactions, DescribeTransaction(transactional_id=one), partial(_state, one))
        for one in dict.fromkeys(request.transactional_ids)
    )
    return combined_answers(described, lambda states: DescribeTransactionsResponse(transaction_states=states))


def _state(transactional_id: str, answer: DescribeAnswer) -> TransactionState:
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
        topics=[TopicData(topic=topic, partitions=sorted(indexes)) for topic, indexes in sorted(by_topic.items())],
    )
