"""Verification: sound logs have no findings, every kind of damage is found where it is, and nothing is written."""

import json
import os
import pickle
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from storage.batch.format import HEADER_BYTES
from storage.batch.record_batch import parse_header
from storage.disk.files import Files
from storage.log.log import Log
from storage.log.quarantine import Quarantine, write_quarantine
from storage.log.settings import LogSettings
from storage.recovery.verify import FINDINGS_MAX, WINDOW_BYTES, Finding, Kind, SegmentReport, verify_segment
from storage.recovery.verify_folder import FolderPlan, check_data_dir, plan_folder, plan_scrub
from storage.segment.index import ENTRY_BYTES
from tests.support.batches import BOOT_ID, append, make_batch, make_log, split_batches

SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=200)
LIMIT_BYTES = 1024 * 1024
FIRST = "00000000000000000000.log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / "partition.metadata").write_bytes(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")
    return directory


def fill(folder: Path, count: int = 120, *, is_closed: bool = True, settings: LogSettings = SETTINGS) -> Log:
    """Batches of one to three records in a few segments."""
    log = make_log(folder, settings=settings)
    for number in range(count):
        append(log, make_batch(number % 3 + 1, value=b"v" * (number % 50)))
    if is_closed:
        log.close()
    return log


def verify(folder: Path, *, boot_id: str = BOOT_ID, files: Files | None = None) -> list[Finding]:
    plan = plan_folder(str(folder), boot_id)
    return plan.findings + [finding for report in walk(plan, files=files) for finding in report.findings]


def walk(plan: FolderPlan, *, limit_bytes: int = LIMIT_BYTES, files: Files | None = None) -> list[SegmentReport]:
    reports = []
    for job in plan.jobs:
        report = None
        while report is None or not report.is_done:
            report = pickle.loads(pickle.dumps(verify_segment(job, report, limit_bytes, files)))
        reports.append(report)
    return reports


def logs_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def batch_positions(path: Path) -> list[tuple[int, int]]:
    """(position, base offset) of every batch in a file that holds nothing else."""
    found, position = [], 0
    for batch in split_batches(memoryview(path.read_bytes())):
        found.append((position, parse_header(batch).base_offset))
        position += len(batch)
    return found


def change(path: Path, position: int, data: bytes | None = None) -> None:
    content = bytearray(path.read_bytes())
    data = bytes([content[position] ^ 0x55]) if data is None else data
    content[position : position + len(data)] = data
    path.write_bytes(content)


def harm(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if not finding.is_sound]


# --- sound logs


def test_a_closed_log_has_no_findings_and_everything_is_counted(folder: Path) -> None:
    log = fill(folder)
    plan = plan_folder(str(folder), BOOT_ID)
    assert len(plan.jobs) > 2
    assert all(job.is_truncated for job in plan.jobs)
    reports = walk(plan)
    assert plan.findings == []
    assert [report.findings for report in reports] == [[]] * len(reports)
    assert sum(report.batch_count for report in reports) == 120
    assert sum(report.record_count for report in reports) == log.log_end_offset == reports[-1].next_offset
    assert sum(report.position for report in reports) == plan.size_bytes


def test_an_open_log_that_was_killed_is_sound(folder: Path) -> None:
    log = fill(folder, is_closed=False)
    for boot_id in (BOOT_ID, "another"):
        assert verify(folder, boot_id=boot_id) == []
    plan = plan_folder(str(folder), BOOT_ID)
    assert walk(plan)[-1].next_offset == log.log_end_offset
    assert not plan.jobs[-1].is_truncated


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> FolderPlan:
    directory = tmp_path_factory.mktemp("damaged")
    fill(directory)
    first, second, *_ = logs_of(directory)
    change(first, batch_positions(first)[3][0] + HEADER_BYTES)
    change(second, batch_positions(second)[-1][0] + HEADER_BYTES)
    return plan_folder(str(directory), BOOT_ID)


@given(limit_bytes=st.integers(1, 5000))
def test_pieces_of_any_size_come_to_the_same_report(damaged: FolderPlan, limit_bytes: int) -> None:
    assert walk(damaged, limit_bytes=limit_bytes) == walk(damaged)


