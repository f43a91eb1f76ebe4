"""Produce in a transaction: nothing is stored that the coordinator does not know of, and what is keeps its order."""

import asyncio
from typing import Any

import pytest

from kwire.broker.partition import Partition
from kwire.errors import ErrorCode
from storage.batch.record_batch import read_records
from tests.support.batches import headers
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of
from tests.support.transactional_requests import (
    V1,
    V2,
    added,
    ended,
    next_of,
    produce_request,
    sent,
    started,
    transactional_batch,
)


def stored(node: QuietNode, index: int = 0) -> list[bytes | None]:
    """The values of all data batches of the topic, whatever became of their transactions."""
    topic = node.topics.get("t")
    assert topic is not None
    partition = topic.partitions[index]
    values: list[bytes | None] = []
    offset = 0
    while offset < partition.log_end_offset:
        view = log_of(partition).read(offset, 1 << 20, partition.log_end_offset).view
        position = 0
        for header in headers(view):
            if not header.is_control:
                records = read_records(view[position : position + header.size_bytes], 1 << 20)
                values += [record.value for record in records]
            position += header.size_bytes
            offset = header.last_offset + 1
    return values


@pytest.mark.parametrize(
    ("version", "error"), [(3, "INVALID_TXN_STATE"), (10, "INVALID_TXN_STATE"), (V1, "TRANSACTION_ABORTABLE")]
)
@in_loop
async def test_first_generation_has_to_add_its_partitions(node: QuietNode, version: int, error: str) -> None:
    topic = await node.create("t")
    producer = await started(node)
    assert (await sent(node, producer, topic, b"no", version=version)).name == error
    assert stored(node) == []
    assert await added(node, producer, "t", 0) == [ErrorCode.NONE]
    assert await sent(node, producer, topic, b"yes", version=version) is ErrorCode.NONE
    assert stored(node) == [b"yes"]


@pytest.mark.parametrize("version", [V2, 13])
@in_loop
async def test_second_generation_adds_them_by_producing(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 3)
    producer = await started(node)
    batches = [transactional_batch(producer, b"%d" % index) for index in range(3)]
    answer = await node.ask(produce_request(producer, topic, *batches), version)
    assert [one.error_code for one in answer.responses[0].partition_responses] == [ErrorCode.NONE] * 3
    assert [partition.last_stable_offset for partition in topic.partitions] == [0, 0, 0]
    next_of(producer, await ended(node, producer))
    assert [partition.last_stable_offset for partition in topic.partitions] == [2, 2, 2]
    assert [stored(node, index) for index in range(3)] == [[b"0"], [b"1"], [b"2"]]


@in_loop
async def test_batches_sent_without_waiting_are_stored_in_their_order(node: QuietNode) -> None:
    topic = await node.create("t")
    producer = await started(node)
    answers = [
        node.start(produce_request(producer, topic, transactional_batch(producer, b"%d" % n, sequence=n)), V2)
        for n in range(5)
    ]
    for answer in answers:
        response = await answer if asyncio.isfuture(answer) or asyncio.iscoroutine(answer) else answer
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert stored(node) == [b"0", b"1", b"2", b"3", b"4"]


@in_loop
async def test_batch_that_was_stored_before_is_answered_and_not_stored_again(node: QuietNode) -> None:
    topic = await node.create("t")
    producer = await started(node)
    for _ in range(3):
        assert await sent(node, producer, topic, b"once") is ErrorCode.NONE
    assert stored(node) == [b"once"]


@pytest.mark.parametrize("version", [V1, V2])
@in_loop
async def test_transactional_batch_needs_a_transactional_id(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    producer = await started(node)
    request = produce_request(producer, topic, transactional_batch(producer, b"no"), transactional_id=None)
    (one,) = (await node.ask(request, version)).responses[0].partition_responses
    assert ErrorCode(one.error_code) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert stored(node) == []


@in_loop
async def test_two_producers_in_one_request_are_refused(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    one, other = await started(node, "a"), await started(node, "b")
    request = produce_request(one, topic, transactional_batch(one, b"yes"), transactional_batch(other, b"no"))
    answers = (await node.ask(request, V2)).responses[0].partition_responses
    assert [ErrorCode(answer.error_code).name for answer in answers] == ["NONE", "INVALID_PRODUCER_ID_MAPPING"]


@pytest.mark.parametrize("version", [V1, V2])
@in_loop
async def test_zombie_is_refused_before_anything_is_stored(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    zombie = await started(node)
    await started(node)
    assert await sent(node, zombie, topic, b"no", version=version) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stored(node) == []


@in_loop
async def test_stranger_is_refused(node: QuietNode) -> None:
    topic = await node.create("t")
    producer = await started(node)
    stranger = producer._replace(producer_id=producer.producer_id + 1)
    assert await sent(node, stranger, topic, b"no") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert stored(node) == []


@in_loop
async def test_batch_behind_one_that_was_turned_away_waits_for_it(node: QuietNode) -> None:
    """While the coordinator is loading, the first one is told to come back; the second must not take its place."""
    topic = await node.create("t")
    producer = await started(node)
    ask = node.transactions.submit
    node.transactions.submit = lambda command, reply: reply(  # type: ignore[method-assign]
        command.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    )
    assert await sent(node, producer, topic, b"0", sequence=0) is ErrorCode.NOT_ENOUGH_REPLICAS
    node.transactions.submit = ask  # type: ignore[method-assign]
    assert await sent(node, producer, topic, b"1", sequence=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await sent(node, producer, topic, b"0", sequence=0) is ErrorCode.NONE
    assert await sent(node, producer, topic, b"1", sequence=1) is ErrorCode.NONE
    assert stored(node) == [b"0", b"1"]


@in_loop
async def test_topics_of_the_event_store_take_none(node: QuietNode) -> None:
    await node.event_store.open()
    topic = await node.create_event_topic("orders")
    producer = await started(node)
    assert await sent(node, producer, topic, b"{}") is ErrorCode.INVALID_RECORD


@in_loop
async def test_without_acks_it_is_stored_all_the_same(node: QuietNode) -> None:
    topic = await node.create("t")
    producer = await started(node)
    assert await node.ask(produce_request(producer, topic, transactional_batch(producer, b"x"), acks=0), V2) is None
    next_of(producer, await ended(node, producer))
    assert stored(node) == [b"x"]


@in_loop
async def test_batch_that_breaks_down_is_answered_and_holds_up_nobody(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create("t")
    producer = await started(node)
    with monkeypatch.context() as broken:
        broken.setattr(Partition, "append", _broken_for_clients(Partition.append))
        assert await sent(node, producer, topic, b"no") is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not node.services.transaction_admission.is_waiting("tx", producer.producer_id)
    assert await sent(node, producer, topic, b"yes") is ErrorCode.NONE
    assert stored(node) == [b"yes"]


def _broken_for_clients(append: Any) -> Any:
    def broken(partition: Partition, *batch: Any) -> Any:
        if partition.topic_name.startswith("__"):
            return append(partition, *batch)
        raise OSError

    return broken
