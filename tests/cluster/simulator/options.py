"""What a seed decides: the cluster, its policy, tiny limits, and the faults that are switched on.

Each seed switches on a random subset of the kinds of faults: a kind that always runs hides what happens without it.
Every fault is an item of a list. A failing seed is run again without some of its items until none can be left out.
"""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct

from kwire.cluster.core.policies import Gaps, Limits, Path, Policy
from kwire.cluster.core.quorum import Quorum
from tests.cluster.simulator.network import NetworkFaults

QUORUMS: Final = ((3, 2), (3, 2), (3, 2), (5, 3), (5, 2), (4, 3), (3, 3), (2, 1), (1, 1))
CHAIN_CHANCE: Final = 0.15
TRIMMING_CHANCE: Final = 0.4

# Kinds of faults that hit one store, and whether they may lose what the store has acknowledged.
STORE_FAULTS: Final = {
    "kill": False,
    "power cut": False,
    "pause of a store": False,
    "failed sync": False,
    "failed write": False,
    "full disk": False,
    "damaged page": True,
    "misdirected write": True,
    "wiped disk": True,
}
OTHER_FAULTS: Final = (
    "partition",
    "one-way partition",
    "power cut of all stores",
    "pause of a client",
    "restart of a client",
    "crash of the master",
    "leader changes",
)
NETWORK_FAULTS: Final = ("lost messages", "duplicated messages", "late messages")
CLOCK_FAULTS: Final = ("clock skew",)


class Fault(Struct, frozen=True):
    """One fault of the schedule. `size` scales it: a length in milliseconds or a number of disk calls."""

    time: int
    kind: str
    target: int
    size: int


class Options(Struct):
    """Everything that a seed decides before the run begins."""

    policy: Policy
    limits: Limits
    store_count: int
    client_count: int
    reader_count: int
    stream_count: int
    is_whole_log: bool
    ttl_ms: int
    is_synced: bool
    group_commit_ms: int
    append_ms: int
    payload_bytes: tuple[int, ...]
    safety_ms: int
    network: NetworkFaults
    skews: tuple[float, ...]
    # Stores that may lose what they have acknowledged: at most W - 1, so that an acknowledged entry survives.
    forgetful: tuple[int, ...]
    faults: list[Fault]
    # How often a leader trims its stream after an acknowledgement.
    trimming: float = 0.0

    def without(self, removed: frozenset[int]) -> Options:
        """The same run without these items of the schedule. Negative numbers are not faults of a time."""
        options = Options(**{name: getattr(self, name) for name in self.__struct_fields__})
        options.faults = [fault for number, fault in enumerate(self.faults) if number not in removed]
        network = self.network
        options.network = NetworkFaults(
            0.0 if -1 in removed else network.loss,
            0.0 if -2 in removed else network.duplication,
            0.0 if -3 in removed else network.late,
            network.late_ms_max,
            0.0 if -1 in removed else network.loss_of_ends,
        )
        options.trimming = 0.0 if -5 in removed else self.trimming
        options.skews = tuple(1.0 for _ in self.skews) if -4 in removed else self.skews
        return options

    def items(self) -> list[int]:
        """The numbers of everything that can be left out."""
        always = [-1] * (self.network.loss > 0) + [-2] * (self.network.duplication > 0) + [-3] * (self.network.late > 0)
        skewed = [-4] * any(skew != 1.0 for skew in self.skews)
        trims = [-5] * (self.trimming > 0)
        return [*always, *skewed, *trims, *range(len(self.faults))]

    def name_of(self, item: int) -> str:
        names = {
            -1: f"lost messages {self.network.loss:.2f}",
            -2: f"duplicated messages {self.network.duplication:.2f}",
        }
        names |= {-3: f"late messages {self.network.late:.2f}", -4: f"clock skew {self.skews}"}
        names |= {-5: f"trims {self.trimming:.2f}"}
        return names.get(item) or str(self.faults[item])


