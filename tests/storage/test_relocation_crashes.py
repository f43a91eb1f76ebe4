"""A move that is stopped at any single call to the operating system, by kill and by power cut: one folder is the log.

There are appends before the move, between its steps and after its switch; what was acknowledged is there, once and in
order. That the check can fail is shown by planting the mistakes it is there for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from storage.errors import DiskFailure
from storage.log.log import Log
from tests.support.effort import repetitions
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
from tests.support.simulated_disk import Crashed, SimulatedDisk

# What a power cut leaves is a matter of chance.
SEEDS = repetitions(quick=2, full=4)
# Enough to meet each of the planted mistakes.
PLANTED_SEEDS = 4
# Of the pairs of crashes not all are tried: they are many.
SECOND_CRASH_STEP = 5


@dataclass
class History:
    """One life of a log with a move in it, and what was acknowledged in it when it ended."""

    is_group: bool
    acknowledged: int = 0
    written: int = 0
    # Calls to the system before the switch, and when everything was over.
    switch_call: int = 0
    end_call: int = 0

    def put(self, log: Log) -> None:
        put(log, self.written)
        self.written += 1
        if not self.is_group:
            self.acknowledged = self.written  # after a kill it is there: the cache is whole

    def flush(self, log: Log) -> None:
        log.flush()
        self.acknowledged = self.written

    def live(self, disk: SimulatedDisk) -> None:
        directories = start(Machine(disk))
        log = open_log(directories)
        for _ in range(9):
            self.put(log)
        self.flush(log)
        move = directories.begin_move(FOLDER, ID, "/b")
        move.prepare()
        for job in move.plan(log).jobs():
            job()
            self.put(log)
        self.flush(log)
        copy_all(move, log)
        self.put(log)
        self.switch_call = disk.call_count
        log = switch(move, log)
        self.put(log)
        self.flush(log)
        self.put(log)
        settle(move)
        self.flush(log)
        move.close_old()
        self.put(log)
        move.remove_old()
        self.end_call = disk.call_count
        for _ in range(5):
            self.put(log)
        self.flush(log)
        directories.close()


def crashed_at(number: int, history: History) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.crash_at = number
    with pytest.raises(Crashed):
        history.live(disk)
    return disk


def call_count(is_group: bool) -> int:
    disk = SimulatedDisk()
    History(is_group).live(disk)
    return disk.call_count


def check_after(disk: SimulatedDisk, history: History, number: int) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    found = values(log)
    assert found == list(range(len(found))), number
    assert len(found) >= history.acknowledged, number
    assert len(found) <= history.written + 1, number
    holders = [data_dir for data_dir in ("/a", "/b") if FOLDER in names(disk, data_dir)]
    # The first crashes come before there is a folder.
    assert holders in (["/a"], ["/b"]) or not found, number
    # It goes on, moves if it was to, and is where it should be after the next start.
    put(log, len(found))
    log.flush()
    if FOLDER in directories.unfinished_moves:
        log = move_whole(directories, log, directories.unfinished_moves[FOLDER])
        assert log.directory == "/b/t-0"
    directories.close()
    directories = start(Machine(disk.restarted()))
    assert directories.was_clean
    assert directories.unfinished_moves == {}
    assert values(open_log(directories)) == list(range(len(found) + 1)), number
    directories.close()


@pytest.mark.parametrize("is_group", [True, False], ids=["group", "os"])
def test_a_kill_at_any_call_leaves_one_log_with_all_that_was_acknowledged(is_group: bool) -> None:
    for number in range(1, call_count(is_group)):
        history = History(is_group)
        check_after(crashed_at(number, history).restarted(), history, number)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_power_cut_at_any_call_leaves_one_log_with_all_that_was_acknowledged(seed: int) -> None:
    for number in range(1, call_count(True)):
        history = History(True)
        disk = crashed_at(number, history)
        check_after(disk.after_power_cut(Random(seed * 10_000 + number)), history, number)


@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill", "power cut"])
def test_a_second_crash_while_the_first_is_sorted_out_harms_nothing(is_power_cut: bool) -> None:
    whole = History(True)
    whole.live(SimulatedDisk())
    for number in range(whole.switch_call, whole.end_call + 1, SECOND_CRASH_STEP):
        again = 0
        while True:
            again += 1
            history = History(True)
            disk = crashed_at(number, history)
            disk = disk.after_power_cut(Random(number)) if is_power_cut else disk.restarted()
            disk.crash_at = disk.call_count + again * SECOND_CRASH_STEP
            try:
                open_log(start(Machine(disk)))
            except Crashed:
                disk = disk.after_power_cut(Random(again)) if is_power_cut else disk.restarted()
                check_after(disk, history, number)
                continue
            break


def without_settlement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.relocation.relocation.MoveCommit.run", lambda self: setattr(self, "is_done", True))


def with_every_note_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.relocation.relocation.is_moving_in_boot", lambda path, boot_id, files: True)


def without_a_look_at_the_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.relocation.relocation.is_moving_in_boot", lambda path, boot_id, files: False)


def crash_everywhere(is_power_cut: bool) -> None:
    for seed in range(PLANTED_SEEDS):
        for number in range(1, call_count(is_power_cut)):
            history = History(is_power_cut)
            disk = crashed_at(number, history)
            disk = disk.after_power_cut(Random(seed * 10_000 + number)) if is_power_cut else disk.restarted()
            check_after(disk, history, number)


@pytest.mark.parametrize(
    ("plant", "is_power_cut"),
    [(without_settlement, True), (with_every_note_believed, True), (without_a_look_at_the_note, False)],
)
def test_the_crash_tests_find_planted_mistakes(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], is_power_cut: bool
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, DiskFailure)):
        crash_everywhere(is_power_cut)
