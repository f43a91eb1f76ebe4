"""TxnOffsetCommit 0-6: commit a group's offsets as part of a transaction.

- The client needs WRITE on the transactional id, and READ on the group and on each topic. Without the right on the id
  or the group every partition has the error; a topic without the right is TOPIC_AUTHORIZATION_FAILED.
- The offsets are pending until the transaction commits. Until then OffsetFetch with require_stable returns
  UNSTABLE_OFFSET_COMMIT for them.
- The transaction must include the partition of `__consumer_offsets` that stores the group. Before version 5 the
  producer adds this partition with AddOffsetsToTxn, and the transaction coordinator verifies it. From version 5 on this
  request adds the partition.
- Topics and partitions that do not exist have an error each. The other offsets are stored, at most
  OFFSETS_PER_COMMIT_MAX in one append.
- Version 2 adds the leader epoch. Before version 2, COORDINATOR_NOT_AVAILABLE is sent while the group is being loaded.
  Version 3 is flexible and adds member id, generation and group instance id. Version 4 adds TRANSACTION_ABORTABLE,
  which is INVALID_TXN_STATE in earlier versions. Version 6 has topic ids instead of names, and adds GROUP_ID_NOT_FOUND
  and STALE_MEMBER_EPOCH, which are ILLEGAL_GENERATION in earlier versions.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from kwire.access.acl import Operation
from kwire.access.scope import plain_part
from kwire.broker.topics.topics import OFFSETS_TOPIC
from kwire.coordinator.client_requests import answer_of_steps
from kwire.coordinator.group.commands import CommitOffsets, OffsetToCommit
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.log_records import ProducerIdAndEpoch
from kwire.coordinator.transaction.admission import AdmissionRequest, TransactionAdmission
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.offset_commits import CommitApi, commit, refuse
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
    try:
        admission = context.transactions.admission(Operation.WRITE, request.transactional_id)
        groups = context.groups.coordinator(Operation.READ, request.group_id)
    except KafkaError as error:
        return refuse(request.topics, API, error.code)
    return commit(context, request.topics, API, partial(_ask, context, admission, groups, request))


def _ask(
    context: Context,
    admission: TransactionAdmission,
    groups: GroupCoordinator,
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
        transaction=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        offsets=offsets,
    )
    return answer_of_steps(
        partial(_commit, context, admission, groups, request, command),
        lambda errors: shape([_error_for_version(context.api_version, error) for error in errors]),
    )


def _commit(
    context: Context,
    admission: TransactionAdmission,
    groups: GroupCoordinator,
    request: TxnOffsetCommitRequest,
    command: CommitOffsets,
    reply: Callable[[list[ErrorCode]], None],
) -> None:
    """Send the request to the transaction coordinator, then the offsets to the group coordinator.

    The offsets are sent in the callback of the transaction coordinator, so that no marker of the transaction can be
    written between the two steps.
    """
    if not plain_part(request.group_id):
        reply(command.refused(ErrorCode.INVALID_GROUP_ID))
        return
    if not context.groups.has_topic:
        # The first FindCoordinator request for a group creates this topic, and no client has sent one yet.
        reply(command.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    is_added = context.api_version >= FIRST_VERSION_THAT_ADDS
    if not (is_added or context.services.config.transactions.is_verified):
        groups.submit(command, reply)
        return

    def on_admitted(error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            reply(command.refused(error))
            return
        try:
            groups.submit(command, reply)
        except Exception:
            # The caller is the transaction coordinator, and an exception would also affect its other requests.
            log.exception("failed to commit offsets of group %s in a transaction", request.group_id)
            reply(command.refused(ErrorCode.UNKNOWN_SERVER_ERROR))

    admission_request = AdmissionRequest(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(OFFSETS_TOPIC, groups.shard_of(request.group_id))],
        is_added,
    )
    admission.admit(admission_request, on_admitted)


def _error_for_version(version: int, error: ErrorCode) -> ErrorCode:
    """Convert an error to a code that clients of this version can handle."""
    if error is ErrorCode.PRODUCER_FENCED:
        # Clients expect one code, whether the coordinator or the log has the newer epoch.
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_OF_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_OF_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
