"""The simulated disk is like the real one while nothing goes wrong, and forgets just what it may when it does."""

import errno
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from storage.disk.files import Files
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles
from tests.support.simulated_nodes import CUT_MARK, PAGE_BYTES

# What the base class builds out of the other calls; the simulated disk takes these as they are.
BUILT_OF_OTHERS = {"write_all", "read_file", "read_end", "replace_file"}
# KeptRecords in the object and not on the disk.
REGISTERED = {"add_reserve", "remove_reserve", "free_reserve"}

SEEDS = range(20)


class Written:
    """A disk with a synced folder in it."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.files = SimulatedFiles(self.disk)
        self.files.makedirs("/data")
        self.files.fsync_dir("/")

    def write(self, name: str, data: bytes, position: int = 0) -> int:
        fd = self.files.open_write(f"/data/{name}")
        self.files.write_all(fd, data, position)
        return fd


def outcomes(steps: Callable[[Written], object], name: str = "file") -> set[bytes | None]:
    """Every content of one file that power cuts after these steps leave."""
    found = set()
    for seed in range(100):
        written = Written()
        steps(written)
        disk = written.disk.after_power_cut(Random(seed))
        found.add(SimulatedFiles(disk).read_file(f"/data/{name}"))
    return found


def test_the_twin_has_every_call_of_the_original() -> None:
    calls = {name for name, _ in inspect.getmembers_static(Files) if not name.startswith("_")}
    assert calls - BUILT_OF_OTHERS - REGISTERED <= set(vars(SimulatedFiles))


@pytest.mark.parametrize("seed", SEEDS)
def test_without_faults_it_is_the_real_disk(seed: int, tmp_path: Path) -> None:
    assert play(Files(), str(tmp_path), Random(seed)) == play(SimulatedFiles(SimulatedDisk()), "/data", Random(seed))


def play(files: Files, root: str, chance: Random) -> list[object]:
    """Everything that random calls say, errors and maps included."""
    files.makedirs(root)
    said: list[object] = []
    maps: list[memoryview] = []
    for _ in range(150):
        path = os.path.join(root, chance.choice("abc"))
        position, size = chance.randrange(0, 3 * PAGE_BYTES), chance.randrange(1, 2 * PAGE_BYTES)
        data = bytes([chance.randrange(256)]) * size
        action = chance.choice(
            ["write", "write", "grow", "read", "map", "rename", "unlink", "replace", "list", "create"]
        )
        try:
            said.append(act(files, action, root, path, position, size, data, maps))
        except OSError as error:
            said.append(error.errno)
        said.append([bytes(view) for view in maps])
    return said


def act(
    files: Files, action: str, root: str, path: str, position: int, size: int, data: bytes, maps: list[memoryview]
) -> object:
    if action == "list":
        return sorted(files.listdir(root)), files.exists(path), files.read_file(path), files.read_end(path, size)
    if action in ("rename", "unlink", "replace", "create"):
        change_names(files, action, path, data)
        return None
    fd = files.open_read(path) if action in ("read", "map") else files.open_write(path)
    try:
        if action == "write":
            files.write_all(fd, data, position)
        elif action == "grow":
            files.fallocate(fd, position, size)
        elif action == "read":
            buffer = bytearray(size)
            return files.pread(fd, size, position), files.preadv(fd, [buffer], position), bytes(buffer)
        elif files.size(fd) > PAGE_BYTES:
            maps.append(files.map_readonly(fd, PAGE_BYTES, files.size(fd) - PAGE_BYTES))
        return files.size(fd), files.size_of(path)
    finally:
        files.close(fd)


def change_names(files: Files, action: str, path: str, data: bytes) -> None:
    if action == "rename":
        files.rename(path, path + "2")
    elif action == "unlink":
        files.unlink(path)
    elif action == "replace":
        files.replace_file(path, data, sync=True)
    else:
        files.close(files.create(path + "3"))


def test_synced_bytes_under_a_synced_name_survive() -> None:
    def steps(written: Written) -> None:
        written.files.fdatasync(written.write("file", b"x" * 10_000))
        written.files.fsync_dir("/data")

    assert outcomes(steps) == {b"x" * 10_000}


def test_a_synced_file_without_a_synced_name_may_be_gone() -> None:
    assert outcomes(lambda written: written.files.fsync(written.write("file", b"x"))) == {None, b"x"}


def test_a_synced_name_without_synced_bytes_may_be_empty_or_torn() -> None:
    def steps(written: Written) -> None:
        written.write("file", b"x" * PAGE_BYTES)
        written.files.fsync_dir("/data")

    found = outcomes(steps)
    assert {b"", b"x" * PAGE_BYTES} <= found
    torn = [content for content in found if content is not None and 0 < content.count(b"x") < PAGE_BYTES]
    assert torn
    assert all(content.count(b"x") % 512 == 0 for content in torn)


def test_pages_survive_one_without_the_other() -> None:
    def steps(written: Written) -> None:
        fd = written.write("file", bytes(2 * PAGE_BYTES))
        written.files.fsync(fd)
        written.files.fsync_dir("/data")
        written.files.write_all(fd, b"x" * 2 * PAGE_BYTES, 0)

    found = {(content or b"")[::PAGE_BYTES] for content in outcomes(steps)}
    assert found == {b"\0\0", b"x\0", b"\0x", b"xx"}


def test_names_survive_in_the_order_they_were_made() -> None:
    found = set()
    for seed in range(60):
        written = Written()
        for name in "abc":
            written.write(name, b"")
        found.add(tuple(written.disk.after_power_cut(Random(seed)).folder("/data").names))
    assert found == {(), ("a",), ("a", "b"), ("a", "b", "c")}


def test_a_rename_is_whole_or_not_there() -> None:
    def steps(written: Written) -> None:
        written.files.replace_file("/data/file", b"old", sync=True)
        fd = written.write("file.new", b"new")
        written.files.fsync(fd)
        written.files.rename("/data/file.new", "/data/file")

    assert outcomes(steps) == {b"old", b"new"}


def test_a_removed_file_may_come_back() -> None:
    def steps(written: Written) -> None:
        written.files.replace_file("/data/file", b"old", sync=True)
        written.files.unlink("/data/file")

    assert outcomes(steps) == {b"old", None}


def test_a_sync_of_everything_leaves_nothing_to_lose() -> None:
    def steps(written: Written) -> None:
        written.write("file", b"x" * 10_000)
        written.files.syncfs("/data")

    assert outcomes(steps) == {b"x" * 10_000}


def test_a_kill_loses_nothing_but_the_process() -> None:
    written = Written()
    written.write("file", b"x" * 100)
    assert SimulatedFiles(written.disk.restarted()).read_file("/data/file") == b"x" * 100


def test_another_boot_has_another_id_and_no_lock() -> None:
    written = Written()
    assert written.files.lock("/data/.lock") is not None
    assert SimulatedFiles(written.disk).lock("/data/.lock") is None
    after_kill = SimulatedFiles(written.disk.restarted())
    assert after_kill.boot_id() == written.files.boot_id()
    assert after_kill.lock("/data/.lock") is not None
    cut = SimulatedFiles(written.disk.after_power_cut(Random(0)))
    assert cut.boot_id() != written.files.boot_id()


def test_a_failed_sync_loses_the_pages_and_lies_afterwards() -> None:
    def steps(written: Written) -> None:
        fd = written.write("file", b"x" * 100)
        written.files.fsync_dir("/data")
        written.disk.fail_next("fdatasync")
        with pytest.raises(OSError, match="Input/output"):
            written.files.fdatasync(fd)
        written.files.fdatasync(fd)
        assert written.files.map_readonly(fd, 0, 100) == b"x" * 100

    assert outcomes(steps) == {bytes(100)}


def test_lost_pages_show_what_the_disk_has_once_they_leave_the_memory() -> None:
    written = Written()
    fd = written.write("file", b"x" * 100)
    written.disk.fail_next("fsync")
    with pytest.raises(OSError, match="Input/output"):
        written.files.fsync(fd)
    assert written.files.pread(fd, 100, 0) == b"x" * 100
    written.disk.file("/data/file").evict_lost()
    assert written.files.pread(fd, 100, 0) == bytes(100)


def test_a_full_disk_refuses_and_has_room_again_later() -> None:
    written = Written()
    fd = written.write("file", b"x")
    written.disk.free_bytes = PAGE_BYTES
    written.files.fallocate(fd, 0, 2 * PAGE_BYTES)
    with pytest.raises(OSError, match="No space") as refused:
        written.files.fallocate(fd, 2 * PAGE_BYTES, 1)
    assert refused.value.errno == errno.ENOSPC
    written.files.write_all(fd, b"y" * 2 * PAGE_BYTES, 0)
    with pytest.raises(OSError, match="No space"):
        written.write("other", b"y")
    written.files.unlink("/data/file")
    written.write("other", b"y" * 2 * PAGE_BYTES)


def test_writes_can_be_short_and_can_fail_halfway() -> None:
    written = Written()
    fd = written.write("file", b"")
    written.disk.shorten_next_write(3)
    assert written.files.pwrite(fd, b"abcdef", 0) == 3
    written.disk.shorten_next_write(2, is_error=True)
    with pytest.raises(OSError, match="Input/output"):
        written.files.pwrite(fd, b"ABCDEF", 0)
    assert written.files.read_file("/data/file") == b"ABc"


def test_a_flipped_bit_is_there_now_and_after_the_next_boot() -> None:
    written = Written()
    fd = written.write("file", b"\0\0")
    view = written.files.map_readonly(fd, 0, 2)
    written.files.fsync(fd)
    written.files.fsync_dir("/data")
    written.disk.file("/data/file").flip_bit(1, 4)
    assert bytes(view) == b"\0\x10"
    assert SimulatedFiles(written.disk.after_power_cut(Random(1))).read_file("/data/file") == b"\0\x10"


def test_a_map_shows_a_cut_under_it() -> None:
    written = Written()
    fd = written.write("file", b"x" * 10)
    view = written.files.map_readonly(fd, 0, 10)
    written.files.truncate(fd, 4)
    assert view == b"x" * 4 + bytes([CUT_MARK]) * 6
    written.files.write_all(fd, b"y", 9)
    assert written.files.read_file("/data/file") == b"x" * 4 + bytes(5) + b"y"


def test_new_bytes_above_a_cut_are_on_disk_only_if_the_cut_is() -> None:
    def steps(written: Written) -> None:
        written.files.replace_file("/data/file", b"old", sync=True)
        fd = written.files.create("/data/file")
        written.files.write_all(fd, b"new", 0)

    found = outcomes(steps)
    assert {b"old", b"", b"new"} <= found
    assert found <= {b"old", b"", b"new", bytes(3)}


def test_a_crash_stops_the_process_for_good_and_inside_a_write() -> None:
    written = Written()
    fd = written.write("file", b"")
    written.disk.crash_at = written.disk.call_count + 1
    with pytest.raises(Crashed):
        written.files.pwrite(fd, b"x" * 2 * PAGE_BYTES, 100)
    with pytest.raises(Crashed):
        written.files.unlink("/data/file")
    found = SimulatedFiles(written.disk.restarted()).read_file("/data/file")
    assert found == bytes(100) + b"x" * (PAGE_BYTES - 100)


def test_the_same_seed_gives_the_same_power_cut() -> None:
    def after(seed: int) -> list[bytes | None]:
        written = Written()
        for number in range(8):
            written.write(str(number), bytes([number + 1]) * 9_000)
        files = SimulatedFiles(written.disk.after_power_cut(Random(seed)))
        return [files.read_file(f"/data/{number}") for number in range(8)]

    assert after(3) == after(3)
    assert len({str(after(seed)) for seed in range(20)}) > 10
