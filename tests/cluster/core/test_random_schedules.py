"""Random schedules of the core: messages are lost, doubled and reordered, stores and clients start again."""

import os
from random import Random

import pytest

from kwire.cluster.core.control import SegmentState
from kwire.cluster.core.entries import Position
from kwire.cluster.core.policies import Gaps, Limits, Path, Policy, Topology
from kwire.cluster.core.quorum import Quorum
from tests.cluster.core.world import World
from tests.support.effort import repetitions

QUORUMS = (Quorum(1, 1), Quorum(3, 2), Quorum(3, 3), Quorum(4, 3), Quorum(5, 2), Quorum(5, 3))
SCHEDULES = repetitions(quick=200, full=3000)
CHUNKS = 4
STEPS = 500


def random_policy(chance: Random) -> Policy:
    return Policy(
        chance.choice(QUORUMS), chance.choice(list(Gaps)), chance.choice(list(Path)), chance.choice(list(Topology))
    )


class Schedule:
    """One world that lives by chance, and what its producers were promised."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        self.policy = random_policy(chance)
        replicas = self.policy.quorum.replicas
        stores = tuple("ABCDEFG"[: replicas + chance.randint(0, 2)])
        copy_sets = [tuple(chance.sample(stores, replicas)) for _ in range(3)]
        limits = Limits(
            batch_bytes=chance.choice([40, 100, 1000]),
            window_bytes=chance.choice([100, 400]),
            unacked_bytes=chance.choice([300, 2000]),
            kept_bytes=chance.choice([0, 50, 1000]),
            pending_entries=chance.choice([1, 3, 100]),
            read_bytes=chance.choice([1, 30, 1000]),
            segment_entries=chance.choice([4, 10, 100]),
        )
        self.world = World(copy_sets, self.policy, limits)
        self.world.start_reader("r1")
        self.loss, self.doubling = chance.choice([0.0, 0.05, 0.3]), chance.choice([0.0, 0.1])
        self.restarts = chance.choice([0.0, 0.02])
        self.elections = chance.choice([0.004, 0.01, 0.03])
        self.serial = 0
        self.sealed: dict[int, tuple[int | None, int | None]] = {}

    def run(self) -> None:
        for _ in range(STEPS):
            self._step()
            self._check_sealed()
        self._end()

    def _step(self) -> None:
        world, chance = self.world, self.chance
        dice = chance.random()
        if dice < self.elections or not world.writers:
            # Up to three clients: those that led before go on as if they led.
            world.elect(chance.choice(["w1", "w2", "w3"]))
        elif dice < self.elections + self.restarts:
            world.start_store(chance.choice(list(world.stores)))
        elif dice < 0.10:
            world.tick(chance.choice([10, 50, 250]))
        elif dice < 0.12:
            for reader in world.readers.values():
                reader.tick(world.now)
                world.collect_reader(reader)
        elif dice < 0.25:
            self.serial += 1
            world.append(chance.choice(list(world.writers)), b"%06d" % self.serial)
        elif dice < 0.255:
            world.deliver_all()
        elif dice < 0.26:
            world.roll(chance.choice(list(world.writers)))
        elif world.bag:
            message = world.bag.pop(chance.randrange(min(len(world.bag), chance.choice([1, 10, 1000]))))
            if chance.random() < self.loss:
                return
            if chance.random() < self.doubling:
                world.bag.append(message)
            world.deliver(message)

    def _check_sealed(self) -> None:
        """I18: the end of a sealed segment never changes."""
        for number, record in self.world.master.segments.items():
            if record.state is SegmentState.SEALED:
                end = (record.base, record.end_index)
                assert self.sealed.setdefault(number, end) == end

    def _end(self) -> None:
        """Without faults, the stream gets a leader, acknowledges, and can be read as a whole."""
        world = self.world
        world.bag.clear()
        world.elect("last")
        world.settle()
        position = world.append("last", b"last")
        assert position is not None, "I26: the last leader can append"
        world.settle()
        assert world.acked["last"] == [position]
        world.repair()
        world.start_reader("r2")
        world.read()
        self._check_deliveries()

    def _check_deliveries(self) -> None:
        world = self.world
        content: dict[Position, bytes | None] = {}
        offsets = []
        for one in world.delivered["r2"]:
            content[one.position] = one.payload
            offsets.append(one.offset)
        assert offsets == list(range(len(offsets))), "I22: offsets are continuous"
        promised: dict[Position, bytes] = {}
        for (epoch, position), payload in world.appended.items():
            if position in world.acked_by_epoch.get(epoch, ()):
                assert promised.setdefault(position, payload) == payload, "I3: one payload is acknowledged per slot"
        for position, payload in promised.items():
            assert content.get(position) == payload, f"I1: {position} was acknowledged with {payload!r}"
        for one in world.delivered["r1"]:
            assert content[one.position] == one.payload, "I14: every reader gets the same content"
        if self.policy.gaps is Gaps.REFUSED:
            assert None not in content.values(), "I15: no event follows an empty slot"
        payloads = [payload for payload in content.values() if payload is not None]
        assert len(set(payloads)) == len(payloads), "an event is in the stream once"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_acknowledged_events_survive_every_schedule(chunk: int) -> None:
    seeds = range(chunk * SCHEDULES // CHUNKS, (chunk + 1) * SCHEDULES // CHUNKS)
    if "KWIRE_SEED" in os.environ:
        seeds = range(int(os.environ["KWIRE_SEED"]), int(os.environ["KWIRE_SEED"]) + 1)
    for seed in seeds:
        try:
            Schedule(seed).run()
        except BaseException:
            print(f"seed {seed}")
            raise
