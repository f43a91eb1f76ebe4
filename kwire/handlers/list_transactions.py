"""ListTransactions 0-2: every transactional id that this node knows, and how far its transaction is.

- A shard that is still being loaded makes the answer COORDINATOR_LOAD_IN_PROGRESS: half a list would be a wrong one.
- Only those in the states, or with the producer ids, that are asked for; states that do not exist are told back.
- 1: only transactions that have been open for longer than a duration (KIP-994). 2: only ids that a regular expression
  matches as a whole (KIP-1152), in the language of RE2 and in bounded time; characters beyond ASCII match nothing.
"""

import inspect
from collections.abc import Iterator
from itertools import chain
from typing import Any

from kwire.broker.turns import answer_in_turns
from kwire.coordinator.asking import every_shard
from kwire.coordinator.group.consumer.patterns import InvalidPattern
from kwire.coordinator.group.consumer.regexes import Matcher
from kwire.coordinator.transaction.commands import ListAnswer, ListTransactions
from kwire.coordinator.transaction.states import TOLD_STATES
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


async def handle(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    pattern = request.transactional_id_pattern
    try:
        matches = Matcher(pattern).matches if pattern else None
    except InvalidPattern:
        return _response([], error=ErrorCode.INVALID_REGULAR_EXPRESSION)
    unknown = [state for state in request.state_filters if state not in TOLD_STATES]

    def command(shard_key: str) -> ListTransactions:
        return ListTransactions(
            transactional_id=shard_key,
            states=frozenset(request.state_filters),
            producer_ids=frozenset(request.producer_id_filters),
            duration_ms=request.duration_filter,
            matches=matches,
        )

    try:
        answers = await every_shard(context.services.transactions, command)
    except KafkaError as error:
        return _response([], error=error.code)
    response = answer_in_turns(
        _listed(answers),
        lambda transaction: 1,
        lambda states: _response(states, unknown=unknown),
        lambda some: elements_encoder(ListTransactionsResponse, "transaction_states", context.api_version)(some),
        lambda count, portions: _response(EncodedElements(count, b"".join(portions)), unknown=unknown),
    )
    return await response if inspect.isawaitable(response) else response


def _listed(answers: list[ListAnswer]) -> Iterator[TransactionState]:
    for one in chain.from_iterable(answer.transactions for answer in answers):
        yield TransactionState(
            transactional_id=one.transactional_id, producer_id=one.producer_id, transaction_state=one.state
        )


def _response(
    states: Any, *, unknown: list[str] | None = None, error: ErrorCode = ErrorCode.NONE
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error, unknown_state_filters=unknown or [], transaction_states=states)
