"""Packing, reading and verification: no event is lost, even after an interruption, and damage is reported."""

import gzip
import json
import os
import shutil
from pathlib import Path
from random import Random

import pytest

from kwire.streams.event_store.files import reader
from kwire.streams.event_store.files.layout import FileEvent, config_text, event_path, event_text, schemas_text
from kwire.streams.event_store.files.packing import Packed, groups_to_pack, pack_group
from kwire.streams.event_store.files.reader import Problem, events_in
from kwire.streams.event_store.files.verification import check_topic
from kwire.streams.event_store.files.writer import Position, TopicPart, begin_topic, open_root, write_round
from storage.disk.files import Files
from tests.support.batches import UnsyncedFiles
from tests.support.event_files import found_events
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles

TOPIC = "user-events"


def made(first: int, last: int, day: int = 6) -> list[FileEvent]:
    return [
        FileEvent(number, f"2025-07-{day:02d}T09:30:00.250Z", "made", json.dumps({"n": number}).encode())
        for number in range(first, last + 1)
    ]


def fill(files: Files, root: str, *portions: list[FileEvent]) -> list[FileEvent]:
    open_root(files, root, "me")
    begin_topic(files, root, TOPIC, Position("id", portions[0][0].sequence - 1))
    for events in portions:
        config = config_text(TOPIC, events[-1].sequence, schemas_text([]))
        write_round(files, root, [TopicPart(TOPIC, Position("id", events[-1].sequence), events, config)])
    return [event for portion in portions for event in portion]


def pack_all(files: Files, root: str, before: str = "2025-08-01") -> list[Packed | Problem]:
    return [pack_group(files, root, TOPIC, folder) for folder in groups_to_pack(files, root, TOPIC, before)]


@pytest.mark.proves("S2-45")
def test_complete_groups_become_one_file_each_and_read_the_same(tmp_path: Path) -> None:
    files, root = UnsyncedFiles(), str(tmp_path)
    events = fill(files, root, made(1, 1500), made(1501, 2300, day=7))
    assert found_events(files, root, TOPIC) == events
    outcome = pack_all(files, root)
    assert [one.path for one in outcome] == [
        f"data/{TOPIC}/2025-07-06/0000.ndjson.gz",
        f"data/{TOPIC}/2025-07-06/0001.ndjson.gz",
        f"data/{TOPIC}/2025-07-07/0001.ndjson.gz",
    ]
    assert [one.file_count for one in outcome if isinstance(one, Packed)] == [1000, 500, 500]
    assert len(list((tmp_path / "data").rglob("*.json"))) == 300
    assert found_events(files, root, TOPIC) == events
    assert [one.sequence for one in events_in(files, root, TOPIC, 1999) if isinstance(one, FileEvent)] == [
        *range(1999, 2301)
    ]
    assert pack_all(files, root) == []
    tally = check_topic(files, root, TOPIC)
    assert (tally.events, tally.first, tally.last, tally.problems) == (2300, 1, 2300, [])


@pytest.mark.proves("S2-45")
def test_only_days_before_the_given_one_are_packed(tmp_path: Path) -> None:
    files, root = UnsyncedFiles(), str(tmp_path)
    fill(files, root, made(1, 500), made(501, 1001, day=7))
    assert [one.path for one in pack_all(files, root, "2025-07-07")] == [f"data/{TOPIC}/2025-07-06/0000.ndjson.gz"]


def test_a_crash_while_packing_loses_nothing() -> None:
    def start() -> tuple[SimulatedDisk, SimulatedFiles, list[FileEvent]]:
        disk = SimulatedDisk()
        files = SimulatedFiles(disk)
        # Group 0000 is complete with its last few numbers.
        events = fill(files, "/out", made(996, 1000), made(1001, 1002, day=7))
        files.syncfs("/out")
        return disk, files, events

    disk, files, events = start()
    before = disk.call_count
    pack_all(files, "/out")
    count = disk.call_count - before
    for number in range(1, count + 1):
        for is_power_cut in (False, True):
            disk, files, events = start()
            disk.crash_at = disk.call_count + number
            with pytest.raises(Crashed):
                pack_all(files, "/out")
            disk = disk.after_power_cut(Random(number)) if is_power_cut else disk.restarted()
            files = SimulatedFiles(disk)
            assert found_events(files, "/out", TOPIC) == events
            pack_all(files, "/out")
            assert found_events(files, "/out", TOPIC) == events
            assert not files.exists(f"/out/data/{TOPIC}/2025-07-06/0000")


