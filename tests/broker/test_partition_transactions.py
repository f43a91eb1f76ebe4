"""Transactions in a partition: appended markers, the last stable offset, and aborted transactions."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kwire.broker.admin.delete_records import Deletion, delete_records
from kwire.broker.maintenance.cleanable import find_cleanable
from kwire.broker.partition import Partition, code_of
from kwire.coordinator.transaction.marker_appender import TransactionMarker
from kwire.errors import ErrorCode, KafkaError
from storage import errors
from storage.batch.record_batch import check_batch, parse_header, read_records
from tests.support.batches import UnsyncedFiles, headers, make_batch
from tests.support.events import SyncLater
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of
from tests.support.transactions import TransactionalProducer, append_plain

LARGE = 1024 * 1024


def committed(partition: Partition, offset: int = 0) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Base offsets of batches, and what of them is to be left out."""
    read, aborted = partition.read_committed(offset, LARGE)
    return [header.base_offset for header in headers(read.view)], [
        (one.producer_id, one.first_offset, one.last_offset) for one in aborted
    ]


def refusal(partition: Partition, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> ErrorCode:
    end = partition.log_end_offset
    with pytest.raises((KafkaError, errors.StorageError)) as caught:
        partition.append_marker(producer_id, producer_epoch, coordinator_epoch, True)
    assert partition.log_end_offset == end
    error = caught.value
    if isinstance(error, KafkaError):
        return error.code
    assert isinstance(error, errors.StorageError)
    return code_of(error)


@in_loop
async def test_marker_is_a_control_batch_of_its_producer_and_raises_the_watermark(node: QuietNode) -> None:
    partition = await node.create_partition()
    seen: list[tuple[int, int]] = []
    partition.watch(lambda risen: seen.append((risen.high_watermark, risen.last_stable_offset)))
    producer = TransactionalProducer(partition, 7, 3)
    producer.coordinator_epoch = 11
    producer.send(2)
    assert producer.commit() == 2
    # The rise of the last stable offset is told with that of the high watermark.
    assert seen == [(2, 0), (3, 3)]
    view = partition.read(2, LARGE).view
    header = parse_header(view)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch) == (7, 3)
    assert header.partition_leader_epoch == partition.leader_epoch
    (record,) = read_records(view, LARGE)
    assert record.key == b"\x00\x00\x00\x01"
    assert record.value == b"\x00\x00\x00\x00\x00\x0b"
    assert record.timestamp_ms == node.clock.now_ms()
    assert partition.appended_bytes == partition.readable_bytes == log_of(partition).size_bytes


@in_loop
async def test_committed_data_ends_at_the_first_open_transaction(node: QuietNode) -> None:
    partition = await node.create_partition()
    first, second = TransactionalProducer(partition, 7), TransactionalProducer(partition, 8)
    append_plain(partition)  # 0
    assert (partition.last_stable_offset, committed(partition)) == (1, ([0], []))
    first.send()  # 1
    second.send()  # 2
    append_plain(partition)  # 3
    assert (partition.last_stable_offset, committed(partition)) == (1, ([0], []))
    second.abort()  # 4
    assert (partition.last_stable_offset, committed(partition)) == (1, ([0], []))
    assert committed(partition, 3) == ([], [])
    first.commit()  # 5
    assert (partition.last_stable_offset, committed(partition)) == (6, ([0, 1, 2, 3, 4, 5], [(8, 2, 4)]))
    assert committed(partition, 5) == ([5], [])
    assert committed(partition, 6) == ([], [])
    with pytest.raises(errors.OffsetOutOfRange):
        partition.read_committed(7, LARGE)


@in_loop
async def test_a_marker_counts_when_it_may_be_read(tmp_path: Path) -> None:
    syncs = SyncLater(UnsyncedFiles())
    with QuietNode(tmp_path, syncs=syncs) as node:
        partition = await node.create_partition()
        producer = TransactionalProducer(partition, 7)
        producer.send()
        syncs.run()
        assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
        producer.abort()
        assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
        assert committed(partition) == ([], [])
        reached: list[KafkaError | None] = []
        partition.on_reached(2, reached.append)
        assert reached == []
        syncs.run()
        assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)
        assert committed(partition) == ([0, 1], [(7, 0, 1)])
        assert reached == [None]