def test_nothing_is_written(folder: Path) -> None:
    class ReadOnlyFiles(Files):
        def open_write(self, path: str) -> int:
            raise AssertionError(path)

        create = open_write

    fill(folder)
    change(logs_of(folder)[0], 100)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert verify(folder, files=ReadOnlyFiles())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_batch_larger_than_the_window_is_checked(folder: Path) -> None:
    log = make_log(folder)
    for _ in range(2):
        append(log, make_batch(value=random.Random(1).randbytes(WINDOW_BYTES + 1000)))
    log.close()
    assert verify(folder) == []
    change(folder / FIRST, WINDOW_BYTES + 500)
    (found,) = verify(folder)
    assert (found.kind, found.position, found.offset, found.end_offset) == (Kind.DAMAGE, 0, 0, 1)


def test_compacted_batches_may_leave_offsets_out(folder: Path) -> None:
    fill(folder, 10)
    path = folder / FIRST
    (position, offset), (end, end_offset) = batch_positions(path)[4:6]
    content = path.read_bytes()
    path.write_bytes(content[:position] + content[end:])
    plan = plan_folder(str(folder), BOOT_ID)
    (job,) = plan.jobs
    above = verify_segment(job, None, LIMIT_BYTES)
    missing = next(finding for finding in above.findings if finding.kind is Kind.MISSING)
    assert (missing.position, missing.offset, missing.end_offset) == (position, offset, end_offset)
    below = verify_segment(replace(job, clean_upto=end_offset), None, LIMIT_BYTES)
    assert Kind.MISSING not in {finding.kind for finding in below.findings}


# --- damage


@pytest.mark.parametrize("where", [8, 16, 17, 21, 60, 61, 70])
def test_a_changed_byte_is_found_with_its_range(folder: Path, where: int) -> None:
    fill(folder)
    path = logs_of(folder)[1]
    (position, offset), (end, end_offset) = batch_positions(path)[5:7]
    change(path, position + where)
    (found,) = verify(folder)
    assert (found.kind, found.path) == (Kind.DAMAGE, str(path))
    assert (found.position, found.size_bytes) == (position, end - position)
    assert (found.offset, found.end_offset) == (offset, end_offset)


@pytest.mark.parametrize("flip", [1, 1 << 40])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_wrong_base_offset_is_found_although_no_crc_covers_it(folder: Path, sign: int, flip: int) -> None:
    fill(folder)
    path = logs_of(folder)[1]
    (position, offset), (end, end_offset) = batch_positions(path)[5:7]
    change(path, position, struct.pack(">q", offset + sign * flip))
    (found,) = verify(folder)
    assert (found.kind, found.position, found.size_bytes) == (Kind.DAMAGE, position, end - position)
    assert (found.offset, found.end_offset) == (offset, end_offset)


def test_damage_at_the_end_of_a_sealed_segment_reaches_to_the_next(folder: Path) -> None:
    fill(folder)
    first, second, *_ = logs_of(folder)
    position, offset = batch_positions(first)[-1]
    change(first, position + HEADER_BYTES)
    (found,) = verify(folder)
    assert (found.position, found.offset, found.end_offset) == (position, offset, int(second.stem))
    assert position + found.size_bytes == first.stat().st_size


def test_zeros_inside_a_closed_segment_are_damage(folder: Path) -> None:
    fill(folder)
    path = logs_of(folder)[-1]
    position, _ = batch_positions(path)[3]
    change(path, position, bytes(path.stat().st_size - position))
    (found,) = verify(folder)
    assert (found.kind, found.position, found.reason) == (Kind.DAMAGE, position, "zeros instead of batches")


def test_a_segment_cut_short_is_found(folder: Path) -> None:
    log = fill(folder)
    os.truncate(logs_of(folder)[-1], 500)
    found = harm(verify(folder))
    assert [finding.kind for finding in found] == [Kind.DAMAGE, Kind.MISSING]
    assert found[1].end_offset == log.log_end_offset


def test_a_segment_that_is_gone_is_found(folder: Path) -> None:
    fill(folder)
    first, gone, after, *_ = logs_of(folder)
    gone.unlink()
    found = harm(verify(folder))
    assert [(one.kind, one.path, one.offset, one.end_offset) for one in found] == [
        (Kind.MISSING, str(first), int(gone.stem), int(after.stem))
    ]


