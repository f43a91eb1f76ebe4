"""ListTransactions: those that are asked for, of every shard."""

import pytest

from kwire.errors import ErrorCode
from kwire.wire.messages.list_transactions import ListTransactionsRequest
from tests.support.node import QuietNode, in_loop
from tests.support.transactional_requests import Producer, sent, started

VERSIONS = [0, 1, 2]


async def some(node: QuietNode) -> dict[str, Producer]:
    """Three ids without a transaction, and two with one."""
    topic = await node.create("t")
    producers = {name: await started(node, name) for name in ("idle-1", "idle-2", "idle-3", "busy-1", "busy-2")}
    for name in ("busy-1", "busy-2"):
        assert await sent(node, producers[name], topic, b"one") is ErrorCode.NONE
    return producers


async def listed(
    node: QuietNode,
    version: int = 2,
    *,
    states: tuple[str, ...] = (),
    producer_ids: tuple[int, ...] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> list[str]:
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )
    answer = await node.ask(request, version)
    assert answer.error_code == ErrorCode.NONE
    assert answer.unknown_state_filters == [state for state in states if state == "Nonsense"]
    return sorted(one.transactional_id for one in answer.transaction_states)


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_all_and_by_state_and_by_producer(node: QuietNode, version: int) -> None:
    producers = await some(node)
    assert await listed(node, version) == sorted(producers)
    assert await listed(node, version, states=("Ongoing",)) == ["busy-1", "busy-2"]
    assert await listed(node, version, states=("Ongoing", "Empty")) == sorted(producers)
    assert await listed(node, version, states=("Nonsense",)) == []
    assert await listed(node, version, producer_ids=(producers["idle-2"].producer_id,)) == ["idle-2"]


@in_loop
async def test_by_duration(node: QuietNode) -> None:
    await some(node)
    assert await listed(node, 1, states=("Ongoing",), duration_ms=1000) == []
    node.clock.advance(1001)
    assert await listed(node, 1, states=("Ongoing",), duration_ms=1000) == ["busy-1", "busy-2"]


@in_loop
async def test_by_pattern_that_matches_the_whole_id(node: QuietNode) -> None:
    await some(node)
    assert await listed(node, pattern="busy-.*") == ["busy-1", "busy-2"]
    assert await listed(node, pattern="busy") == []
    assert await listed(node, pattern=".*-[23]") == ["busy-2", "idle-2", "idle-3"]
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="(")
    assert ErrorCode((await node.ask(request, 2)).error_code) is ErrorCode.INVALID_REGULAR_EXPRESSION
