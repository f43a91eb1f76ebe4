"""Opening a log again: nothing acknowledged is lost, nothing half written is served, nothing damaged is cut."""

import shutil
from pathlib import Path

import pytest
from crc32c import crc32c

from storage.batch.record_batch import parse_header
from storage.disk.files import Files
from storage.errors import DamagedLog
from storage.log import log as log_module
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.recovery.checkpoint import CHECKPOINT_NAME
from storage.recovery.crash_recovery import open_log
from storage.segment import scan as walk_module
from storage.segment.segment import segment_name
from tests.support.batches import (
    BOOT_ID,
    NOW_MS,
    LaterJobs,
    UnsyncedFiles,
    append,
    make_batch,
    make_log,
    read_all,
    run_now,
)
from tests.support.faulty_files import FaultyFiles

SMALL = LogSettings(segment_bytes=4000, index_interval_bytes=256)
OTHER_BOOT = "00000000-0000-0000-0000-00000000000f"


class CountingFiles(UnsyncedFiles):
    """Notes which files are mapped."""

    def __init__(self) -> None:
        self.map_count = 0

    def map_readonly(self, fd: int, position: int, size: int) -> memoryview:
        self.map_count += 1
        return super().map_readonly(fd, position, size)


def reopen(
    directory: Path, *, boot_id: str = BOOT_ID, files: Files | None = None, settings: LogSettings = SMALL
) -> Log:
    return open_log(str(directory), files or UnsyncedFiles(), run_now, settings, boot_id)


def kill(directory: Path, target: Path) -> Path:
    """What the page cache holds at this moment, as a directory of its own."""
    shutil.copytree(directory, target)
    return target


def fill(log: Log, count: int, *, producer_id: int = 7, start: int = 0) -> None:
    for number in range(start, start + count):
        append(
            log,
            make_batch(
                2,
                value=bytes(number % 90),
                timestamp_ms=NOW_MS + number,
                producer_id=producer_id,
                producer_epoch=1,
                base_sequence=2 * number,
            ),
            leader_epoch=number // 20,
        )


def assert_same(log: Log, other: Log) -> None:
    assert (log.log_start_offset, log.log_end_offset) == (other.log_start_offset, other.log_end_offset)
    assert log.epochs.entries == other.epochs.entries
    assert read_all(log) == read_all(other)
    assert log.size_bytes == other.size_bytes
    state, expected = log.producers.get(7), other.producers.get(7)
    assert (state is None) == (expected is None)
    if state is not None and expected is not None:
        assert (state.epoch, state.next_sequence) == (expected.epoch, expected.next_sequence)
        assert state.batches == expected.batches
    for timestamp_ms in (0, NOW_MS + 30, NOW_MS + 61, NOW_MS + 10_000):
        assert log.offset_for_timestamp(timestamp_ms) == other.offset_for_timestamp(timestamp_ms)


@pytest.mark.parametrize("boot_id", [BOOT_ID, OTHER_BOOT, ""])
def test_after_a_clean_stop_nothing_of_the_data_is_read(tmp_path: Path, boot_id: str) -> None:
    log = make_log(tmp_path / "p", settings=SMALL)
    (tmp_path / "p").mkdir()
    fill(log, 80)
    log.advance_log_start_offset(5)
    untouched = kill(tmp_path / "p", tmp_path / "q")
    log.close()
    files = CountingFiles()
    again = reopen(tmp_path / "p", boot_id=boot_id, files=files)
    assert files.map_count == 0
    assert_same(again, reopen(untouched))
    fill(again, 40, start=80)
    assert again.log_end_offset == 240
    assert len(read_all(again)) == 118


@pytest.mark.parametrize("count", [0, 1, 5, 37, 80])
@pytest.mark.parametrize("boot_id", [BOOT_ID, OTHER_BOOT])
def test_a_killed_log_is_found_as_it_was(tmp_path: Path, count: int, boot_id: str) -> None:
    (tmp_path / "p").mkdir()
    log = make_log(tmp_path / "p", settings=SMALL)
    fill(log, count)
    again = reopen(kill(tmp_path / "p", tmp_path / "q"), boot_id=boot_id)
    assert again.damage is None
    assert_same(again, log)
    fill(again, 50, start=count)
    fill(log, 50, start=count)
    assert_same(again, log)
    twice = reopen(kill(tmp_path / "q", tmp_path / "r"), boot_id=boot_id)
    assert_same(twice, log)


