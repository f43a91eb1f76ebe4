"""One run: a cluster, its faults, the safety phase and the liveness phase."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Final

from msgspec import Struct

from kwire.cluster.core.control import SegmentState
from kwire.cluster.core.messages import Member
from tests.cluster.simulator.client_node import ClientNode, ReaderNode
from tests.cluster.simulator.ledger import Ledger
from tests.cluster.simulator.master_node import NAME, MasterNode
from tests.cluster.simulator.network import Link, Network
from tests.cluster.simulator.options import Fault, Options, draw_options, draw_trimming
from tests.cluster.simulator.partitions import LogEnds, PartitionClientNode, Producer
from tests.cluster.simulator.rules import Violation, check, final_rules
from tests.cluster.simulator.store_node import StoreNode
from tests.cluster.simulator.stream_kinds import PRODUCERS, is_partition, names_of_streams
from tests.cluster.simulator.world import World

# I26: within this time after the last fault, every stream has a leader, acknowledges, and its readers catch up.
LIVENESS_MS: Final = 40_000
LIVENESS_CHECK_MS: Final = 100
# How often one fault restarts the leader of a stream.
CHANGES_OF_LEADERS: Final = 6
# Acknowledgements that each stream has to give after the last fault.
ACKS_AFTER_FAULTS: Final = 5


class Result(Struct):
    """What a run did."""

    seed: int
    trace_hash: int
    steps: int
    fired: dict[str, int]
    acks: int
    recoveries: int
    segments: int
    seconds: float
    violation: str = ""
    tail: str = ""


class Simulation:
    """The cluster of one seed."""

    def __init__(
        self, seed: int, removed: frozenset[int] = frozenset(), change: Callable[[Options], None] | None = None
    ):
        self.world = World(seed)
        options = draw_options(self.world.chance("options"))
        if change is None:
            options.trimming = draw_trimming(self.world.chance("trimming"))
        else:
            change(options)
        # A change of the options is meant for plain streams.
        self.streams = names_of_streams(options, self.world.chance("streams") if change is None else None)
        self.options = options.without(removed) if removed else options
        self.ledger = Ledger(self.options.policy)
        self.network = Network(self.world, self.options.network)
        parts = (self.world, self.network, self.options, self.ledger)
        self.master = MasterNode(*parts, self.streams)
        self.stores = [StoreNode(number, *parts) for number in range(self.options.store_count)]
        for store in self.stores:
            store.start()
        producers = {
            stream: [Producer(producer_id) for producer_id in range(PRODUCERS)]
            for stream in filter(is_partition, self.streams)
        }
        log_ends: LogEnds = {}
        self.clients = [
            PartitionClientNode(number, stream, *parts, producers[stream], log_ends)
            if is_partition(stream)
            else ClientNode(number, stream, *parts)
            for number, stream in enumerate(stream for stream in self.streams for _ in range(self.options.client_count))
        ]
        self.readers = [
            ReaderNode(number, stream, *parts)
            for number, stream in enumerate(stream for stream in self.streams for _ in range(self.options.reader_count))
        ]
        for fault in self.options.faults:
            self.world.at(fault.time, lambda fault=fault: self._fire(fault))  # type: ignore[misc]
        self._is_healed = False
        # Streams that can not go on, because too many disks were replaced.
        self._lost: dict[str, bool] = {}
        self._acks_before: dict[str, int] = {}

    # --- phases

    def run(self) -> None:
        self.world.run_until(self.options.safety_ms)
        self._heal()
        self._check_liveness(self._is_acknowledging, "acknowledges")
        for client in self.clients:
            client.is_producing = False
        self._check_liveness(self._is_settled, "has settled")
        final_rules.check_all(self)

    def _heal(self) -> None:
        self._is_healed = True
        self.world.note("faults end")
        self.network.heal_all()
        for store in self.stores:
            store.heal()
        for client in self.clients:
            client.pause(0)
        self._acks_before = dict(self.ledger.ack_count)

    def _check_liveness(self, is_done: Callable[[], str], what: str) -> None:
        end = self.world.now + LIVENESS_MS
        why = is_done()
        while why and self.world.now < end:
            self.world.run_until(self.world.now + LIVENESS_CHECK_MS)
            why = is_done()
        check(not why, "I26", f"the cluster never {what}: {why}")

    def _is_acknowledging(self) -> str:
        for stream in self._streams_with_quorum():
            count = self.ledger.ack_count.get(stream, 0) - self._acks_before.get(stream, 0)
            if count < ACKS_AFTER_FAULTS:
                return f"{stream} acknowledged {count} events; {self._leaders()}"
        return ""

    def _streams_with_quorum(self) -> list[str]:
        """The streams whose unsealed segments have W members with their disks. Replaced disks never come back.

        A machine may be two members, before and after its disk was replaced. If it is a forgetful one, a copy set can
        have more members that lose entries than an acknowledgement allows for.
        """
        members = {Member(store.name, store.cookie) for store in self.stores}
        forgetful = {f"s{number}" for number in self.options.forgetful}
        lost = {
            segment.stream
            for segment, record in self.ledger.records.items()
            if record.state is not SegmentState.SEALED
            and (
                sum(member in members for member in record.copy_set) < record.write_quorum
                or sum(member.store.rstrip("+") in forgetful for member in record.copy_set) >= record.write_quorum
            )
        }
        for stream in sorted(lost):
            self.world.fired["stream that lost its quorum"] += not self._lost.get(stream, False)
            self._lost[stream] = True
        return [stream for stream in self.streams if stream not in lost]

    def has_quorum(self, stream: str) -> bool:
        return stream not in self._lost

    def _leaders(self) -> str:
        """What the leaders wait for."""
        return "; ".join(client.state() for client in self.clients if client.writer.epoch) or "no client leads"

    def _is_settled(self) -> str:
        return final_rules.unsettled(self)

    # --- faults

    def _fire(self, fault: Fault) -> None:
        if self._is_healed:
            return
        kind, target, size = fault.kind, fault.target, fault.size
        store = self.stores[target % len(self.stores)]
        client = self.clients[target % len(self.clients)]
        ttl_ms = self.options.ttl_ms
        is_fired = True
        match kind:
            case "kill":
                store.crash(1 + size % 60, is_power_cut=False)
            case "power cut":
                store.crash(1 + size % 60, is_power_cut=True)
            case "pause of a store":
                store.pause(size * 2)
            case "failed sync":
                store.fail_sync(size % 10)
            case "failed write":
                store.fail_write(size % 20)
            case "full disk":
                store.fill_disk(size % 12, size)
            case "damaged page":
                is_fired = store.damage(size)
            case "misdirected write":
                is_fired = store.misdirect(size)
            case "wiped disk":
                store.wipe()
            case "partition" | "one-way partition":
                self._cut(fault)
            case "power cut of all stores":
                for one in self.stores:
                    one.cut_power()
            case "pause of a client":
                client.pause(ttl_ms // 2 + size * 3)
            case "restart of a client":
                client.restart(keeps_name=size % 2 == 0)
            case "leader changes":
                self._change_leaders(fault)
            case "crash of the master":
                self.master.crash(1 + size)
            case _:
                raise ValueError(f"unknown fault {kind}")
        if is_fired:
            self.world.fire(kind, (target, size))

    def _cut(self, fault: Fault) -> None:
        """Separate some nodes from the others, in one direction or in both."""
        chance = self.world.chance(f"partition {fault.time} {fault.target} {fault.size}")
        names = [
            NAME,
            *(store.name for store in self.stores),
            *(client.name for client in self.clients),
            *(reader.name for reader in self.readers),
        ]
        inside = chance.sample(names, chance.randint(1, max(1, len(names) // 2)))
        links = [Link(one, other) for one in inside for other in names if other not in inside]
        if fault.kind == "partition":
            links += [Link(link.target, link.source) for link in links]
        heal = self.network.cut(links)
        self.world.after(200 + fault.size * 4, heal)

    def _change_leaders(self, fault: Fault) -> None:
        """Restart the leader of a stream some times. Meanwhile some stores are cut off, others each time.

        The leader first reaches any number of stores, so that entries get few copies. Then it is restarted, and the
        recovery hears some of the replicas. Recoveries that are interrupted leave entries on a few of them.
        """
        chance = self.world.chance(f"leader changes {fault.time} {fault.target} {fault.size}")
        stream = self.streams[fault.target % len(self.streams)]

        def isolate(count: int, heal: Callable[[], None]) -> None:
            heal()
            if count and not self._is_healed:
                heal = self._cut_off(chance, len(self.stores))
                self.world.after(chance.choice((10, 30, 60)), lambda: change(count, heal))

        def change(count: int, heal: Callable[[], None]) -> None:
            heal()
            if self._is_healed:
                return
            for client in self.clients:
                if client.stream == stream and client.writer.epoch:
                    self.world.fired["restart of a leader"] += 1
                    client.restart(keeps_name=True)
            heal = self._cut_off(chance, len(self.stores) - self.options.policy.quorum.reads)
            self.world.after(chance.choice((30, 60, 150, 400)), lambda: isolate(count - 1, heal))

        isolate(CHANGES_OF_LEADERS, lambda: None)

    def _cut_off(self, chance: Random, count_max: int) -> Callable[[], None]:
        """Separate some stores from all other nodes. Returns the function that heals them."""
        names = sorted(store.name for store in self.stores)
        cut = chance.sample(names, chance.randint(0, count_max))
        others = [NAME, *(client.name for client in self.clients), *(reader.name for reader in self.readers)]
        links = [Link(one, other) for one in cut for other in (*others, *(name for name in names if name not in cut))]
        return self.network.cut(links + [Link(link.target, link.source) for link in links])


def run(seed: int, removed: frozenset[int] = frozenset(), change: Callable[[Options], None] | None = None) -> Result:
    """Run one seed. A violation is in the result, with the end of the trace."""
    began = time.process_time()
    simulation = Simulation(seed, removed, change)
    violation = ""
    try:
        simulation.run()
    except Violation as found:
        violation = str(found)
    except Exception as error:  # the core raises for what no correct node does
        violation = f"{type(error).__name__}: {error}"
    world, ledger = simulation.world, simulation.ledger
    return Result(
        seed,
        world.trace_hash,
        world.step_count,
        dict(sorted(world.fired.items())),
        sum(ledger.ack_count.values()),
        ledger.recovery_count,
        sum(record.state is SegmentState.SEALED for record in ledger.records.values()),
        time.process_time() - began,
        violation,
        world.tail() if violation else "",
    )