def test_the_first_segment_gone_is_found(folder: Path) -> None:
    fill(folder)
    first, second, *_ = logs_of(folder)
    first.unlink()
    (found,) = harm(verify(folder))
    assert (found.kind, found.path, found.offset) == (Kind.MISSING, str(second), 0)


def test_all_segments_gone_is_found(folder: Path) -> None:
    fill(folder)
    for path in logs_of(folder):
        path.unlink()
    (found,) = harm(verify(folder))
    assert (found.kind, found.offset) == (Kind.MISSING, 0)


def test_a_page_the_disk_cannot_deliver_is_damage_and_the_walk_goes_on(folder: Path) -> None:
    class BrokenDisk(Files):
        def pread(self, fd: int, size: int, position: int) -> bytes:
            if position < 8192 and position + size > 4096:
                raise OSError(5, "Input/output error")
            return super().pread(fd, size, position)

    log = fill(folder, 400, settings=LogSettings(segment_bytes=1024 * 1024, index_interval_bytes=200))
    (job,) = plan_folder(str(folder), BOOT_ID).jobs
    report = verify_segment(job, None, LIMIT_BYTES, BrokenDisk())
    (found,) = [finding for finding in report.findings if finding.kind is Kind.DAMAGE]
    assert "Input/output error" in found.reason
    assert found.position is not None
    assert found.position <= 4096 < 8192 <= found.position + found.size_bytes < 8192 + 200
    assert report.next_offset == log.log_end_offset


def test_many_findings_are_counted_and_the_first_are_kept(folder: Path) -> None:
    fill(folder, 1000, settings=LogSettings(index_interval_bytes=10**9))
    path = folder / FIRST
    for position, _ in batch_positions(path)[::2]:
        change(path, position + 30)
    (report,) = walk(plan_folder(str(folder), BOOT_ID))
    assert report.finding_count == 500
    assert len(report.findings) == FINDINGS_MAX


# --- the end of a log that was not closed


def _reserved(folder: Path, batch: bytes) -> tuple[Path, int]:
    """The open segment with ``batch`` written behind its end."""
    log = fill(folder, 10, is_closed=False)
    position = log.size_bytes
    change(folder / FIRST, position, batch)
    return folder / FIRST, position


def _next_batch(folder: Path) -> bytes:
    batch = make_batch(3, value=b"x" * 300)
    batch[:8] = struct.pack(">q", 19)
    return bytes(batch)


@pytest.mark.parametrize("written", [1, 30, 61, 200])
@pytest.mark.parametrize("boot_id", [BOOT_ID, "another"])
def test_a_batch_that_was_being_written_is_a_torn_tail(folder: Path, written: int, boot_id: str) -> None:
    path, position = _reserved(folder, b"\x01" + _next_batch(folder)[1:written])
    (found,) = verify(folder, boot_id=boot_id)
    assert (found.kind, found.is_sound) == (Kind.TORN, True)
    assert (found.path, found.position, found.offset) == (str(path), position, 19)


def test_a_whole_batch_that_does_not_fit_its_crc_is_damage(folder: Path) -> None:
    batch = bytearray(_next_batch(folder))
    batch[-1] = batch[100] = 7
    _reserved(folder, bytes(batch))
    for boot_id in (BOOT_ID, "another"):
        assert [finding.kind for finding in verify(folder, boot_id=boot_id)] == [Kind.DAMAGE]


def test_bytes_far_behind_a_bad_batch_are_damage_after_a_kill(folder: Path) -> None:
    """After a power cut the bytes between may be lost sectors of writes that were never acknowledged."""
    path, _ = _reserved(folder, _next_batch(folder)[:200])
    change(path, 30_000, b"x")
    assert [finding.kind for finding in verify(folder)] == [Kind.DAMAGE]
    assert [finding.kind for finding in verify(folder, boot_id="another")] == [Kind.TORN]


# --- index, seal, checkpoint, quarantine


def entry(path: Path, number: int, offset: int, position: int, timestamp: int) -> None:
    change(path.with_suffix(".index"), number * ENTRY_BYTES, struct.pack("<IIq", offset, position, timestamp))


