"""Syncs that the kernel does in the background, on real files."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.disk.files import Files
from storage.disk.kernel_syncs import SYNCS_MAX, KernelSyncs
from tests.support.faulty_files import FaultyFiles

WAIT_SECONDS = 20.0


@pytest.fixture
def syncs() -> Iterator[KernelSyncs]:
    made = Files().kernel_syncs()
    assert made is not None, "this system has no Linux AIO"
    yield made
    made.close()


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


def all_done(syncs: KernelSyncs) -> dict[int, int]:
    done: dict[int, int] = {}
    deadline = time.monotonic() + WAIT_SECONDS
    while syncs.in_progress_count:
        assert time.monotonic() < deadline, "not done in time"
        syncs.wait(WAIT_SECONDS)
        done.update(syncs.done())
    return done


def begun(syncs: KernelSyncs, fd: int) -> int:
    number = syncs.begin(fd)
    assert number is not None
    return number


def test_every_sync_is_reported_once_with_its_number(syncs: KernelSyncs, tmp_path: Path) -> None:
    numbers: list[int] = []
    for _ in range(3):
        some = []
        for one in range(5):
            fd = opened(tmp_path / str(one))
            os.write(fd, b"record")
            some.append(begun(syncs, fd))
            os.close(fd)  # the kernel has the file
        assert all_done(syncs) == dict.fromkeys(some, 0)
        numbers += some
    assert len(set(numbers)) == 15
    assert syncs.done() == []


def test_what_cannot_be_synced_is_not_begun(syncs: KernelSyncs) -> None:
    ends = os.pipe()
    assert syncs.begin(ends[0]) is None
    for one in ends:
        os.close(one)
    assert syncs.begin(ends[0]) is None
    assert syncs.in_progress_count == 0


def test_more_than_there_is_room_for_are_not_begun(syncs: KernelSyncs, tmp_path: Path) -> None:
    fd = opened(tmp_path / "file")
    # None of them counts as done before it is taken.
    numbers = [begun(syncs, fd) for _ in range(SYNCS_MAX)]
    assert syncs.begin(fd) is None
    assert all_done(syncs) == dict.fromkeys(numbers, 0)
    begun(syncs, fd)
    all_done(syncs)
    os.close(fd)


def test_files_whose_syncs_are_replaced_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert FaultyFiles().kernel_syncs() is None
    monkeypatch.setattr(Files, "fdatasync", lambda files, fd: None)
    assert Files().kernel_syncs() is None


def test_a_system_that_refuses_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "unknown")
    assert Files().kernel_syncs() is None
