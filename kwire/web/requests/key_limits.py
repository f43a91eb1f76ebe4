"""The limits of the client's key over HTTP: events per second, events per day, and open subscriptions.

A handler that publishes counts its events with `CountedEvents`, one that opens a stream of events holds a
`SubscriptionSlot`. Both do nothing for clients that have not logged in with a key. A limit that is reached is answered
with the status 429. `/db/…` has other statuses (`web/db_events/key_clients.py`).
"""

import asyncio
from collections.abc import Mapping
from math import ceil
from typing import Self

from aiohttp import hdrs

from kwire.access.usage.event_allowances import EventLimitReached
from kwire.access.usage.publish_rates import RateExceeded
from kwire.access.usage.subscription_slots import Slot, SlotDenied, SlotsUnavailable
from kwire.web.answers.errors import Refusal
from kwire.web.requests.access import RequestAccess

CURRENT_EVENTS = "X-Current-Events"
EVENTS_LIMIT = "X-Events-Limit"


class LimitReached(Refusal):
    """A limit of the client's key is reached."""

    status = 429

    def __init__(self, message: str, code: str, headers: Mapping[str, str], details: dict[str, object]) -> None:
        super().__init__(message, code=code)
        self.headers = headers
        self.details = details


class NoSlots(Refusal):
    """No node decides about subscriptions at the moment, or there are too many of them."""

    status = 503
    code = "SlotsUnavailable"


def rate_refusal(error: RateExceeded) -> LimitReached:
    return LimitReached(
        str(error),
        code="RateLimited",
        headers={hdrs.RETRY_AFTER: str(ceil(error.wait_s))},
        details={"publish_rate": error.rate, "retry_after_ms": ceil(error.wait_s * 1000)},
    )


def events_refusal(error: EventLimitReached, *, has_retry_after: bool = True) -> LimitReached:
    headers = usage_headers(error.used, error.limit)
    if has_retry_after and error.wait_ms is not None:
        headers[hdrs.RETRY_AFTER] = str(max(1, ceil(error.wait_ms / 1000)))
    return LimitReached(
        str(error),
        code="EventLimitReached",
        headers=headers,
        details={"current_events": error.used, "events_limit": error.limit, "resets_at": error.resets_at},
    )


def usage_headers(used: int, limit: int) -> dict[str, str]:
    return {CURRENT_EVENTS: str(used), EVENTS_LIMIT: str(limit)}


def slot_refusal(error: SlotDenied) -> LimitReached:
    return LimitReached(
        str(error),
        code="TooManySubscriptions",
        headers={},
        details={"current_subscriptions": error.used, "subscriptions_limit": error.limit},
    )


def admit_events(access: RequestAccess, count: int) -> "asyncio.Future[None] | None":
    """Count events that are about to be published together. Raises LimitReached.

    Returns None if they may be published now, or a future that is done when they may be.
    """
    if access.limits is None:
        return None
    try:
        return access.limits.admit(count)
    except RateExceeded as error:
        raise rate_refusal(error) from None
    except EventLimitReached as error:
        raise events_refusal(error) from None


class CountedEvents:
    """Counts events while they are published: `async with CountedEvents(access, count) as counted`.

    Entering raises LimitReached. If the block raises an Exception, the events are uncounted. Events of a request that
    was cancelled stay counted, because they may still be stored.
    """

    __slots__ = ("_access", "_count")

    def __init__(self, access: RequestAccess, count: int) -> None:
        self._access = access
        self._count = count

    async def __aenter__(self) -> Self:
        storing = admit_events(self._access, self._count)
        if storing is not None:
            try:
                await asyncio.shield(storing)
            except BaseException:
                self.give_back(self._count)
                raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception):
            self.give_back(self._count)

    def give_back(self, count: int) -> None:
        """Uncount some of the events that were not published. Do not raise afterwards."""
        if self._access.limits is not None:
            self._access.limits.give_back(count)


class SubscriptionSlot:
    """One of the key's max_subscriptions, for as long as a stream of events is open: `async with SubscriptionSlot(…)`.

    Take it last, when everything else was checked. Entering raises LimitReached or NoSlots.
    """

    __slots__ = ("_access", "_slot")

    def __init__(self, access: RequestAccess) -> None:
        self._access = access
        self._slot: Slot | None = None

    async def take(self) -> None:
        if self._access.limits is None:
            return
        try:
            self._slot = await self._access.limits.take_slot()
        except SlotDenied as error:
            raise slot_refusal(error) from None
        except SlotsUnavailable as error:
            raise NoSlots(str(error)) from None

    def release(self) -> None:
        """Free the slot, if it was taken."""
        slot, self._slot = self._slot, None
        if slot is not None and self._access.limits is not None:
            self._access.limits.release_slot(slot)

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *_: object) -> None:
        self.release()
