"""Recovery at the start: topics are completed from the journal after their own end; deleted events do not return."""

import asyncio
import shutil
from pathlib import Path

import pytest

from kwire.broker.topics.adoption import Adoption
from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.event_store import sync_checkpoint
from kwire.streams.event_store.commit_pipeline import CHECKPOINT_KEY
from storage.batch.record_batch import check_batch
from storage.recovery.checkpoint import Checkpoint, CheckpointFile
from tests.support.batches import make_batch
from tests.support.event_store import all_events, draft, drafts, events_of, journal_of, payloads_of
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of


async def lose_end(node: QuietNode, name: str, offset: int) -> None:
    """The effect of a power failure on a topic that was never synced."""
    topic = found(node, name)
    log_of(topic.partitions[0]).truncate(offset)
    await reopen(node)


async def reopen(node: QuietNode) -> None:
    node.restart()
    await node.event_store.open()


def found(node: QuietNode, name: str) -> Topic:
    topic = node.topics.get(name)
    assert topic is not None
    return topic


async def filled(node: QuietNode) -> None:
    for name in ("a", "b"):
        await node.create_event_topic(name)
    for number in range(10):
        await node.event_store.publish(drafts(("a", number), ("b", number), ("a", -number)))


@in_loop
async def test_a_topic_that_lost_its_end_gets_it_back_from_the_journal(node: QuietNode) -> None:
    await filled(node)
    before = events_of(found(node, "a")), events_of(found(node, "b"))
    await lose_end(node, "a", 5)
    assert (events_of(found(node, "a")), events_of(found(node, "b"))) == before
    assert node.event_store.pipeline.recovered_count == 16  # the whole batch that holds offset 5 was lost
    [following] = await node.event_store.publish([draft("a", "next")])
    assert following.offset == 20


@in_loop
async def test_a_topic_that_lost_everything_gets_it_back(node: QuietNode) -> None:
    await filled(node)
    before = events_of(found(node, "a"))
    await lose_end(node, "a", 0)
    assert events_of(found(node, "a")) == before


@in_loop
async def test_a_topic_that_was_deleted_and_made_again_stays_empty(node: QuietNode) -> None:
    await filled(node)
    await node.topics.delete(found(node, "a"))
    await node.create_event_topic("a")
    await reopen(node)
    assert events_of(found(node, "a")) == []
    assert [event.event_id for event in all_events(node.event_store, node.topics)] == [f"b-{n}" for n in range(1, 11)]
    [first] = await node.event_store.publish([draft("a", "new")])
    assert str(first) == "a-1"


@in_loop
async def test_what_lies_below_the_log_start_is_not_brought_back(node: QuietNode) -> None:
    await filled(node)
    log = log_of(found(node, "a").partitions[0])
    log.advance_log_start_offset(7)
    before = payloads_of(found(node, "a"))
    await lose_end(node, "a", 11)
    assert payloads_of(found(node, "a")) == before
    assert found(node, "a").partitions[0].log_start_offset == 7


@in_loop
async def test_a_batch_whose_beginning_was_deleted_is_brought_back_without_it(node: QuietNode) -> None:
    topic = await node.create_event_topic("a")
    await node.event_store.publish([draft("a", number) for number in range(6)])
    # The power failed when the new log start was durable and the records were not.
    log_of(topic.partitions[0]).truncate(0)
    directory = Path(log_of(topic.partitions[0]).directory)
    node.close()
    for path in directory.iterdir():
        if path.suffix in (".log", ".index"):
            path.unlink()
    write_checkpoint(node, directory, 4)
    node._starts += 1
    node._open()
    await node.event_store.open()
    assert [event.offset for event in events_of(found(node, "a"))] == [4, 5]
    assert payloads_of(found(node, "a")) == [4, 5]


def write_checkpoint(node: QuietNode, directory: Path, offset: int) -> None:
    """The checkpoint of a log without records that continues at `offset`."""
    file = CheckpointFile(str(directory), node.files)
    empty = Checkpoint(
        boot_id="",
        is_clean=True,
        log_start_offset=offset,
        offset=offset,
        segment_base=offset,
        position=0,
        scan_from=offset,
        max_timestamp=-1,
        first_timestamp=-1,
        created_ms=0,
        epochs=(),
        producers=b"",
    )
    file.write(file.take_number(), empty, sync=True)


@in_loop
async def test_bytes_damaged_behind_the_mark_are_cut_and_completed(node: QuietNode) -> None:
    await filled(node)
    before = events_of(found(node, "a"))
    path = Path(log_of(found(node, "a").partitions[0]).directory) / f"{0:020}.log"
    for place in (0.3, 0.99):
        node.store.close(is_clean=False)
        node.metastore.close()
        spoiled = bytearray(path.read_bytes())
        end = len(bytes(spoiled).rstrip(b"\x00"))
        spoiled[int(end * place)] ^= 0x20
        path.write_bytes(spoiled)
        (path.parent / "checkpoint").unlink(missing_ok=True)
        node._starts += 1
        node._open()
        await node.event_store.open()
        assert events_of(found(node, "a")) == before
        assert found(node, "a").partitions[0].is_writable


