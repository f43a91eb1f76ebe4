"""Limits on concurrent requests: in total, per host, and per webhook.

A delivery that waits for a slot is not signed yet, and its timeout has not started. It does not occupy a slot that a
delivery to another host could use.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from kwire.streams.webhooks.consumer import Consumer

Host = tuple[str, int | None]
# The share of a host's slots that one webhook may use. Many webhooks may share a host, for example a relay service. If
# the receiver of one webhook does not respond, slots must be left for the others.
SHARE_OF_HOST = 0.5


class _HostSlots:
    """The slots of one host. The object exists while deliveries to the host are in flight or waiting."""

    __slots__ = ("semaphore", "users")

    def __init__(self, slots_max: int) -> None:
        self.semaphore = asyncio.Semaphore(slots_max)
        self.users = 0


class HostLimits:
    """Limits the number of concurrent requests. Use it only in the event loop's thread.

    A host is stored only while deliveries to it are in flight or waiting. `len` returns the number of stored hosts.
    """

    def __init__(self, slots_max: int, per_host_max: int) -> None:
        self._all = asyncio.Semaphore(slots_max)
        self._per_host_max = per_host_max
        self._per_webhook_max = max(int(per_host_max * SHARE_OF_HOST), 1)
        self._own: WeakKeyDictionary[Consumer, asyncio.Semaphore] = WeakKeyDictionary()
        self._hosts: dict[Host, _HostSlots] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    @asynccontextmanager
    async def slot(self, consumer: Consumer) -> AsyncIterator[None]:
        """Wait for a request slot and hold it. The webhook's current URL determines the host."""
        own = self._own.get(consumer)
        if own is None:
            own = self._own[consumer] = asyncio.Semaphore(self._per_webhook_max)
        async with own, self._at(_host_of(consumer.definition.url)):
            yield

    @asynccontextmanager
    async def _at(self, host: Host) -> AsyncIterator[None]:
        slots = self._hosts.get(host)
        if slots is None:
            slots = self._hosts[host] = _HostSlots(self._per_host_max)
        slots.users += 1
        try:
            # Take the slot of the host first: a delivery that waits for its host must not occupy one of the slots that
            # all hosts share.
            async with slots.semaphore, self._all:
                yield
        finally:
            slots.users -= 1
            if slots.users == 0:
                del self._hosts[host]


def _host_of(url: str) -> Host:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or {"https": 443, "http": 80}.get(parts.scheme)