@pytest.mark.parametrize("boot_id", [BOOT_ID, OTHER_BOOT])
def test_a_log_killed_before_its_background_work_is_found_as_it_was(tmp_path: Path, boot_id: str) -> None:
    (tmp_path / "p").mkdir()
    jobs = LaterJobs()
    log = make_log(tmp_path / "p", settings=SMALL, background=jobs)
    fill(log, 80)
    again = reopen(kill(tmp_path / "p", tmp_path / "q"), boot_id=boot_id)
    assert_same(again, log)
    for segment in list(again.segments())[:-1]:
        assert Path(segment.path).stat().st_size == segment.size_bytes
    again.close()
    assert_same(reopen(tmp_path / "q", boot_id=boot_id), log)


def test_the_walk_after_a_kill_starts_at_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p").mkdir()
    monkeypatch.setattr(log_module, "CHECKPOINT_INTERVAL_BYTES", 20_000)
    settings = LogSettings(index_interval_bytes=1024)
    log = make_log(tmp_path / "p", settings=settings)
    fill(log, 400)
    target = kill(tmp_path / "p", tmp_path / "q")
    # A batch before the checkpoint is not looked at again, one behind it is.
    (segment,) = log.segments()
    assert segment.size_bytes > 40_000
    path = target / segment_name(0)
    data = bytearray(path.read_bytes())
    data[10_100] ^= 1
    path.write_bytes(data)
    again = reopen(kill(target, tmp_path / "r"), settings=settings)
    assert again.damage is None
    assert again.log_end_offset == 800
    state = again.producers.get(7)
    assert state is not None
    assert state.next_sequence == 800
    assert again.epochs.entries == log.epochs.entries
    assert again.quarantined == ()
    data[segment.size_bytes - 500] ^= 1
    path.write_bytes(data)
    (one,) = reopen(kill(target, tmp_path / "s"), settings=settings).quarantined
    assert one.position <= segment.size_bytes - 500 < one.end_position
    # After a power cut everything is looked at.
    ranges = reopen(target, settings=settings, boot_id=OTHER_BOOT).quarantined
    assert [one.position <= 10_100 < one.end_position for one in ranges] == [True, False]


@pytest.mark.parametrize("settings", [LogSettings(index_interval_bytes=1024), SMALL])
def test_kills_in_a_row_do_not_make_the_walk_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: LogSettings
) -> None:
    walked = 0

    def count(view: memoryview) -> int:
        nonlocal walked
        walked += 1
        return crc32c(view)

    monkeypatch.setattr(walk_module, "crc32c", count)
    directory = tmp_path / "0"
    directory.mkdir()
    log = make_log(directory, settings=settings)
    counts = []
    for number in range(1, 6):
        fill(log, 30, start=30 * (number - 1))
        directory = kill(directory, tmp_path / str(number))
        walked = 0
        log = reopen(directory, settings=settings)
        assert (log.damage, log.log_end_offset) == (None, 60 * number)
        counts.append(walked)
    # What one run appended, the batches since the last index entry, and the look at the entry itself.
    assert max(counts) <= 30 + 15
    # A kill without an append in between leaves nothing to walk and nothing to write down.
    directory = kill(directory, tmp_path / "idle")
    before = (directory / CHECKPOINT_NAME).stat().st_ino
    walked = 0
    assert reopen(directory, settings=settings).log_end_offset == 300
    assert walked <= 15
    assert (directory / CHECKPOINT_NAME).stat().st_ino == before


def test_the_checkpoint_after_a_walk_waits_for_the_seals(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    log = make_log(tmp_path / "p", settings=SMALL, background=LaterJobs())
    fill(log, 80)
    jobs = LaterJobs()
    again = open_log(str(kill(tmp_path / "p", tmp_path / "q")), UnsyncedFiles(), jobs, SMALL, BOOT_ID)
    assert again.segment_count > 2
    # Killed before the seals were made: everything is walked again.
    assert_same(reopen(kill(tmp_path / "q", tmp_path / "r")), log)
    jobs.run()
    path = next(iter(again.segments())).path
    data = bytearray(Path(path).read_bytes())
    data[70] ^= 1
    Path(path).write_bytes(data)
    # Afterwards only the end is: the first segment is not looked at any more.
    assert reopen(tmp_path / "q").damage is None


def test_a_batch_torn_at_any_byte_is_cut(tmp_path: Path) -> None:
    source = tmp_path / "p"
    source.mkdir()
    log = make_log(source, settings=SMALL)
    fill(log, 3)
    (segment,) = log.segments()
    start = segment.size_bytes
    append(log, make_batch(1, value=b"last" * 10))
    data = (source / segment_name(0)).read_bytes()
    for boot_id in (BOOT_ID, OTHER_BOOT):
        # The last byte of the batch is a zero, so it is not missed.
        for cut in range(start, segment.size_bytes - 1):
            target = tmp_path / "q"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
            (target / segment_name(0)).write_bytes(data[:cut] + bytes(len(data) - cut))
            again = reopen(target, boot_id=boot_id)
            assert again.damage is None, cut
            assert (again.log_end_offset, again.size_bytes) == (6, start), cut
            assert (target / segment_name(0)).stat().st_size == start
            assert append(again).base_offset == 6
            again.close()


def test_a_file_that_ends_inside_a_batch_is_cut(tmp_path: Path) -> None:
    source = tmp_path / "p"
    source.mkdir()
    log = make_log(source, settings=SMALL)
    fill(log, 3)
    (segment,) = log.segments()
    data = (source / segment_name(0)).read_bytes()[: segment.size_bytes]
    last = len(data) - 62 - 10
    for cut in range(last, len(data), 7):
        (source / segment_name(0)).write_bytes(data[:cut])
        assert reopen(source).log_end_offset == 4


def test_a_torn_first_batch_leaves_an_empty_log(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log)
    path = tmp_path / segment_name(0)
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes(len(data) - 40))
    again = reopen(tmp_path)
    assert (again.log_end_offset, again.segment_count, again.damage) == (0, 0, None)
    assert append(again).base_offset == 0
    assert len(read_all(again)) == 1


