"""InitProducerId 0-5: an identity for an idempotent or a transactional producer.

- Without a transactional id every call gets a fresh id with epoch 0, whatever id it had before, as in Kafka.
- A transactional id keeps its producer id and gets a new epoch, so that whoever used it before is fenced; what that one
  left open is aborted first, and meanwhile the answer is CONCURRENT_TRANSACTIONS.
- While no block of ids can be reserved, the answer is COORDINATOR_LOAD_IN_PROGRESS, which every producer retries.
- 2 is flexible; from 3 on a producer says which id and epoch it had, and goes on with them if they are still its own; 4
  knows PRODUCER_FENCED, before it was INVALID_PRODUCER_EPOCH; 5 knows TRANSACTION_ABORTABLE. 6, with transactions that
  are prepared by one and committed by another (KIP-939), is not served: Kafka does not call it stable.
"""

import inspect
import logging

from msgspec.structs import replace

from kwire.coordinator.asking import answer_of
from kwire.coordinator.transaction.commands import InitProducer, ProducerAnswer
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.handlers.transaction_errors import fenced_error
from kwire.metastore import Conflict
from kwire.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from storage.errors import StorageError

log = logging.getLogger("kwire.handlers")

NONE = -1
FIRST_FENCED_VERSION = 4


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return await _transactional(context, request, request.transactional_id)
    producer_id = await fresh_producer_id(context)
    if producer_id is None:
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)


async def fresh_producer_id(context: Context) -> int | None:
    """One that nobody had before; None if none can be reserved just now."""
    try:
        return await context.services.producer_ids.take()
    except (StorageError, Conflict):
        log.exception("no producer id can be given")
        return None


async def _transactional(
    context: Context, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    if not transactional_id or (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _refused(ErrorCode.INVALID_REQUEST)
    command = InitProducer(
        transactional_id=transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    answer = await _asked(context, command)
    if answer.needs_producer_id:
        producer_id = await fresh_producer_id(context)
        if producer_id is None:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer = await _asked(context, replace(command, fresh_producer_id=producer_id))
    error = fenced_error(answer.error, knows_fenced=context.api_version >= FIRST_FENCED_VERSION)
    return InitProducerIdResponse(
        error_code=error, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
    )


async def _asked(context: Context, command: InitProducer) -> ProducerAnswer:
    answer = answer_of(context.services.transactions, command, lambda answer: answer)
    return await answer if inspect.isawaitable(answer) else answer


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)
