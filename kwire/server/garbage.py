"""Bounded pauses for garbage collection.

A full collection of Python looks at every container object that is not frozen: with 100,000 consumer groups it stops
the event loop for 200 ms. So whenever a full collection has taken long, the objects that survived it are frozen. Later
collections skip them, and begin small again. Reference counting frees frozen objects as before; only reference cycles
among them are never found, so what is frozen at one time can leak at most the cycles that existed at that time.
"""

import gc
from time import perf_counter
from typing import Any, Final

# Some 50,000 objects. The next full collection begins when there are a quarter more of them, or as many new ones.
FULL_COLLECTION_SECONDS_MAX: Final = 0.005
# Objects in cycles that a full collection may have freed, if what it left is to be frozen.
GARBAGE_MAX: Final = 1000
_OLDEST: Final = 2


# Collections of the middle generation, of some 7,000 new objects each, between two full ones.
_MIDDLE_PER_FULL: Final = 3


# Collections wait for large requests no longer than this: then no more of those begin until a collection is done.
POSTPONED_SECONDS_MAX: Final = 10.0
_MIDDLE: Final = 1


class PostponedCollections:
    """No automatic collections while large requests are handled; reference counting frees those as always.

    A collection visits every element of a new list, also in the youngest generation: 25 ms for 240,000 elements.
    """

    def __init__(self) -> None:
        self._users = 0
        self._since = 0.0

    @property
    def are_overdue(self) -> bool:
        return self._users > 0 and perf_counter() - self._since > POSTPONED_SECONDS_MAX

    def postpone(self) -> None:
        if not self._users:
            self._since = perf_counter()
            gc.disable()
        self._users += 1

    def resume(self) -> None:
        """The large request is freed. Called once after each `postpone`."""
        are_overdue = self.are_overdue
        self._users -= 1
        if not self._users:
            gc.enable()
            if are_overdue:
                gc.collect(_MIDDLE)


def bound_collections() -> None:
    """Install the bound for the whole process."""
    gc.callbacks.append(BoundedCollections())
    gc.set_threshold(*gc.get_threshold()[:2], _MIDDLE_PER_FULL)


class BoundedCollections:
    """A callback of the garbage collector (`gc.callbacks`). `freezes` counts the full collections that took long."""

    def __init__(self) -> None:
        self.freezes = 0
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != _OLDEST:
            return
        if phase == "start":
            self._began = perf_counter()
            return
        is_long = perf_counter() - self._began > FULL_COLLECTION_SECONDS_MAX
        # With garbage it took long to free that, and there may be more of its kind in use now.
        if is_long and info["collected"] <= GARBAGE_MAX:
            self.freezes += 1
            gc.freeze()
