"""SharedBatches: a cache of batches for subscribers that are slightly behind the head.

Many subscribers that reconnect at the same time need the same batches. The events of these batches are in memory
already, but their encodings need additional memory. Therefore the cached batches of all rooms have a common memory
limit.
"""

from kwire.streams.subscriptions.event_batches import EventBatch

BATCHES_MAX = 1024
ALL_BYTES_MAX = 32 * 1024 * 1024
# The assumed memory of a batch, as a multiple of its size. A batch keeps its events, which `RecentEvents` may have
# dropped already, and usually one or two encodings.
COPIES = 3


class SharedBatches:
    """The cached batches by owner (a live feed) and start offset.

    An eviction removes the oldest batch of the owner that has been in the cache for the longest time.
    """

    def __init__(self, bytes_max: int = ALL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._batches: dict[object, dict[int, EventBatch]] = {}
        self._count = 0
        self.used_bytes = 0

    def __len__(self) -> int:
        return self._count

    def get(self, owner: object, offset: int) -> EventBatch | None:
        of_owner = self._batches.get(owner)
        return None if of_owner is None else of_owner.get(offset)

    def add(self, owner: object, batch: EventBatch) -> None:
        """Add a batch that `get` did not find, unless it is larger than the cache."""
        cost = _cost(batch)
        if cost > self._bytes_max:
            return
        while self._count >= BATCHES_MAX or self.used_bytes + cost > self._bytes_max:
            self._evict_one()
        self._batches.setdefault(owner, {})[batch.start_offset] = batch
        self._count += 1
        self.used_bytes += cost

    def forget(self, owner: object) -> None:
        for batch in self._batches.pop(owner, {}).values():
            self._count -= 1
            self.used_bytes -= _cost(batch)

    def _evict_one(self) -> None:
        owner, batches = next(iter(self._batches.items()))
        batch = batches.pop(next(iter(batches)))
        if not batches:
            del self._batches[owner]
        self._count -= 1
        self.used_bytes -= _cost(batch)


def _cost(batch: EventBatch) -> int:
    return COPIES * batch.size_bytes
