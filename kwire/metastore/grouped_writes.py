"""Writes of many keys with few commits: keys that are requested while a commit runs share the next one."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from kwire.metastore.interface import ABSENT, Change, Condition, MetaStore

# The maximum number of keys in a commit. It leaves room for conditions.
KEYS_PER_COMMIT = 90


def _no_conditions() -> Sequence[Condition]:
    return ()


class GroupedWrites:
    """Writes the current values of keys. Only its owner writes these keys. Use it only in the event loop's thread.

    The value of a key is read when its commit begins, so a burst of changes of one key costs one or two commits. The
    number of keys that wait is bounded by the number of keys that the owner has.
    """

    def __init__(
        self,
        store: MetaStore,
        value_of: Callable[[str], Any],
        on_stored: Callable[[str, Any], None],
        conditions: Callable[[], Sequence[Condition]] = _no_conditions,
    ) -> None:
        """`value_of` returns the value of a key, or None to remove it. `on_stored` is called when it is durable."""
        self._store = store
        self._value_of = value_of
        self._on_stored = on_stored
        self._conditions = conditions
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def request(self, key: str) -> "asyncio.Future[None]":
        """Write a key with the next commit. The future is done when the value, or a later one, is durable.

        It raises the error of the commit: StorageError, Conflict or CommitTooLarge. Several callers may share it, so a
        caller that may be cancelled awaits it with `asyncio.shield`.
        """
        waiter = self._waiting.get(key)
        if waiter is None:
            waiter = self._waiting[key] = asyncio.get_running_loop().create_future()
            # Some callers do not wait. Retrieving the exception here avoids asyncio's warning.
            waiter.add_done_callback(lambda done: done.cancelled() or done.exception())
            if self._task is None:
                self._task = asyncio.create_task(self._run())
        return waiter

    async def idle(self) -> None:
        """Wait until every requested write has succeeded or failed."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _run(self) -> None:
        try:
            while self._waiting:
                keys = list(islice(self._waiting, KEYS_PER_COMMIT))
                await self._commit({key: self._waiting.pop(key) for key in keys})
        finally:
            self._task = None

    async def _commit(self, waiters: dict[str, "asyncio.Future[None]"]) -> None:
        try:
            values = {key: self._value_of(key) for key in waiters}
            changes = [Change(key, value, self._revision_of(key)) for key, value in values.items()]
            await self._store.commit(changes, self._conditions())
            for key, value in values.items():
                self._on_stored(key, value)
        except Exception as error:
            for waiter in waiters.values():
                if not waiter.done():
                    waiter.set_exception(error)
        else:
            for waiter in waiters.values():
                if not waiter.done():
                    waiter.set_result(None)

    def _revision_of(self, key: str) -> int:
        entry = self._store.get(key)
        return ABSENT if entry is None else entry.revision
