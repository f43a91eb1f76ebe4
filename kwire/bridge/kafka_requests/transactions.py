"""Transactions on a bridge: ListTransactions, DescribeTransactions and InitProducerId.

A transactional id without the right is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, whether it exists or not, and lists leave
it out. The bridge's own transactional ids cannot be taken over: that would stop the bridge from writing.
"""

from collections.abc import Callable
from typing import Any, Final

from kwire.access.acl import Operation
from kwire.access.scope import plain_part
from kwire.bridge.kafka_requests.context import RequestContext
from kwire.bridge.kafka_requests.upstream import TRANSACTION, code_of, with_fields
from kwire.concurrency.chunking import spread
from kwire.coordinator.group.consumer.patterns import InvalidPattern
from kwire.coordinator.group.consumer.regexes import Matcher
from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.topic_names import INTERNAL_PREFIX
from kwire.streams.remote.transactions.writer import WRITER_PREFIX
from kwire.wire.messages.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from kwire.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse
from kwire.wire.messages.list_transactions import (
    LIST_TRANSACTIONS,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

NO_EPOCH: Final = -1


async def list_transactions(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    pattern, request.transactional_id_pattern = request.transactional_id_pattern, None
    answer = ListTransactionsResponse(error_code=0, unknown_state_filters=[], transaction_states=[])
    matches: Callable[[str], bool] | None = None
    if pattern:
        # The cluster would compare the pattern with full names.
        try:
            matches = Matcher(pattern).matches
        except InvalidPattern:
            answer.error_code = ErrorCode.INVALID_REGULAR_EXPRESSION
            return answer
    for response in await context.upstream.ask_all(LIST_TRANSACTIONS, context.api_version, request):
        if response.error_code:
            return with_fields(answer, error_code=response.error_code, transaction_states=[])
        answer.unknown_state_filters = response.unknown_state_filters
        async for one in spread(response.transaction_states):
            full = one.transactional_id
            if context.transactions.allows(Operation.DESCRIBE, full) and (
                matches is None or matches(full.removeprefix(context.prefix))
            ):
                answer.transaction_states.append(one)
    return answer


async def describe_transactions(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    allowed: dict[str, None] = {}
    errors: dict[str, KafkaError] = {}
    async for one in spread(request.transactional_ids):
        try:
            context.transactions.authorize(Operation.DESCRIBE, one)
            allowed[one] = None
        except KafkaError as error:
            errors[one] = error

    async def ask(node: int, part: list[str]) -> Any:
        message = with_fields(request, transactional_ids=part)
        return await context.upstream.ask_broker(node, DESCRIBE_TRANSACTIONS, context.api_version, message)

    responses, failures = await context.upstream.ask_coordinators(TRANSACTION, allowed, ask)
    states: list[TransactionState] = []
    for response in responses:
        for state in response.transaction_states:
            state.topics = [one for one in state.topics if context.topics.allows(Operation.DESCRIBE, one.topic)]
            states.append(state)
    for transactional_id, failure in {**errors, **failures}.items():
        states.append(
            TransactionState(
                error_code=code_of(failure),
                transactional_id=transactional_id,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=-1,
                producer_id=-1,
                producer_epoch=-1,
                topics=[],
            )
        )
    return DescribeTransactionsResponse(transaction_states=states)


async def init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Abort the open transaction of a transactional id. Producers without one get their ids from the cluster."""
    wanted = request.transactional_id
    if wanted is not None and not context.transactions.permits(Operation.WRITE, wanted):
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if wanted is None or not plain_part(wanted):
        return _refused(ErrorCode.INVALID_REQUEST)
    if wanted.startswith((INTERNAL_PREFIX, WRITER_PREFIX)):
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    outcome = await context.upstream.ask_coordinator(
        TRANSACTION, wanted, INIT_PRODUCER_ID, context.api_version, request
    )
    if isinstance(outcome, KafkaError):
        return _refused(code_of(outcome))
    made: InitProducerIdResponse = outcome
    return made


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH)
