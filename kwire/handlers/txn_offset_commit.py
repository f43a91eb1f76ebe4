"""TxnOffsetCommit 0-6: positions of a group that count once the transaction commits.

- Until then they are pending: OffsetFetch tells whoever asks for stable offsets to come back.
- The transaction must have the partition of `__consumer_offsets` that keeps the group. Before 5 the producer has added
  it (AddOffsetsToTxn) and the coordinator of transactions is asked whether that is so; from 5 on it is added here.
- Topics and partitions that do not exist are refused one by one; the others are stored, up to OFFSETS_PER_COMMIT_MAX
  of them in one append.
- 2: leader epoch; before, clients take COORDINATOR_NOT_AVAILABLE for "loading". 3: flexible; who commits (member,
  generation, static member). 4: TRANSACTION_ABORTABLE, before it was INVALID_TXN_STATE. 6: topic ids instead of names,
  and errors of consumer-protocol groups: GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH were ILLEGAL_GENERATION before.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from kwire.broker.internal_records import Transaction
from kwire.broker.topics import OFFSETS_TOPIC
from kwire.coordinator.asking import answer_from
from kwire.coordinator.group.commands import CommitOffsets, OffsetToCommit
from kwire.coordinator.transaction.admissions import Entrance
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.handlers.offset_commits import CommitApi, commit
from kwire.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

log = logging.getLogger("kwire.handlers")

FIRST_VERSION_OF_LOADING = 2
FIRST_VERSION_OF_ABORTABLE = 4
FIRST_VERSION_THAT_ADDS = 5
FIRST_VERSION_OF_NOT_FOUND = 6

API = CommitApi(
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
    TxnOffsetCommitResponsePartition,
    first_version_of_topic_ids=6,
)

R = TypeVar("R")


def handle(
    context: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    return commit(context, request.topics, API, partial(_ask, context, request))


def _ask(
    context: Context,
    request: TxnOffsetCommitRequest,
    offsets: list[OffsetToCommit],
    shape: Callable[[list[ErrorCode]], R],
) -> R | Awaitable[R]:
    command = CommitOffsets(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        knows_group_id_not_found=context.api_version >= FIRST_VERSION_OF_NOT_FOUND,
        transaction=Transaction(request.producer_id, request.producer_epoch),
        offsets=offsets,
    )
    return answer_from(
        partial(_commit, context, request, command),
        lambda errors: shape([_error_for_version(context.api_version, error) for error in errors]),
    )


def _commit(
    context: Context,
    request: TxnOffsetCommitRequest,
    command: CommitOffsets,
    reply: Callable[[list[ErrorCode]], None],
) -> None:
    """Ask the coordinator of transactions, then that of groups; the second within the answer of the first, so that no
    marker of this transaction can come between."""
    services = context.services
    if not request.group_id:
        reply(command.refused(ErrorCode.INVALID_GROUP_ID))
        return
    if services.topics.get(OFFSETS_TOPIC) is None:
        # Nobody has looked for the coordinator of a group yet, and a transaction has nothing to write to.
        reply(command.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    is_added = context.api_version >= FIRST_VERSION_THAT_ADDS
    if not (is_added or services.config.transactions.is_verified):
        services.groups.ask(command, reply)
        return

    def go(error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            reply(command.refused(error))
            return
        try:
            services.groups.ask(command, reply)
        except Exception:
            # Whoever calls here is about to answer others.
            log.exception("offsets of group %s in a transaction", request.group_id)
            reply(command.refused(ErrorCode.UNKNOWN_SERVER_ERROR))

    entrance = Entrance(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(OFFSETS_TOPIC, services.groups.shard_of(request.group_id))],
        is_added,
    )
    services.admissions.enter(entrance, go)


def _error_for_version(version: int, error: ErrorCode) -> ErrorCode:
    """The error as clients of this version know it."""
    if error is ErrorCode.PRODUCER_FENCED:
        # Whether the coordinator or the log knows a newer epoch makes no difference to the producer.
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_OF_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_OF_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
