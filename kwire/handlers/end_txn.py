"""EndTxn 0-5: commit or abort a transaction.

- Answered when the decision is on record. The markers follow; until the last is written, the producer's next
  transaction may be told CONCURRENT_TRANSACTIONS.
- 2: a fenced producer is PRODUCER_FENCED, before it was INVALID_PRODUCER_EPOCH. 3 is flexible. 4 knows
  TRANSACTION_ABORTABLE.
- 5: the producer's id and epoch for its next transaction come back: each has an epoch of its own (KIP-890).
"""

import inspect

from msgspec.structs import replace

from kwire.coordinator.asking import answer_of
from kwire.coordinator.transaction.commands import EndTransaction, ProducerAnswer
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.handlers.init_producer_id import fresh_producer_id
from kwire.handlers.transaction_errors import fenced_error
from kwire.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

FIRST_FENCED_VERSION = 2
FIRST_SECOND_GENERATION_VERSION = 5


async def handle(context: Context, request: EndTxnRequest) -> EndTxnResponse:
    command = EndTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        is_commit=request.committed,
        is_v2=context.api_version >= FIRST_SECOND_GENERATION_VERSION,
    )
    answer = await _asked(context, command)
    if answer.needs_producer_id:
        producer_id = await fresh_producer_id(context)
        if producer_id is None:
            return EndTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer = await _asked(context, replace(command, fresh_producer_id=producer_id))
    error = fenced_error(answer.error, knows_fenced=context.api_version >= FIRST_FENCED_VERSION)
    return EndTxnResponse(error_code=error, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)


async def _asked(context: Context, command: EndTransaction) -> ProducerAnswer:
    answer = answer_of(context.services.transactions, command, lambda answer: answer)
    return await answer if inspect.isawaitable(answer) else answer
