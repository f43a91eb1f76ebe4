"""The times at which keys or their previous secrets end."""

from heapq import heapify, heappop, heappush

# The heap is rebuilt when it has more than twice as many entries as there are keys with a deadline, and this many more.
STALE_MIN = 64


class Deadlines:
    """The next deadline of each key that has one."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._next)

    def set(self, key_id: str, deadline_ms: int | None) -> None:
        """Set the deadline of a key, or remove it with None."""
        if self._next.get(key_id) == deadline_ms:
            return
        if deadline_ms is None:
            del self._next[key_id]
        else:
            self._next[key_id] = deadline_ms
            heappush(self._heap, (deadline_ms, key_id))
        if len(self._heap) > 2 * len(self._next) + STALE_MIN:
            self._heap = [(at_ms, one) for one, at_ms in self._next.items()]
            heapify(self._heap)

    def pop_due(self, now_ms: int, count_max: int) -> list[str]:
        """Remove and return up to `count_max` keys whose deadline has passed."""
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_ms and len(due) < count_max:
            at_ms, key_id = heappop(self._heap)
            if self._next.get(key_id) == at_ms:
                del self._next[key_id]
                due.append(key_id)
        return due