def _open_with_index(folder: Path) -> tuple[Path, int, int, int]:
    """An open segment, and what the third entry of its index says; that of a closed one is covered by the seal."""
    log = fill(folder, 60, is_closed=False, settings=LogSettings(index_interval_bytes=200))
    log.checkpoint()
    path = folder / FIRST
    return path, *struct.unpack_from("<IIq", path.with_suffix(".index").read_bytes(), 2 * ENTRY_BYTES)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ((0, 1), "middle of a batch"),
        ((1, 0), "the batch there begins at"),
    ],
)
def test_an_index_entry_that_does_not_fit_is_found(folder: Path, changes: tuple[int, int], reason: str) -> None:
    path, offset, position, timestamp = _open_with_index(folder)
    entry(path, 2, offset + changes[0], position + changes[1], timestamp)
    found = [finding for finding in verify(folder) if finding.kind is Kind.INDEX]
    assert len(found) == 1
    assert reason in found[0].reason
    assert found[0].position == 2 * ENTRY_BYTES


def test_an_index_entry_that_knows_less_time_than_lies_before_it_is_found(folder: Path) -> None:
    path, offset, position, _ = _open_with_index(folder)
    for number in range(2):
        before = struct.unpack_from("<IIq", path.with_suffix(".index").read_bytes(), number * ENTRY_BYTES)
        entry(path, number, before[0], before[1], number)
    entry(path, 2, offset, position, 5)
    found = [finding.reason for finding in verify(folder) if finding.kind is Kind.INDEX]
    assert len(found) == 3
    assert "says timestamp 5" in found[2]


def test_an_index_that_goes_on_behind_the_log_is_found(folder: Path) -> None:
    path, *_ = _open_with_index(folder)
    with path.with_suffix(".index").open("ab") as index:
        index.write(struct.pack("<IIq", 10_000, 1_000_000, 2**62))
    (found,) = verify(folder)
    assert (found.kind, found.is_sound) == (Kind.INDEX, True)
    assert "beyond the last batch" in found.reason


def test_a_changed_index_breaks_the_seal(folder: Path) -> None:
    fill(folder)
    path = logs_of(folder)[0].with_suffix(".index")
    change(path, 20)
    found = harm(verify(folder))
    assert found[0].kind is Kind.SEAL
    assert found[0].path == str(path)


def test_a_closed_segment_without_its_index_is_found(folder: Path) -> None:
    fill(folder)
    logs_of(folder)[0].with_suffix(".index").unlink()
    (found,) = harm(verify(folder))
    assert found.kind is Kind.SEAL


def test_a_changed_checkpoint_is_found(folder: Path) -> None:
    fill(folder)
    change(folder / "checkpoint", 40)
    found = verify(folder)
    assert found[0].kind is Kind.CHECKPOINT
    assert not found[0].is_sound


def test_a_known_range_is_told_apart_from_a_new_one(folder: Path) -> None:
    fill(folder)
    path = logs_of(folder)[1]
    places = batch_positions(path)
    (position, offset), (end, end_offset) = places[5:7]
    change(path, position + 30)
    change(path, places[9][0] + 30)
    known = Quarantine(int(path.stem), position, end - position, offset, end_offset, "bad CRC")
    write_quarantine(str(folder), Files(), [known])
    first, second = verify(folder)
    assert (first.kind, first.is_sound, first.reason) == (Kind.QUARANTINED, True, "bad CRC")
    assert (first.position, first.size_bytes, first.offset, first.end_offset) == (
        *(position, end - position),
        *(offset, end_offset),
    )
    assert (second.kind, second.position) == (Kind.DAMAGE, places[9][0])


def test_offsets_known_to_be_missing_are_told_apart(folder: Path) -> None:
    fill(folder)
    first, gone, after, *_ = logs_of(folder)
    known = Quarantine(0, first.stat().st_size, 0, int(gone.stem), int(after.stem), "missing")
    gone.unlink()
    write_quarantine(str(folder), Files(), [known])
    found = verify(folder)
    assert harm(found) == []
    # The index of the segment that is gone, and the range.
    assert [finding.kind for finding in found] == [Kind.STRAY, Kind.QUARANTINED]


def test_a_quarantine_file_that_cannot_be_decoded_is_found(folder: Path) -> None:
    fill(folder)
    (folder / "quarantine").write_bytes(b"{")
    (found,) = verify(folder)
    assert (found.kind, found.path) == (Kind.UNREADABLE, str(folder / "quarantine"))


# --- other files


