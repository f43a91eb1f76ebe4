"""Segments that were cut short, emptied or removed between two runs: what is lost is named, the rest is served."""

from collections.abc import Callable
from pathlib import Path

import pytest

from storage.batch.record_batch import parse_header
from storage.errors import DamagedLog, QuarantinedRange
from storage.log.log import Log
from storage.log.quarantine import QUARANTINE_NAME
from storage.log.settings import LogSettings
from storage.recovery.checkpoint import CHECKPOINT_NAME, CheckpointFile, decode_checkpoint
from storage.recovery.crash_recovery import open_log
from storage.segment.segment import segment_name
from tests.support.batches import BOOT_ID, UnsyncedFiles, append, make_batch, make_log, run_now, split_batches

# Two batches of ten records for each segment.
SETTINGS = LogSettings(segment_bytes=500)
BATCH_RECORDS = 10
SEGMENT_RECORDS = 20
SEGMENTS = 4
END = SEGMENTS * SEGMENT_RECORDS

Damage = Callable[[Path], None]


def fill(directory: Path, *, is_clean: bool) -> None:
    log = make_log(directory, settings=SETTINGS)
    for _ in range(SEGMENTS * 2):
        append(log, make_batch(BATCH_RECORDS))
    assert [one.base_offset for one in log.segments()] == list(range(0, END, SEGMENT_RECORDS))
    log.close(is_clean=is_clean)


def reopen(directory: Path, *, is_clean: bool) -> Log:
    return open_log(str(directory), UnsyncedFiles(), run_now, SETTINGS, BOOT_ID, was_stopped=is_clean)


def readable(log: Log) -> set[int]:
    """The offsets that can be read; each other one is refused as quarantined."""
    found: set[int] = set()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            read = log.read(offset, 1_000_000, log.log_end_offset)
        except QuarantinedRange as error:
            offset = max(offset + 1, error.end_offset)
            continue
        for batch in split_batches(read.view):
            header = parse_header(batch)
            found |= set(range(header.base_offset, header.last_offset + 1))
        offset = read.next_offset
    return found


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes().rstrip(b"\0")[:-20])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def append_garbage(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"garbage" * 9)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("base", [0, SEGMENT_RECORDS])
@pytest.mark.parametrize(
    ("damage", "lost"),
    [(cut, BATCH_RECORDS), (empty, SEGMENT_RECORDS), (Path.unlink, SEGMENT_RECORDS), (append_garbage, 0)],
)
def test_a_closed_segment_costs_what_it_lost(
    tmp_path: Path, damage: Damage, lost: int, base: int, is_clean: bool
) -> None:
    fill(tmp_path, is_clean=is_clean)
    damage(tmp_path / segment_name(base))
    missing = set(range(base + SEGMENT_RECORDS - lost, base + SEGMENT_RECORDS))
    log = reopen(tmp_path, is_clean=is_clean)
    assert (log.log_start_offset, log.log_end_offset, log.damage) == (0, END, None)
    assert readable(log) == set(range(END)) - missing
    assert append(log).base_offset == END
    log.close()
    again = reopen(tmp_path, is_clean=True)
    assert readable(again) == set(range(END + 1)) - missing
    assert again.quarantined == log.quarantined


@pytest.mark.parametrize("base", [0, END - SEGMENT_RECORDS])
@pytest.mark.parametrize(("damage", "lost"), [(cut, 10), (empty, 20), (Path.unlink, 20), (append_garbage, 0)])
def test_the_last_segment_of_a_log_that_was_stopped_goes_on_above_what_it_lost(
    tmp_path: Path, damage: Damage, lost: int, base: int
) -> None:
    if base:
        fill(tmp_path, is_clean=True)
    else:
        log = make_log(tmp_path, settings=SETTINGS)
        append(log, make_batch(BATCH_RECORDS))
        append(log, make_batch(BATCH_RECORDS))
        log.close()
    end = base + SEGMENT_RECORDS
    damage(tmp_path / segment_name(base))
    missing = set(range(end - lost, end))
    log = reopen(tmp_path, is_clean=True)
    assert (log.log_end_offset, log.damage) == (end, None)
    assert log.synced_offset == end
    assert readable(log) == set(range(end)) - missing
    log.close()  # and nothing appended yet
    log = reopen(tmp_path, is_clean=True)
    assert append(log, make_batch(2)).base_offset == end
    log.close(is_clean=False)  # a kill
    again = reopen(tmp_path, is_clean=False)
    assert (again.damage, again.log_end_offset) == (None, end + 2)
    assert readable(again) == set(range(end + 2)) - missing
    assert append(again).base_offset == end + 2


