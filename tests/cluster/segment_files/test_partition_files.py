"""The replicas of a partition on a simulated disk: their payloads are batches of one log."""

from collections.abc import Iterator
from random import Random

import pytest

from kwire.cluster.core.entries import INDEX_MAX, Entry, Kind, Range, Run
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
    Write,
)
from kwire.cluster.segment_files.partition_log import EntryDamaged
from kwire.cluster.segment_files.segment_files import FILE_SUFFIX, LOG_SUFFIX, SegmentFiles
from storage.batch.format import LENGTH_OVERHEAD, PLACEMENT
from storage.errors import InvalidBatch, UnexpectedOffset
from storage.log.settings import LogSettings
from tests.support.batches import make_batch
from tests.support.effort import Effort, chosen_effort, repetitions
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles
from tests.support.simulated_nodes import SimulatedFile

DIRECTORY = "/data/segments"
COOKIE = 77
SETTINGS = LogSettings(segment_bytes=600, index_interval_bytes=100)
STRIDE = 11 if chosen_effort() is Effort.QUICK else 1
ONE, TWO, THREE = (SegmentId("orders", number) for number in (1, 2, 3))


def make_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    SimulatedFiles(disk).makedirs("/data")
    SimulatedFiles(disk).syncfs("/")
    return disk


def opened(disk: SimulatedDisk, *, syncs: bool = True) -> SegmentFiles:
    return SegmentFiles.open(DIRECTORY, SimulatedFiles(disk), COOKIE, lambda _: SETTINGS, syncs=syncs)


def event(index: int, offset: int, epoch: int = 1, stamp: int = 0, records: int = 2, value: bytes = b"value") -> Entry:
    batch = make_batch(records, value=value)
    PLACEMENT.pack_into(batch, 0, offset, len(batch) - LENGTH_OVERHEAD, epoch)
    return Entry(index, Kind.EVENT, epoch, stamp or epoch, bytes(batch))


def bridge(index: int, epoch: int) -> Entry:
    return Entry(index, Kind.BRIDGE, epoch, epoch)


def events(first: int, last: int, offset: int = 0, epoch: int = 1) -> tuple[Entry, ...]:
    """Events of two records each; the first one has this offset."""
    return tuple(event(index, offset + 2 * (index - first), epoch) for index in range(first, last + 1))


def closed(segment: SegmentId, end: int, epoch: int) -> list[Write]:
    return [PutEntries(segment, (bridge(end, epoch),)), SetComplete(segment, epoch), SetClosed(segment, end)]


def filled(disk: SimulatedDisk) -> SegmentFiles:
    """A partition with a closed segment of five events, a closed one without events, and an open one of three."""
    files = opened(disk)
    files.apply([SetSealedEpoch(ONE, 1)])
    for entry in events(1, 5):
        files.apply([PutEntries(ONE, (entry,))])
    files.apply(closed(ONE, 6, 1))
    files.apply([SetSealedEpoch(TWO, 2), *closed(TWO, 1, 2)])
    files.apply([SetSealedEpoch(THREE, 3), PutEntries(THREE, events(1, 3, 10, 3))])
    return files


def everything(files: SegmentFiles) -> dict[SegmentId, tuple[Entry, ...]]:
    return {segment: files.read(segment, 1, INDEX_MAX, INDEX_MAX) for segment in files.states()}


def log_file(disk: SimulatedDisk, number: int) -> SimulatedFile:
    folder = log_folder(disk)
    names = sorted(name for name in SimulatedFiles(disk).listdir(folder) if name.endswith(".log"))
    return disk.file(f"{folder}/{names[number]}")


def log_folder(disk: SimulatedDisk) -> str:
    (name,) = (name for name in SimulatedFiles(disk).listdir(DIRECTORY) if name.endswith(LOG_SUFFIX))
    return f"{DIRECTORY}/{name}"


def test_a_restart_returns_what_was_written() -> None:
    disk = make_disk()
    files = filled(disk)
    states, entries = files.states(), everything(files)
    assert entries[ONE] == (*events(1, 5), bridge(6, 1))
    assert entries[TWO] == (bridge(1, 2),)
    assert entries[THREE] == events(1, 3, 10, 3)
    for number in range(3):
        disk = disk.after_power_cut(Random(number)) if number else disk.restarted()
        again = opened(disk)
        assert (again.states(), everything(again), again.damages) == (states, entries, [])
    again.close()
    again = opened(disk)
    assert (again.states(), everything(again), again.damages) == (states, entries, [])