@pytest.mark.parametrize("promise", ["os", "group"])
@in_loop
async def test_a_marker_is_on_disk_whatever_the_topic_promises(tmp_path: Path, promise: str) -> None:
    syncs = SyncLater(UnsyncedFiles())
    with QuietNode(tmp_path, syncs=syncs) as node:
        topic = await node.create("t", kwire_log_sync=promise)
        written: list[ErrorCode] = []
        for number in range(2):
            TransactionalProducer(topic.partitions[0], number).send()
            node.markers.write(("t", 0), TransactionMarker(number, 0, 0, True), written.append)
        assert written == []
        assert not topic.partitions[0].maintenance().park()
        syncs.run()
        assert written == [ErrorCode.NONE, ErrorCode.NONE]
        assert topic.partitions[0].synced_offset == 4


@in_loop
async def test_whoever_waits_for_the_disk_is_told_that_the_log_has_failed(tmp_path: Path) -> None:
    syncs = SyncLater(UnsyncedFiles())
    with QuietNode(tmp_path, syncs=syncs) as node:
        partition = await node.create_partition(kwire_log_sync="os")
        TransactionalProducer(partition, 7).send()
        told: list[KafkaError | None] = []
        partition.on_synced(1, told.append)
        log_of(partition).close(is_clean=False)
        syncs.run()
        assert [error is not None for error in told] == [True]


@in_loop
async def test_open_transactions_are_known_by_producer_and_epoch(node: QuietNode) -> None:
    partition = await node.create_partition()
    producer = TransactionalProducer(partition, 7, 3)
    assert not partition.has_open_transaction(7, 3)
    producer.send()
    assert partition.has_open_transaction(7, 3)
    assert not partition.has_open_transaction(7, 2)
    assert not partition.has_open_transaction(7, 4)
    assert not partition.has_open_transaction(8, 3)
    producer.commit()
    assert not partition.has_open_transaction(7, 3)


