"""Damaged logs: what is bad is set apart once and for ever, and everything else is read and written on."""

import shutil
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from storage.batch.record_batch import parse_header
from storage.errors import DiskFailure, QuarantinedRange
from storage.log.log import Log
from storage.log.quarantine import QUARANTINE_NAME, Quarantine, read_quarantine
from storage.log.settings import LogSettings
from storage.recovery.checkpoint import CHECKPOINT_NAME, CheckpointFile
from storage.recovery.crash_recovery import open_log
from storage.segment.segment import index_name, segment_name
from tests.support.batches import (
    BOOT_ID,
    NOW_MS,
    LaterJobs,
    UnsyncedFiles,
    append,
    make_batch,
    make_log,
    run_now,
    split_batches,
)
from tests.support.faulty_files import FaultyFiles

SMALL = LogSettings(segment_bytes=3000, index_interval_bytes=256)
ONE_EACH = LogSettings(segment_bytes=100)
OTHER_BOOT = "00000000-0000-0000-0000-00000000000f"
EPOCH = range(12, 16)


def reopen(directory: Path, *, boot_id: str = BOOT_ID, settings: LogSettings = SMALL) -> Log:
    return open_log(str(directory), UnsyncedFiles(), run_now, settings, boot_id)


def fill(log: Log, count: int, *, start: int = 0) -> None:
    for number in range(start, start + count):
        value = bytes([1 + number % 250]) * (20 + number % 70)
        append(
            log,
            make_batch(
                1 + number % 3,
                value=value,
                timestamp_ms=NOW_MS + number,
                producer_id=7,
                producer_epoch=0,
                base_sequence=log.log_end_offset,
            ),
        )


def places_of(log: Log) -> list[tuple[int, int, int, int, int]]:
    """(segment base, position, end, base offset, next offset) of all batches."""
    found = []
    for segment in log.segments():
        data = Path(segment.path).read_bytes()[: segment.size_bytes]
        position = 0
        while position < len(data):
            header = parse_header(data, position)
            end = position + header.size_bytes
            found.append((segment.base_offset, position, end, header.base_offset, header.last_offset + 1))
            position = end
    return found


def read_around(log: Log) -> list[int]:
    """The base offsets of all batches, read by somebody who jumps over what is quarantined."""
    offset = log.log_start_offset
    found: list[int] = []
    while offset < log.log_end_offset:
        inside = next((one for one in log.quarantined if one.start_offset <= offset < one.end_offset), None)
        if inside is not None:
            with pytest.raises(QuarantinedRange):
                log.read(offset, 500, log.log_end_offset)
            offset = inside.end_offset
            continue
        read = log.read(offset, 500, log.log_end_offset)
        assert read.view
        found.extend(parse_header(batch).base_offset for batch in split_batches(read.view))
        assert read.next_offset > offset
        offset = read.next_offset
    return found


def forget_seals(directory: Path) -> None:
    """So that a start has to look at everything."""
    for path in directory.glob("*.index"):
        path.unlink()
    (directory / CHECKPOINT_NAME).unlink()


def flip(directory: Path, segment_base: int, position: int, bit: int) -> None:
    path = directory / segment_name(segment_base)
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("boot_id", [BOOT_ID, OTHER_BOOT])
def test_flipped_bits_anywhere_cost_only_their_batches(tmp_path: Path, seed: int, boot_id: str) -> None:
    chance = Random(seed)
    source = tmp_path / "p"
    source.mkdir()
    log = make_log(source, settings=SMALL)
    fill(log, 90)
    log.checkpoint()
    places = places_of(log)
    assert log.segment_count > 3
    forget_seals(source)
    for number in range(20):
        target = tmp_path / str(number)
        shutil.copytree(source, target)
        hit = chance.sample(range(len(places)), chance.choice([1, 1, 1, 2, 4]))
        bad = set()
        for at in hit:
            segment_base, start, end, _, _ = places[at]
            position = chance.randrange(start, end)
            flip(target, segment_base, position, chance.randrange(8))
            if position - start not in EPOCH:
                bad.add(at)
        log = reopen(target, boot_id=boot_id)
        is_end_bad = len(places) - 1 in bad
        good = [place[3] for at, place in enumerate(places) if at not in bad]
        assert read_around(log) == good, (number, hit)
        if is_end_bad:
            assert log.damage is not None, (number, hit)
        else:
            assert (log.damage, log.log_end_offset) == (None, places[-1][4]), (number, hit)
        set_apart = {offset for one in log.quarantined for offset in range(one.start_offset, one.end_offset)}
        lost = {offset for at in bad for offset in range(places[at][3], places[at][4])}
        assert set_apart == {offset for offset in lost if offset < log.log_end_offset}, (number, hit)
        assert log.torn_bytes == 0
        # Nothing of it is cut or rewritten, and the next start says the same.
        ranges = log.quarantined
        log.close()
        again = reopen(target, boot_id=boot_id)
        assert again.quarantined == ranges
        assert read_around(again) == good
        again.close()


