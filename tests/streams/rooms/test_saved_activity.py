"""Saved activity of rooms: the largest one is stored in parts, and counts only for the next start."""

from pathlib import Path

import pytest

from kwire.broker.topics.startup import NODE_KEY
from kwire.metastore import Change
from kwire.metastore.interface import ABSENT
from kwire.streams.rooms.saved_activity import SAVED_ROOMS_MAX, WHOLE_ACTIVITY_KEY, load_activity, save_activity
from storage.errors import StorageFailed
from tests.metastore.implementations import Embedded
from tests.support.faulty_files import FaultyFiles
from tests.support.node import in_loop

# The largest activity that is saved: names of 249 bytes.
LARGEST = {f"{number:0249}": 1_700_000_000_000 + number for number in range(SAVED_ROOMS_MAX)}


@in_loop
async def test_largest_activity_is_saved_and_taken_once(tmp_path: Path) -> None:
    world = Embedded(tmp_path)
    await save_activity(world.store, LARGEST)
    world.restart()
    used, removed = await load_activity(world.store)
    assert used == LARGEST
    await world.store.commit(removed)
    assert list(world.store.entries("")) == []
    assert await load_activity(world.store) == (None, [])
    world.close()


@pytest.mark.parametrize("made", [0, 3, 9, 12])
@in_loop
async def test_crash_while_it_is_saved_leaves_all_or_nothing(tmp_path: Path, made: int) -> None:
    files = FaultyFiles()
    world = Embedded(tmp_path, files)
    files.fail_next("fdatasync", after=made)
    with pytest.raises(StorageFailed):
        await save_activity(world.store, LARGEST)
    files.cut_power()
    world.restart()
    used, removed = await load_activity(world.store)
    assert used in (None, LARGEST)
    await world.store.commit(removed)
    assert list(world.store.entries("")) == []
    world.close()


@in_loop
async def test_activity_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    world = Embedded(tmp_path)
    await world.store.commit([Change(WHOLE_ACTIVITY_KEY, {"lobby": 5}, ABSENT)])
    used, removed = await load_activity(world.store)
    assert used == {"lobby": 5}
    await world.store.commit(removed)
    assert list(world.store.entries("")) == []
    world.close()


@in_loop
async def test_activity_before_a_start_of_an_earlier_release_does_not_count(tmp_path: Path) -> None:
    world = Embedded(tmp_path)
    revision = await world.store.commit([Change(NODE_KEY, {"starts": 3}, ABSENT)])
    await save_activity(world.store, {"lobby": 5})
    await world.store.commit([Change(NODE_KEY, {"starts": 4}, revision)])
    used, removed = await load_activity(world.store)
    assert used is None
    await world.store.commit(removed)
    assert [key for key, _ in world.store.entries("")] == [NODE_KEY]
    world.close()
