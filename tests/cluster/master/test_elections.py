"""Elections and leases: one leader for each epoch, and no other leader during its lease."""

import pytest

from kwire.cluster.core.control import Granted, Heartbeat, NotLeader, OpenSegment, Renewed, Unavailable
from kwire.cluster.core.messages import SegmentId
from kwire.cluster.master.liveness import CANDIDATES_MAX, Candidates
from kwire.metastore.interface import Change
from tests.cluster.master.world import SETTINGS, World, finish, record_of

TTL_MS = SETTINGS.lease_ttl_ms


@pytest.fixture
def world() -> World:
    made = World()
    made.create()
    return made


@pytest.mark.proves("S4-14", "S4-16")
def test_the_first_candidate_gets_a_lease_and_renews_it_by_heartbeats(world: World) -> None:
    assert world.ask(Heartbeat("s", "c", 0)) == Granted("s", 1, TTL_MS, 0, ())
    revision = world.metastore.revision
    for _ in range(5):
        world.now += TTL_MS - 1
        assert world.ask(Heartbeat("s", "other", 0)) == NotLeader("s", 1)
        assert world.ask(Heartbeat("s", "c", 1)) == Renewed("s", 1, TTL_MS, 0, must_roll=False)
    # Renewing a lease writes nothing.
    assert world.metastore.revision == revision


@pytest.mark.proves("S4-13", "S4-15")
def test_another_client_is_elected_only_after_the_lease_has_expired(world: World) -> None:
    world.elect("first")
    world.now += TTL_MS - 1
    assert world.ask(Heartbeat("s", "second", 0)) == NotLeader("s", 1)
    world.now += 1
    assert world.ask(Heartbeat("s", "second", 0)) == Granted("s", 2, TTL_MS, 0, ())
    assert world.ask(Heartbeat("s", "first", 1)) == NotLeader("s", 2)
    assert world.ask(OpenSegment("s", 1, 1)) == NotLeader("s", 2)


def test_a_lease_that_has_expired_is_renewed_while_no_other_leader_was_elected(world: World) -> None:
    world.elect("first")
    world.now += 2 * TTL_MS
    assert world.ask(Heartbeat("s", "first", 1)) == Renewed("s", 1, TTL_MS, 0, must_roll=False)
    assert world.ask(Heartbeat("s", "second", 0)) == NotLeader("s", 1)


def test_only_the_client_of_the_newest_epoch_renews_a_lease(world: World) -> None:
    world.elect("first")
    for request in (Heartbeat("s", "second", 1), Heartbeat("s", "first", 2), Heartbeat("s", "first", -1)):
        assert world.ask(request) == NotLeader("s", 1)


@pytest.mark.proves("S4-15")
def test_a_new_master_waits_for_the_lease_that_the_earlier_one_may_have_renewed(world: World) -> None:
    world.elect("first")
    world.now += TTL_MS - 1
    assert isinstance(world.ask(Heartbeat("s", "first", 1)), Renewed)
    world.new_master("next")
    assert world.ask(Heartbeat("s", "second", 0)) == NotLeader("s", 1)
    world.now += TTL_MS - 1
    assert world.ask(Heartbeat("s", "second", 0)) == NotLeader("s", 1)
    world.now += 1
    assert isinstance(world.ask(Heartbeat("s", "second", 0)), Granted)


def test_a_new_master_renews_the_lease_of_the_leader(world: World) -> None:
    world.elect("first")
    world.new_master("next")
    assert isinstance(world.ask(Heartbeat("s", "first", 1)), Renewed)


def test_a_new_master_elects_at_once_where_there_never_was_a_leader(world: World) -> None:
    world.new_master("next")
    assert world.elect() == 1


def test_a_candidate_that_missed_the_answer_gets_the_same_epoch_again(world: World) -> None:
    candidate = Heartbeat("s", "c", 0, candidacy=7)
    first = world.ask(candidate)
    assert world.ask(candidate) == first == Granted("s", 1, TTL_MS, 0, (), candidacy=7)
    world.new_master("next")
    assert world.ask(candidate) == first
    # Every answer begins the lease anew.
    world.now += TTL_MS - 1
    world.ask(candidate)
    world.now += TTL_MS - 1
    assert world.ask(Heartbeat("s", "other", 0)) == NotLeader("s", 1)