def test_the_segments_of_a_partition_share_one_log_and_each_begins_a_log_segment() -> None:
    disk = make_disk()
    filled(disk)
    names = sorted(name for name in SimulatedFiles(disk).listdir(log_folder(disk)) if name.endswith(".log"))
    assert f"{0:020}.log" in names
    assert f"{10:020}.log" in names, "the bridges of two segments take no offset"
    journals = [name for name in SimulatedFiles(disk).listdir(DIRECTORY) if name.endswith(FILE_SUFFIX)]
    assert len(journals) == 3


def test_a_batch_is_stored_once() -> None:
    disk = make_disk()
    files = filled(disk)
    for name in SimulatedFiles(disk).listdir(DIRECTORY):
        if name.endswith(FILE_SUFFIX):
            file = disk.file(f"{DIRECTORY}/{name}")
            assert b"value" not in bytes(file.read(file.size, 0))
    before = files.read(ONE, 2, 2, 1)
    # A leader repeats what it does not know to be there.
    files.apply([PutEntries(THREE, (event(2, 12, 3),))])
    assert files.read(ONE, 2, 2, 1) == before
    assert files.read(THREE, 1, 9, INDEX_MAX) == events(1, 3, 10, 3)


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (14, "has another batch at offset 14"),
        (15, "has another batch at offset 15"),
        (17, "ends at 16, the batch begins at 17"),
    ],
)
def test_a_batch_that_does_not_follow_is_refused(offset: int, reason: str) -> None:
    files = filled(make_disk())
    with pytest.raises(UnexpectedOffset, match=reason):
        files.apply([PutEntries(THREE, (event(4, offset, 3, records=1),))])


def test_a_damaged_batch_to_which_no_journal_refers_is_cut_at_the_next_start() -> None:
    disk = make_disk()
    files = filled(disk)
    files.apply([RemoveReplica(ONE)])
    file = log_file(disk, 0)
    file.flip_bit(bytes(file.read(file.size, 0)).index(b"value"), 3)
    files.apply([SetSealedEpoch(ONE, 1)])
    with pytest.raises(EntryDamaged, match="the batch at offset 0 is damaged"):
        files.apply([PutEntries(ONE, events(1, 5))])
    again = opened(disk.restarted())
    assert again.states()[THREE].unknown == (Range(1, 3),)
    again.apply([PutEntries(ONE, events(1, 5)), *closed(ONE, 6, 1), PutEntries(THREE, events(1, 3, 10, 3))])
    assert everything(again) == everything(filled(make_disk()))
    assert opened(disk.restarted()).damages == []


def test_a_payload_that_is_not_a_batch_of_its_leader_is_refused() -> None:
    files = filled(make_disk())
    with pytest.raises(InvalidBatch, match="index 4 is not a record batch"):
        files.apply([PutEntries(THREE, (Entry(4, Kind.EVENT, 3, 3, b"bytes"),))])
    with pytest.raises(InvalidBatch, match="leader epoch 2, but its entry was created in epoch 3"):
        files.apply([PutEntries(THREE, (Entry(4, Kind.EVENT, 3, 3, event(4, 16, 2).payload),))])


def test_a_bridge_that_replaces_events_cuts_the_log() -> None:
    disk = make_disk()
    files = filled(disk)
    files.apply([SetSealedEpoch(THREE, 5), PutEntries(THREE, (bridge(2, 5),)), RemoveAfter(THREE, 2)])
    for number in range(2):
        assert everything(files)[THREE] == (event(1, 10, 3), bridge(2, 5))
        files = opened(disk.after_power_cut(Random(number)))
        assert files.damages == []
    # The next segment takes the offsets again.
    files.apply([SetClosed(THREE, 2), PutEntries(SegmentId("orders", 4), (event(1, 12, 6),))])
    assert everything(files)[SegmentId("orders", 4)] == (event(1, 12, 6),)


def test_what_readers_may_have_is_not_cut() -> None:
    files = filled(make_disk())
    files.commit(THREE, 2)
    with pytest.raises(ValueError, match="offset 12 is below the committed one, 14"):
        files.apply([PutEntries(THREE, (bridge(2, 5),))])


