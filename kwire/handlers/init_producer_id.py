"""InitProducerId 0-5: the producer id and epoch of an idempotent or transactional producer.

- A transactional producer needs WRITE on its transactional id. An idempotent producer needs IDEMPOTENT_WRITE on the
  cluster or WRITE on any topic; otherwise the error is CLUSTER_AUTHORIZATION_FAILED.
- Without a transactional id every request gets a new producer id with epoch 0, even if the producer had an id before,
  as in Kafka.
- A transactional id keeps its producer id and gets the next epoch, which fences earlier producers. When no epoch is
  left, it gets a new producer id. An open transaction of an earlier producer is aborted first. If the abort takes too
  long, the error is CONCURRENT_TRANSACTIONS.
- If no block of producer ids can be reserved, the error is COORDINATOR_LOAD_IN_PROGRESS, which every producer retries.
- Version 2 is flexible. From version 3 on a producer may send its id and epoch. If both are current, the producer keeps
  the id and gets the next epoch. If the response with the next epoch was lost, the producer gets that epoch again.
  Otherwise the producer is fenced. Version 4 adds PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH in earlier versions.
  Version 5 adds TRANSACTION_ABORTABLE. Version 6 (two-phase commit, KIP-939) is not supported, because Kafka marks it
  as unstable.
"""

import inspect
import logging

from msgspec.structs import replace

from kwire.access.acl import Operation, ResourceType
from kwire.access.scope import plain_part
from kwire.coordinator.client_requests import answer_of
from kwire.coordinator.transaction.commands import InitProducer, ProducerAnswer
from kwire.coordinator.transaction.coordinator import TransactionCoordinator
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.transaction_errors import fenced_error
from kwire.metastore import Conflict
from kwire.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from storage.errors import StorageError

log = logging.getLogger("kwire.handlers")

NONE = -1
FIRST_FENCED_VERSION = 4


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return await _transactional(context, request, request.transactional_id)
    if not _may_write_idempotently(context):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    producer_id = await fresh_producer_id(context)
    if producer_id is None:
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)


def _may_write_idempotently(context: Context) -> bool:
    # Only a client that has neither right is refused, so the last check is the one that records.
    return context.access.allows_any(Operation.WRITE, ResourceType.TOPIC) or context.cluster.permits(
        Operation.IDEMPOTENT_WRITE
    )


async def fresh_producer_id(context: Context) -> int | None:
    """Reserve a new producer id. Return None if no block of ids can be reserved."""
    try:
        return await context.services.producer_ids.take()
    except (StorageError, Conflict):
        log.exception("failed to reserve a block of producer ids")
        return None


async def _transactional(
    context: Context, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    try:
        transactions = context.transactions.coordinator(Operation.WRITE, transactional_id)
    except KafkaError as error:
        return _refused(error.code)
    if not plain_part(transactional_id) or (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _refused(ErrorCode.INVALID_REQUEST)
    command = InitProducer(
        transactional_id=transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    answer = await _ask(transactions, command)
    if answer.needs_producer_id:
        producer_id = await fresh_producer_id(context)
        if producer_id is None:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer = await _ask(transactions, replace(command, fresh_producer_id=producer_id))
    error_code = fenced_error(answer.error, knows_fenced=context.api_version >= FIRST_FENCED_VERSION)
    return InitProducerIdResponse(
        error_code=error_code, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
    )


async def _ask(transactions: TransactionCoordinator, command: InitProducer) -> ProducerAnswer:
    answer = answer_of(transactions, command, lambda answer: answer)
    return await answer if inspect.isawaitable(answer) else answer


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)