@in_loop
async def test_bad_markers_are_refused_with_kafkas_codes(node: QuietNode) -> None:
    partition = await node.create_partition()
    producer = TransactionalProducer(partition, 7, 3)
    producer.coordinator_epoch = 5
    producer.send()
    assert refusal(partition, 7, 2, 5) is ErrorCode.INVALID_PRODUCER_EPOCH
    producer.commit()
    assert refusal(partition, 7, 3, 4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    # A marker for a producer that wrote nothing, and one for a higher epoch, are the coordinator's business.
    partition.append_marker(99, 0, 0, True)
    partition.append_marker(7, 4, 5, False)


@in_loop
async def test_data_outside_the_open_transaction_of_its_producer_is_refused(node: QuietNode) -> None:
    partition = await node.create_partition()
    TransactionalProducer(partition, 7).send()
    batch = make_batch(producer_id=7, producer_epoch=0, base_sequence=1, timestamp_ms=0)
    with pytest.raises(errors.StorageError) as caught:
        partition.append(batch, check_batch(batch))
    assert code_of(caught.value) is ErrorCode.INVALID_TXN_STATE


@in_loop
async def test_nothing_that_topics_ask_of_producers_is_asked_of_markers(node: QuietNode) -> None:
    partition = await node.create_partition(
        "small", max_message_bytes="10", cleanup_policy="compact", compression_type="gzip"
    )
    assert partition.append_marker(7, 0, 0, True).base_offset == 0
    stamped = await node.create_partition("stamped", message_timestamp_type="LogAppendTime")
    assert stamped.append_marker(7, 0, 0, False).base_offset == 0


@in_loop
async def test_topics_that_go_and_topics_of_the_event_store_take_no_markers(node: QuietNode) -> None:
    partition = await node.create_partition()
    partition.is_being_deleted = True
    assert refusal(partition, 7, 0, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.is_being_deleted = False
    partition.settings = replace(partition.settings, is_event_topic=True)
    assert refusal(partition, 7, 0, 0) is ErrorCode.POLICY_VIOLATION


@in_loop
async def test_put_away_it_knows_how_far_committed_data_goes(node: QuietNode) -> None:
    partition = await node.create_partition()
    producer = TransactionalProducer(partition, 7)
    append_plain(partition)
    producer.send()
    assert partition.maintenance().park()
    node.store.forget_log("t", 0)
    assert (partition.high_watermark, partition.last_stable_offset, partition.is_open) == (2, 1, False)
    assert partition.has_open_transaction(7, 0)
    assert (partition.last_stable_offset, partition.is_open) == (1, True)
    producer.commit()
    assert partition.last_stable_offset == 3


@in_loop
async def test_after_a_restart_open_and_aborted_transactions_are_known(node: QuietNode) -> None:
    partition = await node.create_partition()
    aborting, holding = TransactionalProducer(partition, 7), TransactionalProducer(partition, 8)
    aborting.send()
    aborting.abort()
    holding.send()
    append_plain(partition)
    for _ in range(2):
        node.restart()
        topic = node.topics.get("t")
        assert topic is not None
        again = topic.partitions[0]
        assert again.last_stable_offset == again.high_watermark == 0
        assert committed(again) == ([0, 1], [(7, 0, 1)])
        assert (again.last_stable_offset, again.high_watermark) == (2, 4)
        assert again.has_open_transaction(8, 0)


@pytest.mark.parametrize("is_damaged", [False, True])
@in_loop
async def test_what_was_aborted_in_closed_segments_is_read_by_a_thread(node: QuietNode, is_damaged: bool) -> None:
    partition = await node.create_partition()
    producer = TransactionalProducer(partition, 7)
    producer.send()
    producer.abort()
    log_of(partition).roll(node.clock.now_ms())
    append_plain(partition)
    node.restart()
    (index,) = node.directory.glob("t-0*/*.txnindex")
    if is_damaged:
        index.write_bytes(b"harmed")
    topic = node.topics.get("t")
    assert topic is not None
    again = topic.partitions[0]
    warm_up = again.cold_aborted(0)
    assert warm_up is not None
    await asyncio.to_thread(warm_up)
    # What is damaged is told by the batches themselves, to the first who asks.
    assert (again.cold_aborted(0) is None) == (not is_damaged)
    assert committed(again) == ([0, 1], [(7, 0, 1)])
    assert again.cold_aborted(0) is None


# --- what moves the log start, and what is cleaned


@in_loop
async def test_records_of_an_open_transaction_can_be_deleted(node: QuietNode) -> None:
    partition = await node.create_partition()
    producer = TransactionalProducer(partition, 7)
    append_plain(partition)
    producer.send(4)
    append_plain(partition)
    # Kafka's bound is the high watermark.
    assert await delete_records([Deletion(partition, 3)], 10, node.lanes.settle) == [3]
    assert (partition.last_stable_offset, partition.high_watermark) == (3, 6)
    assert committed(partition, 3) == ([], [])
    assert await delete_records([Deletion(partition, -1)], 10, node.lanes.settle) == [6]
    assert partition.last_stable_offset == 6
    append_plain(partition)
    assert partition.last_stable_offset == 6
    producer.abort()
    assert partition.last_stable_offset == partition.high_watermark == 8
    assert committed(partition, 6)[0] == [6, 7]


@in_loop
async def test_a_ring_counts_what_can_be_read(node: QuietNode) -> None:
    partition = await node.create_partition(kwire_retention_messages="5")
    producer = TransactionalProducer(partition, 7)
    append_plain(partition, 10)
    assert partition.log_start_offset == 5
    producer.send(10)
    append_plain(partition, 10)
    # What nobody may read yet pushes nothing out that somebody could.
    assert (partition.log_start_offset, partition.last_stable_offset) == (5, 10)
    node.restart()
    topic = node.topics.get("t")
    assert topic is not None
    producer.partition = partition = topic.partitions[0]
    assert (partition.log_start_offset, partition.last_stable_offset) == (5, 10)
    producer.abort()
    assert (partition.log_start_offset, partition.last_stable_offset) == (26, 31)


@in_loop
async def test_compaction_does_not_go_beyond_the_first_open_transaction(node: QuietNode) -> None:
    partition = await node.create_partition(cleanup_policy="compact")
    producer = TransactionalProducer(partition, 7)
    log = log_of(partition)
    producer.send_keyed()
    log.roll(0)
    assert find_cleanable(partition, 0).segments == ()
    assert find_cleanable(partition, 0).uncleanable_offset == 0
    producer.commit()
    log.roll(0)
    assert len(find_cleanable(partition, 0).segments) == 2
    assert find_cleanable(partition, 0).uncleanable_offset == 2