def damaged_log(directory: Path, *, count: int = 12, bad: int = 5) -> tuple[Log, tuple[int, int, int, int, int]]:
    """A log with one bad batch in the middle of its only segment, opened again after a kill."""
    directory.mkdir()
    log = make_log(directory)
    fill(log, count)
    place = places_of(log)[bad]
    flip(directory, 0, place[1] + 70, 3)
    return reopen(directory, settings=LogSettings()), place


def test_reads_end_before_a_range_and_go_on_behind_it(tmp_path: Path) -> None:
    log, (_, start, end, offset, next_offset) = damaged_log(tmp_path / "p")
    assert [(one.position, one.end_position) for one in log.quarantined] == [(start, end)]
    read = log.read(0, 1_000_000, log.log_end_offset)
    assert (len(read.view), read.next_offset) == (start, offset)
    for inside in range(offset, next_offset):
        with pytest.raises(QuarantinedRange) as caught:
            log.read(inside, 1_000_000, log.log_end_offset)
        assert (caught.value.start_offset, caught.value.end_offset) == (offset, next_offset)
    read = log.read(next_offset, 1_000_000, log.log_end_offset)
    assert parse_header(read.view).base_offset == next_offset
    assert read.next_offset == log.log_end_offset


def test_a_log_with_a_range_takes_appends(tmp_path: Path) -> None:
    log, place = damaged_log(tmp_path / "p")
    end_offset = log.log_end_offset
    fill(log, 10, start=12)
    assert log.is_writable
    before = read_around(log)
    log.close()
    again = reopen(tmp_path / "p", settings=LogSettings())
    assert read_around(again) == before
    assert again.quarantined == log.quarantined
    assert place[3] not in before
    assert end_offset in before


def test_the_producers_behind_a_range_are_known(tmp_path: Path) -> None:
    log, _ = damaged_log(tmp_path / "p")
    state = log.producers.get(7)
    assert state is not None
    assert state.next_sequence == log.log_end_offset


def test_the_bytes_of_a_range_stay_as_they_are(tmp_path: Path) -> None:
    directory = tmp_path / "p"
    directory.mkdir()
    log = make_log(directory, settings=SMALL)
    fill(log, 60)
    places = places_of(log)
    # The last batch of the first segment: only the next segment can tell how far the damage goes.
    last = max(place for place in places if place[0] == 0)
    flip(directory, 0, last[1] + 70, 0)
    forget_seals(directory)
    data = (directory / segment_name(0)).read_bytes()
    again = reopen(directory)
    (one,) = again.quarantined
    assert (one.segment_base, one.position, one.end_position) == (0, last[1], len(data))
    assert (one.start_offset, one.end_offset) == (last[3], last[4])
    fill(again, 10, start=60)
    again.close()
    assert (directory / segment_name(0)).read_bytes() == data
    assert reopen(directory).quarantined == (one,)


@pytest.mark.parametrize(("boot_id", "is_sealed"), [(BOOT_ID, False), (OTHER_BOOT, False), (OTHER_BOOT, True)])
def test_a_missing_segment_is_a_range_without_bytes(tmp_path: Path, boot_id: str, is_sealed: bool) -> None:
    log = make_log(tmp_path, settings=ONE_EACH, background=run_now if is_sealed else LaterJobs())
    for _ in range(5):
        append(log)
    (tmp_path / segment_name(2)).unlink()
    if not is_sealed:
        log.checkpoint()
    else:
        (tmp_path / index_name(1)).unlink()
    again = reopen(tmp_path, boot_id=boot_id, settings=ONE_EACH)
    assert again.damage is None
    if boot_id == OTHER_BOOT and not is_sealed:
        # Nothing says that any of this was ever synced, so the power cut took the end of it.
        assert (again.quarantined, read_around(again), again.log_end_offset) == ((), [0, 1], 2)
        return
    assert [(one.segment_base, one.size_bytes, one.start_offset, one.end_offset) for one in again.quarantined] == [
        (1, 0, 2, 3)
    ]
    assert read_around(again) == [0, 1, 3, 4]
    assert append(again).base_offset == 5


