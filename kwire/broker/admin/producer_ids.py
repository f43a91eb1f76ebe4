"""Identities for idempotent producers: handed out from blocks, each block reserved in the metadata store first.

An id is never given twice, not even after a crash: what is left of a reserved block is thrown away on restart.
"""

import asyncio

from kwire.metastore import Change, Conflict, MetaStore

KEY = "producer_ids"
BLOCK_SIZE = 1000
# Each failed attempt means that somebody else got a block, so a few are plenty.
RESERVE_ATTEMPTS_MAX = 10


class ProducerIds:
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
                # Somebody, perhaps a caller of ours who then went away, reserved this block: the next one is free.
                if not attempts_left:
                    raise
            else:
                self._next, self._end = first, first + BLOCK_SIZE
                return
