"""ListTransactions 0-2: the transactional ids of this node and the states of their transactions.

- The client gets the ids on which it has DESCRIBE.
- While a shard of the coordinator is being loaded, the error is COORDINATOR_LOAD_IN_PROGRESS, because the list would be
  incomplete.
- Transactions can be filtered by state and by producer id. The response lists the unknown states of the filter.
- Version 1 adds a filter by the minimum time that a transaction has been open (KIP-994). Version 2 adds a filter by a
  regular expression in RE2 syntax that must match the whole id (KIP-1152). The time of a match is bounded. A non-ASCII
  character of an id or of the expression matches nothing. The expression of a client with a scope is matched against
  the plain ids of its scope.
"""

import inspect
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.chunked_answers import answer_in_chunks
from kwire.concurrency.chunking import spread
from kwire.coordinator.client_requests import answers_of_all_shards
from kwire.coordinator.group.consumer.patterns import InvalidPattern
from kwire.coordinator.group.consumer.regexes import Matcher
from kwire.coordinator.transaction.commands import ListedTransaction, ListTransactions
from kwire.coordinator.transaction.states import STATE_NAMES
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


async def handle(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    pattern = request.transactional_id_pattern
    try:
        matches = _matcher(context, pattern) if pattern else None
    except InvalidPattern:
        return _response([], error=ErrorCode.INVALID_REGULAR_EXPRESSION)
    unknown = [state for state in request.state_filters if state not in STATE_NAMES]

    def command(shard_key: str) -> ListTransactions:
        return ListTransactions(
            transactional_id=shard_key,
            states=frozenset(request.state_filters),
            producer_ids=frozenset(request.producer_id_filters),
            duration_ms=request.duration_filter,
            matches=matches,
        )

    try:
        answers = await answers_of_all_shards(context.transactions.coordinator_of_all(), command)
    except KafkaError as error:
        return _response([], error=error.code)
    transactions: Iterator[ListedTransaction] = chain.from_iterable(answer.transactions for answer in answers)
    if not context.access.is_unrestricted:
        allows = context.transactions.allows
        found = [one async for one in spread(transactions) if allows(Operation.DESCRIBE, one.transactional_id)]
        transactions = iter(found)
    response = answer_in_chunks(
        _listed(transactions),
        lambda transaction: 1,
        lambda states: _response(states, unknown=unknown),
        context.elements_encoder(ListTransactionsResponse, "transaction_states"),
        lambda count, chunks: _response(context.encoded_elements(count, chunks), unknown=unknown),
    )
    return await response if inspect.isawaitable(response) else response


def _matcher(context: Context, pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether an id matches. Raises InvalidPattern."""
    matches, prefix = Matcher(pattern).matches, context.views.prefix
    if not prefix:
        return matches
    return lambda full: full.startswith(prefix) and matches(full.removeprefix(prefix))


def _listed(transactions: Iterator[ListedTransaction]) -> Iterator[TransactionState]:
    for one in transactions:
        yield TransactionState(
            transactional_id=one.transactional_id, producer_id=one.producer_id, transaction_state=one.state
        )


def _response(
    states: Any, *, unknown: list[str] | None = None, error: ErrorCode = ErrorCode.NONE
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error, unknown_state_filters=unknown or [], transaction_states=states)
