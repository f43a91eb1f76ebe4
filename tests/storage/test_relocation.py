"""Moving a log between directories: it is served all the time, with everything that belongs to it."""

import errno
import os
from collections.abc import Iterator
from random import Random

import pytest

from storage.data_directory.directories import LogDirectories
from storage.errors import DiskFailure, StorageFailed
from storage.log.log import Log
from storage.log.quarantine import Quarantine, read_quarantine
from storage.log.settings import LogSettings
from storage.log.start_offset import LogStartUpdate
from storage.log.syncing import SYNC_FAILED_NAME
from storage.log.transactions import AbortedTransaction
from storage.relocation.relocation import (
    FUTURE_NOTE,
    FUTURE_SUFFIX,
    MOVED_NOTE,
    MOVING_NOTE,
    REST_BYTES_MAX,
    LogMove,
    MovedLog,
    can_switch,
)
from storage.segment.index import decode_sealed
from tests.support.batches import LaterJobs, append, make_batch
from tests.support.moving import (
    FOLDER,
    ID,
    SETTINGS,
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
from tests.support.new_segments import write_new_segment
from tests.support.simulated_disk import SimulatedDisk
from tests.support.transactional import TransactionalProducer


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


# --- a move


def test_a_log_moves_with_everything_that_belongs_to_it(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    for number in range(20):
        put(log, number)
    log.flush()
    log.advance_log_start_offset(3)
    before = log.directory
    moved = move_whole(directories, log)
    assert (before, moved.directory) == ("/a/t-0", "/b/t-0")
    assert directories.path_of(FOLDER) == "/b/t-0"
    assert directories.open_log("t", 0, ID, SETTINGS) is moved
    assert values(moved) == list(range(3, 20))
    assert moved.segment_count == log.segment_count > 3
    # The producer goes on where it was: what it sends twice is known.
    assert append(moved, make_batch(producer_id=7, producer_epoch=0, base_sequence=19)).is_duplicate
    put(moved, 20)
    assert values(moved)[-1] == 20
    assert FOLDER not in names(disk, "/a")
    assert names(disk, "/b/t-0") & {FUTURE_NOTE, MOVED_NOTE, MOVING_NOTE} == set()
    directories.close()
    directories = start(Machine(disk.restarted()))
    assert directories.was_clean
    again = open_log(directories)
    assert values(again) == list(range(3, 21))
    assert again.log_start_offset == 3
    directories.close()


@pytest.mark.parametrize("is_read", [True, False], ids=["in memory", "on file"])
def test_transactions_move_along(disk: SimulatedDisk, is_read: bool) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    producers = [TransactionalProducer(number) for number in range(3)]
    producers[0].write(log)
    for number in range(12):
        producer = producers[1 + number % 2]
        producer.write(log, bytes(50))
        producer.end(log, is_commit=number % 3 == 0)
    log.flush()
    end = log.log_end_offset
    aborted = log.aborted_between(0, end)
    assert len(aborted) == 8
    if not is_read:
        log.release()
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    marker = producers[0].abort(log)
    aborted = [AbortedTransaction(0, 0, marker), *aborted]
    moved = switch(move, log)
    settle(move)
    move.close_old()
    move.remove_old()
    producers[2].write(moved)
    moved.flush()
    for _ in range(3):
        assert moved.aborted_between(0, end) == aborted
        assert moved.last_stable_offset(moved.log_end_offset) == marker + 1
        assert any(name.endswith(".txnindex") for name in names(disk, "/b/t-0"))
        disk = disk.after_power_cut(Random(1))
        moved = open_log(start(Machine(disk)))


def test_a_log_moves_back_at_once(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    for number in range(10):
        put(log, number)
    first = directories.begin_move(FOLDER, ID, "/b")
    first.prepare()
    copy_all(first, log)
    moved = switch(first, log)
    settle(first)
    first.close_old()
    # The old folder is still there: whoever comes back needs its name.
    assert names(disk, "/a/t-0") >= {MOVED_NOTE}
    back = directories.begin_move(FOLDER, ID, "/a")
    back.prepare()
    copy_all(back, moved)
    there = switch(back, moved)
    settle(back)
    put(there, 10)
    assert there.directory == "/a/t-0"
    assert values(there) == list(range(11))
    there.flush()
    back.remove_old()
    directories = start(Machine(disk.after_power_cut(Random(1))))
    assert values(open_log(directories)) == list(range(11))


def test_what_is_appended_meanwhile_is_copied_too(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    put(log, 0)
    move = directories.begin_move(FOLDER, ID, "/b")
    number = 1
    move.prepare()
    for job_round in range(4):
        for job in move.plan(log).jobs():
            job()
            for _ in range(job_round + 1):
                put(log, number)
                number += 1
    assert move.lag(log) > 0
    assert not move.plan(log).is_small(0)
    copy_all(move, log)
    put(log, number)
    assert move.lag(log) > 0
    moved = switch(move, log)
    put(moved, number + 1)
    settle(move)
    assert values(moved) == list(range(number + 2))


def test_a_rest_is_small(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    log = open_log(directories, LogSettings())
    append(log, make_batch(value=bytes(REST_BYTES_MAX)))
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    assert not move.plan(log).is_small()
    assert move.lag(log) == 1
    copy_all(move, log)
    assert move.plan(log).is_small()
    assert move.lag(log) == 0
    assert move.copied_bytes == log.size_bytes


def test_segments_that_went_or_were_replaced_meanwhile_are_not_in_the_copy(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    for number in range(20):
        put(log, number)
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    log.advance_log_start_offset(8)
    for segment in log.drop_segments():
        segment.delete_files()
    log.truncate(17)
    put(log, 17)
    copy_all(move, log)
    moved = switch(move, log)
    settle(move)
    assert values(moved) == list(range(8, 18))
    kept = {name for name in names(disk, "/b/t-0") if name.endswith(".log")}
    assert kept == {f"{segment.base_offset:020d}.log" for segment in moved.segments()}


def test_compaction_under_way_is_waited_for_and_its_result_is_copied(disk: SimulatedDisk) -> None:
    files = Machine(disk)
    directories = start(files)
    log = open_log(directories)
    for number in range(20):
        put(log, number)
    log.flush()
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    old = list(log.segments())[:2]
    new = write_new_segment(log, files, old, lambda header: header.base_offset % 2 == 1)
    swap = log.begin_replacement(old, [new], old[-1].next_offset)
    assert not can_switch(log)
    swap.run()
    copy_all(move, log)  # by name, while the names come to mean other files
    swap.finish()
    assert can_switch(log)
    copy_all(move, log)
    moved = switch(move, log)
    settle(move)
    kept = [number for number in range(20) if number % 2 == 1 or number >= old[-1].next_offset]
    assert values(moved) == kept
    assert moved.clean_upto == old[-1].next_offset
    directories.close()
    assert values(open_log(start(Machine(disk.restarted())))) == kept


def test_what_went_is_not_in_the_copy_though_a_round_was_only_planned(disk: SimulatedDisk) -> None:
    files = Machine(disk)
    directories = start(files)
    log = open_log(directories)
    for number in range(20):
        put(log, number)
    log.flush()
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    old = list(log.segments())[:2]
    new = write_new_segment(log, files, old, lambda header: header.base_offset % 2 == 1)
    log.replace_segments(old, [new], old[-1].next_offset)
    assert move.plan(log).is_small()  # so it is left to the switch, which plans anew
    moved = switch(move, log)
    settle(move)
    kept = [number for number in range(20) if number % 2 == 1 or number >= old[-1].next_offset]
    assert values(moved) == kept
    directories.close()
    # What compaction has removed does not come back with its old files.
    assert values(open_log(start(Machine(disk.restarted())))) == kept


def test_a_copy_does_not_begin_with_what_an_earlier_one_has_left(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    for number in range(20):
        put(log, number)
    left = directories.begin_move(FOLDER, ID, "/b")
    left.prepare()
    copy_all(left, log)
    log.advance_log_start_offset(8)
    for segment in log.drop_segments():
        segment.delete_files()
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    moved = switch(move, log)
    kept = {name for name in names(disk, "/b/t-0") if name.endswith(".log")}
    assert kept == {f"{segment.base_offset:020d}.log" for segment in moved.segments()}


def test_a_segment_whose_seal_is_in_work_gets_its_seal_in_the_new_place(disk: SimulatedDisk) -> None:
    later = LaterJobs()
    directories = LogDirectories(["/a", "/b"], Machine(disk), later)
    directories.lock()
    log = open_log(directories)
    for number in range(20):
        put(log, number)
    assert any(segment.is_seal_pending for segment in log.segments())
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    moved = switch(move, log)
    later.run()  # what was left to do in the old place harms nobody
    settle(move)
    move.close_old()
    assert values(moved) == list(range(20))
    for segment in list(moved.segments())[:-1]:
        assert f"{segment.base_offset:020d}.index" in names(disk, "/b/t-0")
    assert all(seals_fit(disk))


def seals_fit(disk: SimulatedDisk) -> Iterator[bool]:
    """Every sealed index in the new folder fits its segment."""
    for name in disk.folder("/b/t-0").names:
        if name.endswith(".index"):
            size = disk.file(f"/b/t-0/{name.replace('.index', '.log')}").size
            data = Machine(disk).read_file(f"/b/t-0/{name}") or b""
            yield decode_sealed(int(name[:20]), data, size) is not None


def test_damaged_ranges_move_along(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    for number in range(10):
        put(log, number)
    first = next(log.segments())
    hole = Quarantine(first.base_offset, 0, first.size_bytes, first.base_offset, first.next_offset, "test")
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    log.quarantine(hole)
    assert not move.plan(log).is_small()
    copy_all(move, log)
    moved = switch(move, log)
    settle(move)
    assert moved.quarantined == (hole,)
    assert read_quarantine("/b/t-0", Machine(disk)) == (hole,)


def test_slices_of_readers_stay_good(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    for number in range(10):
        put(log, number)
    read = log.read(0, 10_000, 10)
    before = bytes(read.view)
    move_whole(directories, log)
    assert bytes(read.view) == before


def test_a_partition_without_records_gets_its_folder_there(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    directories.create_empty(FOLDER, ID, "/b")
    directories.sync_empty(FOLDER, "/b")
    disk = disk.after_power_cut(Random(1))
    directories = start(Machine(disk))
    log = open_log(directories)
    assert log.directory == "/b/t-0"
    put(log, 0)
    log.flush()
    directories = start(Machine(disk.after_power_cut(Random(2))))
    assert values(open_log(directories)) == [0]


def test_two_partitions_of_one_long_name_have_two_copies(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    name = "x" * 249
    paths = set()
    for partition in range(2):
        append(directories.open_log(name, partition, ID, SETTINGS))
        folder = f"{name}-{partition}"
        path = directories.path_of(folder) or ""
        other = "/b" if path.startswith("/a/") else "/a"
        move = directories.begin_move(folder, ID, other)
        move.prepare()
        assert len(os.path.basename(move.path)) <= 255
        assert move.path.endswith(FUTURE_SUFFIX)
        paths.add(os.path.basename(move.path))
    assert len(paths) == 2


def test_cordoned_directories_get_no_new_partitions(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    directories.cordoned_dirs = {"/a"}
    places = {directories.open_log("t", number, ID, SETTINGS).directory for number in range(4)}
    assert {os.path.dirname(place) for place in places} == {"/b"}
    directories.cordoned_dirs = {"/a", "/b"}
    assert directories.open_log("u", 0, ID, SETTINGS).directory == "/a/u-0"


# --- ends of another kind


def test_a_move_that_is_given_up_leaves_the_log_where_it_was(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    put(log, 0)
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    move.abandon()
    assert not [name for name in names(disk, "/b") if name.startswith("t-0")]
    put(log, 1)
    directories.close()
    directories = start(Machine(disk.restarted()))
    assert directories.unfinished_moves == {}
    assert values(open_log(directories)) == [0, 1]


def test_a_deleted_topic_leaves_nothing_of_its_move(disk: SimulatedDisk) -> None:
    for steps in range(3):
        directories = start(Machine(disk.restarted()))
        log = open_log(directories)
        put(log, 0)
        move = directories.begin_move(FOLDER, ID, "/b" if log.directory == "/a/t-0" else "/a")
        move.prepare()
        copy_all(move, log)
        if steps:
            switch(move, log)
        if steps == 2:
            settle(move)
        directories.delete_log("t", 0)
        commit = move.commit
        if commit is not None:
            commit.run()  # a thread that comes late
        move.close_old()
        for data_dir in ("/a", "/b"):
            assert not [name for name in names(disk, data_dir) if name.startswith("t-0")], steps
        directories.close()


@pytest.mark.parametrize("operation", ["rename", "create", "pread", "pwrite"])
def test_a_switch_that_fails_leaves_the_log_as_it_was(disk: SimulatedDisk, operation: str) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    for number in range(10):
        put(log, number)
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    put(log, 10)
    failed = 0
    for after in range(12):
        disk.fail_next(operation, errno.ENOSPC, after=after)
        try:
            moved = switch(move, log)
        except DiskFailure:
            disk.repair()
            failed += 1
            assert directories.path_of(FOLDER) == "/a/t-0"
            assert open_log(directories) is log
            assert values(log) == list(range(11))
            continue
        break
    assert failed
    disk.repair()
    settle(move)
    assert values(moved) == list(range(11))


def test_a_log_that_has_not_settled_is_not_put_away(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    put(log, 0)
    log.flush()
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    moved = switch(move, log)
    assert isinstance(moved, MovedLog)
    assert not moved.park()
    settle(move)
    assert moved.park()
    directories.forget_log("t", 0)
    assert values(open_log(directories)) == [0]


def test_what_the_new_log_calls_durable_waits_for_the_settlement(disk: SimulatedDisk) -> None:
    for call in (Log.flush, make_start_durable):
        directories = start(Machine(disk.restarted()))
        log = open_log(directories)
        put(log, log.log_end_offset)
        target = "/b" if log.directory == "/a/t-0" else "/a"
        move = directories.begin_move(FOLDER, ID, target)
        move.prepare()
        copy_all(move, log)
        moved = switch(move, log)
        assert not is_settled(move)
        put(moved, moved.log_end_offset)
        call(moved)
        assert is_settled(move)
        directories.close()


def is_settled(move: LogMove) -> bool:
    return move.commit is not None and move.commit.is_done


def make_start_durable(log: Log) -> None:
    move = LogStartUpdate(log, 1)
    move.run()
    move.finish()


def test_a_sync_that_fails_after_the_switch_ends_the_log_and_the_old_folder_counts(disk: SimulatedDisk) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    for number in range(5):
        put(log, number)
    log.flush()
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    moved = switch(move, log)
    put(moved, 5)
    disk.fail_next("fsync")
    with pytest.raises(StorageFailed):
        moved.flush()
    assert not moved.is_writable
    assert SYNC_FAILED_NAME in names(disk, "/b/t-0")
    directories.close()
    directories = start(Machine(disk.restarted()))
    found = open_log(directories)
    assert found.directory == "/a/t-0"
    assert values(found) == list(range(5))
    assert directories.unfinished_moves == {FOLDER: "/b"}


# --- halves that are alone


def half_moved(disk: SimulatedDisk, *, is_settled: bool) -> None:
    directories = start(Machine(disk))
    log = open_log(directories)
    put(log, 0)
    move = directories.begin_move(FOLDER, ID, "/b")
    move.prepare()
    copy_all(move, log)
    switch(move, log)
    if is_settled:
        settle(move)


@pytest.mark.parametrize("is_settled", [False, True])
def test_an_old_folder_is_not_served_when_the_new_one_is_not_there(disk: SimulatedDisk, is_settled: bool) -> None:
    half_moved(disk, is_settled=is_settled)
    directories = start(Machine(disk.restarted()), "/a")
    with pytest.raises(DiskFailure, match="moved to another data directory"):
        open_log(directories)


def test_a_new_folder_is_not_served_before_it_counts(disk: SimulatedDisk) -> None:
    half_moved(disk, is_settled=False)
    directories = start(Machine(disk.restarted()), "/b")
    with pytest.raises(DiskFailure, match="moved here from another data directory"):
        open_log(directories)


def test_a_settled_folder_needs_the_old_one_no_more(disk: SimulatedDisk) -> None:
    half_moved(disk, is_settled=True)
    directories = start(Machine(disk.restarted()), "/b")
    assert values(open_log(directories)) == [0]


def test_folders_of_two_topics_are_no_move(disk: SimulatedDisk) -> None:
    files = Machine(disk)
    directories = start(files)
    put(open_log(directories), 0)
    directories.close()
    files.makedirs("/b/t-0")
    files.replace_file("/b/t-0/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", sync=True)
    files.replace_file(f"/b/t-0/{FUTURE_NOTE}", b"{}", sync=True)
    directories = start(Machine(disk.restarted()))
    assert values(open_log(directories)) == [0]
    assert "t-0" in names(disk, "/b")
    # A move there puts it aside.
    moved = move_whole(directories, open_log(directories))
    assert values(moved) == [0]
    assert [name for name in names(disk, "/b") if name.endswith(".stale")]
