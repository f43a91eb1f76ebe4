"""AbortedBatches: decides which batches of a read belong to aborted transactions."""

from collections import deque
from collections.abc import Iterable

from storage.log.transactions import AbortedTransaction


class AbortedBatches:
    """The aborted transactions of one read. `has` must be called in the order of the batches in the log."""

    __slots__ = ("_by_producer",)

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # A producer has one transaction at a time, so its transactions do not overlap.
        self._by_producer: dict[int, deque[AbortedTransaction]] = {}
        for one in aborted:
            self._by_producer.setdefault(one.producer_id, deque()).append(one)

    def has(self, producer_id: int, base_offset: int) -> bool:
        """Return whether a transactional batch belongs to an aborted transaction."""
        ended = self._by_producer.get(producer_id)
        if ended is None:
            return False
        while ended and ended[0].last_offset < base_offset:
            ended.popleft()
        return bool(ended) and ended[0].first_offset <= base_offset