def test_a_batch_without_a_frame_was_never_confirmed_and_is_cut() -> None:
    disk = make_disk()
    files = filled(disk)
    states = files.states()
    # The store dies between the sync of the log and the write of the frame.
    disk.trace = []
    start = disk.call_count
    files.apply([PutEntries(THREE, (event(4, 16, 3),))])
    sync = next(number for number, line in enumerate(disk.trace) if line.startswith("fdatasync"))
    disk = make_disk()
    files = filled(disk)
    assert disk.call_count == start
    disk.crash_at = start + sync + 2
    with pytest.raises(Crashed):
        files.apply([PutEntries(THREE, (event(4, 16, 3),))])
    again = opened(disk.restarted())
    assert (again.states(), again.damages) == (states, [])
    # Another leader's batch takes its place.
    again.apply([PutEntries(THREE, (event(4, 16, 3, value=b"other"),))])
    assert again.read(THREE, 4, 4, 1) == (event(4, 16, 3, value=b"other"),)


def test_a_frame_whose_batch_is_missing_makes_the_range_unknown() -> None:
    disk = make_disk()
    filled(disk)
    folder = log_folder(disk)
    for name in SimulatedFiles(disk).listdir(folder):
        if name.startswith(f"{10:020}"):
            SimulatedFiles(disk).unlink(f"{folder}/{name}")
    again = opened(disk.restarted())
    states = again.states()
    assert (states[THREE].runs, states[THREE].unknown) == ((), (Range(1, 3),))
    assert states[ONE].closed_end == 6
    assert len(again.damages) == 1
    assert opened(disk.restarted()).states() == states
    # The leader sends the entries again.
    again = opened(disk.restarted())
    again.apply([PutEntries(THREE, events(1, 3, 10, 3))])
    assert everything(again)[THREE] == events(1, 3, 10, 3)


def test_a_damaged_batch_is_found_by_a_read_and_unknown_after_the_next_start() -> None:
    disk = make_disk()
    files = filled(disk)
    file = log_file(disk, 0)
    file.flip_bit(bytes(file.read(file.size, 0)).index(b"value"), 3)
    with pytest.raises(EntryDamaged, match="another batch is at offset 0"):
        files.read(ONE, 1, 1, 1)
    again = opened(disk.restarted())
    states = again.states()
    # A log is only written at its end: what comes after the damage is stored anew.
    assert (states[ONE].closed_end, states[ONE].unknown) == (0, (Range(1, 5),))
    assert states[ONE].runs == (Run(6, 6, Kind.BRIDGE, 1, 1),)
    assert (states[TWO].closed_end, states[TWO].unknown) == (1, ())
    assert (states[THREE].runs, states[THREE].unknown) == ((), (Range(1, 3),))
    again.apply([PutEntries(ONE, events(1, 5)), SetClosed(ONE, 6), PutEntries(THREE, events(1, 3, 10, 3))])
    assert everything(again) == everything(filled(make_disk()))


def test_a_leader_epoch_that_was_changed_on_the_disk_is_found_at_the_start() -> None:
    disk = make_disk()
    filled(disk)
    # The checksum of a batch does not cover its epoch.
    file = log_file(disk, -1)
    file.flip_bit(12, 6)
    again = opened(disk.restarted())
    assert again.states()[THREE].unknown == (Range(1, 3),)
    again.apply([PutEntries(THREE, events(1, 3, 10, 3))])
    assert everything(again)[THREE] == events(1, 3, 10, 3)


