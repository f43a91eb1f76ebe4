"""EndTxn 0-5: commit or abort a transaction.

- The client needs WRITE on the transactional id.
- The response is sent when the decision is stored. The markers are written after that. Until the last marker is
  written, the producer's next transaction may get CONCURRENT_TRANSACTIONS.
- Version 2 reports a fenced producer as PRODUCER_FENCED, earlier versions as INVALID_PRODUCER_EPOCH. Version 3 is
  flexible. Version 4 adds TRANSACTION_ABORTABLE.
- Version 5 returns the producer id and epoch of the next transaction, because each transaction has its own epoch
  (KIP-890).
"""

import inspect

from msgspec.structs import replace

from kwire.access.acl import Operation
from kwire.coordinator.client_requests import answer_of
from kwire.coordinator.transaction.commands import EndTransaction, ProducerAnswer
from kwire.coordinator.transaction.coordinator import TransactionCoordinator
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.init_producer_id import fresh_producer_id
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.transaction_errors import fenced_error
from kwire.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

FIRST_FENCED_VERSION = 2
FIRST_V2_VERSION = 5


async def handle(context: Context, request: EndTxnRequest) -> EndTxnResponse:
    try:
        transactions = context.transactions.coordinator(Operation.WRITE, request.transactional_id)
    except KafkaError as error:
        return EndTxnResponse(error_code=error.code)
    command = EndTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        is_commit=request.committed,
        is_v2=context.api_version >= FIRST_V2_VERSION,
    )
    answer = await _ask(transactions, command)
    if answer.needs_producer_id:
        producer_id = await fresh_producer_id(context)
        if producer_id is None:
            return EndTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer = await _ask(transactions, replace(command, fresh_producer_id=producer_id))
    error_code = fenced_error(answer.error, knows_fenced=context.api_version >= FIRST_FENCED_VERSION)
    return EndTxnResponse(error_code=error_code, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)


async def _ask(transactions: TransactionCoordinator, command: EndTransaction) -> ProducerAnswer:
    answer = answer_of(transactions, command, lambda answer: answer)
    return await answer if inspect.isawaitable(answer) else answer
