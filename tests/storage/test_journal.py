"""The journal: what was acknowledged is there, what was not may be missing, and nothing in between."""

import errno
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.disk.files import Files
from storage.disk.journal import FRAME_BYTES_MAX, MAGIC, Journal
from storage.errors import DiskFailure, JournalDamaged, StorageFailed
from tests.support.batches import UnsyncedFiles
from tests.support.effort import examples
from tests.support.faulty_files import FaultyFiles


def replay(path: Path) -> list[bytes]:
    journal = Journal.open(str(path), UnsyncedFiles())
    try:
        return list(journal.replay())
    finally:
        journal.close()


def write(path: Path, groups: list[list[bytes]]) -> list[int]:
    """The sizes of the file after each group."""
    journal = Journal.open(str(path), UnsyncedFiles())
    sizes = [journal.size_bytes]
    for group in groups:
        journal.append(group)
        sizes.append(journal.size_bytes)
    journal.close()
    return sizes


GROUPS = [[b"one"], [b"two", b"", b"three"], [b"four" * 9]]


def test_records_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, GROUPS)
    assert replay(path) == [record for group in GROUPS for record in group]
    write(path, [[b"five"]])
    assert replay(path)[-1] == b"five"


def test_records_are_handed_out_once(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, GROUPS)
    journal = Journal.open(str(path), Files())
    assert len(list(journal.replay())) == 5
    assert list(journal.replay()) == []
    journal.close()


def test_a_journal_cut_at_any_byte_holds_the_groups_before(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    sizes = write(path, GROUPS)
    data = path.read_bytes()
    assert sizes[-1] == len(data)
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        whole = sum(size <= cut for size in sizes[1:])
        expected = [record for group in GROUPS[:whole] for record in group]
        assert replay(path) == expected, cut
        # And it goes on from there.
        write(path, [[b"next"]])
        assert replay(path) == [*expected, b"next"], cut


def test_a_frame_whose_sectors_never_arrived_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    sizes = write(path, [[b"one"], [b"x" * 3000]])
    data = bytearray(path.read_bytes())
    data[1024:1536] = bytes(512)
    path.write_bytes(data)
    assert replay(path) == [b"one"]
    # Also when nothing of it arrived but the length of the file.
    path.write_bytes(bytes(data[: sizes[1]]) + bytes(3000))
    assert replay(path) == [b"one"]


def test_a_bit_flipped_anywhere_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, GROUPS)
    data = path.read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(JournalDamaged):
            replay(path)
        assert path.read_bytes() == damaged


def test_a_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"something else entirely")
    with pytest.raises(JournalDamaged):
        replay(path)
    assert path.read_bytes() == b"something else entirely"


def test_a_rewrite_replaces_everything(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, GROUPS)
    journal = Journal.open(str(path), Files())
    journal.rewrite([b"a", b"b"])
    journal.append([b"c"])
    size = journal.size_bytes
    journal.close()
    assert replay(path) == [b"a", b"b", b"c"]
    assert path.stat().st_size == size
    journal = Journal.open(str(path), Files())
    journal.rewrite([])
    journal.close()
    assert path.read_bytes() == MAGIC


def test_a_rewrite_may_be_larger_than_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    monkeypatch.setattr("storage.disk.journal.FRAME_BYTES_MAX", 200)
    monkeypatch.setattr("storage.disk.journal.REWRITTEN_FRAME_BYTES", 100)
    records = [b"%03d" % number * 7 for number in range(100)]
    journal = Journal.open(str(path), UnsyncedFiles())
    journal.rewrite(records)
    journal.append([b"last"])
    assert path.stat().st_size == journal.size_bytes
    journal.close()
    assert replay(path) == [*records, b"last"]


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    files = FaultyFiles()
    journal = Journal.open(str(tmp_path / "journal"), files)
    journal.append([b"one"])
    files.break_down("pwrite")
    with pytest.raises(DiskFailure) as caught:
        journal.append([b"two"])
    assert caught.value.error_number == errno.ENOSPC
    files.repair()
    files.tear_next_write(7)
    with pytest.raises(DiskFailure):
        journal.append([b"three"])
    journal.append([b"four"])
    journal.close()
    assert replay(tmp_path / "journal") == [b"one", b"four"]