@in_loop
async def test_a_clean_stop_leaves_nothing_to_be_read(node: QuietNode) -> None:
    await filled(node)
    await node.event_store.close()
    entry = node.metastore.get(CHECKPOINT_KEY)
    assert entry is not None
    assert entry.value == {"position": 30}
    await reopen(node)
    assert node.event_store.pipeline.checkpoint.position == 30
    assert node.event_store.pipeline.recovered_count == 0


@in_loop
async def test_the_mark_moves_when_the_topics_are_synced_and_repair_begins_there(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_checkpoint.SyncCheckpoint.request_syncs_if_due, "__defaults__", (1000,))
    await filled(node)
    assert 0 < node.event_store.pipeline.checkpoint.position <= 30
    topic = found(node, "a")
    assert topic.partitions[0].synced_offset > 0
    await reopen(node)
    assert node.event_store.pipeline.checkpoint.position > 0
    assert payloads_of(found(node, "b")) == list(range(10))


@in_loop
async def test_a_topic_that_ends_before_the_mark_is_completed_from_the_whole_journal(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_checkpoint.SyncCheckpoint.request_syncs_if_due, "__defaults__", (1000,))
    await filled(node)
    before = events_of(found(node, "a"))
    assert node.event_store.pipeline.checkpoint.position > 9
    await lose_end(node, "a", 2)
    assert events_of(found(node, "a")) == before


@in_loop
async def test_a_topic_that_cannot_be_completed_is_read_and_takes_nothing(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_checkpoint.SyncCheckpoint.request_syncs_if_due, "__defaults__", (1000,))
    await filled(node)
    log_of(journal_of(node.topics)).advance_log_start_offset(15)
    await lose_end(node, "a", 2)
    assert payloads_of(found(node, "a")) == [0, 0]
    with pytest.raises(KafkaError) as caught:
        await node.event_store.publish(drafts(("b", 1), ("a", 1)))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    for number in range(10, 20):
        await node.event_store.publish([draft("b", number)])
    assert payloads_of(found(node, "b")) == list(range(20))
    # It refuses events after another start too, although the journal after the checkpoint has none of its events:
    # otherwise the numbers of its lost events would be used again.
    await node.event_store.close()
    await reopen(node)
    with pytest.raises(KafkaError):
        await node.event_store.publish([draft("a", 1)])
    await node.topics.delete(found(node, "a"))
    await node.event_store.publish([draft("b", 20)])
    await node.event_store.close()
    await reopen(node)
    assert node.event_store.pipeline.checkpoint.position == journal_of(node.topics).high_watermark


@in_loop
async def test_a_note_about_a_journal_that_was_lost_does_not_keep_its_successor_from_being_read(
    node: QuietNode,
) -> None:
    await filled(node)
    await node.event_store.close()
    directory = Path(log_of(journal_of(node.topics)).directory)
    node.close()
    shutil.rmtree(directory)
    outcome = await Adoption([str(node.directory)], node.files, node.config).run({"__events-0"})
    assert outcome.left == []
    node._starts += 1
    node._open()
    await node.event_store.open()
    for number in range(25):  # fewer than before, so that the stored checkpoint would cover them all
        await node.event_store.publish([draft("a", 100 + number)])
    before = events_of(found(node, "a"))
    assert len(before) == 45
    await lose_end(node, "a", 30)
    assert events_of(found(node, "a")) == before


@in_loop
async def test_retention_of_the_journal_does_not_pass_the_mark(node: QuietNode) -> None:
    await filled(node)
    held = node.topics.retained_from["__events"]
    assert held() == node.event_store.pipeline.checkpoint.position == 0


@in_loop
async def test_producers_are_remembered_over_a_repair(node: QuietNode) -> None:
    topic = await node.create_event_topic("a")
    store = node.event_store
    for sequence in range(3):
        await produced(node, topic, sequence)
    await lose_end(node, "a", 1)
    assert await produced(node, found(node, "a"), 1) == 1  # it is a repetition
    assert await produced(node, found(node, "a"), 3) == 3
    assert store is not node.event_store


async def produced(node: QuietNode, topic: Topic, sequence: int) -> int:
    batch = make_batch(1, timestamp_ms=node.clock.now_ms(), producer_id=7, producer_epoch=0, base_sequence=sequence)
    told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    node.event_store.produce(topic, batch, check_batch(batch), told.set_result)
    outcome = await told
    assert not isinstance(outcome, Exception)
    offset: int = outcome.parts[0].base_offset  # type: ignore[attr-defined]
    return offset
