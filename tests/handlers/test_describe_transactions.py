"""DescribeTransactions: where each transactional id stands."""

from kwire.errors import ErrorCode
from kwire.wire.messages.describe_transactions import DescribeTransactionsRequest
from tests.support.node import QuietNode, in_loop
from tests.support.transactional_requests import TIMEOUT_MS, ended, sent, started


@in_loop
async def test_ids_are_told_each_once_and_in_order(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    busy = await started(node, "busy")
    assert await sent(node, busy, topic, b"one") is ErrorCode.NONE
    idle = await started(node, "idle")
    asked = ["nobody", "busy", "idle", "busy"]
    states = (await node.ask(DescribeTransactionsRequest(transactional_ids=asked), 0)).transaction_states
    assert [
        (
            one.transactional_id,
            ErrorCode(one.error_code).name,
            one.transaction_state,
            one.producer_id,
            [(topic.topic, topic.partitions) for topic in one.topics],
        )
        for one in states
    ] == [
        ("nobody", "TRANSACTIONAL_ID_NOT_FOUND", "", -1, []),
        ("busy", "NONE", "Ongoing", busy.producer_id, [("t", [0])]),
        ("idle", "NONE", "Empty", idle.producer_id, []),
    ]
    assert [one.transaction_timeout_ms for one in states[1:]] == [TIMEOUT_MS, TIMEOUT_MS]
    assert states[1].transaction_start_time_ms == node.clock.now_ms()
    assert states[2].transaction_start_time_ms == -1


@in_loop
async def test_end_is_told(node: QuietNode) -> None:
    topic = await node.create("t")
    for name, is_commit, state in (("c", True, "CompleteCommit"), ("a", False, "CompleteAbort")):
        producer = await started(node, name)
        assert await sent(node, producer, topic, b"one") is ErrorCode.NONE
        await ended(node, producer, is_commit=is_commit)
        (told,) = (await node.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0)).transaction_states
        assert (told.transaction_state, told.topics) == (state, [])
