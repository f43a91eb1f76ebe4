"""Plans: after a crash at any commit, all of a large change is made or none of it."""

from pathlib import Path

import pytest

from kwire.metastore import Change, Condition, EmbeddedMetaStore, Plan
from kwire.metastore.commits import batches
from kwire.metastore.interface import ABSENT, COMMIT_BYTES_MAX, CommitTooLarge, Entry
from kwire.metastore.plans import STEP_BYTES_MAX, STEP_CHANGES_MAX
from storage.errors import StorageFailed
from tests.metastore.implementations import Embedded
from tests.support.faulty_files import FaultyFiles
from tests.support.node import in_loop

PLAN_KEY = "plans/test"
# Two steps by the number of changes, one for a large value, and one for the removal after it.
NEW = {f"k{number}": number for number in range(STEP_CHANGES_MAX + 5)} | {"large": "x" * (STEP_BYTES_MAX - 20)}
OLD = {"k0": "old", "k1": "old", "removed": "old"}
WANTED = {**NEW, "removed": None}
STEPS = 4
# The plan, the records of its steps and the decision; then the steps.
DECIDED = 1 + STEPS + 1
COMMITS = DECIDED + STEPS


def contents(store: EmbeddedMetaStore) -> dict[str, object]:
    return {key: entry.value for key, entry in store.entries("")}


async def prepared(directory: Path, files: FaultyFiles) -> Embedded:
    world = Embedded(directory, files)
    await world.store.commit([Change(key, value, ABSENT) for key, value in OLD.items()])
    return world


@in_loop
async def test_small_change_is_one_commit(tmp_path: Path) -> None:
    world = Embedded(tmp_path)
    await Plan(world.store, PLAN_KEY).commit({"a": 1, "b": 2})
    assert world.store.revision == 1
    await Plan(world.store, PLAN_KEY).commit({})
    assert contents(world.store) == {"a": 1, "b": 2}
    world.close()


@in_loop
async def test_large_change_leaves_no_record_of_its_plan(tmp_path: Path) -> None:
    world = await prepared(tmp_path, FaultyFiles())
    await Plan(world.store, PLAN_KEY).commit(WANTED)
    assert contents(world.store) == NEW
    assert world.store.revision == 1 + COMMITS
    world.close()


@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize("made", range(COMMITS))
@in_loop
async def test_crash_at_any_commit_leaves_all_or_nothing(tmp_path: Path, made: int, is_lost: bool) -> None:
    """The commit after `made` ones fails. Its frame is lost, or is on the disk although nobody was told."""
    files = FaultyFiles()
    world = await prepared(tmp_path, files)
    files.fail_next("fdatasync", after=made)
    with pytest.raises(StorageFailed):
        await Plan(world.store, PLAN_KEY).commit(WANTED)
    assert world.store.revision == 1 + made
    if is_lost:
        files.cut_power()
    world.restart()
    # A crash of the recovery itself, at each of its commits.
    for after in range(COMMITS):
        files.fail_next("fdatasync", after=after)
        try:
            await Plan(world.store, PLAN_KEY).recover()
        except StorageFailed:
            files.repair()
            world.restart()
        else:
            files.repair()
            break
    is_decided = made + (not is_lost) >= DECIDED
    assert contents(world.store) == (NEW if is_decided else OLD)
    world.restart()
    assert contents(world.store) == (NEW if is_decided else OLD)
    world.close()


@in_loop
async def test_next_plan_completes_the_one_before(tmp_path: Path) -> None:
    files = FaultyFiles()
    world = await prepared(tmp_path, files)
    files.fail_next("pwrite", after=DECIDED + 1)
    with pytest.raises(Exception, match="append"):
        await Plan(world.store, PLAN_KEY).commit(WANTED)
    await Plan(world.store, PLAN_KEY).commit({"k1": "new"})
    assert contents(world.store) == {**NEW, "k1": "new"}
    world.close()


@in_loop
async def test_value_that_fits_no_step_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    world = Embedded(tmp_path)
    with pytest.raises(CommitTooLarge):
        await Plan(world.store, PLAN_KEY).commit({"a": 1, "b": "x" * STEP_BYTES_MAX})
    assert world.store.revision == 0
    world.close()


# --- changes that need no plan


def test_batches_keep_groups_together_and_are_as_large_as_possible() -> None:
    groups = [[Change(f"{number}/{part}", 1, ABSENT) for part in range(3)] for number in range(70)]
    divided = list(batches(groups))
    assert [len(batch) for batch in divided] == [99, 99, 12]
    assert [change for batch in divided for change in batch] == [change for group in groups for change in group]


def test_batches_are_bounded_by_bytes() -> None:
    changes = [Change(f"k{number}", "ü" * 200_000, ABSENT) for number in range(5)]
    assert [len(batch) for batch in batches([change] for change in changes)] == [2, 2, 1]
    with pytest.raises(CommitTooLarge, match="large"):
        list(batches([[Change("large", "x" * COMMIT_BYTES_MAX, ABSENT)]]))


@in_loop
async def test_every_batch_can_be_committed(tmp_path: Path) -> None:
    world = Embedded(tmp_path)
    for batch in batches([Change(f"k{number}", "x" * (number * 500), ABSENT)] for number in range(300)):
        await world.store.commit(batch)
    assert len(contents(world.store)) == 300
    assert world.store.get("k1") == Entry("x" * 500, 1)
    await world.store.commit([], [Condition("k1", 1)])
    world.close()
