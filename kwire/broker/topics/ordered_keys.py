"""Keys in their order, many of them: eight bytes each, and a page of them is found by bisection."""

from bisect import bisect_left


class OrderedKeys:
    """Each key is in it once. What was added since the last look is put in its place at the next one."""

    __slots__ = ("_added", "_ordered")

    def __init__(self) -> None:
        self._ordered: list[str] = []
        self._added: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._ordered) + len(self._added)

    def add(self, key: str) -> None:
        self._added[key] = None

    def remove(self, key: str) -> None:
        if key in self._added:
            del self._added[key]
        else:
            del self._ordered[bisect_left(self._ordered, key)]

    def page(self, first: str, count: int) -> list[str]:
        """The first `count` keys that are not below `first`."""
        self.put_in_order()
        at = bisect_left(self._ordered, first)
        return self._ordered[at : at + count]

    def put_in_order(self) -> None:
        # To sort what is nearly sorted takes a few milliseconds for a hundred thousand names.
        if self._added:
            self._ordered += self._added
            self._ordered.sort()
            self._added.clear()
