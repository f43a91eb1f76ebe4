"""Produce requests whose batches the worker validates: of the event store, of transactions, and recompressed ones."""

from kwire.broker.batch_validation import RECORDS_ON_LOOP_MAX
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import BlockingContinuation
from kwire.wire.frame import ReceiveMemory
from storage.batch.format import GZIP, NONE
from storage.batch.record_batch import Record, build_batch, read_records
from tests.handlers.test_produce import produce, request
from tests.support.batches import headers
from tests.support.node import FakePeer, QuietNode, in_loop
from tests.support.transactional_requests import V2, produce_request, started, transactional_batch

MANY = RECORDS_ON_LOOP_MAX + 1
HOUR_MS = "3600000"


@in_loop
async def test_the_event_store_commits_a_batch_that_the_worker_validated(node: QuietNode) -> None:
    topic = await node.create_event_topic(message_timestamp_before_max_ms=HOUR_MS)
    now = node.clock.now_ms()
    batch = memoryview(build_batch([Record(None, b"{}", now, [("ce_type", b"t")])] * MANY))
    held = node.start(request(topic, batch), 9)
    assert isinstance(held, BlockingContinuation)
    held.rest.close()
    (answer,) = await produce(node, request(topic, batch), 9)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert topic.partitions[0].high_watermark == MANY
    assert node.services.validation.batch_count == 1


@in_loop
async def test_a_transaction_takes_a_batch_that_the_worker_validated(node: QuietNode) -> None:
    topic = await node.create("t", 2, message_timestamp_before_max_ms=str(2**50))
    producer = await started(node)
    batches = [transactional_batch(producer, *[b"v"] * count) for count in (MANY, 1)]
    answer = await node.ask(produce_request(producer, topic, *batches), V2)
    assert [one.error_code for one in answer.responses[0].partition_responses] == [ErrorCode.NONE] * 2
    assert [one.log_end_offset for one in topic.partitions] == [MANY, 1]
    assert node.services.validation.batch_count == 1


@in_loop
async def test_a_batch_that_the_worker_recompressed_is_stored_in_the_codec_of_its_topic(node: QuietNode) -> None:
    topic = await node.create("t", compression_type="gzip")
    batch = memoryview(build_batch([Record(b"k", b"v", 0)] * MANY))
    (answer,) = await produce(node, request(topic, batch), 9)
    assert answer.error_code == ErrorCode.NONE
    view = topic.partitions[0].read(0, 1 << 20).view
    (header,) = headers(view)
    assert (header.compression, header.record_count) == (GZIP, MANY)
    assert sum(1 for record in read_records(view, 1 << 20) if record.value == b"v") == MANY


@in_loop
async def test_recompressed_batches_of_transactions_count_in_the_memory_for_requests(node: QuietNode) -> None:
    memory = ReceiveMemory(2500)
    node.peer = FakePeer(memory)
    topic = await node.create("t", 3, compression_type="uncompressed")
    producer = await started(node)

    async def sent(sequence: int) -> list[int]:
        batches = [
            memoryview(
                build_batch(
                    [Record(None, bytes(1000), 0)],
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    base_sequence=sequence,
                    is_transactional=True,
                    compression=GZIP,
                )
            )
            for _ in range(3)
        ]
        answer = await node.ask(produce_request(producer, topic, *batches), V2)
        return [one.error_code for one in answer.responses[0].partition_responses]

    assert await sent(0) == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    assert memory.used_bytes == 0
    # The batches that were held are appended, and there is room again. The third comes first in its partition.
    assert await sent(1) == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    assert memory.used_bytes == 0
    view = topic.partitions[0].read(0, 1 << 20).view
    assert [header.compression for header in headers(view)] == [NONE, NONE]