def test_a_leader_that_starts_again_gets_another_epoch(world: World) -> None:
    assert world.ask(Heartbeat("s", "c", 0, candidacy=7)) == Granted("s", 1, TTL_MS, 0, (), candidacy=7)
    assert world.ask(Heartbeat("s", "c", 0, candidacy=8)) == Granted("s", 2, TTL_MS, 0, (), candidacy=8)
    # A heartbeat that was delayed does not unseat the leader.
    assert world.ask(Heartbeat("s", "c", 0, candidacy=7)) == NotLeader("s", 2)
    assert isinstance(world.ask(Heartbeat("s", "c", 2)), Renewed)


def test_without_a_candidacy_number_no_epoch_is_assigned_twice(world: World) -> None:
    assert [world.elect("c") for _ in range(3)] == [1, 2, 3]


@pytest.mark.proves("C-38")
@pytest.mark.parametrize("choice", range(6))
def test_the_number_of_the_caller_chooses_among_the_candidates(world: World, choice: int) -> None:
    world.elect("leader")
    world.now += TTL_MS - 1
    for client in ("z", "x", "y"):
        assert world.ask(Heartbeat("s", client, 0)) == NotLeader("s", 1)
    world.now += 1
    elected = [
        client for client in ("z", "x", "y") if isinstance(world.ask(Heartbeat("s", client, 0), choice), Granted)
    ]
    assert elected == [("x", "y", "z")[choice % 3]]


def test_a_candidate_that_is_silent_is_no_longer_chosen(world: World) -> None:
    world.elect("leader")
    world.ask(Heartbeat("s", "a", 0))
    world.now += TTL_MS
    assert isinstance(world.ask(Heartbeat("s", "b", 0), choice=0), Granted)


def test_a_candidate_beside_a_good_replica_is_preferred(world: World) -> None:
    world.create("t", replicas=1, write_quorum=1)
    epoch = world.elect("leader", "t")
    (member,) = world.open(epoch, 1, "t").copy_set
    world.pass_time(TTL_MS - 1, "ABC")
    world.ask(Heartbeat("t", "far", 0))
    world.ask(Heartbeat("t", "near", 0, store=member.store))
    world.now += 1
    for choice in range(4):
        assert world.ask(Heartbeat("t", "far", 0), choice) == NotLeader("t", epoch)
    # A replica that its store can not vouch for has no advantage.
    world.hear(member.store, limbo=(SegmentId("t", 1),))
    assert isinstance(world.ask(Heartbeat("t", "far", 0), choice=0), Granted)


def test_the_number_of_candidates_is_bounded() -> None:
    candidates = Candidates(ttl_ms=100)
    for number in range(CANDIDATES_MAX + 20):
        candidates.hear(Heartbeat("s", f"c{number:03}", 0), 0)
    assert len(candidates.of("s", 99)) == CANDIDATES_MAX
    candidates.hear(Heartbeat("s", "late", 0), 100)
    assert [one.client for one in candidates.of("s", 100)] == ["late"]


def test_a_client_needs_a_name(world: World) -> None:
    for client in ("", "c" * 256):
        assert isinstance(world.ask(Heartbeat("s", client, 0)), Unavailable)


def test_a_lease_is_not_renewed_while_another_leader_is_being_elected(world: World) -> None:
    """Between the decision and its commit there must be no second lease."""
    world.elect("first")
    world.now += TTL_MS
    original = world.metastore.commit
    answers = []

    async def commit(changes: list[Change], conditions: object = ()) -> int:
        answers.append((await world.master.handle(Heartbeat("s", "first", 1), world.now)).answer)
        return await original(changes, conditions)  # type: ignore[arg-type]

    world.metastore.commit = commit  # type: ignore[method-assign, assignment]
    granted = finish(world.master.handle(Heartbeat("s", "second", 0), world.now)).answer
    world.metastore.commit = original  # type: ignore[method-assign]
    assert isinstance(granted, Granted)
    assert isinstance(answers[0], Unavailable)
    assert world.ask(Heartbeat("s", "first", 1)) == NotLeader("s", 2)


def test_the_answer_of_an_election_contains_the_segments(world: World) -> None:
    epoch = world.elect("first")
    record = record_of(world.ask(OpenSegment("s", epoch, 1)))
    world.pass_time(TTL_MS, "ABC")
    assert world.ask(Heartbeat("s", "second", 0)) == Granted("s", 2, TTL_MS, 0, (record,))