def test_what_is_wrong_is_named_and_not_packed(tmp_path: Path) -> None:
    files, root = UnsyncedFiles(), str(tmp_path)
    events = fill(files, root, made(1, 1003))
    day = tmp_path / "data" / TOPIC / "2025-07-06"
    (day / "0000" / f"{TOPIC}-5.json").unlink()
    (day / "0000" / f"{TOPIC}-7.json").write_text("{")
    (day / "0000" / f"{TOPIC}-8.json").write_bytes((day / "0000" / f"{TOPIC}-9.json").read_bytes())
    os.rename(day / "0000" / f"{TOPIC}-10.json", day / "0001" / f"{TOPIC}-10.json")
    (day / "0000" / "notes.txt").write_text("mine")
    (day / "0000" / ".11.new").write_text("unfinished")
    (tmp_path / "data" / TOPIC / "today").mkdir()
    (day / "x").mkdir()
    (tmp_path / "config" / f"{TOPIC}.json").write_bytes(config_text(TOPIC, 9, schemas_text([])))
    tally = check_topic(files, root, TOPIC)
    told = sorted(f"{one.path.removeprefix(f'data/{TOPIC}')}: {one.reason}" for one in tally.problems)
    assert told == [
        "/2025-07-06/0000/notes.txt: its name is not that of an event of this topic",
        "/2025-07-06/0000/user-events-7.json: Input data was truncated",
        "/2025-07-06/0000/user-events-8.json: it contains event 9",
        "/2025-07-06/0001/user-events-10.json: event 10 belongs to group 0000",
        "/2025-07-06/x: its name is not that of a group of events",
        "/today: its name is not a date",
        ": events 10 to 10 are missing",
        ": events 5 to 5 are missing",
        ": events 7 to 8 are missing",
        "config/user-events.json: its sequence is 9, but the last event is 1003",
    ]
    assert tally.events == len(events) - 4
    (outcome,) = pack_all(files, root)
    assert isinstance(outcome, Problem)
    assert len(list(day.rglob("*.ndjson.gz"))) == 0


def test_a_packed_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    files, root = UnsyncedFiles(), str(tmp_path)
    fill(files, root, made(1, 1001))
    (packed,) = pack_all(files, root)
    path = tmp_path / packed.path
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert any("truncated" in one.reason for one in check_topic(files, root, TOPIC).problems)
    path.write_bytes(b"x" + whole)
    assert any("cannot be decompressed" in one.reason for one in check_topic(files, root, TOPIC).problems)


def test_an_event_of_an_earlier_day_gets_its_own_place(tmp_path: Path) -> None:
    files, root = UnsyncedFiles(), str(tmp_path)
    events = fill(files, root, made(1, 2, day=7), made(3, 3, day=6), made(4, 4, day=7))
    assert found_events(files, root, TOPIC) == events
    assert (tmp_path / event_path(TOPIC, events[2])).exists()


def test_what_could_hang_or_fill_the_memory_is_named_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, root = UnsyncedFiles(), str(tmp_path)
    fill(files, root, made(1, 9))
    day = tmp_path / "data" / TOPIC / "2025-07-06"
    for number in (2, 3, 4, 5):
        (day / "0000" / f"{TOPIC}-{number}.json").unlink()
    os.mkfifo(day / "0000" / f"{TOPIC}-2.json")
    (day / "0000" / f"{TOPIC}-3.json").symlink_to("/etc/hostname")
    (day / "0000" / f"{TOPIC}-4.json").mkdir()
    with (day / "0000" / f"{TOPIC}-5.json").open("wb") as sparse:
        sparse.truncate(reader.EVENT_BYTES_MAX + 1)
    os.mkfifo(day / "0001.ndjson.gz")
    monkeypatch.setattr(reader, "EVENT_BYTES_MAX", reader.DECOMPRESSED_STEP_BYTES)
    (day / "0002.ndjson.gz").write_bytes(gzip.compress(b"x" * 50 * reader.DECOMPRESSED_STEP_BYTES))
    (day / "0003.ndjson.gz").symlink_to("/dev/zero")
    told = {one.path.rpartition("/")[2]: one.reason for one in check_topic(files, root, TOPIC).problems}
    assert {name: reason for name, reason in told.items() if name != TOPIC} == {
        f"{TOPIC}-2.json": "it is not a regular file",
        f"{TOPIC}-3.json": "it is not a regular file",
        f"{TOPIC}-4.json": "it is not a regular file",
        f"{TOPIC}-5.json": f"it is larger than {reader.EVENT_BYTES_MAX} bytes",
        "0001.ndjson.gz": "it is not a regular file",
        "0002.ndjson.gz": f"it has a line of more than {reader.EVENT_BYTES_MAX} bytes",
        "0003.ndjson.gz": "it is not a regular file",
    }


def test_a_packed_file_out_of_order_is_named(tmp_path: Path) -> None:
    files, root = UnsyncedFiles(), str(tmp_path)
    one, two = fill(files, root, made(1, 2))
    day = tmp_path / "data" / TOPIC / "2025-07-06"
    shutil.rmtree(day / "0000")
    (day / "0000.ndjson.gz").write_bytes(gzip.compress(event_text(TOPIC, two) + event_text(TOPIC, one)))
    assert [problem.reason for problem in check_topic(files, root, TOPIC).problems] == [
        "event 1: it is stored after event 2"
    ]


def test_a_round_of_events_on_two_disks_is_synced_on_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, root = UnsyncedFiles(), str(tmp_path)
    fill(files, root, made(1, 2))
    synced: list[str] = []
    monkeypatch.setattr(files, "syncfs", lambda path: synced.append(os.path.relpath(path, root)))
    monkeypatch.setattr(files, "device_of", lambda path: 2 if "/data/" in path else 1)
    config = config_text(TOPIC, 60, schemas_text([]))
    write_round(files, root, [TopicPart(TOPIC, Position("id", 60), made(3, 60), config)])
    assert synced == [f"data/{TOPIC}/2025-07-06", "."] * 2
