"""Live event files follow their topics through new events, restarts, deletions and disk failures."""

import asyncio
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.concurrency.worker_process import WorkerDied, WorkerProcess
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.event_store.files import sink as sink_module
from kwire.streams.event_store.files import writer
from kwire.streams.event_store.files.layout import TOPIC_LENGTH_MAX
from kwire.streams.event_store.files.packing import Packed, groups_to_pack, pack_group
from kwire.streams.event_store.files.sink import EventFiles
from kwire.streams.event_store.files.writer import WrongOwner
from kwire.streams.events.reading import EventReader
from storage.disk.files import Files
from storage.errors import StorageError
from tests.support.batches import UnsyncedFiles
from tests.support.event_files import check_files, found_events, run_here, sink_of
from tests.support.event_store import draft, drafts
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "TOPICS_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(sink_module, "RETRY_SECONDS", 0.01)


async def opened(node: QuietNode, directory: Path, **more: Any) -> EventFiles:
    files = sink_of(node, directory, **more)
    await files.open()
    return files


@pytest.mark.proves("S2-7", "S2-8", "S2-9", "S2-10")
@in_loop
async def test_each_event_has_its_file_where_the_layout_says(node: QuietNode, tmp_path: Path) -> None:
    for name in ("user-events", "audit-events"):
        await node.create_event_topic(name)
    files = await opened(node, tmp_path / "out")
    await node.event_store.publish(drafts(*[("user-events", {"n": n}) for n in range(1001)], ("audit-events", "x")))
    await files.caught_up()
    day = tmp_path / "out" / "data" / "user-events"
    (date,) = [path.name for path in day.iterdir()]
    assert sorted(path.name for path in (day / date).iterdir()) == ["0000", "0001"]
    assert [path.name for path in (day / date / "0001").iterdir()] == ["user-events-1001.json"]
    told = json.loads((day / date / "0000" / "user-events-1.json").read_text())
    assert told == {"id": "user-events-1", "timestamp": told["timestamp"], "type": "made", "payload": {"n": 0}}
    assert told["timestamp"].startswith(date)
    check_files(node, tmp_path / "out", "user-events", "audit-events")
    await files.close()


@pytest.mark.proves("S2-13", "C-23")
@in_loop
async def test_each_topic_has_its_configuration_and_its_counter_follows(node: QuietNode, tmp_path: Path) -> None:
    schemas: dict[bytes, list[object]] = {}
    topic = await node.create_event_topic("orders")
    schemas[topic.topic_id] = [{"type": "made", "properties": {}}]
    files = await opened(node, tmp_path, schemas_of=lambda topic_id: schemas[topic_id])

    async def config() -> object:
        await files.caught_up()
        return json.loads((tmp_path / "config" / "orders.json").read_text())

    assert await config() == {"name": "orders", "sequence": 0, "schemas": schemas[topic.topic_id]}
    await node.event_store.publish([draft("orders"), draft("orders")])
    assert await config() == {"name": "orders", "sequence": 2, "schemas": schemas[topic.topic_id]}
    schemas[topic.topic_id] = [*schemas[topic.topic_id], {"type": "sold"}]
    files.schemas_changed(topic.topic_id)
    assert await config() == {"name": "orders", "sequence": 2, "schemas": schemas[topic.topic_id]}
    await files.close()


@pytest.mark.proves("C-23")
@pytest.mark.parametrize("content", [None, b"", b'{"name": "orders", "sequence": 7, "schemas": []}\n'])
@in_loop
async def test_a_configuration_that_is_wrong_is_made_anew(
    node: QuietNode, tmp_path: Path, content: bytes | None
) -> None:
    await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders")] * 3)
    files = await opened(node, tmp_path / "out")
    await files.caught_up()
    await files.close()
    config = tmp_path / "out" / "config" / "orders.json"
    config.unlink()
    if content is not None:
        config.write_bytes(content)
    files = await opened(node, tmp_path / "out")
    await files.caught_up()
    check_files(node, tmp_path / "out", "orders")
    await files.close()


@in_loop
async def test_what_was_there_before_and_what_comes_while_it_is_off_is_caught_up(
    node: QuietNode, tmp_path: Path
) -> None:
    await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", n) for n in range(1200)])
    for count in (1, 700, 0, 3):
        files = await opened(node, tmp_path / "out")
        await files.caught_up()
        check_files(node, tmp_path / "out", "orders")
        await files.close()
        if count:
            await node.event_store.publish([draft("orders", n) for n in range(count)])


