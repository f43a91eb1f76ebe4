"""A recovery has decided to keep an entry whose only copy is lost afterwards."""

import pytest

from kwire.cluster.core.control import SegmentState
from kwire.cluster.core.entries import Range
from tests.cluster.core.situations import FIRST, led_world


@pytest.mark.parametrize("failure", ["gone", "damaged"])
def test_a_leader_begins_again_if_the_only_copy_of_an_entry_is_lost(failure: str) -> None:
    """The entry was not acknowledged, so two of three replicas are enough to decide without it."""
    world = led_world()
    world.append("old", b"only on A")
    world.deliver_some(target="A", kind="Store")
    world.bag.clear()
    del world.writers["old"]
    world.elect("new")
    # The new leader hears A and B, and decides to keep the entry.
    world.deliver_some(target="A,B")
    world.deliver_some(source="A,B")
    world.bag.clear()
    if failure == "gone":
        del world.stores["A"]
    else:
        replica = world.storage["A"].replicas[FIRST]
        replica.entries.clear()
        replica.unknown = (Range(1, 1),)
        world.start_store("A")
    world.settle(rounds=100)
    assert world.writers["new"].epoch == 0, "another epoch is needed to decide again"
    world.elect("new")
    world.settle()
    assert world.master.segments[1].state is SegmentState.SEALED
    assert world.master.segments[1].end_index == 1