@pytest.mark.parametrize("is_last", [True, False])
def test_the_tail_behind_a_lost_sector_is_cut_in_every_segment(tmp_path: Path, is_last: bool) -> None:
    log = make_log(tmp_path, settings=SMALL, background=LaterJobs())
    fill(log, 90)
    bases = [segment.base_offset for segment in log.segments()]
    at = len(bases) - 1 if is_last else 1
    place = [place for place in places_of(log) if place[0] == bases[at]][2]
    path = tmp_path / segment_name(bases[at])
    data = bytearray(path.read_bytes())
    sector_end = place[1] - place[1] % 512 + 512
    data[place[1] : sector_end] = bytes(sector_end - place[1])
    path.write_bytes(data)
    again = reopen(tmp_path, boot_id=OTHER_BOOT)
    assert (again.damage, again.quarantined, again.log_end_offset) == (None, (), place[3])
    assert [segment.base_offset for segment in again.segments()] == bases[: at + 1]
    assert again.torn_bytes > 0
    fill(again, 5)
    again.close()
    assert reopen(tmp_path).segment_count >= at + 1


def test_a_lost_sector_before_a_sealed_segment_is_damage(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log, 90)
    bases = [segment.base_offset for segment in log.segments()]
    places = places_of(log)
    place = [place for place in places if place[0] == bases[1]][2]
    path = tmp_path / segment_name(bases[1])
    data = bytearray(path.read_bytes())
    data[place[1] : place[2]] = bytes(place[2] - place[1])
    path.write_bytes(data)
    (tmp_path / index_name(bases[1])).unlink()
    again = reopen(tmp_path, boot_id=OTHER_BOOT)
    assert [(one.start_offset, one.end_offset) for one in again.quarantined] == [(place[3], place[4])]
    assert read_around(again) == [one[3] for one in places if one != place]


def test_a_range_is_found_once(tmp_path: Path) -> None:
    log, _ = damaged_log(tmp_path / "p")
    path = tmp_path / "p" / QUARANTINE_NAME
    before = path.stat().st_ino
    for boot_id in (BOOT_ID, OTHER_BOOT, ""):
        again = reopen(tmp_path / "p", boot_id=boot_id, settings=LogSettings())
        assert again.quarantined == log.quarantined
        assert path.stat().st_ino == before


def test_a_range_is_known_without_a_walk(tmp_path: Path) -> None:
    log, place = damaged_log(tmp_path / "p")
    log.close()

    class NoMaps(UnsyncedFiles):
        def map_readonly(self, fd: int, position: int, size: int) -> memoryview:
            raise AssertionError("no segment data is read after a clean stop")

    again = open_log(str(tmp_path / "p"), NoMaps(), run_now, LogSettings(), OTHER_BOOT)
    assert again.quarantined == log.quarantined
    with pytest.raises(QuarantinedRange):
        again.read(place[3], 1000, again.log_end_offset)


@pytest.mark.parametrize("content", [b"", b"{}", b"x" * 100])
def test_a_lost_list_of_ranges_is_found_again(tmp_path: Path, content: bytes) -> None:
    log, place = damaged_log(tmp_path / "p")
    log.close()
    (tmp_path / "p" / QUARANTINE_NAME).write_bytes(content)
    again = reopen(tmp_path / "p", settings=LogSettings())
    assert again.quarantined == log.quarantined
    assert place[3] not in read_around(again)
    assert read_quarantine(str(tmp_path / "p"), UnsyncedFiles()) == log.quarantined


def test_a_range_of_the_scrub_is_kept(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log, 60)
    places = places_of(log)
    segment_base, start, end, offset, next_offset = places[2]
    flip(tmp_path, segment_base, start + 70, 2)
    log.quarantine(Quarantine(segment_base, start, end - start, offset, next_offset, "scrub"))
    good = [place[3] for place in places if place[3] != offset]
    assert read_around(log) == good
    log.close()
    for boot_id in (BOOT_ID, OTHER_BOOT):
        again = reopen(tmp_path, boot_id=boot_id)
        assert [one.reason for one in again.quarantined] == ["scrub"]
        assert read_around(again) == good
        again.close()


