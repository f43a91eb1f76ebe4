"""The list of folders written to: complete for whatever was acknowledged, or no answer."""

from pathlib import Path

import pytest

from storage.data_directory import unclean_logs as written_module
from storage.data_directory.unclean_logs import WRITTEN_NAME, UncleanList, decode_written
from storage.disk.files import Files
from tests.support.faulty_files import FaultyFiles


def start(path: Path, names: set[str], *, files: Files | None = None) -> UncleanList:
    written = UncleanList(str(path), files or Files())
    written.start(names)
    return written


def read(path: Path) -> set[str] | None:
    found = UncleanList(str(path), Files()).read()
    return None if found is None else set(found)


def test_no_file_is_no_answer(tmp_path: Path) -> None:
    assert read(tmp_path) is None


def test_names_are_found_again(tmp_path: Path) -> None:
    written = start(tmp_path, {"carried-0"})
    assert read(tmp_path) == {"carried-0"}
    for name in ("orders-0", "orders-1", "carried-0", "orders-0"):
        written.add(name)
    written.sync()
    written.close()
    assert read(tmp_path) == {"carried-0", "orders-0", "orders-1"}
    start(tmp_path, set()).close()
    assert read(tmp_path) == set()


def test_each_name_is_written_once(tmp_path: Path) -> None:
    written = start(tmp_path, set())
    written.add("orders-0")
    size = (tmp_path / WRITTEN_NAME).stat().st_size
    for _ in range(10):
        written.add("orders-0")
    assert (tmp_path / WRITTEN_NAME).stat().st_size == size
    written.close()


def test_a_list_cut_anywhere_holds_the_whole_lines(tmp_path: Path) -> None:
    written = start(tmp_path, {"a-0"})
    head_size = (tmp_path / WRITTEN_NAME).stat().st_size
    written.add("b-0")
    first_size = (tmp_path / WRITTEN_NAME).stat().st_size
    written.add("c-0")
    written.close()
    data = (tmp_path / WRITTEN_NAME).read_bytes()
    for cut in range(len(data) + 1):
        found = decode_written(data[:cut])
        if cut >= head_size:
            expected = {"a-0"} | ({"b-0"} if cut >= first_size else set()) | ({"c-0"} if cut == len(data) else set())
            assert found is not None, cut
            assert set(found) == expected, cut
            assert decode_written(data[:cut] + bytes(100)) == found


def test_a_changed_list_is_no_answer_or_misses_only_its_end(tmp_path: Path) -> None:
    written = start(tmp_path, {"a-0", "b-0"})
    written.close()
    data = (tmp_path / WRITTEN_NAME).read_bytes()
    whole = {"a-0", "b-0"}
    for at in range(len(data) - 1):
        changed = bytearray(data)
        changed[at] ^= 1
        assert decode_written(bytes(changed)) in (None, whole), at


@pytest.mark.parametrize("content", [b"", b"\n", b"orders-0\n", bytes(64), b"\xff\n\xff\n"])
def test_something_else_is_no_answer(content: bytes) -> None:
    assert decode_written(content) is None


def test_one_sync_serves_everybody_who_was_noted(tmp_path: Path) -> None:
    files = FaultyFiles()
    written = start(tmp_path, set(), files=files)
    for number in range(100):
        written.add(f"orders-{number}")
    before = files.calls["fdatasync"]
    for _ in range(100):
        written.sync()
    assert files.calls["fdatasync"] == before + 1
    written.add("one-more-0")
    written.sync()
    assert files.calls["fdatasync"] == before + 2
    written.close()


def test_after_a_failed_sync_no_other_is_believed(tmp_path: Path) -> None:
    files = FaultyFiles()
    written = start(tmp_path, set(), files=files)
    written.add("orders-0")
    files.fail_next("fdatasync")
    for _ in range(3):
        with pytest.raises(OSError, match="output error"):
            written.sync()
    written.close()


def test_a_note_that_did_not_fit_is_made_when_there_is_room(tmp_path: Path) -> None:
    files = FaultyFiles()
    written = start(tmp_path, set(), files=files)
    written.add("first-0")
    files.tear_next_write(12)
    with pytest.raises(OSError, match="output error"):
        written.add("the-name-of-a-topic-that-is-long-0")
    assert read(tmp_path) == {"first-0"}
    written.add("b-0")
    assert read(tmp_path) == {"first-0", "b-0"}
    written.add("the-name-of-a-topic-that-is-long-0")
    assert read(tmp_path) == {"first-0", "b-0", "the-name-of-a-topic-that-is-long-0"}
    written.close()


def test_folders_that_come_and_go_do_not_make_the_list_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_module, "SPARE_LINES_MAX", 20)
    files = FaultyFiles()
    written = start(tmp_path, {"kept-0"}, files=files)
    sizes = set()
    for number in range(500):
        written.add(f"passing-{number}")
        if number % 7 == 0:
            written.sync()
        written.remove(f"passing-{number}")
        sizes.add((tmp_path / WRITTEN_NAME).stat().st_size)
        found = read(tmp_path)
        assert found is not None
        assert {"kept-0", f"passing-{number}"} <= found
    assert max(sizes) < 40 * 30
    directory_syncs = files.calls["fsync_dir"]
    written.sync()
    assert files.calls["fsync_dir"] <= directory_syncs + 1
    written.close()


def test_without_room_for_a_list_there_is_none(tmp_path: Path) -> None:
    files = FaultyFiles()
    written = start(tmp_path, {"orders-0"}, files=files)
    files.break_down("pwrite")
    with pytest.raises(OSError, match="space"):
        written.start(set())
    written.disable()
    assert read(tmp_path) is None
    written.add("orders-1")
    written.sync()
    written.close()
    assert not (tmp_path / WRITTEN_NAME).exists()
