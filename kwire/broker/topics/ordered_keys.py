"""A large ordered set of keys. It needs eight bytes per key, and finds a range of keys by bisection."""

from bisect import bisect_left


class OrderedKeys:
    """An ordered set of keys. New keys are sorted at the next call of `page` or `put_in_order`."""

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
        """Return up to `count` keys in order, starting at the first key that is not less than `first`."""
        self.put_in_order()
        at = bisect_left(self._ordered, first)
        return self._ordered[at : at + count]

    def put_in_order(self) -> None:
        # Sorting a hundred thousand nearly sorted names takes a few milliseconds.
        if self._added:
            self._ordered += self._added
            self._ordered.sort()
            self._added.clear()
