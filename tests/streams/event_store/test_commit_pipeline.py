"""The commit pipeline: topics that cannot be written to, disks that hang, and the outcomes of waiting commits."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from kwire.broker.partition import Partition
from kwire.errors import ErrorCode, KafkaError, WrongExpectedVersion
from kwire.streams.event_store import commit_pipeline as commit_pipeline
from kwire.streams.event_store.commit_pipeline import CommitPipeline
from kwire.streams.event_store.journal import (
    JournalPart,
    NewRecord,
    commits_in,
    decode_value,
    encode_value,
    journal_batch,
)
from kwire.streams.event_store.pending_commit import Commit, CommitGroup, Outcome
from storage.batch.record_batch import BatchHeader
from storage.errors import CorruptBatch, DiskFailure, StorageError
from storage.log.log import Appended
from storage.recovery.verify import verify_segment
from storage.recovery.verify_folder import plan_folder
from tests.support.batches import UnsyncedFiles, make_batch
from tests.support.event_store import all_events, draft, drafts, journal_of, payloads_of
from tests.support.events import SyncLater
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_pipeline, "DEADLINE_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(commit_pipeline, "RETRY_SECONDS", 0.01)


class FullOnce:
    """A disk that is full for one topic until the test changes it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.is_full = True
        append = Partition.append_journaled

        def refuse(partition: Partition, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
            if self.is_full and partition.topic_name == name:
                raise DiskFailure("no space is left")
            return append(partition, batch, header, now_ms)

        monkeypatch.setattr(Partition, "append_journaled", refuse)


@in_loop
async def test_what_cannot_be_applied_is_tried_again_and_then_answered(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, other = await node.create_event_topic("full"), await node.create_event_topic("other")
    disk = FullOnce(monkeypatch, "full")
    waiting = asyncio.ensure_future(node.event_store.publish(drafts(("full", 1), ("other", 2), ("full", 3))))
    while not payloads_of(other):
        await asyncio.sleep(0.001)
    with pytest.raises(KafkaError) as caught:
        await node.event_store.publish(drafts(("full", 4), ("other", 4)))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await node.event_store.publish([draft("other", 5)])
    assert (payloads_of(full), payloads_of(other)) == ([], [2, 5])
    assert not waiting.done()
    disk.is_full = False
    assert [one.offset for one in await waiting] == [0, 0, 1]
    await node.event_store.publish([draft("full", 6)])
    assert payloads_of(full) == [1, 3, 6]


@in_loop
async def test_whoever_waits_for_too_long_is_told_so_and_the_events_are_there_in_the_end(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = await node.create_event_topic("full")
    disk = FullOnce(monkeypatch, "full")
    with pytest.raises(KafkaError) as caught:
        await node.event_store.publish([draft("full", 1)], timeout_ms=20)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    disk.is_full = False
    while not payloads_of(full):
        await asyncio.sleep(0.001)
    assert payloads_of(full) == [1]


@in_loop
async def test_a_disk_that_does_not_answer_holds_up_the_next_group_and_nobody_for_ever(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    syncs = SyncLater(files)
    with QuietNode(tmp_path, files=files, syncs=syncs) as node:
        orders = await node.create_event_topic("orders")
        publish = node.event_store.publish
        first = asyncio.ensure_future(publish([draft("orders", 1)], timeout_ms=50))
        while not syncs.waiting:
            await asyncio.sleep(0)
        second = asyncio.ensure_future(publish([draft("orders", 2)], timeout_ms=50))
        third = asyncio.ensure_future(publish([draft("orders", 3)], timeout_ms=20_000))
        for one in (first, second):
            with pytest.raises(KafkaError) as caught:
                await one
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert payloads_of(orders) == []
        while not third.done():
            syncs.run()
            await asyncio.sleep(0)
        # The second was never written: its deadline passed while it waited for the first.
        assert payloads_of(orders) == [1, 3]


@in_loop
async def test_a_topic_that_is_deleted_meanwhile_takes_nothing_with_it(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    syncs = SyncLater(files)
    with QuietNode(tmp_path, files=files, syncs=syncs) as node:
        gone, stays = await node.create_event_topic("gone"), await node.create_event_topic("stays")
        waiting = asyncio.ensure_future(node.event_store.publish(drafts(("gone", 1), ("stays", 2))))
        while not syncs.waiting:
            await asyncio.sleep(0)
        later = asyncio.ensure_future(node.event_store.publish(drafts(("gone", 3), ("stays", 4))))
        await asyncio.sleep(0)
        await node.topics.delete(gone)
        syncs.run()
        # It was committed before the topic was deleted, so its publisher gets a success.
        assert [str(one) for one in await waiting] == ["gone-1", "stays-1"]
        with pytest.raises(KafkaError) as caught:
            await later
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert payloads_of(stays) == [2]


@in_loop
async def test_a_stop_answers_what_waits_and_takes_nothing_more(node: QuietNode) -> None:
    orders = await node.create_event_topic("orders")
    waiting = asyncio.ensure_future(node.event_store.publish([draft("orders", 1)]))
    await asyncio.sleep(0)
    await node.event_store.close()
    await waiting
    with pytest.raises(KafkaError):
        await node.event_store.publish([draft("orders", 2)])
    assert payloads_of(orders) == [1]


@in_loop
async def test_too_much_that_waits_is_refused(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.create_event_topic("orders")
    monkeypatch.setattr(commit_pipeline, "WAITING_COMMITS_MAX", 3)
    calls = (node.event_store.publish([draft("orders", n)]) for n in range(5))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(one, KafkaError) for one in outcomes] == [False, False, False, True, True]


@in_loop
async def test_a_journal_that_cannot_be_used_ends_commits_and_not_the_server(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", 1)])
    node.restart()

    async def fail(*_: object) -> None:
        raise StorageError("it cannot be read")

    monkeypatch.setattr(commit_pipeline, "recover_topics", fail)
    await node.event_store.open()
    with pytest.raises(KafkaError) as caught:
        await node.event_store.publish([draft("orders", 2)])
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_many_that_are_refused_are_told_in_portions(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", -1)])
    monkeypatch.setattr(commit_pipeline, "GROUP_COMMITS_MAX", 2)
    told: list[int] = []
    fill = CommitPipeline._fill

    def counted(self: CommitPipeline, plan: CommitGroup) -> list[tuple[Commit, Outcome]]:
        refused = fill(self, plan)
        told.append(len(refused))
        return refused

    monkeypatch.setattr(CommitPipeline, "_fill", counted)
    calls = (node.event_store.publish([draft("orders", n, expected_version=7)]) for n in range(9))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(one, WrongExpectedVersion) for one in outcomes)
    assert told == [2, 2, 2, 2, 1]
    assert payloads_of(orders) == [-1]


@in_loop
async def test_large_groups_are_divided(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", -1)])
    monkeypatch.setattr(commit_pipeline, "GROUP_EVENTS_MAX", 10)
    before = node.event_store.pipeline.group_count
    await asyncio.gather(*(node.event_store.publish([draft("orders", n)] * 4) for n in range(10)))
    assert node.event_store.pipeline.group_count - before == 5
    assert len(payloads_of(orders)) == 41


@in_loop
async def test_the_journal_is_a_sound_log_to_those_who_verify_it(node: QuietNode) -> None:
    await node.create_event_topic("orders")
    for number in range(20):
        await node.event_store.publish([draft("orders", number)] * 3)
    found = all_events(node.event_store, node.topics)
    directory = log_of(journal_of(node.topics)).directory
    node.restart()
    plan = plan_folder(directory, node.files.boot_id())
    reports = [verify_segment(job, None, 1_000_000) for job in plan.jobs]
    findings = [*plan.findings, *(one for report in reports for one in report.findings)]
    assert [one for one in findings if not one.is_sound] == []
    assert reports[0].next_offset == 60
    await node.event_store.open()
    assert all_events(node.event_store, node.topics) == found


# --- the format of the journal


def test_a_commit_is_read_as_it_was_written() -> None:
    parts = [JournalPart(bytes([n]) * 16, 10 * n, bytes(make_batch(n + 1))) for n in range(3)]
    value = bytes(encode_value(77, parts, [0, 1, 2, 1, 2, 2]))
    read = decode_value(5, b"key", value)
    assert (read.position, read.checkpoint, list(read.order), read.key) == (5, 77, [0, 1, 2, 1, 2, 2], b"key")
    assert [(one.topic_id, one.base_offset, bytes(one.batch)) for one in read.parts] == parts
    for size in range(len(value)):
        with pytest.raises(CorruptBatch):
            decode_value(5, None, value[:size])


def test_no_batch_can_be_found_inside_a_record_of_the_journal() -> None:
    batch = bytes(make_batch(2))
    assert batch[:17] not in bytes(encode_value(0, [JournalPart(bytes(16), 0, batch)]))


def test_records_of_a_batch_are_as_far_apart_as_they_have_events() -> None:
    parts = [JournalPart(bytes(16), 0, bytes(make_batch(3)))]
    batch, header = journal_batch([NewRecord(count, None, encode_value(0, parts)) for count in (3, 1, 500)], 1)
    assert (header.record_count, header.last_offset_delta) == (3, 503)
    assert [commit.position for commit in commits_in(batch)] == [0, 3, 4]


@in_loop
async def test_a_batch_that_lands_at_another_offset_is_appended_once_and_reported(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrong, other = await node.create_event_topic("wrong"), await node.create_event_topic("other")
    append = Partition.append_journaled
    appended_count = 0

    def land_elsewhere(partition: Partition, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        nonlocal appended_count
        appended = append(partition, batch, header, now_ms)
        if partition.topic_name != "wrong":
            return appended
        appended_count += 1
        return replace(appended, base_offset=appended.base_offset + 7)

    monkeypatch.setattr(Partition, "append_journaled", land_elsewhere)
    with pytest.raises(KafkaError) as caught:
        await node.event_store.publish(drafts(("wrong", 1), ("other", 2)), timeout_ms=20)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    for _ in range(3):
        node.event_store.pipeline._retry_unapplied()
    assert (appended_count, wrong.partitions[0].log_end_offset) == (1, 1)
    assert "the batch for offset 0 was appended at 7" in caplog.text
    with pytest.raises(KafkaError):
        await node.event_store.publish([draft("wrong", 3)])
    await node.event_store.publish([draft("other", 4)])
    assert payloads_of(other) == [2, 4]