def test_a_torn_first_batch_of_a_later_segment_reopens_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    jobs = LaterJobs()
    log = make_log(tmp_path / "p", settings=LogSettings(segment_bytes=200), background=jobs)
    append(log)
    append(log)
    jobs.run()
    append(log)  # the process is killed in this write, before a checkpoint knows of the new segment
    last = tmp_path / "p" / segment_name(2)
    data = last.read_bytes()
    for number, torn in enumerate((b"", bytes(200), data[:50] + bytes(150))):
        last.write_bytes(torn)
        again = reopen(kill(tmp_path / "p", tmp_path / str(number)))
        assert again.damage is None
        assert again.log_end_offset == 2
        append(again, make_batch(3))
        assert len(read_all(again)) == 3
        again.close()


def test_a_segment_that_takes_appends_again_is_not_cut_by_late_work(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=LogSettings(segment_bytes=200), background=LaterJobs())
    for _ in range(5):
        append(log)
    (tmp_path / segment_name(4)).write_bytes(b"torn" + bytes(100))
    jobs = LaterJobs()
    again = open_log(str(tmp_path), UnsyncedFiles(), jobs, LogSettings(segment_bytes=10_000), BOOT_ID)
    assert (again.log_end_offset, again.segment_count) == (4, 2)
    for _ in range(3):
        append(again)
    jobs.run()
    assert again.segment_count == 2
    assert len(read_all(again)) == 7
    assert len(read_all(reopen(tmp_path))) == 7


