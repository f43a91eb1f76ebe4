"""How old logs are: told the same way by an open log and by its folder, and never guessed."""

from pathlib import Path

import pytest

from storage.log.log import Log
from storage.log.retention_rules import NEVER, LogExtent, RetentionLimits
from storage.log.segment_ages import closed_log_ages, open_log_ages
from storage.log.settings import LogSettings
from storage.recovery.crash_recovery import open_log
from storage.segment.reading import index_name, segment_name
from tests.support.batches import BOOT_ID, NOW_MS, UnsyncedFiles, append, make_batch, make_log, run_now

FILES = UnsyncedFiles()
SETTINGS = LogSettings(segment_bytes=1000, segment_ms=5000, index_interval_bytes=100)
ONE_HOUR = RetentionLimits(retention_ms=3_600_000)


def three_segments(directory: Path, *timestamps: int) -> Log:
    log = make_log(directory, settings=SETTINGS)
    for number, timestamp_ms in enumerate(timestamps):
        append(log, make_batch(timestamp_ms=timestamp_ms, value=bytes(800)), now_ms=NOW_MS + number)
    assert log.segment_count == len(timestamps)
    return log


def test_an_open_log_and_its_folder_tell_the_same(tmp_path: Path) -> None:
    log = three_segments(tmp_path, 300, 100, 200)
    log.advance_log_start_offset(1)
    opened = open_log_ages(log, 2, FILES)
    assert opened.extent == LogExtent(1, 3, 2)
    log.close()
    closed = closed_log_ages(str(tmp_path), FILES, SETTINGS)
    assert closed is not None
    assert closed.extent == LogExtent(1, 3, 3)
    for ages in (opened, closed):
        assert [(one.base_offset, one.newest_ms) for one in ages.segments] == [(0, 300), (1, 100), (2, 200)]
        assert ages.has_leftovers
    assert [one.size_bytes for one in opened.segments] == [one.size_bytes for one in closed.segments]


def test_the_folder_of_a_killed_log_does_not_tell(tmp_path: Path) -> None:
    log = three_segments(tmp_path, 1, 2, 3)
    log.close(is_clean=False)
    assert closed_log_ages(str(tmp_path), FILES, SETTINGS) is None
    assert closed_log_ages(str(tmp_path / "missing"), FILES, SETTINGS) is None


def test_times_are_found_without_an_index_and_a_segment_that_cannot_be_read_stays(tmp_path: Path) -> None:
    three_segments(tmp_path, 300, 100, 200).close()
    (tmp_path / index_name(0)).unlink()
    (tmp_path / index_name(1)).unlink()
    (tmp_path / segment_name(1)).write_bytes(bytes((tmp_path / segment_name(1)).stat().st_size))
    ages = closed_log_ages(str(tmp_path), FILES, SETTINGS)
    assert ages is not None
    assert [one.newest_ms for one in ages.segments] == [300, -1, 200]
    assert ages.apply(RetentionLimits(retention_ms=1), NOW_MS).log_start_offset == 1


def test_segments_without_times_count_from_the_broker_s_time(tmp_path: Path) -> None:
    log = three_segments(tmp_path, -1, -1, -1)
    # The one in use may have been written to until segment.ms were over, the others until the next one was begun.
    assert [one.newest_ms for one in open_log_ages(log, 3, FILES).segments] == [NOW_MS + 1, NOW_MS + 2, NOW_MS + 5002]
    log.close()
    closed = closed_log_ages(str(tmp_path), FILES, SETTINGS)
    assert closed is not None
    assert [one.newest_ms for one in closed.segments] == [NOW_MS + 2, NOW_MS + 2, NOW_MS + 5002]


@pytest.mark.parametrize(("limits", "due_ms"), [(ONE_HOUR, 3_600_301), (RetentionLimits(), NEVER)])
def test_a_closed_log_says_when_it_comes_of_age(tmp_path: Path, limits: RetentionLimits, due_ms: int) -> None:
    three_segments(tmp_path, 300, 100, 200).close()
    ages = closed_log_ages(str(tmp_path), FILES, SETTINGS)
    assert ages is not None
    assert ages.apply(limits, 400) == (0, False, due_ms)


def test_an_emptied_log_never_comes_of_age(tmp_path: Path) -> None:
    log = three_segments(tmp_path, 300, 100, 200)
    log.advance_log_start_offset(3)
    for segment in log.drop_segments():
        segment.delete_files()
    log.close()
    ages = closed_log_ages(str(tmp_path), FILES, SETTINGS)
    assert ages is not None
    assert ages.apply(ONE_HOUR, NOW_MS) == (3, False, NEVER)
    again = open_log(str(tmp_path), FILES, run_now, SETTINGS, BOOT_ID)
    assert open_log_ages(again, 3, FILES).apply(ONE_HOUR, NOW_MS) == (3, False, NEVER)


def test_a_log_that_is_all_in_memory_is_judged_without_reading(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SETTINGS)
    append(log, make_batch(timestamp_ms=100))
    assert open_log_ages(log, 1, FILES).is_known(ONE_HOUR)
    for _ in range(2):
        append(log, make_batch(timestamp_ms=100, value=bytes(800)))
    assert not open_log_ages(log, 3, FILES).is_known(ONE_HOUR)
    assert open_log_ages(log, 3, FILES).is_known(RetentionLimits(retention_bytes=1))