def draw_options(chance: Random) -> Options:
    policy = _draw_policy(chance)
    client_count = chance.choice((2, 2, 3))
    store_count = policy.quorum.replicas + chance.choice((0, 1, 1, 2))
    kinds = {kind for kind in (*STORE_FAULTS, *OTHER_FAULTS, *NETWORK_FAULTS, *CLOCK_FAULTS) if chance.random() < 0.5}
    is_synced = chance.random() < 0.75
    safety_ms = chance.choice((3_000, 5_000, 8_000))
    forgetful = tuple(chance.sample(range(store_count), policy.quorum.writes - 1))
    ttl_ms = chance.choice((600, 1000, 2000))
    return Options(
        policy=policy,
        limits=_draw_limits(chance, ttl_ms),
        store_count=store_count,
        client_count=client_count,
        reader_count=chance.choice((1, 2)),
        stream_count=chance.choice((1, 1, 1, 2)),
        is_whole_log=chance.random() < 0.3,
        ttl_ms=ttl_ms,
        is_synced=is_synced,
        group_commit_ms=chance.choice((0, 0, 1, 5)),
        append_ms=chance.choice((10, 25, 60)),
        payload_bytes=chance.choice(((8,), (8, 40, 300), (20, 700, 5000))),
        safety_ms=safety_ms,
        network=NetworkFaults(
            chance.choice((0.01, 0.05, 0.2)) if "lost messages" in kinds else 0.0,
            chance.choice((0.02, 0.1)) if "duplicated messages" in kinds else 0.0,
            chance.choice((0.02, 0.2)) if "late messages" in kinds else 0.0,
            chance.choice((30, 300, 3000)),
            chance.choice((0.0, 0.5)) if "lost messages" in kinds else 0.0,
        ),
        skews=tuple(chance.choice((0.8, 0.95, 1.0, 1.05, 1.25)) if "clock skew" in kinds else 1.0 for _ in range(8)),
        forgetful=forgetful,
        faults=_draw_faults(chance, kinds, safety_ms, store_count, forgetful, policy.quorum, is_synced),
    )


def draw_trimming(chance: Random) -> float:
    """How often leaders trim. A chance of its own: the other options of a seed do not depend on it."""
    return chance.choice((0.05, 0.2)) if chance.random() < TRIMMING_CHANCE else 0.0


def _draw_policy(chance: Random) -> Policy:
    replicas, writes = chance.choice(QUORUMS)
    if chance.random() < CHAIN_CHANCE and replicas > 1:
        return Policy.chain(replicas)
    gaps = chance.choice((Gaps.REFUSED, Gaps.FILLED))
    return Policy(Quorum(replicas, writes), gaps, chance.choice((Path.SERIAL, Path.PARALLEL)))


def _draw_limits(chance: Random, ttl_ms: int) -> Limits:
    batch_bytes = chance.choice((64, 500, 20_000))
    return Limits(
        batch_bytes=batch_bytes,
        window_bytes=batch_bytes * chance.choice((1, 4)),
        unacked_bytes=chance.choice((2_000, 50_000)),
        kept_bytes=chance.choice((0, 500, 20_000)),
        pending_entries=chance.choice((1, 5, 100)),
        read_bytes=chance.choice((100, 1000, 20_000)),
        retry_ms=chance.choice((40, 100)),
        idle_ms=chance.choice((20, 50)),
        heartbeat_ms=ttl_ms // 4,
        lacking_ms=ttl_ms,
        segment_bytes=chance.choice((2_000, 100_000)),
        segment_entries=chance.choice((8, 40, 1000)),
    )


def _draw_faults(
    chance: Random,
    kinds: set[str],
    safety_ms: int,
    store_count: int,
    forgetful: tuple[int, ...],
    quorum: Quorum,
    is_synced: bool,
) -> list[Fault]:
    drawn = []
    for kind in (*STORE_FAULTS, *OTHER_FAULTS):
        if kind not in kinds:
            continue
        for _ in range(chance.choice((1, 2, 4))):
            time, target, size = chance.randint(200, safety_ms), chance.randrange(1000), chance.randint(1, 1000)
            if kind in STORE_FAULTS:
                target %= store_count
            # Without syncs a power cut loses acknowledged entries. A recovery needs W stores, so that only N - W disks
            # may be replaced.
            if STORE_FAULTS.get(kind) or (
                not is_synced and kind in ("power cut", "kill", "failed sync", "failed write", "full disk")
            ):
                allowed = forgetful[: quorum.replicas - quorum.writes] if kind == "wiped disk" else forgetful
                if not allowed:
                    continue
                target = allowed[target % len(allowed)]
            if kind == "power cut of all stores" and not is_synced:
                continue
            drawn.append(Fault(time, kind, target, size))
    return sorted(drawn, key=lambda fault: (fault.time, fault.kind, fault.target, fault.size))