def test_damage_at_the_end_is_served_up_to_and_never_cut(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for _ in range(10):
        append(log)
    (segment,) = log.segments()
    path = tmp_path / segment_name(0)
    size = segment.size_bytes // 10
    data = bytearray(path.read_bytes())
    data[9 * size + 65] ^= 0x40
    path.write_bytes(data)
    again = reopen(tmp_path)
    assert again.damage is not None
    assert (again.damage.offset, again.damage.position, again.damage.path) == (9, 9 * size, str(path))
    assert (again.log_end_offset, again.quarantined, again.torn_bytes) == (9, (), 0)
    assert len(read_all(again)) == 9
    with pytest.raises(DamagedLog):
        append(again)
    again.checkpoint()
    again.close()
    assert path.read_bytes() == data
    assert reopen(tmp_path).damage == again.damage


def test_the_seal_of_a_damaged_segment_is_not_believed(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for number in range(10):
        append(log, make_batch(timestamp_ms=1000 + number))
    size = log.size_bytes // 10
    log.close()
    path = tmp_path / segment_name(0)
    data = bytearray(path.read_bytes())
    del data[-size:]
    data[8 * size + 65] ^= 0x40
    path.write_bytes(data)  # not as the clean stop left it
    again = reopen(tmp_path)
    assert again.log_end_offset == 8
    (segment,) = again.segments()
    assert segment.is_seal_pending
    again.release()
    assert again.max_timestamp_offset() == (1007, 7)
    again.close()
    assert path.read_bytes() == data


def test_records_that_a_clean_stop_left_cannot_just_be_missing(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for _ in range(10):
        append(log)
    size = log.size_bytes // 10
    log.close()
    path = tmp_path / segment_name(0)
    path.write_bytes(path.read_bytes()[: -size - 20])
    for boot_id in (BOOT_ID, OTHER_BOOT):
        again = reopen(kill(tmp_path, tmp_path.parent / boot_id[-1]), boot_id=boot_id)
        assert again.damage is not None
        assert again.log_end_offset == 8
    path.unlink()
    assert reopen(tmp_path, boot_id=OTHER_BOOT).damage is not None


def test_bytes_after_empty_space_are_damage(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log)
    path = tmp_path / segment_name(0)
    data = bytearray(path.read_bytes())
    data[-1] = 1
    path.write_bytes(data)
    damage = reopen(tmp_path).damage
    assert damage is not None
    assert damage.offset == 1


def test_a_missing_log_with_a_checkpoint_is_damage(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log)
    log.checkpoint()
    (tmp_path / segment_name(0)).unlink()
    again = reopen(tmp_path)
    assert again.damage is not None
    assert again.log_end_offset == 0


def test_zeros_where_the_checkpoint_saw_batches_are_damage_after_a_kill(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for _ in range(3):
        append(log)
    log.checkpoint()
    path = tmp_path / segment_name(0)
    path.write_bytes(bytes(path.stat().st_size))
    shutil.copytree(tmp_path, tmp_path / "q")
    damage = reopen(tmp_path).damage
    assert damage is not None
    assert path.exists()
    # After a power cut the same bytes are what was never synced.
    again = reopen(tmp_path / "q", boot_id=OTHER_BOOT)
    assert (again.damage, again.log_end_offset) == (None, 0)
    assert len(again.producers) == 0
    assert append(again).base_offset == 0


def test_a_power_cut_loses_only_what_was_not_synced(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files, settings=SMALL)
    fill(log, 50)
    log.flush()
    log.checkpoint()
    synced, size_bytes = log.log_end_offset, log.size_bytes
    fill(log, 3, start=50)
    log.checkpoint()
    files.cut_power()
    again = reopen(tmp_path, boot_id=files.boot, files=files)
    assert again.damage is None
    assert (again.log_end_offset, again.size_bytes) == (synced, size_bytes)
    state = again.producers.get(7)
    assert state is not None
    assert state.next_sequence == synced
    assert again.epochs.entries[-1][1] < synced
    fill(again, 20, start=50)
    assert again.log_end_offset == synced + 40


def test_a_lost_checkpoint_costs_a_walk_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    log = make_log(tmp_path / "p", settings=SMALL)
    fill(log, 80)
    for number, content in enumerate([None, b"", b"KWCP", bytes(100)]):
        target = kill(tmp_path / "p", tmp_path / str(number))
        (target / "checkpoint").unlink()
        if content is not None:
            (target / "checkpoint").write_bytes(content)
        assert_same(reopen(target), log)


@pytest.mark.parametrize("boot_id", [BOOT_ID, OTHER_BOOT])
@pytest.mark.parametrize("content", [None, b"", b"x" * 64, bytes(160), b"\xff" * 33])
def test_a_bad_index_is_built_again(tmp_path: Path, boot_id: str, content: bytes | None) -> None:
    (tmp_path / "p").mkdir()
    log = make_log(tmp_path / "p", settings=SMALL)
    fill(log, 80)
    log.checkpoint()
    target = kill(tmp_path / "p", tmp_path / "q")
    for path in target.glob("*.index"):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    assert_same(reopen(target, boot_id=boot_id), log)
    log.close()
    target = kill(tmp_path / "p", tmp_path / "r")
    for path in target.glob("*.index"):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    assert_same(reopen(target, boot_id=boot_id), reopen(tmp_path / "p"))


def test_the_log_start_survives_a_kill(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    log = make_log(tmp_path / "p", settings=SMALL)
    fill(log, 30)
    log.advance_log_start_offset(17)
    again = reopen(kill(tmp_path / "p", tmp_path / "q"))
    assert again.log_start_offset == 17
    assert parse_header(again.read(17, 1000, 60).view).base_offset == 16


def test_an_old_checkpoint_never_replaces_a_newer_one(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    jobs = LaterJobs()
    log = make_log(tmp_path / "p", settings=SMALL, background=jobs)
    fill(log, 30)
    log.advance_log_start_offset(17)
    jobs.run()
    assert reopen(kill(tmp_path / "p", tmp_path / "q")).log_start_offset == 17


@pytest.mark.parametrize("size", [10, 900])
def test_a_segment_left_without_a_batch_takes_the_next_one_however_large(tmp_path: Path, size: int) -> None:
    settings = LogSettings(segment_bytes=400)
    (tmp_path / segment_name(7)).write_bytes(b"")
    log = open_log(str(tmp_path), Files(), run_now, settings, BOOT_ID)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    log.roll(NOW_MS)
    append(log, make_batch(value=b"x" * size))
    append(log, make_batch(value=b"y" * size))
    kept = read_all(log)
    assert len(kept) == 2
    assert [segment.base_offset for segment in log.segments()] == ([7] if size < 400 else [7, 8])
    log.close()
    assert read_all(open_log(str(tmp_path), Files(), run_now, settings, BOOT_ID)) == kept
