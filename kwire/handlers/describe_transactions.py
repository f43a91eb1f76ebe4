"""DescribeTransactions 0: where transactional ids stand, each judged on its own.

- One that nobody used, or that has expired, is TRANSACTIONAL_ID_NOT_FOUND. Partitions are told while the transaction is
  under way.
- An id that comes twice is answered once.
"""

from collections.abc import Awaitable
from functools import partial

from kwire.coordinator.asking import all_of, answer_of
from kwire.coordinator.transaction.commands import DescribeAnswer, DescribeTransaction
from kwire.handlers.context import Context
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
    return all_of(described, lambda states: DescribeTransactionsResponse(transaction_states=states))


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
