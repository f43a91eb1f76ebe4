"""The settings of a schedule: quorum, policy, durability, and which faults how often."""

from random import Random
from typing import NamedTuple

# (N, W, R)
QUORUMS = ((3, 2, 2), (5, 3, 3), (5, 2, 4), (4, 3, 2), (1, 1, 1))


class Weather(NamedTuple):
    """How often what happens: each figure is the chance of a step, or of a message."""

    name: str
    # Of a step; what is left delivers a message.
    act: float = 0.20
    elect: float = 0.04
    read: float = 0.04
    crash_leader: float = 0.01
    crash_store: float = 0.02
    sync: float = 0.0
    damage: float = 0.0
    wipe: float = 0.0
    replace: float = 0.0
    # Of an election: all messages are lost.
    forget: float = 0.05
    # Of a message.
    lost: float = 0.08
    stays: float = 0.08
    shortened: float = 0.05
    not_synced: float = 0.0


CALM = Weather("calm", elect=0.02, crash_store=0.0, lost=0.02, stays=0.02)
LOSSY = Weather("lossy", lost=0.25, stays=0.15, elect=0.06)
ELECTIONS = Weather("elections", elect=0.10, act=0.15, crash_leader=0.03)
INTERRUPTIONS = Weather(
    "interruptions", elect=0.06, act=0.01, crash_store=0.0, forget=1.0, lost=0.1, stays=0.0, shortened=0.02
)
BACK_PRESSURE = Weather("back pressure", shortened=0.5, elect=0.06, read=0.08)
CRASHES = Weather("crashes", crash_store=0.06, sync=0.05)
BAD_DISKS = Weather("bad disks", damage=0.02, not_synced=0.05, crash_store=0.04)
REPLACEMENTS = Weather("replacements", wipe=0.015, replace=0.05)
WEATHERS = (CALM, LOSSY, ELECTIONS, INTERRUPTIONS, BACK_PRESSURE, CRASHES, BAD_DISKS, REPLACEMENTS)


class Setting:
    """What one schedule runs with.

    `sparse` recoveries fill holes, others end a segment at the first empty slot (the prefix policy). `relaxed` stores
    answer before they sync. `parallel` leaders open the next segment while they recover the last one.
    """

    __slots__ = ("n", "parallel", "r", "relaxed", "sparse", "steps", "w", "weather")

    def __init__(
        self,
        quorum: tuple[int, int, int],
        *,
        sparse: bool = False,
        relaxed: bool = False,
        parallel: bool = False,
        weather: Weather = LOSSY,
        steps: int = 80,
    ) -> None:
        self.n, self.w, self.r = quorum
        self.sparse = sparse
        self.relaxed = relaxed
        self.parallel = parallel
        self.weather = weather
        self.steps = steps

    @classmethod
    def draw(cls, quorum: tuple[int, int, int], *, sparse: bool, random: Random) -> "Setting":
        """Chance decides all but quorum and policy."""
        return cls(
            quorum,
            sparse=sparse,
            relaxed=random.random() < 0.25,
            parallel=random.random() < 0.5,
            weather=WEATHERS[int(random.random() * len(WEATHERS))],
            steps=(40, 80, 120)[int(random.random() * 3)],
        )

    def __str__(self) -> str:
        policy = "sparse" if self.sparse else "prefix"
        path = "parallel" if self.parallel else "serial"
        durability = "relaxed" if self.relaxed else "synced"
        return f"({self.n},{self.w},{self.r}) {policy} {path} {durability} {self.weather.name}, {self.steps} steps"