def test_after_a_failed_sync_nothing_is_taken(tmp_path: Path) -> None:
    files = FaultyFiles()
    journal = Journal.open(str(tmp_path / "journal"), files)
    journal.append([b"one"])
    files.fail_next("fdatasync", errno.EIO)
    with pytest.raises(StorageFailed):
        journal.append([b"two"])
    syncs = files.calls["fdatasync"]
    with pytest.raises(StorageFailed):
        journal.append([b"three"])
    with pytest.raises(StorageFailed):
        journal.rewrite([b"four"])
    assert files.calls["fdatasync"] == syncs
    journal.close()
    assert replay(tmp_path / "journal")[0] == b"one"


def test_a_write_that_cannot_be_taken_back_poisons(tmp_path: Path) -> None:
    files = FaultyFiles()
    journal = Journal.open(str(tmp_path / "journal"), files)
    files.tear_next_write(7)
    files.fail_next("truncate")
    with pytest.raises(StorageFailed):
        journal.append([b"one"])
    with pytest.raises(StorageFailed):
        journal.append([b"two"])
    journal.close()
    assert replay(tmp_path / "journal") == []


@pytest.mark.parametrize("operation", ["create", "pwrite", "fsync", "rename"])
def test_a_failed_rewrite_leaves_the_old_content(tmp_path: Path, operation: str) -> None:
    files = FaultyFiles()
    journal = Journal.open(str(tmp_path / "journal"), files)
    journal.append([b"one"])
    files.fail_next(operation, errno.ENOSPC)
    with pytest.raises(DiskFailure):
        journal.rewrite([b"two"])
    journal.append([b"three"])
    journal.close()
    assert replay(tmp_path / "journal") == [b"one", b"three"]


def test_a_power_cut_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    files = FaultyFiles()
    journal = Journal.open(str(tmp_path / "journal"), files)
    journal.append([b"one"])
    journal.rewrite([b"two"])
    journal.append([b"three"])
    files.cut_power()
    journal.close()
    assert replay(tmp_path / "journal") == [b"two", b"three"]


def test_nothing_and_too_much_are_refused(tmp_path: Path) -> None:
    journal = Journal.open(str(tmp_path / "journal"), Files())
    with pytest.raises(ValueError, match="at least one"):
        journal.append([])
    with pytest.raises(ValueError, match="a frame holds at most"):
        journal.append([bytes(FRAME_BYTES_MAX)])
    journal.append([b"one"])
    journal.close()
    assert replay(tmp_path / "journal") == [b"one"]


@settings(max_examples=examples(40))
@given(st.lists(st.lists(st.binary(max_size=600), min_size=1, max_size=4), max_size=6))
def test_any_records_come_back(tmp_path_factory: pytest.TempPathFactory, groups: list[list[bytes]]) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal"
    write(path, groups)
    assert replay(path) == [record for group in groups for record in group]


@settings(max_examples=examples(200))
@given(
    before=st.lists(st.integers(1, 700), min_size=1, max_size=3),
    size=st.integers(1, 3000),
    lost=st.sets(st.integers(0, 7), min_size=1),
)
def test_any_sectors_of_an_unfinished_frame_may_be_lost(
    tmp_path_factory: pytest.TempPathFactory, before: list[int], size: int, lost: set[int]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal"
    sizes = write(path, [*([b"k" * length] for length in before), [b"u" * size]])
    data = bytearray(path.read_bytes())
    start, first = sizes[-2], sizes[-2] // 512
    for sector in lost:
        at, end = max((first + sector) * 512, start), min((first + sector + 1) * 512, len(data))
        if at < end:
            data[at:end] = bytes(end - at)
    is_whole = bytes(data) == path.read_bytes()
    path.write_bytes(data)
    assert replay(path) == [*(b"k" * length for length in before), *([b"u" * size] if is_whole else [])]


def test_a_last_sector_of_one_byte_may_be_lost(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    shorter = write(path, [[b"k"], [b"u"]])[-1]
    path.unlink()
    write(path, [[b"k"], [b"u" * (1 + 1025 - shorter)]])
    data = bytearray(path.read_bytes())
    assert len(data) == 1025
    data[-1] = 0
    path.write_bytes(data)
    assert replay(path) == [b"k"]


def test_a_sector_lost_in_front_of_finished_frames_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    sizes = write(path, [[b"a" * 600], [b"b" * 2000], [b"c" * 600]])
    data = bytearray(path.read_bytes())
    edge = (sizes[1] // 512 + 1) * 512
    data[sizes[1] : edge] = bytes(edge - sizes[1])
    path.write_bytes(data)
    with pytest.raises(JournalDamaged):
        replay(path)
