"""Bounds the pauses of Python's garbage collection.

A full collection visits every container object that is not frozen. With 100,000 consumer groups it stalls the event
loop for 200 ms. So when a full collection has taken long, the objects that survived it are frozen, and later
collections skip them. Reference counting still frees frozen objects. Only reference cycles among frozen objects are
never freed. So each freeze leaks at most the cycles that exist at that time.
"""

import gc
from time import perf_counter
from typing import Any, Final

# If a full collection takes longer, its survivors are frozen. In this time, a collection visits about 50,000 objects.
# CPython begins the next full collection when the number of visited objects has grown by a quarter.
FULL_COLLECTION_SECONDS_MAX: Final = 0.005
# The survivors of a full collection are frozen only if the collection freed at most this many objects.
GARBAGE_MAX: Final = 1000
_OLDEST: Final = 2


# The number of collections of the middle generation between two full collections. Each collection of the middle
# generation visits about 7,000 new objects.
_MIDDLE_PER_FULL: Final = 3


# If collections have been postponed for longer, no further large request begins until the running ones have ended and a
# collection has run.
POSTPONED_SECONDS_MAX: Final = 10.0
_MIDDLE: Final = 1


class PostponedCollections:
    """Disables automatic collections while large requests are handled. Reference counting frees these requests.

    A collection of the youngest generation visits every element of a new list. For 240,000 elements it takes 25 ms.
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
        """End one call of `postpone`, after the large request was freed.

        When all calls of `postpone` have ended, collections are enabled again.
        """
        are_overdue = self.are_overdue
        self._users -= 1
        if not self._users:
            gc.enable()
            if are_overdue:
                gc.collect(_MIDDLE)


def bound_collections() -> None:
    """Install `BoundedCollections` for the whole process, and set the interval of full collections."""
    gc.callbacks.append(BoundedCollections())
    gc.set_threshold(*gc.get_threshold()[:2], _MIDDLE_PER_FULL)


class BoundedCollections:
    """A callback for `gc.callbacks` that freezes all objects after a long full collection.

    `freezes` is the number of times it has done that.
    """

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
        # A collection that freed many objects may have taken long for that reason. The survivors are then not frozen,
        # because they may contain more cycles that will become garbage.
        if is_long and info["collected"] <= GARBAGE_MAX:
            self.freezes += 1
            gc.freeze()
