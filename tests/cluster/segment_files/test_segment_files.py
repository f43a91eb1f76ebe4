"""The files of a segment store on a simulated disk: kills, power cuts, damage, failed syncs and full disks."""

import errno
from random import Random

import pytest

from kwire.cluster.core.entries import INDEX_MAX, Entry, Kind, Range, Run, run_of
from kwire.cluster.core.messages import SegmentId
from kwire.cluster.core.writes import (
    PutEntries,
    RemoveAfter,
    RemoveReplica,
    ReplicaState,
    SetAcked,
    SetClosed,
    SetComplete,
    SetSealedEpoch,
    SetStamps,
    SetUnknown,
    Write,
)
from kwire.cluster.segment_files.partition_log import EntryDamaged
from kwire.cluster.segment_files.register import REGISTER_NAME
from kwire.cluster.segment_files.replica_file import EVERYTHING
from kwire.cluster.segment_files.segment_files import FILE_SUFFIX, SegmentFiles
from storage.errors import DiskFailure, StorageFailed
from tests.support.effort import repetitions
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles

DIRECTORY = "/data/segments"
COOKIE = 77
ONE = SegmentId("orders", 1)
TWO = SegmentId("orders", 2)


def make_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    SimulatedFiles(disk).makedirs("/data")
    SimulatedFiles(disk).syncfs("/")
    return disk


def opened(disk: SimulatedDisk, *, syncs: bool = True) -> SegmentFiles:
    return SegmentFiles.open(DIRECTORY, SimulatedFiles(disk), COOKIE, syncs=syncs)


def event(index: int, epoch: int = 1, payload: bytes | None = None, stamp: int = 0) -> Entry:
    return Entry(index, Kind.EVENT, epoch, stamp or epoch, f"event {index}".encode() if payload is None else payload)


def bridge(index: int, epoch: int) -> Entry:
    return Entry(index, Kind.BRIDGE, epoch, epoch)


def filled(disk: SimulatedDisk, count: int = 10) -> SegmentFiles:
    """A store with one replica of `count` entries, one frame each."""
    files = opened(disk)
    files.apply([SetSealedEpoch(ONE, 1)])
    for index in range(1, count + 1):
        files.apply([PutEntries(ONE, (event(index),))])
    return files


def replica_path(disk: SimulatedDisk, number: int = 0) -> str:
    names = sorted(name for name in SimulatedFiles(disk).listdir(DIRECTORY) if name.endswith(FILE_SUFFIX))
    return f"{DIRECTORY}/{names[number]}"


def test_a_restart_returns_what_was_written() -> None:
    disk = make_disk()
    files = opened(disk)
    files.apply(
        [
            SetSealedEpoch(ONE, 1),
            PutEntries(ONE, (event(1), event(2), event(3), event(4))),
            SetAcked(ONE, 2),
            SetSealedEpoch(ONE, 3),
            SetStamps(ONE, (Run(2, 3, Kind.EVENT, 1, 3),)),
            PutEntries(ONE, (bridge(4, 3),)),
            RemoveAfter(ONE, 4),
            SetComplete(ONE, 3),
            SetClosed(ONE, 4),
            SetSealedEpoch(TWO, 3),
            SetUnknown(TWO, (Range(5, 9),)),
        ]
    )
    assert files.incarnation == (COOKIE, 1)
    again = opened(disk.after_power_cut(Random(1)))
    assert again.incarnation == (COOKIE, 2)
    runs = (Run(1, 1, Kind.EVENT, 1, 1), Run(2, 3, Kind.EVENT, 1, 3), Run(4, 4, Kind.BRIDGE, 3, 3))
    assert again.states() == {
        ONE: ReplicaState(3, 4, 4, 3, runs, ()),
        TWO: ReplicaState(3, 0, 0, 0, (), (Range(5, 9),)),
    }
    assert again.damages == []
    assert again.read(ONE, 1, 4, 10_000) == (event(1), event(2, stamp=3), event(3, stamp=3), bridge(4, 3))


def test_a_read_has_a_bound_and_returns_at_least_one_entry() -> None:
    files = filled(make_disk())
    assert [entry.index for entry in files.read(ONE, 3, 8, 1)] == [3]
    assert [entry.index for entry in files.read(ONE, 3, 8, 10_000)] == [3, 4, 5, 6, 7, 8]
    assert files.read(ONE, 11, 20, 10_000) == ()


