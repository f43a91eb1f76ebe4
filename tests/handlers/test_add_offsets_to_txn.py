"""AddOffsetsToTxn: the partition that keeps the group is part of the transaction."""

import pytest

from kwire.errors import ErrorCode
from kwire.wire.apis import ADD_OFFSETS_TO_TXN
from kwire.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire.wire.messages.describe_transactions import DescribeTransactionsRequest
from tests.support.node import QuietNode, in_loop
from tests.support.transactional_requests import Producer, started


def request(producer: Producer, group_id: str = "g") -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group_id,
    )


@pytest.mark.parametrize("version", list(ADD_OFFSETS_TO_TXN.versions))
@in_loop
async def test_group_is_added(node: QuietNode, version: int) -> None:
    producer = await started(node)
    assert (await node.ask(request(producer), version)).error_code == ErrorCode.NONE
    described = await node.ask(DescribeTransactionsRequest(transactional_ids=["tx"]), 0)
    (state,) = described.transaction_states
    assert [(one.topic, one.partitions) for one in state.topics] == [
        ("__consumer_offsets", [node.groups.shard_of("g")])
    ]


@pytest.mark.parametrize(("version", "error"), [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED")])
@in_loop
async def test_zombie_is_told_in_words_of_its_version(node: QuietNode, version: int, error: str) -> None:
    zombie = await started(node)
    await started(node)
    assert ErrorCode((await node.ask(request(zombie), version)).error_code).name == error
