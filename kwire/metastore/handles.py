"""The watches and leases that the embedded metadata store returns."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

from kwire.metastore.history import History
from kwire.metastore.interface import Commit, Entry, KeyChange
from kwire.metastore.leases import LeaseState


class EmbeddedWatch:
    """A cursor in the history of an embedded store."""

    def __init__(
        self,
        history: History,
        prefix: str,
        from_revision: int,
        unpack: Callable[[bytes], Entry],
        on_closed: Callable[["EmbeddedWatch", Any], Any],
    ) -> None:
        self._history = history
        self._prefix = prefix
        self._next_revision = from_revision
        self._unpack = unpack
        self._on_closed = on_closed
        self._waiting: asyncio.Future[None] | None = None
        self._is_closed = False

    @property
    def revision(self) -> int:
        return self._next_revision - 1

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Commit:
        if self._waiting is not None:
            raise RuntimeError("another task waits for this watch")
        while not self._is_closed:
            revision, changes = self._history.find(self._prefix, self._next_revision)
            self._next_revision = max(self._next_revision, revision + 1)
            if changes:
                return Commit(
                    revision,
                    tuple(
                        KeyChange(key, self._unpack(packed) if packed is not None else None) for key, packed in changes
                    ),
                )
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        raise StopAsyncIteration

    def wake(self) -> None:
        """Continue the task that waits for a commit. Called after each commit."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._on_closed(self, None)
            self.wake()


class EmbeddedLease:
    """A lease of an embedded store, as its holder has it."""

    def __init__(
        self,
        state: LeaseState,
        keep_alive: Callable[[int], LeaseState],
        revoke: Callable[[LeaseState], Awaitable[None]],
    ) -> None:
        self._state = state
        self._keep_alive = keep_alive
        self._revoke = revoke

    @property
    def lease_id(self) -> int:
        return self._state.lease_id

    @property
    def ttl_seconds(self) -> int:
        return self._state.ttl_seconds

    @property
    def is_lost(self) -> bool:
        return self._state.is_lost

    async def keep_alive(self) -> None:
        self._keep_alive(self.lease_id)

    async def revoke(self) -> None:
        await self._revoke(self._state)
