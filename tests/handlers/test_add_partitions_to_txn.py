"""AddPartitionsToTxn: all partitions of a transaction or none, and the question whether they are in it."""

import pytest

from kwire.errors import ErrorCode
from kwire.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.support.node import QuietNode, in_loop
from tests.support.transactional_requests import Producer, added, started

OF_CLIENTS = [0, 1, 2, 3]
OF_BROKERS = [4, 5]


def asked(producer: Producer, *partitions: int, verify_only: bool = False) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
    )


async def answers(node: QuietNode, version: int, *transactions: AddPartitionsToTxnTransaction) -> dict[str, list[str]]:
    answer = await node.ask(AddPartitionsToTxnRequest(transactions=list(transactions)), version)
    assert answer.error_code == ErrorCode.NONE
    return {
        result.transactional_id: [
            ErrorCode(one.partition_error_code).name
            for topic in result.topic_results
            for one in topic.results_by_partition
        ]
        for result in answer.results_by_transaction
    }


@pytest.mark.parametrize("version", OF_CLIENTS)
@in_loop
async def test_partitions_are_added_and_may_be_added_again(node: QuietNode, version: int) -> None:
    await node.create("t", 3)
    producer = await started(node)
    for partitions in ((0, 1), (1, 2), (0, 1, 2)):
        assert set(await added(node, producer, "t", *partitions, version=version)) == {ErrorCode.NONE}


@pytest.mark.parametrize("version", OF_CLIENTS)
@in_loop
async def test_one_partition_that_does_not_exist_fails_them_all(node: QuietNode, version: int) -> None:
    await node.create("t", 2)
    producer = await started(node)
    assert await added(node, producer, "t", 0, 7, version=version) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await answers(node, 5, asked(producer, 0, verify_only=True)) == {"tx": ["TRANSACTION_ABORTABLE"]}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__events"])
@in_loop
async def test_internal_topics_are_not_for_clients(node: QuietNode, name: str) -> None:
    await node.topics.offsets_topic()
    await node.topics.events_topic()
    producer = await started(node)
    assert await added(node, producer, name, 0) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize(("version", "error"), [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED")])
@in_loop
async def test_zombie_is_told_in_words_of_its_version(node: QuietNode, version: int, error: str) -> None:
    await node.create("t")
    zombie = await started(node)
    await started(node)
    assert [one.name for one in await added(node, zombie, "t", 0, version=version)] == [error]


@pytest.mark.parametrize("version", OF_BROKERS)
@in_loop
async def test_many_transactions_are_answered_each_on_its_own(node: QuietNode, version: int) -> None:
    await node.create("t", 2)
    first, second = await started(node, "a"), await started(node, "b")
    stranger = first._replace(transactional_id="nobody")
    assert await answers(node, version, asked(first, 0, 1), asked(second, 1), asked(stranger, 0)) == {
        "a": ["NONE", "NONE"],
        "b": ["NONE"],
        "nobody": ["INVALID_PRODUCER_ID_MAPPING"],
    }


@pytest.mark.parametrize(("version", "missing"), [(4, "INVALID_TXN_STATE"), (5, "TRANSACTION_ABORTABLE")])
@in_loop
async def test_question_adds_nothing(node: QuietNode, version: int, missing: str) -> None:
    await node.create("t", 2)
    producer = await started(node)
    for _ in range(2):
        assert await answers(node, version, asked(producer, 0, verify_only=True)) == {"tx": [missing]}
    assert await added(node, producer, "t", 0) == [ErrorCode.NONE]
    assert await answers(node, version, asked(producer, 0, 1, verify_only=True)) == {"tx": ["NONE", missing]}
