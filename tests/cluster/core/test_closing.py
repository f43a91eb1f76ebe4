"""The end of a segment, when the leader stops right after the master has recorded it."""

import pytest

from kwire.cluster.core.control import ClientAnswer, ClientRequest, CloseSegment, SegmentState
from kwire.cluster.core.messages import SegmentId
from kwire.cluster.core.policies import Policy
from kwire.cluster.core.quorum import Quorum
from tests.cluster.core.world import STREAM, World

SEGMENT = SegmentId(STREAM, 1)
STEPS_MAX = 1000


class LossyWorld(World):
    """A world in which requests to seal a segment can be lost."""

    loses_ends = False

    def _ask_master(self, request: ClientRequest) -> ClientAnswer | None:
        return None if self.loses_ends and isinstance(request, CloseSegment) else super()._ask_master(request)

    def run_until_sealed(self) -> None:
        """Deliver messages in order until the master has recorded the end, and lose all that follow."""
        for _ in range(STEPS_MAX):
            if self.master.segments[1].state is SegmentState.SEALED:
                self.bag.clear()
                return
            if self.bag:
                self.deliver(self.bag.pop(0))
            else:
                self.tick(self.limits.retry_ms)
        raise AssertionError("the segment was never sealed")


@pytest.mark.parametrize("quorum", [Quorum(3, 2), Quorum(2, 1), Quorum(3, 3)])
def test_replicas_that_hold_an_acknowledged_segment_finish_without_the_leader_that_sealed_it(quorum: Quorum) -> None:
    """The recovery has nothing to replicate: every replica knows the bridge to be acknowledged."""
    stores = ("A", "B", "C")[: quorum.replicas]
    world = LossyWorld([stores], Policy(quorum))
    world.elect("first")
    world.settle()
    world.append("first", b"one")
    world.loses_ends = True
    world.roll("first")
    world.settle()
    assert {world.stores[one].replicas[SEGMENT].acked for one in stores} == {2}
    del world.writers["first"]
    world.loses_ends = False
    world.elect("second")
    world.run_until_sealed()
    del world.writers["second"]
    assert not any(world.stores[one].replicas[SEGMENT].closed_end for one in stores)
    world.repair()
    assert {world.stores[one].replicas[SEGMENT].closed_end for one in stores} == {2}
