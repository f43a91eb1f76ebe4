"""Changes of the catalogue that lead to more free space, on a disk that has none."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from kwire.disk_lanes import Lane
from storage.disk_reserve import is_full
from storage.errors import DiskFailure

R = TypeVar("R")


class Reserving(Protocol):
    """A store with space that can be given up."""

    def give_up_reserve(self) -> bool: ...


async def freeing(store: Reserving, lane: Lane, commit: Callable[[], Awaitable[R]]) -> R:
    """Await `commit`, on a full disk at the expense of the reserve; raises what it raises when nothing is left.

    `lane` gives the reserve up.
    """
    while True:
        try:
            return await commit()
        except DiskFailure as error:
            if not is_full(error) or not await lane.run(store.give_up_reserve):
                raise