@in_loop
async def test_a_clean_stop_leaves_nothing_behind(node: QuietNode, tmp_path: Path) -> None:
    await node.create_event_topic("orders")
    files = await opened(node, tmp_path / "out")
    await node.event_store.publish([draft("orders", n) for n in range(5000)])
    await files.close()
    assert files.written_count == 5000
    assert files.pending_count == 0
    check_files(node, tmp_path / "out", "orders")


@in_loop
async def test_a_deleted_topic_takes_its_files_with_it_and_a_new_one_begins_anew(
    node: QuietNode, tmp_path: Path
) -> None:
    topic = await node.create_event_topic("orders")
    await node.create_event_topic("kept")
    files = await opened(node, tmp_path / "out")
    await node.event_store.publish(drafts(("orders", 1), ("orders", 2), ("orders", 3), ("kept", 4)))
    await files.caught_up()
    await node.topics.delete(topic)
    await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", "new")])
    await files.caught_up()
    check_files(node, tmp_path / "out", "orders", "kept")
    again = node.topics.get("orders")
    assert again is not None
    await node.topics.delete(again)
    await files.caught_up()
    check_files(node, tmp_path / "out", "kept")
    assert sorted(path.name for path in (tmp_path / "out" / "data").iterdir()) == ["kept"]
    await files.close()


@in_loop
async def test_a_topic_that_was_made_anew_while_it_is_off_is_told_from_the_old_one(
    node: QuietNode, tmp_path: Path
) -> None:
    topic = await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", "old")] * 3)
    files = await opened(node, tmp_path / "out")
    await files.caught_up()
    await files.close()
    await node.topics.delete(topic)
    await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", "new")])
    files = await opened(node, tmp_path / "out")
    await files.caught_up()
    check_files(node, tmp_path / "out", "orders")
    await files.close()


