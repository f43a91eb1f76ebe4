"""Producer ids, assigned from blocks that are reserved in the metadata store.

An id is never assigned twice, not even after a crash. After a restart, the unused ids of a reserved block are not used.
"""

import asyncio

from kwire.metastore import Change, Conflict, MetaStore

KEY = "producer_ids"
BLOCK_SIZE = 1000
# An attempt fails if another commit reserves the same block.
RESERVE_ATTEMPTS_MAX = 10


class ProducerIds:
    """Assigns producer ids."""

    def __init__(self, metastore: MetaStore) -> None:
        self._metastore = metastore
        self._next = 0
        self._end = 0
        self._reserving = asyncio.Lock()

    async def take(self) -> int:
        while self._next == self._end:
            async with self._reserving:
                if self._next == self._end:
                    await self._reserve()
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _reserve(self) -> None:
        for attempts_left in reversed(range(RESERVE_ATTEMPTS_MAX)):
            entry = self._metastore.get(KEY)
            first: int = entry.value["next"] if entry else 0
            after = {"next": first + BLOCK_SIZE}
            try:
                await self._metastore.commit([Change(KEY, after, entry.revision if entry else 0)])
            except Conflict:
                # Another commit reserved this block, perhaps for a caller that was cancelled. Try the next block.
                if not attempts_left:
                    raise
            else:
                self._next, self._end = first, first + BLOCK_SIZE
                return
