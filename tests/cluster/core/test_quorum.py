"""Quorums: every seal set shares a replica with every set that can acknowledge."""

from itertools import combinations

import pytest

from kwire.cluster.core.policies import Policy, Topology
from kwire.cluster.core.quorum import Quorum


@pytest.mark.proves("S4-28", "S4-31")
@pytest.mark.parametrize("replicas", range(1, 7))
def test_every_read_quorum_meets_every_write_quorum(replicas: int) -> None:
    for writes in range(1, replicas + 1):
        quorum = Quorum(replicas, writes)
        for reading in combinations(range(replicas), quorum.reads):
            for writing in combinations(range(replicas), writes):
                assert set(reading) & set(writing)
        # One replica fewer is not enough: the rule is exact.
        if quorum.reads > 1:
            assert any(
                not set(reading) & set(writing)
                for reading in combinations(range(replicas), quorum.reads - 1)
                for writing in combinations(range(replicas), writes)
            )


@pytest.mark.proves("S4-31")
def test_majority_and_nrw_are_instances() -> None:
    assert Quorum.majority(3) == Quorum(3, 2)
    assert Quorum.majority(4) == Quorum(4, 3)
    assert Quorum.majority(5).reads == 3
    assert Quorum.nrw(3, 2, 2) == Quorum(3, 2)
    assert Quorum.nrw(5, 5, 1).reads == 5


def test_a_chain_acknowledges_when_all_replicas_have_the_entry() -> None:
    policy = Policy.chain(3)
    assert policy.quorum == Quorum(3, 3)
    assert policy.topology is Topology.CHAIN


@pytest.mark.parametrize(("replicas", "writes"), [(3, 0), (3, 4), (0, 0)])
def test_impossible_write_quorums_are_refused(replicas: int, writes: int) -> None:
    with pytest.raises(ValueError, match="a write quorum must be from 1 to"):
        Quorum(replicas, writes)


def test_quorums_that_do_not_meet_are_refused() -> None:
    with pytest.raises(ValueError, match="R \\+ W must be larger than N, got N=5 R=2 W=3"):
        Quorum.nrw(5, 2, 3)
