"""Settling a move, and what comes after it: a log is in one folder for certain before it moves again."""

import errno
from itertools import permutations
from random import Random

import pytest

from storage.data_directory.directories import LogDirectories
from storage.errors import DiskFailure, StorageFailed
from storage.log.log import Log
from storage.relocation.relocation import LogMove
from tests.support.moving import (
    FOLDER,
    ID,
    Machine,
    copy_all,
    move_whole,
    names,
    open_log,
    put,
    settle,
    start,
    switch,
    values,
)
from tests.support.simulated_disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def switched(disk: SimulatedDisk, files: Machine | None = None) -> tuple[LogDirectories, LogMove, Log]:
    directories = start(files or Machine(disk))
    log = open_log(directories)
    for number in range(5):
        put(log, number)
    log.flush()
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    return directories, move, switch(move, log)


def test_a_sync_that_fails_in_the_settlement_ends_the_log_at_once(disk: SimulatedDisk) -> None:
    _, move, moved = switched(disk)
    disk.fail_next("fsync")
    with pytest.raises(StorageFailed):
        settle(move)
    with pytest.raises(StorageFailed):
        put(moved, 5)


def test_a_settlement_without_a_descriptor_may_come_again(disk: SimulatedDisk) -> None:
    directories, move, moved = switched(disk)
    disk.fail_next("open_read", errno.EMFILE)
    with pytest.raises(DiskFailure):
        settle(move)
    settle(move)
    put(moved, 5)
    moved.flush()
    assert values(moved) == list(range(6))
    directories.close()


def test_a_file_that_goes_during_the_settlement_is_not_missed(disk: SimulatedDisk) -> None:
    class Seeing(Machine):
        def listdir(self, path: str) -> list[str]:
            return [*super().listdir(path), *([f"{99:020d}.log"] if path == "/b/t-0" else [])]

    _, move, _ = switched(disk, Seeing(disk))
    settle(move)
    assert move.commit is not None
    assert move.commit.is_done


# --- one move after the other


def test_a_log_that_has_not_settled_does_not_move_again(disk: SimulatedDisk) -> None:
    directories, move, moved = switched(disk)
    with pytest.raises(DiskFailure, match="is not committed yet"):
        directories.begin_move(FOLDER, ID, "/a")
    assert FOLDER in names(disk, "/a")  # it may still be the one that counts
    settle(move)
    assert move_whole(directories, moved, "/a").directory == "/a/t-0"


@pytest.mark.parametrize("way", list(permutations(("/a", "/b", "/c"))))
def test_a_power_cut_in_a_second_move_finds_the_log_of_the_first(way: tuple[str, ...]) -> None:
    begun, second, third = way
    for seed in range(30):
        disk = SimulatedDisk()
        directories = start(Machine(disk), "/a", "/b", "/c")
        directories.cordoned_dirs = (second, third)
        log = open_log(directories)
        for number in range(5):
            put(log, number)
        log.flush()
        assert log.directory == f"{begun}/t-0"
        first = directories.begin_move(FOLDER, ID, second)
        first.prepare()
        copy_all(first, log)
        log = switch(first, log)
        settle(first)
        move = directories.begin_move(FOLDER, ID, third)  # the first folder is not yet removed
        move.prepare()
        copy_all(move, log)
        for number in range(5, 9):
            put(log, number)
        log.flush()
        switch(move, log)
        directories = start(Machine(disk.after_power_cut(Random(seed))), "/a", "/b", "/c")
        assert values(open_log(directories)) == list(range(9)), seed


def test_a_log_that_was_never_synced_is_served_after_a_power_cut_in_its_move() -> None:
    for seed in range(60):
        disk = SimulatedDisk()
        directories = start(Machine(disk))
        log = open_log(directories)
        for number in range(5):
            put(log, number)
        move = directories.begin_move(FOLDER, ID, "/b")
        move.prepare()
        copy_all(move, log)
        switch(move, log)
        disk = disk.after_power_cut(Random(seed))
        found = values(open_log(start(Machine(disk))))
        assert found == list(range(len(found))), seed
        assert [path for path in ("/a", "/b") if FOLDER in names(disk, path)] == ["/a"], seed


def test_a_folder_that_cannot_be_synced_ends_its_log(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    put(log, 0)
    move = directories.begin_move(FOLDER, ID, "/b")
    disk.fail_next("fsync_dir", after=3)
    with pytest.raises(StorageFailed):
        move.prepare()
    with pytest.raises(StorageFailed):
        put(log, 1)
