"""WriteTxnMarkers: a transaction that hangs is ended by hand."""

import pytest

from kwire.errors import ErrorCode
from kwire.wire.apis import WRITE_TXN_MARKERS
from kwire.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of
from tests.support.transactional_requests import Producer, sent, started

VERSIONS = list(WRITE_TXN_MARKERS.versions)


def request(
    producer: Producer, *topics: tuple[str, list[int]], coordinator_epoch: int = 0, is_commit: bool = False
) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=is_commit,
                topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics],
                coordinator_epoch=coordinator_epoch,
            )
        ]
    )


async def errors(node: QuietNode, asked: WriteTxnMarkersRequest, version: int = 2) -> list[str]:
    (result,) = (await node.ask(asked, version)).markers
    assert result.producer_id == asked.markers[0].producer_id
    return [ErrorCode(one.error_code).name for topic in result.topics for one in topic.partitions]


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_open_transaction_is_aborted_where_it_is_asked_for(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 2)
    producer = await started(node)
    assert await sent(node, producer, topic, b"hangs") is ErrorCode.NONE
    assert topic.partitions[0].last_stable_offset == 0
    assert await errors(node, request(producer, ("t", [0, 1, 7]), ("nowhere", [0])), version) == [
        "NONE",
        "NONE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    assert topic.partitions[0].last_stable_offset == 2
    assert [one.first_offset for one in log_of(topic.partitions[0]).aborted_between(0, 2)] == [0]


@in_loop
async def test_coordinator_of_before_is_fenced(node: QuietNode) -> None:
    topic = await node.create("t")
    producer = await started(node)
    assert await sent(node, producer, topic, b"one") is ErrorCode.NONE
    assert await errors(node, request(producer, ("t", [0]), coordinator_epoch=3)) == ["NONE"]
    assert await errors(node, request(producer, ("t", [0]), coordinator_epoch=2)) == ["TRANSACTION_COORDINATOR_FENCED"]


@in_loop
async def test_epoch_of_before_is_refused(node: QuietNode) -> None:
    topic = await node.create("t")
    await started(node)
    producer = await started(node)
    assert await sent(node, producer, topic, b"one") is ErrorCode.NONE
    stale = producer._replace(epoch=producer.epoch - 1)
    assert await errors(node, request(stale, ("t", [0]))) == ["INVALID_PRODUCER_EPOCH"]


@in_loop
async def test_topics_without_transactions_take_no_markers(node: QuietNode) -> None:
    await node.event_store.open()
    await node.topics.events_topic()
    await node.create_event_topic("orders")
    producer = await started(node)
    assert await errors(node, request(producer, ("orders", [0]), ("__transaction_state", [0]), ("__events", [0]))) == [
        "INVALID_TXN_STATE",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
    ]


@in_loop
async def test_markers_of_offsets_go_through_their_groups(node: QuietNode) -> None:
    await node.topics.offsets_topic()
    producer = await started(node)
    assert await errors(node, request(producer, ("__consumer_offsets", [node.groups.shard_of("g")]))) == ["NONE"]
