"""The embedded metadata store: compare-and-set, its journal, and its content after a restart."""

import asyncio
import errno
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kwire.concurrency.disk_lanes import DiskLanes
from kwire.metastore import Change, Conflict, EmbeddedMetaStore, embedded
from kwire.metastore.interface import ABSENT
from storage.disk.files import Files
from storage.disk.journal import Journal
from storage.errors import DiskFailure, StorageFailed
from tests.support.batches import UnsyncedFiles
from tests.support.faulty_files import FaultyFiles
from tests.support.node import in_loop

WAIT_S = 10.0


class Stores:
    """Opens stores on one journal and closes what was left open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: list[EmbeddedMetaStore] = []

    def open(self, files: Files | None = None) -> EmbeddedMetaStore:
        self.close()
        self._open.append(
            EmbeddedMetaStore(Journal.open(str(self.path), files or UnsyncedFiles()), DiskLanes().metadata)
        )
        return self._open[-1]

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def seen(self) -> dict[str, tuple[object, int]]:
        """Every value and its revision, as the next start finds them."""
        return contents(self.open())


def contents(store: EmbeddedMetaStore) -> dict[str, tuple[object, int]]:
    return {key: (entry.value, entry.revision) for key, entry in store.entries("")}


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    made = Stores(tmp_path / "journal")
    yield made
    made.close()


class SlowFiles(UnsyncedFiles):
    """Files whose sync waits until the test lets it go."""

    def __init__(self) -> None:
        self.is_syncing = threading.Event()
        self.may_sync = threading.Event()

    def fdatasync(self, fd: int) -> None:
        self.is_syncing.set()
        assert self.may_sync.wait(WAIT_S)

    async def syncing(self) -> None:
        assert await asyncio.to_thread(self.is_syncing.wait, WAIT_S)


@in_loop
async def test_what_was_committed_is_read(stores: Stores) -> None:
    store = stores.open()
    assert store.get("a") is None
    assert await store.commit([Change("a", {"x": 1}, ABSENT), Change("b", ["ü"], ABSENT)]) == 1
    assert contents(store) == {"a": ({"x": 1}, 1), "b": (["ü"], 1)}
    assert await store.commit([Change("a", 2, 1)]) == 2
    assert contents(store) == {"a": (2, 2), "b": (["ü"], 1)}
    assert await store.commit([Change("b", None, 1)]) == 3
    assert contents(store) == {"a": (2, 2)}


@in_loop
async def test_entries_are_listed_by_the_beginning_of_their_key(stores: Stores) -> None:
    store = stores.open()
    await store.commit([Change(key, 1, ABSENT) for key in ("topics/b", "topics/a", "topic", "node")])
    assert sorted(key for key, _ in store.entries("topics/")) == ["topics/a", "topics/b"]


@in_loop
async def test_entries_may_change_while_they_are_listed(stores: Stores) -> None:
    store = stores.open()
    await store.commit([Change("a", 1, ABSENT), Change("b", 1, ABSENT)])
    listing = store.entries("")
    next(listing)
    await store.commit([Change("a", None, 1), Change("c", 1, ABSENT)])
    assert [key for key, _ in listing] == ["b"]


@in_loop
async def test_conflict_names_the_key_and_changes_nothing(stores: Stores) -> None:
    store = stores.open()
    await store.commit([Change("a", 1, ABSENT)])
    await store.commit([Change("a", 2, 1)])
    for expected in (ABSENT, 1, 3):
        with pytest.raises(Conflict) as caught:
            await store.commit([Change("new", 1, ABSENT), Change("a", 3, expected)])
        assert caught.value.key == "a"
    with pytest.raises(Conflict):
        await store.commit([Change("missing", 1, 1)])
    assert contents(store) == {"a": (2, 2)}
    assert stores.seen() == {"a": (2, 2)}


@in_loop
async def test_removed_key_is_absent_again(stores: Stores) -> None:
    store = stores.open()
    await store.commit([Change("a", 1, ABSENT)])
    await store.commit([Change("a", None, 1)])
    assert store.get("a") is None
    # The revision goes on, so that a second life of a key is never taken for its first.
    assert await store.commit([Change("a", 2, ABSENT)]) == 3


@in_loop
async def test_everything_is_there_after_a_restart(stores: Stores) -> None:
    store = stores.open()
    await store.commit([Change("a", {"deep": [1, "zwei", None]}, ABSENT), Change("b", 1, ABSENT)])
    await store.commit([Change("b", None, 1)])
    before = contents(store)
    store = stores.open()
    assert contents(store) == before
    assert await store.commit([Change("b", 2, ABSENT)]) == 3


@in_loop
async def test_concurrent_commits_take_turns(stores: Stores) -> None:
    store = stores.open()

    async def claim(number: int) -> int | None:
        try:
            return await store.commit([Change("one", number, ABSENT), Change(f"mine/{number}", number, ABSENT)])
        except Conflict:
            return None

    outcomes = await asyncio.gather(*(claim(number) for number in range(20)))
    assert [outcome for outcome in outcomes if outcome is not None] == [1]
    winner = outcomes.index(1)
    assert contents(store) == {"one": (winner, 1), f"mine/{winner}": (winner, 1)}

    revisions = await asyncio.gather(*(store.commit([Change(f"k{n}", n, ABSENT)]) for n in range(20)))
    assert sorted(revisions) == list(range(2, 22))
    assert stores.seen() == contents(store)


@in_loop
async def test_value_is_seen_only_when_it_is_on_disk(stores: Stores) -> None:
    files = SlowFiles()
    store = stores.open(files)
    commit = asyncio.ensure_future(store.commit([Change("a", 1, ABSENT)]))
    await files.syncing()
    assert store.get("a") is None
    assert not commit.done()
    files.may_sync.set()
    assert await commit == 1
    assert contents(store) == {"a": (1, 1)}


@in_loop
async def test_commit_whose_caller_went_away_counts_all_the_same(stores: Stores) -> None:
    """The journal has it, so memory must have it too: else a restart would bring up what nobody saw."""
    files = SlowFiles()
    store = stores.open(files)
    commit = asyncio.ensure_future(store.commit([Change("a", 1, ABSENT)]))
    await files.syncing()
    commit.cancel()
    second = asyncio.ensure_future(store.commit([Change("a", 2, ABSENT)]))
    files.may_sync.set()
    with pytest.raises(asyncio.CancelledError):
        await commit
    with pytest.raises(Conflict):
        await second
    assert contents(store) == {"a": (1, 1)}
    assert stores.seen() == {"a": (1, 1)}


@pytest.fixture
def history_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "HISTORY_WRITES_MIN", 10)


@pytest.mark.usefixtures("history_of_ten")
@in_loop
async def test_rewriting_history_keeps_values_and_revisions(stores: Stores) -> None:
    store = stores.open()
    await store.commit([Change("first", "kept", ABSENT), Change("gone", 1, ABSENT)])
    await store.commit([Change("gone", None, 1)])
    sizes = []
    revision = ABSENT
    for number in range(100):
        revision = await store.commit([Change("busy", number, revision)])
        sizes.append(stores.path.stat().st_size)
    assert any(after < before for before, after in itertools.pairwise(sizes))
    assert max(sizes) < 2000
    assert contents(store) == {"first": ("kept", 1), "busy": (99, 102)}
    store = stores.open()
    assert contents(store) == {"first": ("kept", 1), "busy": (99, 102)}
    assert await store.commit([Change("first", None, 1)]) == 103


@pytest.mark.usefixtures("history_of_ten")
@in_loop
async def test_revision_goes_on_when_rewriting_left_nothing(stores: Stores) -> None:
    store = stores.open()
    revision = 0
    for _ in range(30):
        revision = await store.commit([Change("a", 1, ABSENT)])
        revision = await store.commit([Change("a", None, revision)])
    store = stores.open()
    assert contents(store) == {}
    assert await store.commit([Change("a", 1, ABSENT)]) == revision + 1


@pytest.mark.usefixtures("history_of_ten")
@in_loop
async def test_commit_holds_although_history_could_not_be_rewritten(stores: Stores) -> None:
    files = FaultyFiles()
    store = stores.open(files)
    files.break_down("rename", errno.ENOSPC)
    revision = ABSENT
    for number in range(30):
        revision = await store.commit([Change("a", number, revision)])
    assert revision == 30
    assert contents(store) == {"a": (29, 30)}
    files.repair()
    size = stores.path.stat().st_size
    revision = await store.commit([Change("a", "last", revision)])
    assert stores.path.stat().st_size < size
    assert stores.seen() == {"a": ("last", 31)}


def cuts(size: int, whole: int) -> list[int]:
    """Places to tear the last commit at: its head, its body, all but its last byte."""
    return [whole, whole + 1, whole + 5, whole + 12, whole + 20, (whole + size) // 2, size - 1]


@pytest.mark.parametrize("place", range(7))
@in_loop
async def test_torn_tail_loses_only_the_commit_that_was_never_acknowledged(stores: Stores, place: int) -> None:
    store = stores.open()
    await store.commit([Change("a", 1, ABSENT)])
    await store.commit([Change("b", "b" * 100, ABSENT)])
    whole = stores.path.stat().st_size
    await store.commit([Change("a", 2, 1), Change("b", None, 2), Change("c", "c" * 100, ABSENT)])
    stores.close()
    data = stores.path.read_bytes()
    stores.path.write_bytes(data[: cuts(len(data), whole)[place]])
    store = stores.open()
    assert contents(store) == {"a": (1, 1), "b": ("b" * 100, 2)}
    assert await store.commit([Change("a", 3, 1)]) == 3
    assert stores.seen() == {"a": (3, 3), "b": ("b" * 100, 2)}


def full_disk(files: FaultyFiles) -> None:
    files.fail_next("pwrite", errno.ENOSPC)


def torn_write(files: FaultyFiles) -> None:
    files.tear_next_write(9)


@pytest.mark.parametrize("fault", [full_disk, torn_write])
@in_loop
async def test_write_that_fails_commits_nothing(stores: Stores, fault: Callable[[FaultyFiles], None]) -> None:
    files = FaultyFiles()
    store = stores.open(files)
    await store.commit([Change("a", 1, ABSENT)])
    fault(files)
    with pytest.raises(DiskFailure):
        await store.commit([Change("a", 2, 1)])
    assert contents(store) == {"a": (1, 1)}
    # The next one finds the disk repaired, and the revision that was not used.
    assert await store.commit([Change("a", 3, 1)]) == 2
    assert stores.seen() == {"a": (3, 2)}


@in_loop
async def test_after_a_failed_sync_nothing_is_committed_until_the_next_start(stores: Stores) -> None:
    files = FaultyFiles()
    store = stores.open(files)
    await store.commit([Change("a", 1, ABSENT)])
    files.fail_next("fdatasync")
    for _ in range(2):
        with pytest.raises(StorageFailed):
            await store.commit([Change("a", 2, 1)])
        assert contents(store) == {"a": (1, 1)}


@in_loop
async def test_an_erased_history_is_in_neither_copy(tmp_path: Path) -> None:
    lanes = DiskLanes()
    store = EmbeddedMetaStore.open(str(tmp_path), UnsyncedFiles(), lanes)
    copies = [tmp_path / "metastore.journal", tmp_path / "metastore.mirror"]
    await store.commit([Change("kept", "kept-value", ABSENT), Change("replaced", "old-value", ABSENT)])
    await store.commit([Change("replaced", "new-value", 1), Change("removed", "removed-value", ABSENT)])
    await store.commit([Change("removed", None, 2)])
    assert all(b"old-value" in path.read_bytes() for path in copies)
    await store.erase_history()
    before = contents(store)
    for path in copies:
        data = path.read_bytes()
        assert b"kept-value" in data
        assert b"new-value" in data
        assert b"old-value" not in data
        assert b"removed-value" not in data
    # Commits go on, with the next revision.
    assert await store.commit([Change("later", 1, ABSENT)]) == 4
    store.close()
    store = EmbeddedMetaStore.open(str(tmp_path), UnsyncedFiles(), lanes)
    assert contents(store) == {**before, "later": (1, 4)}
    store.close()
    lanes.close()