def test_ranges_go_with_their_segments(tmp_path: Path) -> None:
    directory = tmp_path / "p"
    directory.mkdir()
    log = make_log(directory, settings=SMALL)
    fill(log, 90)
    place = places_of(log)[1]
    flip(directory, 0, place[1] + 70, 1)
    forget_seals(directory)
    again = reopen(directory)
    assert len(again.quarantined) == 1
    again.advance_log_start_offset(list(again.segments())[1].base_offset)
    for segment in again.drop_segments():
        segment.delete_files()
    again.close()
    last = reopen(directory, boot_id=OTHER_BOOT)
    assert last.quarantined == ()
    assert read_around(last)


def test_a_range_that_cannot_be_noted_changes_nothing(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    fill(log, 10)
    place = places_of(log)[4]
    flip(tmp_path, 0, place[1] + 70, 1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    files = FaultyFiles()
    files.fail_next("fsync")
    with pytest.raises(DiskFailure):
        open_log(str(tmp_path), files, run_now, LogSettings(), BOOT_ID)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith(".new")}
    assert after == before
    assert len(open_log(str(tmp_path), files, run_now, LogSettings(), BOOT_ID).quarantined) == 1


def test_a_disk_that_cannot_be_read_is_an_error_and_no_damage(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    fill(log, 10)

    class BadDisk(UnsyncedFiles):
        def preadv(self, fd: int, buffers: object, position: int) -> int:
            raise OSError(5, "no")

    data = (tmp_path / segment_name(0)).read_bytes()
    with pytest.raises(DiskFailure):
        open_log(str(tmp_path), BadDisk(), run_now, LogSettings(), OTHER_BOOT)
    assert (tmp_path / segment_name(0)).read_bytes() == data
    assert len(read_around(reopen(tmp_path))) == 10


def test_a_leader_epoch_that_was_changed_is_not_believed(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for number in range(6):
        append(log, leader_epoch=number // 2)
    size = log.size_bytes // 6
    before = log.epochs.entries
    (tmp_path / CHECKPOINT_NAME).unlink()
    for at, number in enumerate((0, 1, 3, 4)):
        for bit in (0, 6, 7):
            target = tmp_path.parent / f"{at}-{bit}"
            shutil.copytree(tmp_path, target)
            flip(target, 0, size * number + 12, bit)
            again = reopen(target)
            assert again.epochs.latest == 2
            # The first batch of an epoch may be lost for it, no other one.
            assert [epoch for epoch, _ in again.epochs.entries] == [0, 1, 2]
            assert sum(entry in before for entry in again.epochs.entries) >= 2
            assert append(again, leader_epoch=3).base_offset == 6


def test_torn_bytes_are_counted(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    fill(log, 3)
    size = log.size_bytes
    fill(log, 1, start=3)
    path = tmp_path / segment_name(0)
    data = path.read_bytes()
    path.write_bytes(data[: size + 75] + bytes(len(data) - size - 75))
    again = reopen(tmp_path)
    assert (again.torn_bytes, again.damage, again.quarantined) == (75, None, ())
    assert reopen(tmp_path).torn_bytes == 0


def test_after_a_walk_everything_is_synced_before_it_is_called_durable(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL, background=LaterJobs())
    fill(log, 60)
    assert log.segment_count > 2
    files = FaultyFiles()
    again = open_log(str(tmp_path), files, LaterJobs(), SMALL, BOOT_ID)
    assert again.synced_offset == 0
    sync = again.begin_sync()
    assert sync is not None
    assert sync.end_offset == again.log_end_offset
    before = files.calls["fdatasync"]
    sync.run()
    sync.finish()
    assert files.calls["fdatasync"] >= before + log.segment_count
    assert again.synced_offset == again.log_end_offset
    assert again.begin_sync() is None
    again.close()
    last = open_log(str(tmp_path), files, run_now, SMALL, BOOT_ID)
    assert (last.synced_offset, last.begin_sync()) == (last.log_end_offset, None)


def test_files_below_the_log_start_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "p"
    directory.mkdir()
    log = make_log(directory, settings=SMALL)
    fill(log, 90)
    bases = [segment.base_offset for segment in log.segments()]
    log.advance_log_start_offset(bases[2] + 1)
    for is_clean in (False, True):
        target = tmp_path / str(is_clean)
        if is_clean:
            log.close()
        shutil.copytree(directory, target)
        again = reopen(target)
        assert [segment.base_offset for segment in again.segments()] == bases[2:]
        assert sorted(path.name for path in target.glob("*.log")) == [segment_name(base) for base in bases[2:]]
        assert not (target / index_name(bases[0])).exists()
        assert again.log_start_offset == bases[2] + 1


@pytest.mark.parametrize("boot_id", [BOOT_ID, OTHER_BOOT])
@pytest.mark.parametrize("ending", ["clean", "kill", "kill before the files go"])
def test_an_emptied_log_goes_on_where_it_ended(tmp_path: Path, boot_id: str, ending: str) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log, 40)
    end = log.log_end_offset
    log.flush()
    log.advance_log_start_offset(end)
    dropped = log.drop_segments()
    assert log.segment_count == 0
    if ending == "kill before the files go":
        log.checkpoint()
    else:
        for segment in dropped:
            segment.delete_files()
    if ending == "clean":
        log.close()
    again = reopen(tmp_path, boot_id=boot_id)
    assert (again.log_start_offset, again.log_end_offset, again.damage) == (end, end, None)
    assert list(tmp_path.glob("*.log")) == []
    assert append(again).base_offset == end
    assert read_around(reopen(tmp_path, boot_id=boot_id)) == [end]


def test_files_go_only_when_the_checkpoint_that_replaces_them_is_durable(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log, 90)
    log.advance_log_start_offset(list(log.segments())[2].base_offset)
    files = FaultyFiles()
    files.fail_next("fsync")
    before = sorted(path.name for path in tmp_path.glob("*.log"))
    with pytest.raises(DiskFailure):
        open_log(str(tmp_path), files, run_now, SMALL, BOOT_ID)
    assert sorted(path.name for path in tmp_path.glob("*.log")) == before
    assert open_log(str(tmp_path), files, run_now, SMALL, BOOT_ID).segment_count == len(before) - 2


def test_what_the_checkpoint_does_not_know_is_looked_at_before_it_goes(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log, 30)
    log.checkpoint()
    checkpoint = CheckpointFile(str(tmp_path), UnsyncedFiles()).read()
    assert checkpoint is not None
    fill(log, 60, start=30)
    start = list(log.segments())[-1].base_offset
    # The start moved, and nothing else of this checkpoint is newer.
    (tmp_path / CHECKPOINT_NAME).write_bytes(replace(checkpoint, log_start_offset=start, scan_from=0).encode())
    again = reopen(tmp_path)
    assert again.log_start_offset == start
    state, expected = again.producers.get(7), log.producers.get(7)
    assert state is not None
    assert expected is not None
    assert state.batches == expected.batches


def test_a_checkpoint_of_batches_that_are_gone_is_not_found_again(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    fill(log, 10)
    size, end = log.size_bytes, log.log_end_offset
    fill(log, 3, start=10)
    log.checkpoint()
    path = tmp_path / segment_name(0)
    data = path.read_bytes()
    path.write_bytes(data[:size] + bytes(len(data) - size))
    # The log is opened, and the power fails again before anything of it is synced by others.
    open_log(str(tmp_path), UnsyncedFiles(), LaterJobs(), LogSettings(), OTHER_BOOT)
    checkpoint = CheckpointFile(str(tmp_path), UnsyncedFiles()).read()
    assert checkpoint is not None
    assert (checkpoint.offset, checkpoint.position, checkpoint.is_clean) == (end, size, False)
    again = reopen(tmp_path, boot_id="another", settings=LogSettings())
    state = again.producers.get(7)
    assert state is not None
    assert state.next_sequence == end


def test_a_clean_start_opens_no_segment(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log, 90)
    log.close()
    opened = []

    class Noting(UnsyncedFiles):
        def open_read(self, path: str) -> int:
            opened.append(Path(path).name)
            return super().open_read(path)

        def open_write(self, path: str) -> int:
            raise AssertionError(path)

        def create(self, path: str) -> int:
            raise AssertionError(path)

    again = open_log(str(tmp_path), Noting(), run_now, SMALL, OTHER_BOOT)
    assert again.log_end_offset == log.log_end_offset
    assert not [name for name in opened if name.endswith((".log", ".index"))]
    assert len(opened) <= 3


def test_without_a_checkpoint_a_gap_behind_a_sealed_segment_is_taken_for_compaction(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=ONE_EACH)
    for _ in range(5):
        append(log)
    (tmp_path / segment_name(2)).unlink()
    (tmp_path / CHECKPOINT_NAME).unlink()
    (tmp_path / index_name(0)).unlink()
    again = reopen(tmp_path, boot_id=OTHER_BOOT, settings=ONE_EACH)
    assert (again.quarantined, again.damage, again.clean_upto) == ((), None, 3)
    assert again.log_end_offset == 5
