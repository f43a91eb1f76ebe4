"""A file of lines that is shortened while lines are added: none is lost, and adding one waits for nothing."""

import errno
import os
import threading
from pathlib import Path

import pytest

from storage.disk.files import Files
from storage.disk.line_file import LineFile
from tests.support.faulty_files import FaultyFiles

WAIT_SECONDS = 20.0
OLD = b"head\n" + b"gone\n" * 9 + b"kept\n"
SHORT = b"head\nkept\n"


class SlowRename(Files):
    """A rename waits for `may_end`."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def rename(self, source: str, target: str) -> None:
        self.has_begun.set()
        assert self.may_end.wait(WAIT_SECONDS)
        super().rename(source, target)


def opened(path: Path, files: Files) -> LineFile:
    path.write_bytes(OLD)
    file = LineFile(str(path), files)
    file.fd, file.size_bytes, file.line_count = files.open_write(str(path)), len(OLD), 10
    return file


def add(file: LineFile, line: bytes) -> None:
    with file.lock:
        file.add(line)


def test_lines_that_come_while_the_file_is_replaced_are_in_both(tmp_path: Path) -> None:
    path, files = tmp_path / "list", SlowRename()
    file = opened(path, files)
    add(file, b"before\n")
    outcome: list[bool] = []
    shortening = threading.Thread(
        target=lambda: outcome.append(file.rewrite(SHORT, 1, len(OLD), 10, sync=True)), daemon=True
    )
    shortening.start()
    assert files.has_begun.wait(WAIT_SECONDS)
    # The rename waits for the disk; this does not.
    add(file, b"meanwhile\n")
    assert path.read_bytes() == OLD + b"before\nmeanwhile\n"
    assert Path(f"{path}.new").read_bytes() == SHORT + b"before\nmeanwhile\n"
    files.may_end.set()
    shortening.join(WAIT_SECONDS)
    assert outcome == [True]
    add(file, b"after\n")
    assert path.read_bytes() == SHORT + b"before\nmeanwhile\nafter\n"
    assert (file.size_bytes, file.line_count) == (path.stat().st_size, 4)
    file.close()


def test_a_file_that_is_closed_meanwhile_is_left_to_the_next_start(tmp_path: Path) -> None:
    path, files = tmp_path / "list", SlowRename()
    file = opened(path, files)
    outcome: list[bool] = []
    shortening = threading.Thread(
        target=lambda: outcome.append(file.rewrite(SHORT, 1, len(OLD), 10, sync=False)), daemon=True
    )
    shortening.start()
    assert files.has_begun.wait(WAIT_SECONDS)
    file.close()
    files.may_end.set()
    shortening.join(WAIT_SECONDS)
    assert outcome == [False]
    assert not file.rewrite(SHORT, 1, len(OLD), 10, sync=False)


@pytest.mark.parametrize("operation", ["create", "pwrite", "fsync", "rename"])
def test_a_replacement_that_fails_leaves_the_file_as_it_was(tmp_path: Path, operation: str) -> None:
    path, files = tmp_path / "list", FaultyFiles()
    file = opened(path, files)
    descriptors = len(os.listdir("/proc/self/fd"))
    files.fail_next(operation, errno.ENOSPC)
    with pytest.raises(OSError, match="space"):
        file.rewrite(SHORT, 1, len(OLD), 10, sync=True)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    add(file, b"after\n")
    assert path.read_bytes() == OLD + b"after\n"
    assert file.line_count == 11
    file.close()
