"""Full garbage collections: what took long is not looked at again."""

import gc
from collections.abc import Iterator

import pytest

from kwire.server import garbage
from kwire.server.garbage import GARBAGE_MAX, BoundedCollections, PostponedCollections

OBJECTS = 20_000


@pytest.fixture
def collections() -> Iterator[BoundedCollections]:
    gc.collect()
    was_frozen = gc.get_freeze_count() > 0
    found = BoundedCollections()
    gc.callbacks.append(found)
    yield found
    gc.callbacks.remove(found)
    if not was_frozen:
        gc.unfreeze()


def test_survivors_of_a_long_collection_are_frozen(
    collections: BoundedCollections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.server.garbage.FULL_COLLECTION_SECONDS_MAX", 0.0)
    kept = [[number] for number in range(OBJECTS)]
    gc.collect()
    assert collections.freezes == 1
    assert gc.get_freeze_count() >= OBJECTS
    # They are still freed by their reference counts.
    frozen = gc.get_freeze_count()
    del kept
    assert gc.get_freeze_count() <= frozen - OBJECTS


def test_objects_are_not_frozen_beside_much_garbage(
    collections: BoundedCollections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in use at such a time would leak if it became garbage of the same kind."""
    monkeypatch.setattr("kwire.server.garbage.FULL_COLLECTION_SECONDS_MAX", 0.0)
    gc.disable()
    try:
        for _ in range(2 * GARBAGE_MAX):
            cycle: list[object] = []
            cycle.append(cycle)
        gc.collect()
    finally:
        gc.enable()
    assert collections.freezes == 0


def test_a_short_collection_freezes_nothing(collections: BoundedCollections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.server.garbage.FULL_COLLECTION_SECONDS_MAX", 3600.0)
    before = gc.get_freeze_count()
    gc.collect()
    gc.collect(0)
    assert collections.freezes == 0
    assert gc.get_freeze_count() == before


def collections_during(objects: int) -> int:
    """How many automatic collections take place while this many container objects are made."""
    before = collection_count()
    kept = [[number] for number in range(objects)]
    assert len(kept) == objects
    return collection_count() - before


def collection_count() -> int:
    return sum(int(generation["collections"]) for generation in gc.get_stats())


def test_collections_wait_for_all_large_requests() -> None:
    postponed = PostponedCollections()
    assert collections_during(OBJECTS) > 0
    postponed.postpone()
    postponed.postpone()
    assert collections_during(OBJECTS) == 0
    postponed.resume()
    assert collections_during(OBJECTS) == 0
    assert not postponed.are_overdue
    postponed.resume()
    assert collections_during(OBJECTS) > 0


def test_collections_that_waited_for_too_long_are_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "POSTPONED_SECONDS_MAX", 0.0)
    postponed = PostponedCollections()
    assert not postponed.are_overdue
    overdue = []
    for change in (postponed.postpone, postponed.postpone, postponed.resume):
        change()
        overdue.append(postponed.are_overdue)
    assert overdue == [True, True, True]
    before = collection_count()
    postponed.resume()
    assert collection_count() > before
    assert not postponed.are_overdue
