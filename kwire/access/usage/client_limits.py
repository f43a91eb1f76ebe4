"""ClientLimits: the limits of a client that has logged in with a key, wherever it publishes and subscribes.

The code that admits the client's appends counts their events here: rooms, topics, the event store and REST Proxy over
HTTP, and Produce on the Kafka port. The limits are read for each call, so a change applies to open connections.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kwire.access.keys.key import NO_LIMITS, Key, KeyLimits
from kwire.access.usage.subscription_slots import Slot, SlotsUnavailable
from storage.errors import StorageError

if TYPE_CHECKING:
    from kwire.access.usage.key_usage import KeyUsage


class ClientLimits:
    """The limits of one key, which it shares with its aliases."""

    __slots__ = ("_key_id", "_now", "_usage", "_usage_id")

    def __init__(self, usage: "KeyUsage", key: Key, now: Callable[[], float]) -> None:
        self._usage = usage
        self._key_id = key.id
        self._usage_id = key.usage_id
        self._now = now

    @property
    def is_publishing_limited(self) -> bool:
        """Whether the key has a limit of events at the moment."""
        limits = self._limits()
        return limits.max_events is not None or limits.publish_rate is not None

    def admit(self, count: int) -> "asyncio.Future[None] | None":
        """Count events that are about to be published together. Raises RateExceeded or EventLimitReached.

        Returns None if they may be published now, or a future that is done when they may be. If they are not published,
        or the future has an error, call `give_back`.
        """
        limits = self._limits()
        if not count:
            return None
        if limits.publish_rate is not None:
            self._usage.rates.take(self._usage_id, limits.publish_rate, self._now(), count)
        if limits.max_events is None:
            return None
        return self._usage.events.begin(self._usage_id, limits.max_events, count)

    def give_back(self, count: int) -> None:
        """Uncount events that were not published."""
        if not count:
            return
        self._usage.rates.give_back(self._usage_id, count)
        if self._limits().max_events is not None:
            self._usage.events.give_back(self._usage_id, count)

    def throttle_s(self) -> float:
        """Return the seconds for which the client should not publish, because of what it has published."""
        return self._usage.rates.debt_s(self._usage_id, self._now())

    async def take_slot(self) -> Slot | None:
        """Take one of the key's max_subscriptions. Raises SlotDenied, SlotsUnavailable or StorageError.

        The slots of a key without this limit are counted, too, because it may get a limit later. But if they cannot be
        counted, it subscribes without a slot, and the result is None. The result is also None if the key was revoked.
        """
        key = self._usage.keys.get(self._key_id)
        if key is None:
            return None
        try:
            return await self._usage.slots.request(key)
        except (SlotsUnavailable, StorageError):
            if key.limits.max_subscriptions is None:
                return None
            raise

    def release_slot(self, slot: Slot) -> None:
        self._usage.slots.release(slot)

    def _limits(self) -> KeyLimits:
        key = self._usage.keys.get(self._key_id)
        return NO_LIMITS if key is None else key.limits
