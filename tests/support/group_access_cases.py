"""Requests about groups, offsets and transactional ids, each with the rights that it needs."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.wire.messages.delete_groups import DeleteGroupsRequest
from kwire.wire.messages.describe_groups import DescribeGroupsRequest
from kwire.wire.messages.describe_transactions import DescribeTransactionsRequest
from kwire.wire.messages.end_txn import EndTxnRequest
from kwire.wire.messages.heartbeat import HeartbeatRequest
from kwire.wire.messages.init_producer_id import InitProducerIdRequest
from tests.support.group_access import (
    CLUSTER_ACTION,
    CONSUMERS,
    DELETE,
    DESCRIBE,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTION,
    WRITE,
    Right,
    World,
    add_offsets_request,
    add_request,
    commit_request,
    consumer_join,
    delete_offsets_request,
    fetch_request,
    find_request,
    group_right,
    join_request,
    leave_request,
    sync_request,
    topic_right,
    transaction_right,
    txn_commit_request,
)


class Row(NamedTuple):
    """A request in some versions, the rights that it needs, and the errors that it has when it has them."""

    name: str
    versions: range
    request: Callable[[World, int], Any]
    rights: tuple[Right, ...]
    reached: frozenset[ErrorCode] = frozenset({ErrorCode.NONE})


def row(
    name: str,
    first: int,
    last: int,
    request: Callable[[World, int], Any],
    *rights: Right,
    reached: ErrorCode | None = None,
) -> Row:
    return Row(name, range(first, last + 1), request, rights, frozenset({reached or ErrorCode.NONE}))


TABLE = [
    row("FindCoordinator of a group", 0, 6, lambda w, v: find_request(0, GROUP), group_right(DESCRIBE)),
    row("FindCoordinator of an id", 1, 6, lambda w, v: find_request(1, TRANSACTION), transaction_right(DESCRIBE)),
    row("JoinGroup", 0, 9, lambda w, v: join_request(), group_right(READ), reached=ErrorCode.UNKNOWN_MEMBER_ID),
    row("SyncGroup", 0, 5, lambda w, v: sync_request(), group_right(READ), reached=ErrorCode.UNKNOWN_MEMBER_ID),
    row(
        "Heartbeat",
        0,
        4,
        lambda w, v: HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="unknown"),
        group_right(READ),
        reached=ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    row("LeaveGroup", 0, 5, lambda w, v: leave_request(), group_right(READ), reached=ErrorCode.UNKNOWN_MEMBER_ID),
    row("DescribeGroups", 0, 6, lambda w, v: DescribeGroupsRequest(groups=[GROUP]), group_right(DESCRIBE)),
    row(
        "DeleteGroups",
        0,
        3,
        lambda w, v: DeleteGroupsRequest(groups_names=[CONSUMERS]),
        group_right(DELETE, CONSUMERS),
        reached=ErrorCode.NON_EMPTY_GROUP,
    ),
    row("OffsetCommit", 2, 10, lambda w, v: commit_request(w, v, TOPIC), group_right(READ), topic_right(READ)),
    row("OffsetFetch", 1, 10, lambda w, v: fetch_request(w, TOPIC), group_right(DESCRIBE), topic_right(DESCRIBE)),
    row("OffsetDelete", 0, 0, lambda w, v: delete_offsets_request(TOPIC), group_right(DELETE), topic_right(READ)),
    row(
        "ConsumerGroupHeartbeat",
        0,
        1,
        lambda w, v: consumer_join("member", names=[TOPIC]),
        group_right(READ, CONSUMERS),
        topic_right(DESCRIBE),
    ),
    row(
        "ConsumerGroupDescribe",
        0,
        1,
        lambda w, v: ConsumerGroupDescribeRequest(group_ids=[CONSUMERS], include_authorized_operations=False),
        group_right(DESCRIBE, CONSUMERS),
        topic_right(DESCRIBE),
    ),
    row(
        "InitProducerId of an id",
        0,
        5,
        lambda w, v: InitProducerIdRequest(transactional_id="tx-2", transaction_timeout_ms=1000),
        transaction_right(WRITE, "tx-2"),
    ),
    row(
        "InitProducerId without an id",
        0,
        5,
        lambda w, v: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        IDEMPOTENT_WRITE,
    ),
    row(
        "AddPartitionsToTxn of a client",
        0,
        3,
        lambda w, v: add_request(w, TOPIC),
        transaction_right(WRITE),
        topic_right(WRITE),
    ),
    row("AddPartitionsToTxn of a broker", 4, 5, lambda w, v: add_request(w, TOPIC), CLUSTER_ACTION),
    row(
        "AddOffsetsToTxn",
        0,
        4,
        lambda w, v: add_offsets_request(w),
        transaction_right(WRITE),
        group_right(READ),
    ),
    row(
        "EndTxn",
        0,
        5,
        lambda w, v: EndTxnRequest(transactional_id=TRANSACTION, producer_id=99, producer_epoch=0, committed=True),
        transaction_right(WRITE),
        reached=ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    row(
        "TxnOffsetCommit",
        0,
        6,
        lambda w, v: txn_commit_request(w, TOPIC),
        transaction_right(WRITE),
        group_right(READ),
        topic_right(READ),
    ),
    row(
        "DescribeTransactions",
        0,
        0,
        lambda w, v: DescribeTransactionsRequest(transactional_ids=[TRANSACTION]),
        transaction_right(DESCRIBE),
    ),
]
