"""The door to the operating system: short writes are finished, pages that are not in memory are told apart."""

import os
from pathlib import Path

import pytest

from storage.disk.files import BytesLike, Files


class ShortWrites(Files):
    """Takes three bytes at a time."""

    def pwrite(self, fd: int, data: BytesLike, position: int) -> int:  # type: ignore[override]
        return super().pwrite(fd, memoryview(data)[:3], position)


def test_short_writes_are_finished(tmp_path: Path) -> None:
    files = ShortWrites()
    fd = files.create(str(tmp_path / "f"))
    files.write_all(fd, b"0123456789", 5)
    files.close(fd)
    assert (tmp_path / "f").read_bytes() == bytes(5) + b"0123456789"


def test_a_write_shows_in_a_map_and_a_slice_outlives_everything(tmp_path: Path) -> None:
    files = Files()
    path = str(tmp_path / "f")
    fd = files.create(path)
    files.fallocate(fd, 0, 8192)
    view = files.map_readonly(fd, 0, 8192)
    piece = view[4000:4010]
    files.write_all(fd, b"0123456789", 4000)
    assert bytes(piece) == b"0123456789"
    files.truncate(fd, 4010)
    files.close(fd)
    files.unlink(path)
    del view
    assert bytes(piece) == b"0123456789"
    assert piece.readonly


def test_pages_that_are_not_in_memory_are_told_without_being_touched(tmp_path: Path) -> None:
    files = Files()
    fd = files.create(str(tmp_path / "f"))
    files.write_all(fd, bytes(1024 * 1024), 0)
    files.fsync(fd)
    view = files.map_readonly(fd, 0, 1024 * 1024)
    files.forbid_readahead(view)
    assert files.is_resident(view)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    for _ in range(3):  # looking is not reading
        assert not files.is_resident(view[512 * 1024 : 512 * 1024 + 1])
    assert view[512 * 1024] == 0
    assert files.is_resident(view[512 * 1024 : 512 * 1024 + 1])
    # Touching one page has not brought in the others.
    assert not files.is_resident(view[512 * 1024 : 768 * 1024])
    assert files.preadv(fd, [bytearray(1024 * 1024)], 0) == 1024 * 1024
    assert files.is_resident(view)
    assert files.is_resident(view[:0])
    files.close(fd)


def test_cached_bytes_of_a_file_are_counted_without_being_read(tmp_path: Path) -> None:
    files = Files()
    fd = files.create(str(tmp_path / "f"))
    files.write_all(fd, bytes(1024 * 1024), 0)
    files.fsync(fd)
    if files.is_cached(fd, 0, 1) is None:  # an older kernel: the map is asked, as in the test before
        assert files.is_cached(fd, 0, 4096) is None
        files.close(fd)
        return
    assert files.is_cached(fd, 0, 1024 * 1024)
    assert files.is_cached(fd, 5000, 5001)
    assert files.is_cached(fd, 77, 77)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    for _ in range(3):
        assert files.is_cached(fd, 512 * 1024, 512 * 1024 + 1) is False
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    assert files.pread(fd, 4096, 512 * 1024) == bytes(4096)
    assert files.is_cached(fd, 512 * 1024 + 100, 512 * 1024 + 4096)
    assert not files.is_cached(fd, 512 * 1024 + 100, 768 * 1024)
    files.close(fd)


def test_a_kernel_that_does_not_count_pages_is_asked_about_a_map() -> None:
    assert Files().is_cached(1_000_000, 0, 4096) is None


def test_a_file_system_is_synced_or_the_reason_is_told(tmp_path: Path) -> None:
    Files().syncfs(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        Files().syncfs(str(tmp_path / "none"))


def test_what_is_not_on_a_disk_yet_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 <= Files().unwritten_bytes() < 1 << 50
    facts = tmp_path / "meminfo"
    monkeypatch.setattr("storage.disk.files._MEMINFO_PATH", str(facts))
    assert Files().unwritten_bytes() > 1 << 60, "nothing is said"
    facts.write_bytes(b"MemTotal:  24683520 kB\nDirty:  16776 kB\nWriteback:   4 kB\nWritebackTmp:   9 kB\n")
    assert Files().unwritten_bytes() == 16780 * 1024
    facts.write_bytes(b"MemTotal:  24683520 kB\nWriteback:   4 kB\n")
    assert Files().unwritten_bytes() > 1 << 60, "half of it is said"


def test_a_file_system_that_is_watched_is_asked_through_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was opened after somebody else's sync is not told of the writes that failed before it."""
    files, path = Files(), str(tmp_path)
    count = len(os.listdir("/proc/self/fd"))
    files.watch_file_system(path)
    opened: list[str] = []
    real_open = os.open

    def noted_open(name: str, *args: int) -> int:
        opened.append(name)
        return real_open(name, *args)

    monkeypatch.setattr(os, "open", noted_open)
    files.syncfs(path)
    assert opened == []
    files.watch_file_system(path)
    files.unwatch_file_system(path)
    files.unwatch_file_system(path)
    files.syncfs(path)
    assert opened == [path, path]
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == count


def test_the_boot_id_is_stable() -> None:
    assert Files().boot_id() == Files().boot_id() != ""


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    assert Files().read_file(str(tmp_path / "none")) is None
    assert Files().read_end(str(tmp_path / "none"), 4) is None


def test_the_end_of_a_file_is_read_without_the_rest(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    assert Files().read_end(str(tmp_path / "f"), 4) == b"6789"
    assert Files().read_end(str(tmp_path / "f"), 11) is None