def test_a_removed_replica_is_gone_with_its_file() -> None:
    disk = make_disk()
    files = filled(disk)
    files.apply([RemoveReplica(ONE), SetSealedEpoch(TWO, 1)])
    again = opened(disk.restarted())
    assert list(again.states()) == [TWO]
    assert len([one for one in SimulatedFiles(disk).listdir(DIRECTORY) if one.endswith(FILE_SUFFIX)]) == 1


def test_the_loss_of_one_frame_makes_its_indexes_unknown() -> None:
    disk = make_disk()
    filled(disk)
    file = disk.file(replica_path(disk))
    content = bytes(file.read(file.size, 0))
    file.flip_bit(content.index(b"event 4"), 3)
    again = opened(disk.restarted())
    state = again.states()[ONE]
    assert state.unknown == (Range(4, 4),)
    assert [(run.first, run.last) for run in state.runs] == [(1, 3), (5, 10)]
    assert len(again.damages) == 1
    # The next start finds the same in the new file.
    assert opened(disk.restarted()).states()[ONE] == state


def test_a_damaged_replica_is_not_closed_any_more() -> None:
    disk = make_disk()
    files = filled(disk)
    files.apply([PutEntries(ONE, (bridge(11, 1),)), SetComplete(ONE, 1), SetClosed(ONE, 11)])
    file = disk.file(replica_path(disk))
    file.flip_bit(bytes(file.read(file.size, 0)).index(b"event 4"), 3)
    state = opened(disk.restarted()).states()[ONE]
    assert (state.closed_end, state.complete_epoch, state.unknown) == (0, 0, (Range(4, 4),))


def test_damage_of_the_last_frame_makes_everything_unknown() -> None:
    disk = make_disk()
    filled(disk)
    file = disk.file(replica_path(disk))
    file.flip_bit(file.size - 2, 3)
    assert opened(disk.restarted()).states()[ONE].unknown == (EVERYTHING,)


def test_a_missing_file_makes_everything_unknown() -> None:
    disk = make_disk()
    filled(disk)
    SimulatedFiles(disk).unlink(replica_path(disk))
    state = opened(disk.restarted()).states()[ONE]
    assert (state.sealed_epoch, state.runs, state.unknown) == (1, (), (Range(1, INDEX_MAX),))


def test_frames_of_another_file_are_not_accepted() -> None:
    disk = make_disk()
    files = filled(disk)
    files.apply([SetSealedEpoch(TWO, 1)])
    for index in range(1, 11):
        files.apply([PutEntries(TWO, (event(index, payload=f"other {index}".encode()),))])
    source, target = disk.file(replica_path(disk, 1)), disk.file(replica_path(disk, 0))
    # A misdirected write puts the second half of one file in the place of the other's.
    start = target.size // 2
    target.write(memoryview(source.read(target.size - start, start)), start)
    again = opened(disk.restarted())
    state = again.states()[ONE]
    assert state.unknown == (EVERYTHING,)
    last = state.runs[-1].last
    assert again.read(ONE, 1, last, 10_000) == tuple(event(index) for index in range(1, last + 1))


def test_a_file_that_was_replaced_by_a_longer_frame_of_another_file_is_damaged() -> None:
    disk = make_disk()
    files = filled(disk, 2)
    files.apply([SetSealedEpoch(TWO, 1), PutEntries(TWO, (event(1, payload=bytes(range(1, 200)) * 20),))])
    source, target = disk.file(replica_path(disk, 1)), disk.file(replica_path(disk, 0))
    target.write(memoryview(source.read(target.size, 0)), 0)
    state = opened(disk.restarted()).states()[ONE]
    assert (state.runs, state.unknown) == ((), (EVERYTHING,))


def test_a_damaged_copy_of_the_register_does_not_lower_a_sealed_epoch() -> None:
    disk = make_disk()
    files = filled(disk)
    files.apply([SetSealedEpoch(ONE, 9)])
    register = disk.file(f"{DIRECTORY}/{REGISTER_NAME}")
    register.flip_bit(register.size - 3, 1)
    assert opened(disk.restarted()).states()[ONE].sealed_epoch == 9


def test_a_changed_byte_is_found_by_a_read() -> None:
    disk = make_disk()
    files = filled(disk)
    file = disk.file(replica_path(disk))
    file.flip_bit(bytes(file.read(file.size, 0)).index(b"event 4"), 0)
    assert len(files.read(ONE, 1, 3, 10_000)) == 3
    with pytest.raises(EntryDamaged, match="index 4"):
        files.read(ONE, 4, 5, 10_000)


