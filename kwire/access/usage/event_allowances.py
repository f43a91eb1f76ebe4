"""The events that keys with `max_events` may still publish. The counts are entries `usage/<key>` of the store."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from kwire.access.usage.event_count import CountNow, EventCount
from kwire.clock import Clock
from kwire.metastore import Conflict, MetaStore
from kwire.metastore.grouped_writes import GroupedWrites
from storage.errors import StorageError

log = logging.getLogger("kwire.access")

PREFIX = "usage/"
# The maximum number of counts that are stored exactly when the server stops, so that stopping does not take long. The
# others are too high by at most one block.
STORED_AT_STOP = 10_000


class EventLimitReached(Exception):
    """The key has published as many events as it may. `reset_ms` is the wall time from which on it may again."""

    def __init__(self, used: int, limit: int, reset_ms: int) -> None:
        super().__init__(f"the key has published {used} events, and may publish {limit}")
        self.used = used
        self.limit = limit
        self.reset_ms = reset_ms


class EventsUsed(NamedTuple):
    """The count of a key after an event, and its limit."""

    used: int
    limit: int


class EventAllowances:
    """The counts of all keys with a limit. Use it only in the event loop's thread.

    A key and its aliases share a count, that of `Key.usage_id`. Events of keys without a limit are not counted.
    """

    def __init__(self, metastore: MetaStore, clock: Clock, exists: Callable[[str], bool]) -> None:
        """`exists` returns whether a key exists. The counts of other keys are removed."""
        self._clock = clock
        self._exists = exists
        self._is_closing = False
        self._counts = {
            key.removeprefix(PREFIX): EventCount.loaded(entry.value, self._now())
            for key, entry in metastore.entries(PREFIX)
        }
        self._writes = GroupedWrites(metastore, self._value_of, self._note_stored)

    def __len__(self) -> int:
        return len(self._counts)

    def used(self, usage_id: str) -> int:
        count = self._counts.get(usage_id)
        return 0 if count is None else count.used

    def start(self) -> None:
        """Remove the counts of keys that no longer exist."""
        self.forget(frozenset(self._counts))

    async def take(self, usage_id: str, limit: int) -> EventsUsed:
        """Count an event that is about to be published. Raises EventLimitReached, or StorageError if a count could not
        be stored. If the event is not published, call `give_back`."""
        count = self._counts.get(usage_id)
        if count is None:
            count = self._counts[usage_id] = EventCount()
        now = self._now()
        if not count.take(limit, now):
            used, reset_ms = count.used, count.reset_ms(now)
            if count.is_changed:
                await asyncio.shield(self._writes.request(PREFIX + usage_id))
            raise EventLimitReached(used, limit, reset_ms)
        used = count.used
        if not count.is_stored:
            try:
                await asyncio.shield(self._writes.request(PREFIX + usage_id))
            except BaseException:
                count.give_back()
                raise
        elif count.wants_block:
            self._writes.request(PREFIX + usage_id)
        return EventsUsed(used, limit)

    def give_back(self, usage_id: str) -> None:
        """Uncount an event that was not published."""
        count = self._counts.get(usage_id)
        if count is not None:
            count.give_back()

    def forget(self, changed: frozenset[str]) -> None:
        """Remove the counts of those keys that no longer exist. A listener of `Keys`."""
        for usage_id in changed & self._counts.keys():
            if not self._exists(usage_id):
                del self._counts[usage_id]
                self._writes.request(PREFIX + usage_id)

    async def close(self) -> None:
        """Store the exact counts."""
        await self._writes.idle()
        self._is_closing = True
        inexact = [one for one, count in self._counts.items() if count.stored != count.used or count.is_changed]
        for usage_id in inexact[:STORED_AT_STOP]:
            self._writes.request(PREFIX + usage_id).add_done_callback(_log_failure)
        await self._writes.idle()

    def _now(self) -> CountNow:
        return CountNow(self._clock.monotonic(), self._clock.now_ms())

    def _value_of(self, key: str) -> Any:
        count = self._counts.get(key.removeprefix(PREFIX))
        return None if count is None else count.value(is_exact=self._is_closing)

    def _note_stored(self, key: str, value: Any) -> None:
        count = self._counts.get(key.removeprefix(PREFIX))
        if count is not None and value is not None:
            count.note_stored(value)


def _log_failure(done: "asyncio.Future[None]") -> None:
    error = None if done.cancelled() else done.exception()
    if isinstance(error, StorageError | Conflict):
        log.warning("the count of published events of a key could not be stored: %s", error)