def test_files_that_do_not_belong_are_named(folder: Path) -> None:
    fill(folder)
    (folder / "00000000000000000077.log.new").write_bytes(b"")
    (folder / "notes.txt").write_bytes(b"")
    found = verify(folder)
    assert [(finding.kind, Path(finding.path).name, finding.is_sound) for finding in found] == [
        (Kind.STRAY, "00000000000000000077.log.new", True),
        (Kind.STRAY, "notes.txt", True),
    ]


def test_a_replacement_that_is_committed_counts_as_done(folder: Path) -> None:
    fill(folder)
    first, second, third, *_ = logs_of(folder)
    # What a compaction of the first two segments leaves when it is killed right behind its commit point.
    for path in (first, first.with_suffix(".index")):
        path.with_name(path.name + ".new").write_bytes(path.read_bytes())
    change(first, 100)
    manifest = {"remove": [int(first.stem), int(second.stem)], "add": [int(first.stem)], "clean_upto": int(third.stem)}
    (folder / "replacement").write_text(json.dumps(manifest))
    plan = plan_folder(str(folder), BOOT_ID)
    assert [job.base_offset for job in plan.jobs][:2] == [0, int(third.stem)]
    assert [(finding.kind, finding.is_sound) for finding in verify(folder)] == [(Kind.UNFINISHED, True)]


def test_the_data_directory_is_looked_at(tmp_path: Path) -> None:
    for name in ("t-0", "t-1.AAAA.deleted", "t-2.AAAA.stale"):
        (tmp_path / name).mkdir()
    (tmp_path / ".lock").write_bytes(b"")
    (tmp_path / "checkpoint.new").write_bytes(b"")
    (tmp_path / "metastore.journal").write_bytes(b"not a journal")
    found = check_data_dir(str(tmp_path), Files())
    assert [(finding.kind, Path(finding.path).name) for finding in found] == [
        (Kind.STRAY, "checkpoint.new"),
        (Kind.STRAY, "t-1.AAAA.deleted"),
        (Kind.STRAY, "t-2.AAAA.stale"),
        (Kind.JOURNAL, "metastore.journal"),
    ]


# --- beside a running server


def test_only_sealed_segments_are_taken_while_the_log_is_open(folder: Path) -> None:
    log = fill(folder, is_closed=False)
    jobs = plan_folder(str(folder), BOOT_ID, sealed_only=True).jobs
    assert len(jobs) == log.segment_count - 1
    data_dirs = [str(folder.parent / "elsewhere"), str(folder.parent)]
    assert plan_scrub(data_dirs, ["other-0", folder.name]) == [plan_folder(str(folder), "", sealed_only=True)]
    log.close()
    assert len(plan_folder(str(folder), BOOT_ID, sealed_only=True).jobs) == log.segment_count


def test_a_folder_or_file_that_goes_meanwhile_is_no_finding(folder: Path) -> None:
    fill(folder)
    plan = plan_folder(str(folder), BOOT_ID)
    for path in folder.iterdir():
        path.unlink()
    assert all(report.is_gone and not report.findings for report in walk(plan))
    folder.rmdir()
    assert plan_folder(str(folder), BOOT_ID) == FolderPlan(str(folder))
    assert plan_scrub([str(folder.parent)], [folder.name]) == []


@pytest.mark.parametrize("swap", ["index", "both"])
def test_a_segment_that_becomes_another_between_two_pieces_is_left_alone(folder: Path, swap: str) -> None:
    fill(folder)
    job = plan_folder(str(folder), BOOT_ID).jobs[0]
    report = verify_segment(job, None, 1000)
    assert not report.is_done
    os.replace(logs_of(folder)[1].with_suffix(".index"), job.index_path)
    if swap == "both":
        os.replace(logs_of(folder)[1], job.path)
    report = verify_segment(job, report, 1000)
    assert report.is_gone
    assert report.findings == []


@pytest.mark.parametrize("seed", range(30))
def test_any_changed_byte_of_a_closed_segment_is_found_except_its_leader_epoch(folder: Path, seed: int) -> None:
    """The leader epoch stands before the CRC and repeats nothing that is known."""
    fill(folder, 40)
    chance = random.Random(seed)
    path = chance.choice(logs_of(folder))
    starts = [position for position, _ in batch_positions(path)]
    position = chance.randrange(path.stat().st_size)
    change(path, position)
    within = position - max(start for start in starts if start <= position)
    assert bool(harm(verify(folder))) is (within not in range(12, 16))
