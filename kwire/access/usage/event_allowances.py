"""The events that keys with `max_events` may still publish. The counts are entries `usage/<key>` of the store."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from kwire.access.audit.queue import time_text
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
    """The key has published as many events as it may, or would with these events.

    `reset_ms` is the wall time from which on it may publish again. It is None if it never may publish as many at once.
    """

    def __init__(self, used: int, limit: int, count: int, reset_ms: int | None, now_ms: int) -> None:
        text = f"the key has published {used} events, and may publish {limit}"
        if count > 1:
            text += f"; this request has {count}"
        if reset_ms is not None:
            text += f"; it may publish again from {time_text(reset_ms)} on"
        super().__init__(text)
        self.used = used
        self.limit = limit
        self.reset_ms = reset_ms
        self.resets_at = None if reset_ms is None else time_text(reset_ms)
        # The milliseconds until `reset_ms`.
        self.wait_ms = None if reset_ms is None else max(reset_ms - now_ms, 0)


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
        self.refused = 0
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

    def begin(self, usage_id: str, limit: int, count: int = 1) -> "asyncio.Future[None] | None":
        """Count events that are about to be published together. Raises EventLimitReached.

        Returns None if they may be published now. Otherwise they may be published when the future is done: the count is
        stored first. If they are not published, or the future has an error, call `give_back`.
        """
        now = self._now()
        if count > limit:
            self.refused += 1
            raise EventLimitReached(self.used(usage_id), limit, count, None, now.wall_ms)
        found = self._counts.get(usage_id)
        if found is None:
            found = self._counts[usage_id] = EventCount()
        if not found.take(limit, now, count):
            if found.is_changed:
                self._writes.request(PREFIX + usage_id).add_done_callback(_log_failure)
            self.refused += 1
            raise EventLimitReached(found.used, limit, count, found.reset_ms(now), now.wall_ms)
        if not found.is_stored:
            return self._writes.request(PREFIX + usage_id)
        if found.wants_block:
            self._writes.request(PREFIX + usage_id).add_done_callback(_log_failure)
        return None

    async def take(self, usage_id: str, limit: int, count: int = 1) -> EventsUsed:
        """Count events as `begin` does, and wait until they may be published. Raises EventLimitReached, or StorageError
        if the count could not be stored."""
        try:
            storing = self.begin(usage_id, limit, count)
        except EventLimitReached:
            found = self._counts.get(usage_id)
            if found is not None and found.is_changed:
                await asyncio.shield(self._writes.request(PREFIX + usage_id))
            raise
        used = self._counts[usage_id].used
        if storing is not None:
            try:
                await asyncio.shield(storing)
            except BaseException:
                self.give_back(usage_id, count)
                raise
        return EventsUsed(used, limit)

    def give_back(self, usage_id: str, count: int = 1) -> None:
        """Uncount events that were not published."""
        found = self._counts.get(usage_id)
        if found is not None:
            found.give_back(count)

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
