"""Produce names the records at fault (KIP-467) for every reason, on every way a batch can take."""

import pytest

from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode
from kwire.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from storage.batch.format import GZIP, LZ4, NONE
from storage.batch.record_batch import Record, build_batch
from tests.handlers.test_produce import SERVED, produce, request
from tests.handlers.test_repeated_produce import Producer, request_of
from tests.server.frames import parse
from tests.support.batches import NOW_MS
from tests.support.node import QuietNode, in_loop
from tests.support.transactional_requests import V2, produce_request, started, transactional_batch

FIRST_NAMED_VERSION = 8
HOUR_MS = 3_600_000
KEYLESS = "Compacted topic cannot accept message without key"


def batch_of(*records: Record, codec: int = NONE) -> memoryview:
    return memoryview(build_batch(records, compression=codec))


def named(answer: PartitionProduceResponse) -> dict[int, str | None]:
    return {one.batch_index: one.batch_index_error_message for one in answer.record_errors}


@pytest.mark.parametrize("codec", [NONE, GZIP, LZ4])
@pytest.mark.parametrize("version", SERVED)
@in_loop
async def test_records_without_a_key_are_named(node: QuietNode, version: int, codec: int) -> None:
    topic = await node.create("t", cleanup_policy="compact")
    sent = batch_of(Record(b"k", b"1", 0), Record(None, b"2", 0), Record(None, b"3", 0), codec=codec)
    (answer,) = await produce(node, request(topic, sent), version)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.base_offset == -1
    if version < FIRST_NAMED_VERSION:
        assert not answer.record_errors
        return
    assert named(answer) == {1: KEYLESS, 2: KEYLESS}
    assert answer.error_message is not None
    assert answer.error_message.startswith("One or more records have been rejected due to 2 record errors in total")
    assert topic.partitions[0].log_end_offset == 0


@pytest.mark.parametrize("configs", [{}, {"compression_type": "zstd"}, {"cleanup_policy": "compact"}], ids=str)
@in_loop
async def test_records_whose_time_is_out_of_range_are_named(node: QuietNode, configs: dict[str, str]) -> None:
    now = node.clock.now_ms()
    topic = await node.create(
        "t", 1, message_timestamp_before_max_ms=str(HOUR_MS), message_timestamp_after_max_ms=str(HOUR_MS), **configs
    )
    times = [now, now - HOUR_MS - 1, -1, now + HOUR_MS + 1]
    (answer,) = await produce(node, request(topic, batch_of(*(Record(b"k", b"v", time) for time in times))), 9)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"
    between = f"The timestamp should be within [{now - HOUR_MS}, {now + HOUR_MS}]"
    assert named(answer) == {
        number: f"Timestamp {times[number]} of message with offset {number} is out of range. {between}"
        for number in (1, 3)
    }


@in_loop
async def test_records_that_are_too_late_for_a_plain_topic_are_named(node: QuietNode) -> None:
    now = node.clock.now_ms()
    topic = await node.create("t", message_timestamp_after_max_ms=str(HOUR_MS))
    late = batch_of(Record(b"k", b"v", now), Record(b"k", b"v", now + HOUR_MS + 1))
    (answer,) = await produce(node, request(topic, late), 9)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert list(named(answer)) == [1]


@pytest.mark.parametrize("version", [9, 13])
@in_loop
async def test_the_short_way_names_them_too(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 2, cleanup_policy="compact")
    producer = Producer(node, version)

    def sent(*values: Record) -> PartitionProduceResponse:
        asked = request_of(topic.name, topic.topic_id, [(0, batch_of(Record(b"k", b"v", 0))), (1, batch_of(*values))])
        answer = producer.send(asked)
        assert answer is not None
        one: PartitionProduceResponse = parse(ProduceResponse, version, answer[4:]).responses[0].partition_responses[1]
        return one

    for _ in range(3):
        sent(Record(b"k", b"v", 0))
    taken = producer.taken
    refused = sent(Record(None, b"v", 0), Record(b"k", b"v", 0))
    assert producer.taken == taken + 1
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert named(refused) == {0: KEYLESS}


@in_loop
async def test_a_transaction_s_records_are_named(node: QuietNode) -> None:
    topic = await node.create("t", cleanup_policy="compact")
    producer = await started(node)
    answer = await node.ask(produce_request(producer, topic, transactional_batch(producer, b"no key")), V2)
    one = answer.responses[0].partition_responses[0]
    assert one.error_code == ErrorCode.INVALID_RECORD
    assert named(one) == {0: KEYLESS}


@in_loop
async def test_the_event_store_s_records_are_named(node: QuietNode) -> None:
    topic: Topic = await node.create_event_topic(message_timestamp_before_max_ms="1000")
    old = batch_of(Record(None, b"{}", NOW_MS - 10_000_000, [("ce_type", b"t")]))
    (answer,) = await produce(node, request(topic, old), 9)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert list(named(answer)) == [0]