def test_a_lost_frame_makes_its_index_unknown_and_the_batch_is_used_again() -> None:
    disk = make_disk()
    filled(disk)
    names = sorted(name for name in SimulatedFiles(disk).listdir(DIRECTORY) if name.endswith(FILE_SUFFIX))
    file = disk.file(f"{DIRECTORY}/{names[0]}")
    # Each of the first five frames of the journal has one entry. Frames have equal sizes.
    size = (file.size - 8) // 7
    file.flip_bit(8 + 2 * size + size // 2, 1)
    again = opened(disk.restarted())
    state = again.states()[ONE]
    assert len(state.unknown) == 1
    (lost,) = state.unknown
    assert lost.first == lost.last
    assert state.closed_end == 0
    again.apply([PutEntries(ONE, events(1, 5)[lost.first - 1 : lost.last]), SetClosed(ONE, 6)])
    assert everything(again) == everything(filled(make_disk()))


def test_the_log_goes_with_the_last_replica_and_not_before() -> None:
    disk = make_disk()
    files = filled(disk)
    files.apply([RemoveReplica(TWO), RemoveReplica(ONE)])
    again = opened(disk.restarted())
    assert list(again.states()) == [THREE]
    assert everything(again)[THREE] == events(1, 3, 10, 3)
    # The store becomes a member again: the batches are there.
    again.apply([SetSealedEpoch(ONE, 1), PutEntries(ONE, events(1, 5)), *closed(ONE, 6, 1)])
    assert everything(again)[ONE] == (*events(1, 5), bridge(6, 1))
    again.apply([RemoveReplica(ONE), RemoveReplica(THREE)])
    left = SimulatedFiles(disk).listdir(DIRECTORY)
    assert not [name for name in left if name.endswith((FILE_SUFFIX, LOG_SUFFIX))]
    assert opened(disk.restarted()).states() == {}


def test_a_folder_that_the_register_does_not_name_is_removed() -> None:
    disk = make_disk()
    filled(disk)
    orphan = f"{DIRECTORY}/{99:016}{LOG_SUFFIX}"
    files = SimulatedFiles(disk)
    files.makedirs(orphan)
    files.close(files.create(f"{orphan}/{0:020}.log"))
    opened(disk.restarted())
    assert not SimulatedFiles(disk).exists(orphan)


def test_without_syncs_a_closed_segment_is_durable() -> None:
    disk = make_disk()
    files = opened(disk, syncs=False)
    files.apply([SetSealedEpoch(ONE, 1), PutEntries(ONE, events(1, 5)), *closed(ONE, 6, 1)])
    files.apply([SetSealedEpoch(TWO, 2), PutEntries(TWO, events(1, 2, 10, 2))])
    again = opened(disk.after_power_cut(Random(5)), syncs=False)
    assert again.is_limbo
    assert again.states()[ONE].closed_end == 6
    assert again.read(ONE, 1, 6, INDEX_MAX) == (*events(1, 5), bridge(6, 1))


# --- a store and its naive twin


class Twin:
    """A store that never fails: its replicas as lists of entries, and the offsets that they add up to."""

    def __init__(self) -> None:
        self.fences: dict[SegmentId, int] = {}
        self.entries: dict[SegmentId, list[Entry]] = {}
        self.ends: dict[SegmentId, int] = {}
        self.acked: dict[SegmentId, int] = {}
        self.complete: dict[SegmentId, int] = {}

    def copy(self) -> "Twin":
        twin = Twin()
        twin.fences, twin.ends, twin.acked = dict(self.fences), dict(self.ends), dict(self.acked)
        twin.entries = {segment: list(entries) for segment, entries in self.entries.items()}
        twin.complete = dict(self.complete)
        return twin

    def apply(self, writes: list[Write]) -> None:
        for write in writes:
            entries = self.entries.setdefault(write.segment, [])
            self.fences.setdefault(write.segment, 0)
            match write:
                case SetSealedEpoch():
                    self.fences[write.segment] = write.epoch
                case PutEntries():
                    for entry in write.entries:
                        del entries[entry.index - 1 :]
                        entries.append(entry)
                case SetStamps():
                    for run in write.runs:
                        for at in range(run.first - 1, run.last):
                            old = entries[at]
                            entries[at] = Entry(old.index, old.kind, old.birth_epoch, run.stamp_epoch, old.payload)
                case RemoveAfter():
                    del entries[write.index :]
                case SetAcked():
                    self.acked[write.segment] = write.acked
                case SetComplete():
                    self.complete[write.segment] = write.epoch
                case SetClosed():
                    self.ends[write.segment] = write.end

    def state(self) -> dict[SegmentId, tuple[int, int, int, int, tuple[Entry, ...]]]:
        return {
            segment: (
                self.fences[segment],
                self.ends.get(segment, 0),
                max(self.acked.get(segment, 0), self.ends.get(segment, 0)),
                self.complete.get(segment, 0),
                tuple(entries),
            )
            for segment, entries in self.entries.items()
        }


def state_of(files: SegmentFiles) -> dict[SegmentId, tuple[int, int, int, int, tuple[Entry, ...]]]:
    result = {}
    for segment, state in files.states().items():
        assert isinstance(state, ReplicaState)
        assert state.unknown == ()
        entries = files.read(segment, 1, INDEX_MAX, INDEX_MAX)
        result[segment] = (state.sealed_epoch, state.closed_end, state.acked, state.complete_epoch, entries)
    return result


def script(chance: Random) -> Iterator[list[Write]]:
    """The writes of a store that follows a few leaders: segments are filled, cut by a recovery, closed, followed."""
    offset, epoch = 0, 1
    for number in range(1, 3):
        segment = SegmentId("orders", number)
        yield [SetSealedEpoch(segment, epoch)]
        opener, base, count = epoch, offset, 0
        offsets = [base]
        for _ in range(chance.randint(0, 2)):
            entries = []
            for _ in range(chance.randint(1, 3)):
                records, size = chance.randint(1, 3), chance.choice((5, 200))
                count += 1
                entries.append(event(count, offsets[-1], opener, records=records, value=chance.randbytes(size)))
                offsets.append(offsets[-1] + records)
            yield [PutEntries(segment, tuple(entries)), SetAcked(segment, chance.randint(0, count))]
        # Some recoveries are interrupted: the next one may find more, or less.
        end = count + 1
        for _ in range(chance.randint(0, 2)):
            epoch += 1
            end = chance.randint(1, end)
            yield [SetSealedEpoch(segment, epoch)]
            if end > 1:
                yield [SetStamps(segment, (Run(1, end - 1, Kind.EVENT, opener, epoch),))]
            yield [PutEntries(segment, (bridge(end, epoch),)), RemoveAfter(segment, end), SetComplete(segment, epoch)]
        if epoch == opener:
            yield [PutEntries(segment, (bridge(end, epoch),)), SetComplete(segment, epoch)]
        yield [SetClosed(segment, end)]
        offset = offsets[end - 1]
        epoch += 1


def crash_points(seed: int, stride: int) -> int:
    """Run a script with a crash at every `stride`-th call of the disk, by kill and by power cut.

    Returns the number of crashes.
    """
    steps = list(script(Random(seed)))
    twins = [Twin()]
    for writes in steps:
        twins.append(twins[-1].copy())
        twins[-1].apply(writes)
    disk = make_disk()
    files = opened(disk)
    start = disk.call_count
    for writes, twin in zip(steps, twins[1:], strict=True):
        files.apply(writes)
        assert state_of(files) == twin.state(), f"seed {seed}"
    calls = disk.call_count - start
    chance = Random(seed)
    crashes = 0
    for call in range(1 + chance.randrange(stride), calls + 1, stride):
        for is_power_cut in (False, True):
            crashes += 1
            check_crash(steps, twins, call, is_power_cut, f"seed {seed}, call {call}, power cut {is_power_cut}")
    return crashes


def check_crash(steps: list[list[Write]], twins: list[Twin], call: int, is_power_cut: bool, title: str) -> None:
    disk = make_disk()
    files = opened(disk)
    disk.crash_at = disk.call_count + call
    done = 0
    try:
        for writes in steps:
            files.apply(writes)
            done += 1
    except Crashed:
        pass
    if done == len(steps):
        return
    disk = disk.after_power_cut(Random(call)) if is_power_cut else disk.restarted()
    files = opened(disk)
    assert files.damages == [], title
    found = state_of(files)
    # A step with several parts may be there in part: only its answer confirms it.
    partly = [twins[done].copy() for _ in range(len(steps[done]) + 1)]
    for number, twin in enumerate(partly):
        twin.apply(steps[done][:number])
    assert found in [twin.state() for twin in partly], title
    for writes in steps[done:]:
        files.apply(writes)
    assert state_of(files) == twins[-1].state(), title
    again = opened(disk.after_power_cut(Random(call)))
    assert (state_of(again), again.damages) == (twins[-1].state(), []), title


@pytest.mark.parametrize("seed", [2, 102])
def test_a_crash_at_each_call_keeps_every_finished_step(seed: int) -> None:
    print(f"{crash_points(seed, 1)} crashes")


@pytest.mark.parametrize("seed", range(100, 100 + repetitions(quick=8, full=60)))
def test_a_crash_at_any_call_keeps_every_finished_step(seed: int) -> None:
    print(f"{crash_points(seed, STRIDE)} crashes")