@pytest.mark.parametrize("damage", [cut, empty, Path.unlink])
def test_the_last_segment_of_a_killed_log_is_not_taken_for_a_torn_write(tmp_path: Path, damage: Damage) -> None:
    fill(tmp_path, is_clean=False)
    damage(tmp_path / segment_name(END - SEGMENT_RECORDS))
    log = reopen(tmp_path, is_clean=False)
    assert log.damage is not None
    assert not log.is_writable
    assert readable(log) == set(range(log.log_end_offset)) >= set(range(END - SEGMENT_RECORDS))
    with pytest.raises(DamagedLog):  # it is not the head of the log
        log.read(log.log_end_offset, 1000, log.log_end_offset)
    with pytest.raises(DamagedLog):
        append(log)


def test_offsets_of_a_killed_log_are_not_given_twice_when_its_only_segment_is_gone(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SETTINGS)
    append(log)
    log.close(is_clean=False)
    (tmp_path / segment_name(0)).unlink()
    assert reopen(tmp_path, is_clean=False).damage is not None


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("base", [0, SEGMENT_RECORDS])
def test_a_lost_list_of_ranges_is_found_again(tmp_path: Path, base: int, is_clean: bool) -> None:
    fill(tmp_path, is_clean=True)
    (tmp_path / segment_name(base)).unlink()
    log = reopen(tmp_path, is_clean=True)
    expected = readable(log)
    append(log)
    log.close(is_clean=is_clean)
    (tmp_path / QUARANTINE_NAME).unlink()
    again = reopen(tmp_path, is_clean=is_clean)
    assert readable(again) == expected | {END}
    assert (again.log_start_offset, again.damage) == (0, None)


def test_a_checkpoint_lists_its_segments(tmp_path: Path) -> None:
    fill(tmp_path, is_clean=True)
    checkpoint = CheckpointFile(str(tmp_path), UnsyncedFiles()).read()
    assert checkpoint is not None
    sizes = {one.base_offset: one.size_bytes for one in checkpoint.segments}
    assert sizes == {base: (tmp_path / segment_name(base)).stat().st_size for base in range(0, END, SEGMENT_RECORDS)}
    data = (tmp_path / CHECKPOINT_NAME).read_bytes()
    assert decode_checkpoint(data) == checkpoint
    assert checkpoint.encode() == data
    assert all(decode_checkpoint(data[:size]) is None for size in range(len(data)))


def test_a_log_of_one_segment_keeps_the_checkpoint_that_older_releases_read(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SETTINGS)
    append(log)
    log.close()
    checkpoint = CheckpointFile(str(tmp_path), UnsyncedFiles()).read()
    assert checkpoint is not None
    assert checkpoint.segments == ()
    assert (tmp_path / CHECKPOINT_NAME).read_bytes()[4:6] == b"\0\2"


def test_dropped_and_truncated_segments_are_not_missed(tmp_path: Path) -> None:
    fill(tmp_path, is_clean=True)
    log = reopen(tmp_path, is_clean=True)
    log.advance_log_start_offset(SEGMENT_RECORDS)
    for segment in log.drop_segments():
        segment.delete_files()
    log.truncate(END - SEGMENT_RECORDS - 3)
    log.close(is_clean=False)
    again = reopen(tmp_path, is_clean=False)
    assert (again.quarantined, again.damage) == ((), None)
    assert readable(again) == set(range(SEGMENT_RECORDS, END - SEGMENT_RECORDS - BATCH_RECORDS))
