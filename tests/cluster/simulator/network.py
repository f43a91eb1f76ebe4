"""The network of the simulation: loses, delays, duplicates and reorders messages, and breaks links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from kwire.cluster.core.control import CloseSegment
from tests.cluster.simulator.world import World

DELAY_MS_MAX: Final = 4


class NetworkFaults(Struct):
    """How often a message is lost, duplicated or late.

    `loss_of_ends`: how often a request to seal a segment is lost, so that a finished recovery is repeated.
    """

    loss: float = 0.0
    duplication: float = 0.0
    late: float = 0.0
    late_ms_max: int = 0
    loss_of_ends: float = 0.0


class Link(Struct, frozen=True):
    """One direction between two nodes."""

    source: str
    target: str


class Network:
    """Delivers to the handler of the target's name. A message to an unknown name is lost."""

    def __init__(self, world: World, faults: NetworkFaults) -> None:
        self._world = world
        self._chance = world.chance("network")
        self.faults = faults
        self.handlers: dict[str, Callable[[str, object], None]] = {}
        # How many partitions break each direction now.
        self._broken: dict[Link, int] = {}

    def send(self, source: str, target: str, body: object) -> None:
        world, chance, faults = self._world, self._chance, self.faults
        # The same draws for every message: the schedule does not depend on what is switched off.
        fate, copies, lateness, delay = chance.random(), chance.random(), chance.random(), chance.random()
        if self._broken and self._broken.get(Link(source, target)):
            world.fire("message in a partition")
            return
        if fate < max(faults.loss, faults.loss_of_ends if isinstance(body, CloseSegment) else 0.0):
            world.fire("lost message")
            return
        delay_ms = 1 + int(delay * DELAY_MS_MAX)
        if lateness < faults.late:
            world.fired["late message"] += 1
            delay_ms = 1 + int(delay * faults.late_ms_max)
        self._deliver_after(delay_ms, source, target, body)
        if copies < faults.duplication:
            world.fired["duplicated message"] += 1
            self._deliver_after(delay_ms + 1 + int(copies * 1000) % max(faults.late_ms_max, 20), source, target, body)

    def _deliver_after(self, delay_ms: int, source: str, target: str, body: object) -> None:
        def deliver() -> None:
            handler = self.handlers.get(target)
            if handler is not None and not self._broken.get(Link(source, target)):
                handler(source, body)

        self._world.after(delay_ms, deliver)

    def cut(self, links: list[Link]) -> Callable[[], None]:
        """Break these directions. Returns the function that heals them."""
        for link in links:
            self._broken[link] = self._broken.get(link, 0) + 1

        def heal() -> None:
            for link in links:
                self._broken[link] = max(0, self._broken.get(link, 0) - 1)

        return heal

    def heal_all(self) -> None:
        self._broken.clear()
        self.faults = NetworkFaults()
