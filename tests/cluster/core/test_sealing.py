"""Replica sealing: what a new leader does before it writes, and what it ends for the old one."""

from itertools import combinations

import pytest

from kwire.cluster.core.control import BeginRecovery, CloseSegment, Heartbeat, OpenSegment
from kwire.cluster.core.entries import Entry, Kind
from kwire.cluster.core.leader.recovery import Phase
from kwire.cluster.core.messages import Body, Close, LeaderRequest, Message, Read, Seal, Stale, Store
from kwire.cluster.core.policies import Policy
from kwire.cluster.core.quorum import Quorum
from tests.cluster.core.situations import ABC, FIRST, MAJORITY, led_world, read_all
from tests.cluster.core.world import World

QUORUMS = [Quorum(1, 1), Quorum(3, 2), Quorum(3, 3), Quorum(4, 3), Quorum(5, 2), Quorum(5, 3)]


@pytest.mark.proves("S4-17")
def test_the_first_message_of_a_leader_to_each_store_is_a_seal_with_its_epoch() -> None:
    world = World([ABC], MAJORITY)
    for epoch, leader in ((1, "first"), (2, "second")):
        world.elect(leader)
        world.append(leader, b"event")
        requests = {message.target: message.body for message in reversed(world.take(source=leader))}
        for store in ABC:
            assert isinstance(seal := requests[store], Seal)
            assert seal.epoch == epoch
        # Nothing else is sent to a store that has not answered.
        world.tick(world.limits.retry_ms)
        assert {type(message.body) for message in world.bag} == {Seal}
        world.deliver_all()
        world.settle()
    # The first leader took it before any store had answered; the second one was still recovering.
    assert read_all(world, "r") == [b"event"]


@pytest.mark.proves("S4-18")
@pytest.mark.parametrize("kind", [Seal, Store, Read, Close])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_sealed_store_refuses_every_request_with_a_smaller_epoch(kind: type, is_restarted: bool) -> None:
    world = World([ABC], MAJORITY)
    cookie = world.stores["A"].incarnation.cookie

    def step(body: Body) -> list[Body]:
        world.deliver(Message("w", "A", body))
        return [message.body for message in world.take(target="w")]

    step(Seal(FIRST, 2, cookie))
    if is_restarted:
        world.start_store("A")
    life = world.stores["A"].incarnation
    requests: dict[type, LeaderRequest] = {
        Seal: Seal(FIRST, 1, cookie),
        Store: Store(FIRST, 1, life, 0, 0, 1, (Entry(1, Kind.EVENT, 1, 1, b"late"),), leader="w"),
        Read: Read(FIRST, 1, life, 1, 1),
        Close: Close(FIRST, 1, life, 1),
    }
    before = world.storage["A"].load()
    assert step(requests[kind]) == [Stale(FIRST, 1, sealed_epoch=2)]
    assert world.storage["A"].load() == before


@pytest.mark.proves("S4-19")
@pytest.mark.parametrize("quorum", QUORUMS, ids=str)
def test_a_leader_starts_when_r_stores_are_sealed_and_then_the_old_one_acknowledges_nothing(quorum: Quorum) -> None:
    stores = "ABCDEF"[: quorum.replicas]
    for sealed in combinations(stores, quorum.reads):
        world = led_world(Policy(quorum))
        late = world.append("old", b"late")
        on_the_way = world.take(source="old")
        world.elect("new")
        recovery = world.writers["new"]._recovery
        assert recovery is not None
        for number, store in enumerate(sealed, start=1):
            assert recovery.phase is Phase.SEALING
            world.deliver_some(target=store, kind="Seal")
            world.deliver_some(source=store, kind="Sealed")
            assert (recovery.phase is not Phase.SEALING) is (number == quorum.reads)
        # Every store gets the entry, and every answer arrives.
        world.bag = on_the_way
        world.deliver_some(source="old")
        world.deliver_some(target="old")
        assert late is not None
        assert late not in world.acked["old"]
        assert world.writers["old"].epoch == 0, "it has heard of the higher epoch"


@pytest.mark.proves("S4-5")
def test_clients_elect_themselves_replicate_and_recover_and_the_master_only_decides() -> None:
    world = World([ABC], MAJORITY)
    asked: list[type] = []
    handle = world.master.handle

    def recording(request: object) -> object:
        if not isinstance(request, Heartbeat):
            asked.append(type(request))
        return handle(request)  # type: ignore[arg-type]

    world.master.handle = recording  # type: ignore[method-assign, assignment]
    candidate = world.start_writer("first")
    candidate.tick(world.now)
    assert candidate.take_output().requests == [Heartbeat("s", "first", 0, world.now, candidacy=1)]
    world.elect("first")
    world.deliver_all()
    assert asked == [OpenSegment]
    # An append goes to the stores and back: the master is not asked.
    world.append("first", b"event")
    assert {message.source for message in world.bag} == {"first"}
    world.deliver_all()
    assert len(world.acked["first"]) == 1
    assert asked == [OpenSegment]
    # The next client recovers with messages between itself and the stores.
    del world.writers["first"]
    world.elect("second")
    while world.bag:
        message = world.bag.pop(0)
        assert {message.source, message.target} & {"second"}
        assert {message.source, message.target} & set(ABC)
        world.deliver(message)
    assert asked == [OpenSegment, BeginRecovery, CloseSegment, OpenSegment]
