"""AddOffsetsToTxn 0-4: add a group to a transaction that is going to commit the group's offsets.

- The client needs WRITE on the transactional id and READ on the group.
- The partition of `__consumer_offsets` that stores the group is added to the transaction.
- Version 2 reports a fenced producer as PRODUCER_FENCED, earlier versions as INVALID_PRODUCER_EPOCH. Version 3 is
  flexible. Version 4 adds TRANSACTION_ABORTABLE.
"""

import inspect

from kwire.access.acl import Operation
from kwire.broker.topics.topics import OFFSETS_TOPIC
from kwire.coordinator.client_requests import answer_of
from kwire.coordinator.transaction.commands import AddPartitions
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.transaction_errors import fenced_error
from kwire.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FIRST_FENCED_VERSION = 2
FIRST_ABORTABLE_VERSION = 4


async def handle(context: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    try:
        transactions = context.transactions.coordinator(Operation.WRITE, request.transactional_id)
        groups = context.groups.coordinator(Operation.READ, request.group_id)
    except KafkaError as refusal:
        return AddOffsetsToTxnResponse(error_code=refusal.code)
    try:
        await context.groups.ensure_topic()
    except KafkaError:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    command = AddPartitions(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        partitions=[(OFFSETS_TOPIC, groups.shard_of(request.group_id))],
    )

    def response(error: ErrorCode) -> AddOffsetsToTxnResponse:
        if error is ErrorCode.TRANSACTION_ABORTABLE and context.api_version < FIRST_ABORTABLE_VERSION:
            error = ErrorCode.INVALID_TXN_STATE
        knows_fenced = context.api_version >= FIRST_FENCED_VERSION
        return AddOffsetsToTxnResponse(error_code=fenced_error(error, knows_fenced=knows_fenced))

    answer = answer_of(transactions, command, response)
    return await answer if inspect.isawaitable(answer) else answer
