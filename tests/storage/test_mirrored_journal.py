"""Two copies of a journal: any damage to one is repaired from the other, and no crash loses what was acknowledged."""

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kwire.concurrency.disk_lanes import DiskLanes
from storage.disk.files import Files
from storage.disk.journal import salvage
from storage.disk.mirrored_journal import MirroredJournal
from storage.errors import DiskFailure, JournalDamaged, StorageFailed
from tests.support.batches import UnsyncedFiles
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles

COMMITS = [b"%d %s" % (number, b"x" * 700) for number in range(1, 6)]
NAMES = ("journal", "mirror")

Damage = Callable[[Path], object]


def number_of(record: bytes) -> int:
    return int(record.split()[0])


def opened(directory: Path | str, files: Files | None = None) -> MirroredJournal:
    return MirroredJournal.open(f"{directory}/journal", f"{directory}/mirror", files or UnsyncedFiles(), number_of)


def fill(directory: Path) -> None:
    journal = opened(directory)
    for commit in COMMITS:
        journal.append([commit])
    journal.close()


def flip(position: float) -> Damage:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(position * (len(data) - 1))] ^= 4
        path.write_bytes(data)

    return damage


def cut(size: int) -> Damage:
    return lambda path: path.write_bytes(path.read_bytes()[:-size])


DAMAGE: dict[str, Damage] = {
    "removed": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "first byte flipped": flip(0.0),
    "middle byte flipped": flip(0.5),
    "last byte flipped": flip(1.0),
    "cut by a byte": cut(1),
    "cut by two commits": cut(1430),
    "garbage appended": lambda path: path.write_bytes(path.read_bytes() + b"garbage" * 100),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", NAMES)
def test_damage_to_one_copy_is_repaired_from_the_other_and_reported(tmp_path: Path, name: str, damage: str) -> None:
    fill(tmp_path)
    DAMAGE[damage](tmp_path / name)
    journal = opened(tmp_path)
    assert list(journal.replay()) == COMMITS
    (repair,) = journal.repairs
    assert f"{tmp_path}/{name}" in repair
    journal.append([b"6 more"])
    journal.close()
    # Either copy is enough from now on.
    for lost in NAMES:
        (tmp_path / lost).unlink()
        journal = opened(tmp_path)
        assert list(journal.replay()) == [*COMMITS, b"6 more"]
        journal.close()


def test_a_journal_without_a_copy_gets_one(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "mirror").unlink()
    journal = opened(tmp_path)
    assert list(journal.replay()) == COMMITS
    assert [repair.endswith("rewritten from journal") for repair in journal.repairs] == [True]
    journal.close()
    assert opened(tmp_path).repairs == []


def test_two_damaged_copies_are_not_opened_and_stay_as_they_are(tmp_path: Path) -> None:
    fill(tmp_path)
    for name, position in zip(NAMES, (0.3, 0.7), strict=True):
        flip(position)(tmp_path / name)
    before = [(tmp_path / name).read_bytes() for name in NAMES]
    with pytest.raises(JournalDamaged, match=r"journal.*mirror"):
        opened(tmp_path)
    assert [(tmp_path / name).read_bytes() for name in NAMES] == before
    # The two are damaged at different places: together they still hold everything.
    assert {record for data in before for record in salvage(data)} == set(COMMITS)


def test_a_damaged_journal_beside_an_empty_copy_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    fill(tmp_path)
    flip(0.5)(tmp_path / "journal")
    (tmp_path / "mirror").unlink()
    for _ in range(2):
        with pytest.raises(JournalDamaged):
            opened(tmp_path)


def test_a_commit_that_one_copy_has_no_room_for_is_in_neither() -> None:
    disk = SimulatedDisk()
    files = SimulatedFiles(disk)
    files.makedirs("/data")
    journal = opened("/data", files)
    journal.append([b"1 kept"])
    disk.fail_next("pwrite", errno.ENOSPC, after=1)  # the first copy takes it, the second does not
    with pytest.raises(DiskFailure) as raised:
        journal.append([b"2 refused"])
    assert not isinstance(raised.value, StorageFailed)
    journal.append([b"2 taken"])
    journal.close()
    again = opened("/data", SimulatedFiles(disk))
    assert list(again.replay()) == [b"1 kept", b"2 taken"]
    assert again.repairs == []


@pytest.mark.parametrize("after", [0, 1])
def test_after_a_failed_sync_of_either_copy_nothing_is_taken(after: int) -> None:
    disk = SimulatedDisk()
    files = SimulatedFiles(disk)
    files.makedirs("/data")
    journal = opened("/data", files)
    journal.append([b"1 kept"])
    disk.fail_next("fdatasync", after=after)
    for _ in range(2):
        with pytest.raises(StorageFailed):
            journal.append([b"2 unknown"])
    with pytest.raises(StorageFailed):
        journal.rewrite([b"2 unknown"])


def test_both_copies_are_synced_when_a_thread_helps(tmp_path: Path) -> None:
    lane = DiskLanes().mirror
    journal = MirroredJournal.open(
        str(tmp_path / "journal"), str(tmp_path / "mirror"), UnsyncedFiles(), number_of, lane
    )
    for commit in COMMITS:
        journal.append([commit])
    journal.close()
    lane.close()
    assert lane.jobs == len(COMMITS)
    assert (tmp_path / "journal").read_bytes() == (tmp_path / "mirror").read_bytes()


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_no_crash_loses_an_acknowledged_commit(is_power_cut: bool) -> None:
    """Every call of a life with commits and a rewrite is the last one once."""

    def live(disk: SimulatedDisk, acknowledged: list[bytes]) -> None:
        files = SimulatedFiles(disk)
        files.makedirs("/data")
        files.fsync_dir("/")
        journal = opened("/data", files)
        for number, commit in enumerate(COMMITS):
            journal.append([commit])
            acknowledged.append(commit)
            if number == 2:
                journal.rewrite(list(acknowledged))

    disk = SimulatedDisk()
    live(disk, [])
    call_count = disk.call_count
    assert call_count > 30
    for crash_at in range(1, call_count + 1):
        disk = SimulatedDisk()
        disk.crash_at = crash_at
        acknowledged: list[bytes] = []
        with pytest.raises(Crashed):
            live(disk, acknowledged)
        found = disk.after_power_cut(Random(crash_at)) if is_power_cut else disk.restarted()
        found.crash_at = None
        files = SimulatedFiles(found)
        files.makedirs("/data")
        records = list(opened("/data", files).replay())
        assert records[: len(acknowledged)] == acknowledged
        assert records == COMMITS[: len(records)]