def test_after_a_failed_sync_the_next_start_has_what_was_acknowledged() -> None:
    disk = make_disk()
    files = filled(disk)
    disk.fail_next("fdatasync")
    with pytest.raises(StorageFailed):
        files.apply([PutEntries(ONE, (event(11),))])
    with pytest.raises(StorageFailed):
        files.apply([PutEntries(ONE, (event(11),))])
    state = opened(disk.restarted()).states()[ONE]
    assert (state.runs, state.unknown) == ((Run(1, 10, Kind.EVENT, 1, 1),), ())


def test_a_full_disk_refuses_entries_and_keeps_what_is_there() -> None:
    disk = make_disk()
    files = filled(disk)
    disk.free_bytes = 0
    with pytest.raises(DiskFailure) as failure:
        files.apply([PutEntries(ONE, (event(11, payload=bytes(10_000)),))])
    assert failure.value.error_number == errno.ENOSPC
    disk.free_bytes = None
    assert opened(disk.restarted()).states()[ONE].runs == (Run(1, 10, Kind.EVENT, 1, 1),)


def test_a_store_without_syncs_is_in_limbo_after_an_unclean_stop() -> None:
    disk = make_disk()
    files = opened(disk, syncs=False)
    assert not files.is_limbo
    files.apply([SetSealedEpoch(ONE, 1), PutEntries(ONE, (event(1), bridge(2, 1))), SetClosed(ONE, 2)])
    files.apply([SetSealedEpoch(TWO, 1), PutEntries(TWO, (event(1),))])
    after = disk.after_power_cut(Random(3))
    again = opened(after, syncs=False)
    assert again.is_limbo
    assert again.states()[ONE].runs[-1] == run_of(bridge(2, 1))
    assert again.states()[TWO].sealed_epoch == 1
    again.close()
    assert not opened(after.restarted(), syncs=False).is_limbo


def random_writes(chance: Random, state: ReplicaState) -> list[Write]:
    """One step of a store: a few entries, stamps or an end."""
    last = state.runs[-1].last if state.runs else 0
    epoch = state.sealed_epoch
    match chance.randrange(5):
        case 0:
            return [SetSealedEpoch(ONE, epoch + 1)]
        case 1 if last:
            return [SetStamps(ONE, tuple(run._replace(stamp_epoch=epoch) for run in state.runs))]
        case 2 if last > 2:
            return [RemoveAfter(ONE, last - 2), SetAcked(ONE, last - 2)]
        case _:
            size = chance.choice([0, 20, 600, 5000])
            entries = (event(last + 1 + step, epoch, chance.randbytes(size)) for step in range(chance.randint(1, 3)))
            return [PutEntries(ONE, tuple(entries))]


@pytest.mark.parametrize("seed", range(repetitions(quick=60, full=600)))
def test_a_crash_at_any_call_keeps_every_finished_step(seed: int) -> None:
    chance = Random(seed)
    disk = make_disk()
    files = opened(disk)
    files.apply([SetSealedEpoch(ONE, 1)])
    payloads: dict[tuple[int, int], bytes] = {}
    for _ in range(4):
        disk.crash_at = disk.call_count + chance.randint(1, 60)
        before = files.states()[ONE]
        writes: list[Write] = []
        try:
            while True:
                before = files.states()[ONE]
                writes = random_writes(chance, before)
                payloads |= {
                    (one.index, one.birth_epoch): one.payload
                    for write in writes
                    if isinstance(write, PutEntries)
                    for one in write.entries
                }
                files.apply(writes)
        except Crashed:
            pass
        expected = applied(before, writes)
        disk = disk.after_power_cut(chance) if chance.random() < 0.6 else disk.restarted()
        files = opened(disk)
        state = files.states()[ONE]
        assert files.damages == []
        assert state in (before, expected), f"seed {seed}"
        for entry in files.read(ONE, 1, INDEX_MAX, INDEX_MAX):
            assert entry.payload == payloads[entry.index, entry.birth_epoch]


def applied(before: ReplicaState, writes: list[Write]) -> ReplicaState:
    """The state after the writes, from a store that is not interrupted."""
    disk = make_disk()
    files = opened(disk)
    files.apply([SetSealedEpoch(ONE, before.sealed_epoch), SetAcked(ONE, before.acked)])
    for run in before.runs:
        files.apply(
            [
                PutEntries(ONE, (Entry(index, run.kind, run.birth_epoch, run.stamp_epoch),))
                for index in range(run.first, run.last + 1)
            ]
        )
    files.apply(writes)
    return files.states()[ONE]
