"""Reads around damaged bytes: what lies before and behind is served, what lies in them is refused."""

from pathlib import Path

import pytest

from storage.disk.files import Files
from storage.errors import QuarantinedRange
from storage.log.log import Log
from storage.log.quarantine import Quarantine, read_quarantine
from storage.log.settings import LogSettings
from storage.recovery.crash_recovery import open_log
from tests.support.batches import BOOT_ID, NOW_MS, append, headers, make_batch, make_log, run_now

SMALL = LogSettings(segment_bytes=700, index_interval_bytes=100)


def filled(path: Path) -> tuple[Log, list[tuple[int, int, int]]]:
    """A log of batches of two records, and (segment base, position, end) of each batch."""
    log = make_log(path, settings=SMALL)
    for number in range(24):
        append(log, make_batch(2, timestamp_ms=NOW_MS + number * 10))
    return log, [(segment.base_offset, start, end) for segment in log.segments() for start, end in segment.batches()]


def spoil(log: Log, places: list[tuple[int, int, int]], first: int, count: int) -> None:
    base, position, _ = places[first]
    end = places[first + count - 1][2]
    with open(next(segment.path for segment in log.segments() if segment.base_offset == base), "r+b") as file:
        file.seek(position)
        file.write(b"\xff" * (end - position))
    log.quarantine(Quarantine(base, position, end - position, first * 2, (first + count) * 2, "test"))


@pytest.mark.parametrize(("first", "count"), [(0, 1), (2, 1), (2, 3), (6, 2), (23, 1)])
@pytest.mark.parametrize("max_bytes", [1, 150, 10_000])
def test_reads_end_before_damage_and_go_on_behind_it(tmp_path: Path, first: int, count: int, max_bytes: int) -> None:
    log, places = filled(tmp_path)
    if places[first][0] != places[first + count - 1][0]:
        count = 1
    spoil(log, places, first, count)
    start, end = first * 2, (first + count) * 2
    for _ in range(2):
        offset, seen = 0, []
        while offset < 48:
            if start <= offset < end:
                with pytest.raises(QuarantinedRange) as caught:
                    log.read(offset, max_bytes, 48)
                assert (caught.value.start_offset, caught.value.end_offset) == (start, end)
                offset = end
                continue
            read = log.read(offset, max_bytes, 48)
            assert read.next_offset > offset
            seen += [header.base_offset for header in headers(read.view)]
            offset = read.next_offset
        assert seen == [base for base in range(0, 48, 2) if not start <= base < end]
        for inside in range(start, end):
            with pytest.raises(QuarantinedRange):
                log.read(inside, max_bytes, 48)
        # It is known from the file alone, before the bytes are looked at.
        log.flush()
        log.close()
        log = open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)
        assert [(one.start_offset, one.end_offset) for one in log.quarantined] == [(start, end)]


def test_a_search_by_time_steps_over_damage(tmp_path: Path) -> None:
    log, places = filled(tmp_path)
    spoil(log, places, 2, 2)
    assert log.offset_for_timestamp(NOW_MS + 10) == (NOW_MS + 10, 2)
    assert log.offset_for_timestamp(NOW_MS + 20) == (NOW_MS + 40, 8)
    assert log.offset_for_timestamp(NOW_MS + 230) == (NOW_MS + 230, 46)


def test_damage_is_written_down_and_goes_with_its_segment(tmp_path: Path) -> None:
    log, places = filled(tmp_path)
    spoil(log, places, 2, 1)
    spoil(log, places, 20, 1)
    assert [one.start_offset for one in log.quarantined] == [4, 40]
    assert read_quarantine(str(tmp_path), Files()) == log.quarantined
    log.advance_log_start_offset(30)
    for segment in log.drop_segments():
        segment.delete_files()
    assert [one.start_offset for one in log.quarantined] == [40]


def test_damage_that_is_cut_off_is_forgotten(tmp_path: Path) -> None:
    log, places = filled(tmp_path)
    spoil(log, places, 20, 1)
    log.truncate(38)
    assert log.quarantined == ()
    for _ in range(5):
        append(log, make_batch(2))
    assert [header.base_offset for header in headers(log.read(40, 1, 48).view)] == [40]
    log.close()
    again = open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)
    assert again.read(40, 1, 48).next_offset == 42


def test_a_damaged_segment_is_not_replaced(tmp_path: Path) -> None:
    log, places = filled(tmp_path)
    spoil(log, places, 2, 1)
    with pytest.raises(ValueError, match="damaged"):
        log.replace_segments([next(log.segments())], [], 0)
