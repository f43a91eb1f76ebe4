"""Space that is reserved for the work that frees space."""

import errno
import os
from pathlib import Path

import pytest

from storage.data_directory.disk_reserve import PIECES, RESERVE_NAME, DiskReserve, run_with_reserve
from storage.data_directory.folder_removal import FolderRemoval
from storage.data_directory.store import LogStore
from storage.disk.files import Files
from storage.errors import DiskFailure
from storage.log.settings import LogSettings
from storage.log.start_offset import LogStartUpdate
from tests.support.batches import append, make_batch, run_now
from tests.support.scarce_files import ScarceFiles
from tests.support.simulated_disk import SimulatedDisk, SimulatedFiles

ID = bytes(range(16))
SIZE = 64 * 1024
DISK_BYTES = 1024 * 1024


class Measured(Files):
    """Real files on a disk with as much space as the test says."""

    free_bytes = 10 * SIZE

    def space(self, path: str) -> tuple[int, int]:
        return 100 * SIZE, self.free_bytes


def made(path: Path, files: Files, size_bytes: int = SIZE) -> DiskReserve:
    reserve = DiskReserve(str(path), files, size_bytes)
    reserve.open()
    return reserve


def blocks_of(path: Path) -> int:
    return (path / RESERVE_NAME).stat().st_blocks * 512


def test_it_takes_blocks_of_the_disk_and_keeps_them_over_a_restart(tmp_path: Path) -> None:
    files = Measured()
    reserve = made(tmp_path, files)
    assert (reserve.is_whole, blocks_of(tmp_path)) == (True, SIZE)
    reserve.close()
    files.free_bytes = 0
    again = made(tmp_path, files)
    assert (again.is_whole, blocks_of(tmp_path)) == (True, SIZE)
    again.close()


def test_it_is_given_up_in_pieces_and_taken_again_when_there_is_space(tmp_path: Path) -> None:
    files = Measured()
    reserve = made(tmp_path, files)
    pieces = 0
    while files.free_reserve(str(tmp_path / "orders-0")):
        pieces += 1
        assert blocks_of(tmp_path) == SIZE - pieces * SIZE // PIECES
    assert (pieces, reserve.kept_bytes) == (PIECES, 0)
    files.free_bytes = 2 * SIZE - 1  # taking it would leave less than it holds
    assert not reserve.restore()
    files.free_bytes = 2 * SIZE
    assert reserve.restore()
    assert blocks_of(tmp_path) == SIZE
    reserve.close()
    assert not files.free_reserve(str(tmp_path / "orders-0"))


def test_a_disk_without_space_has_none_until_there_is(tmp_path: Path) -> None:
    files = Measured()
    files.free_bytes = SIZE
    reserve = made(tmp_path, files)
    assert (reserve.is_whole, reserve.release()) == (False, False)
    files.free_bytes = 10 * SIZE
    assert reserve.restore()
    reserve.close()


def test_another_size_is_made_to_fit_and_none_removes_it(tmp_path: Path) -> None:
    files = Measured()
    for size_bytes in (SIZE, SIZE // 4, SIZE * 2):
        made(tmp_path, files, size_bytes).close()
        assert blocks_of(tmp_path) == size_bytes
    made(tmp_path, files, 0).close()
    assert os.listdir(tmp_path) == []


def test_another_directory_keeps_its_own(tmp_path: Path) -> None:
    files = Measured()
    for name in ("a", "ab"):
        (tmp_path / name).mkdir()
    one, other = made(tmp_path / "a", files), made(tmp_path / "ab", files)
    assert files.free_reserve(str(tmp_path / "ab" / "orders-0"))
    assert (one.is_whole, other.is_whole) == (True, False)
    one.close()
    other.close()


def test_work_that_fails_for_another_reason_is_not_repeated(tmp_path: Path) -> None:
    files = Measured()
    reserve = made(tmp_path, files)
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        run_with_reserve(files, str(tmp_path / "orders-0"), work)
    assert (calls, reserve.is_whole) == ([1], True)
    reserve.close()


def test_records_can_be_removed_from_a_disk_without_a_free_block() -> None:
    disk = SimulatedDisk()
    files = SimulatedFiles(disk)
    disk.free_bytes = DISK_BYTES
    store = LogStore("/data", files, run_now, reserve_bytes=SIZE)
    store.lock()
    log = store.open_log("orders", 0, ID, LogSettings(segment_bytes=SIZE))
    for _ in range(6):
        append(log, make_batch(value=bytes(SIZE // 2)))
    log.flush()
    disk.free_bytes = 0
    with pytest.raises(DiskFailure):
        append(log, make_batch(value=bytes(SIZE)))
    move = LogStartUpdate(log, 4)
    assert move.run() is True
    move.finish()
    dropped = log.drop_segments()
    assert dropped
    for segment in dropped:
        segment.delete_files()
    assert disk.free_bytes >= SIZE
    append(log, make_batch(value=bytes(SIZE // 2)))


def test_a_folder_that_cannot_be_removed_is_tried_again(tmp_path: Path) -> None:
    files = ScarceFiles()
    removal = FolderRemoval(str(tmp_path), files, run_now)
    folder = tmp_path / "orders-0.deleted"
    folder.mkdir()
    (folder / "file").touch()
    files.allow(0)
    removal.add([str(folder)])
    assert [error.errno for error in removal.failed.values()] == [errno.EMFILE]
    files.allow(None)
    removal.retry()
    assert (removal.failed, folder.exists()) == ({}, False)
