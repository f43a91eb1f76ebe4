"""Portions for readers who were a little behind: many who come back at once ask for the same ones.

They are made of events that are in memory anyway, but what they are encoded as is not, so all rooms share one bound.
"""

from kwire.broker.subscriptions.portions import Portion

PORTIONS_MAX = 1024
ALL_BYTES_MAX = 32 * 1024 * 1024
# The events, which may be gone from everywhere else, and what they are encoded as: mostly one or two kinds.
COPIES = 3


class SharedPortions:
    """By whom they belong to and the offset they begin at; the oldest go first."""

    def __init__(self, bytes_max: int = ALL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._portions: dict[object, dict[int, Portion]] = {}
        self._count = 0
        self.used_bytes = 0

    def __len__(self) -> int:
        return self._count

    def get(self, owner: object, offset: int) -> Portion | None:
        of_owner = self._portions.get(owner)
        return None if of_owner is None else of_owner.get(offset)

    def add(self, owner: object, portion: Portion) -> None:
        """Remember one that `get` has not found, unless it is too large."""
        cost = _cost(portion)
        if cost > self._bytes_max:
            return
        while self._count >= PORTIONS_MAX or self.used_bytes + cost > self._bytes_max:
            self._forget_one()
        self._portions.setdefault(owner, {})[portion.start_offset] = portion
        self._count += 1
        self.used_bytes += cost

    def forget(self, owner: object) -> None:
        for portion in self._portions.pop(owner, {}).values():
            self._count -= 1
            self.used_bytes -= _cost(portion)

    def _forget_one(self) -> None:
        owner, portions = next(iter(self._portions.items()))
        portion = portions.pop(next(iter(portions)))
        if not portions:
            del self._portions[owner]
        self._count -= 1
        self.used_bytes -= _cost(portion)


def _cost(portion: Portion) -> int:
    return COPIES * portion.size_bytes