@in_loop
async def test_files_of_somebody_else_are_never_touched(
    node: QuietNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = tmp_path / "out" / "data" / "orders" / "notes.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    await node.create_event_topic("orders")
    await node.create_event_topic("t" * (TOPIC_LENGTH_MAX + 1))
    await node.create_event_topic("other")
    await node.event_store.publish(drafts(("orders", 1), ("other", 2), ("t" * (TOPIC_LENGTH_MAX + 1), 3)))
    files = await opened(node, tmp_path / "out")
    with caplog.at_level(logging.ERROR):
        await files.caught_up()
        await files.caught_up()
    refused = [record.getMessage().partition(":")[0].split()[1] for record in caplog.records]
    assert sorted(refused) == ["orders", "t" * (TOPIC_LENGTH_MAX + 1)]
    assert [path.name for path in mine.parent.iterdir()] == ["notes.txt"]
    assert len(found_events(Files(), str(tmp_path / "out"), "other")) == 1
    await files.close()
    with pytest.raises(WrongOwner, match="belongs to another server"):
        await opened(node, tmp_path / "out", owner="another")


@in_loop
async def test_files_that_go_further_than_their_log_are_left_alone(
    node: QuietNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders")])
    files = await opened(node, tmp_path / "out")
    await files.caught_up()
    await files.close()
    note = {"topicId": topic.topic_id.hex(), "next": 9}
    (tmp_path / "out" / ".kwire" / "positions" / "orders.json").write_text(json.dumps(note))
    files = await opened(node, tmp_path / "out")
    with caplog.at_level(logging.ERROR):
        await files.caught_up()
    assert "the files do not belong to this topic" in caplog.text
    assert len(found_events(Files(), str(tmp_path / "out"), "orders")) == 1
    await files.close()


@in_loop
async def test_what_retention_took_before_it_had_files_is_passed_over(
    node: QuietNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await node.create_event_topic("orders")
    files = await opened(node, tmp_path / "out")
    await files.caught_up()
    await files.close()
    await node.event_store.publish([draft("orders", n) for n in range(10)])
    log_of(topic.partitions[0]).advance_log_start_offset(4)
    files = await opened(node, tmp_path / "out")
    with caplog.at_level(logging.WARNING):
        await files.caught_up()
    assert "events 1 to 4 of topic orders" in caplog.text
    assert files.skipped_count == 4
    assert [one.sequence for one in found_events(Files(), str(tmp_path / "out"), "orders")] == [5, 6, 7, 8, 9, 10]
    # Events that have files keep them.
    log_of(topic.partitions[0]).advance_log_start_offset(9)
    await node.event_store.publish([draft("orders")])
    await files.caught_up()
    assert len(found_events(Files(), str(tmp_path / "out"), "orders")) == 7
    await files.close()


@pytest.mark.parametrize(
    "failure", [OSError(28, "No space left on device"), WorkerDied("killed")], ids=["disk", "worker"]
)
@in_loop
async def test_a_round_that_fails_is_written_again(node: QuietNode, tmp_path: Path, failure: Exception) -> None:
    failing = 3

    async def run(function: Callable[..., Any], *args: Any) -> Any:
        nonlocal failing
        if args[0] is writer.write_round and failing:
            failing -= 1
            raise failure
        return await run_here(function, *args)

    await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", n) for n in range(2500)])
    files = await opened(node, tmp_path / "out", run=run)
    await files.caught_up()
    assert (failing, files.failure_count) == (0, 3)
    check_files(node, tmp_path / "out", "orders")
    await files.close()


@in_loop
async def test_a_topic_that_cannot_be_read_holds_up_nobody(
    node: QuietNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = await node.create_event_topic("broken")
    await node.create_event_topic("sound")
    await node.event_store.publish(drafts(("broken", 1), ("sound", 2)))
    read = EventReader.read
    is_broken = True

    def fail(reader: Any, *args: Any) -> Any:
        if is_broken and reader._log is broken.stream():
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk does not answer")
        return read(reader, *args)

    monkeypatch.setattr(EventReader, "read", fail)
    files = await opened(node, tmp_path / "out")
    await files.caught_up()
    assert len(found_events(Files(), str(tmp_path / "out"), "sound")) == 1
    is_broken = False
    for _ in range(500):
        if files.written_count == 2:
            break
        await asyncio.sleep(0.01)
    check_files(node, tmp_path / "out", "broken", "sound")
    await files.close()


@in_loop
async def test_a_topic_whose_log_does_not_open_holds_up_nobody(
    node: QuietNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = await node.create_event_topic("broken")
    await node.create_event_topic("sound")
    await node.event_store.publish([draft("sound")])

    def refuse(settings: Any) -> Any:
        raise StorageError("it does not open")

    monkeypatch.setattr(broken.partitions[0], "_open_log", refuse)
    files = await opened(node, tmp_path / "out")
    await files.caught_up()
    check_files(node, tmp_path / "out", "sound")
    await files.close()


@in_loop
async def test_ordinary_topics_get_no_files(node: QuietNode, tmp_path: Path) -> None:
    await node.create("plain")
    await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders")])
    files = await opened(node, tmp_path / "out")
    await files.caught_up()
    check_files(node, tmp_path / "out", "orders")
    await files.close()


@in_loop
async def test_the_work_can_be_done_by_another_process(node: QuietNode, tmp_path: Path) -> None:
    worker = WorkerProcess()
    await node.create_event_topic("orders")
    files = await opened(node, tmp_path / "out", files=Files(), run=worker.run)
    events = [draft("orders", n, metadata={"who": "me"}, key=b"\xff") for n in range(50)]
    await node.event_store.publish(events)
    await files.caught_up()
    check_files(node, tmp_path / "out", "orders")
    found = found_events(Files(), str(tmp_path / "out"), "orders")
    assert {(str(one.metadata), one.key) for one in found} == {("{'who': 'me'}", b"\xff")}
    await files.close()
    await worker.close()


def event_files(directory: Path, name: str) -> list[Path]:
    return sorted((directory / "data" / name).rglob("*.json"))


@pytest.mark.proves("S2-7", "C-23")
@in_loop
async def test_files_that_somebody_removed_are_made_anew_at_the_next_start(
    node: QuietNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    for name in ("holes", "packed", "nothing"):
        await node.create_event_topic(name)
        await node.event_store.publish([draft(name, {"n": n}) for n in range(1050)])
    files = await opened(node, out)
    await files.caught_up()
    await files.close()
    before = {path: path.read_bytes() for name in ("holes", "nothing") for path in event_files(out, name)}
    for path in event_files(out, "holes")[5:600:7]:
        path.unlink()
    shutil.rmtree(next((out / "data" / "holes").glob("*/0001")))
    shutil.rmtree(out / "data" / "nothing")
    for folder in groups_to_pack(Files(), str(out), "packed", "9999-01-01"):
        assert isinstance(pack_group(UnsyncedFiles(), str(out), "packed", folder), Packed)
    event_files(out, "packed")[3].unlink()
    files = await opened(node, out)
    with caplog.at_level(logging.WARNING):
        await files.caught_up()
    await files.close()
    assert {path: path.read_bytes() for name in ("holes", "nothing") for path in event_files(out, name)} == before
    assert len(event_files(out, "packed")) == 50
    assert len(found_events(Files(), str(out), "packed")) == 1050
    assert {record.getMessage().partition(" are missing")[0] for record in caplog.records} == {
        "files of 1 events of topic packed",
        "files of 135 events of topic holes",
        "files of 1050 events of topic nothing",
    }


@in_loop
async def test_what_retention_took_is_not_missed(node: QuietNode, tmp_path: Path) -> None:
    topic = await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", n) for n in range(20)])
    files = await opened(node, tmp_path)
    await files.caught_up()
    await files.close()
    log_of(topic.partitions[0]).advance_log_start_offset(10)
    for path in event_files(tmp_path, "orders"):
        path.unlink()
    files = await opened(node, tmp_path)
    await files.caught_up()
    assert [one.sequence for one in found_events(Files(), str(tmp_path), "orders")] == [*range(11, 21)]
    assert files.skipped_count == 0
    await files.close()


@in_loop
async def test_events_of_a_new_topic_wait_too_while_its_files_cannot_begin(node: QuietNode, tmp_path: Path) -> None:
    out = tmp_path / "out"
    await node.create_event_topic("orders")
    files = await opened(node, out)
    await files.caught_up()
    os.rename(out, tmp_path / "away")
    for topic in ("bills", "gone"):
        await node.create_event_topic(topic)
        await node.event_store.publish([draft(topic, 1)])
    await node.event_store.publish([draft("orders", 1)])
    failures = files.failure_count
    while files.failure_count < failures + 2:
        await asyncio.sleep(0.001)
    assert files.pending_count == 3
    assert files.oldest_waiting_ms is not None
    # A topic that is deleted before its files begin leaves files under its name alone.
    (tmp_path / "away" / "data" / "gone").mkdir()
    gone = node.topics.get("gone")
    assert gone is not None
    await node.topics.delete(gone)
    os.rename(tmp_path / "away", out)
    await files.caught_up()
    check_files(node, out, "bills", "orders")
    assert (out / "data" / "gone").exists()
    assert files.pending_count == 0
    await files.close()


@in_loop
async def test_a_directory_that_vanished_is_not_replaced_by_another(node: QuietNode, tmp_path: Path) -> None:
    """It may be a mount point: files written there would be hidden when the disk is mounted again."""
    out = tmp_path / "out"
    await node.create_event_topic("orders")
    files = await opened(node, out)
    await node.event_store.publish([draft("orders", 1)])
    await files.caught_up()
    os.rename(out, tmp_path / "away")
    out.mkdir()
    await node.event_store.publish([draft("orders", 2)])
    while files.failure_count < 2:
        await asyncio.sleep(0.001)
    assert list(out.iterdir()) == []
    assert files.pending_count == 1
    assert files.oldest_waiting_ms is not None
    out.rmdir()
    os.rename(tmp_path / "away", out)
    await files.caught_up()
    check_files(node, out, "orders")
    assert files.pending_count == 0
    assert str(files.oldest_waiting_ms) == "None"
    await files.close()


@in_loop
async def test_nobody_writes_while_a_process_of_the_run_before_still_does(
    node: QuietNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LOCK_SECONDS", 0.0)
    await node.create_event_topic("orders")
    files = await opened(node, tmp_path)
    await files.caught_up()
    with writer.locked(Files(), str(tmp_path)):
        await node.event_store.publish([draft("orders", 1)])
        while files.failure_count < 2:
            await asyncio.sleep(0.001)
        assert event_files(tmp_path, "orders") == []
        with pytest.raises(OSError, match="another process writes to the directory"):
            await opened(node, tmp_path)
    await files.caught_up()
    check_files(node, tmp_path, "orders")
    await files.close()


@in_loop
async def test_a_topic_that_was_refused_gets_its_files_once_it_can(
    node: QuietNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "RETRY_SECONDS_MAX", 0.0)
    (tmp_path / "data" / "orders").mkdir(parents=True)
    await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", 1)])
    files = await opened(node, tmp_path)
    await files.caught_up()
    assert files.refused_count == 1
    (tmp_path / "data" / "orders").rmdir()
    while files.refused_count:
        await asyncio.sleep(0.001)
    await files.caught_up()
    check_files(node, tmp_path, "orders")
    await files.close()


@in_loop
async def test_what_an_interrupted_round_left_in_a_new_group_is_not_taken_for_events(
    node: QuietNode, tmp_path: Path
) -> None:
    await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", n) for n in range(3)])
    files = await opened(node, tmp_path)
    await files.caught_up()
    await files.close()
    (group,) = (tmp_path / "data" / "orders").glob("*/0000")
    position = tmp_path / ".kwire" / "positions" / "orders.json"
    topic_id = json.loads(position.read_text())["topicId"]
    position.write_text(json.dumps({"topicId": topic_id, "next": 0}))
    unfinished = group.rename(group.with_name(".0000.new"))
    (unfinished / "orders-4.json").write_text("{")
    files = await opened(node, tmp_path)
    await files.caught_up()
    check_files(node, tmp_path, "orders")
    assert not unfinished.exists()
    await files.close()
