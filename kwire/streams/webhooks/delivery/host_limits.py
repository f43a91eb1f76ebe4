"""Who may send now: so many at a time in all, so many of them to one host, and fewer for one webhook.

Whoever waits here has not begun: no time runs, nothing is signed, and no place is taken from those who send elsewhere.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from kwire.broker.webhooks.consumer import Consumer

Host = tuple[str, int | None]
# Of the turns at a host, what one webhook may take: many may share the host of somebody who passes messages on, and
# one whose receiver hangs leaves room for the others.
SHARE_OF_HOST = 0.5


class _Gate:
    """Of one host, as long as somebody sends to it or waits for that."""

    __slots__ = ("semaphore", "users")

    def __init__(self, turns_max: int) -> None:
        self.semaphore = asyncio.Semaphore(turns_max)
        self.users = 0


class HostTurns:
    """Called from the event loop. There are no more gates than those who send or wait."""

    def __init__(self, turns_max: int, per_host_max: int) -> None:
        self._all = asyncio.Semaphore(turns_max)
        self._per_host_max = per_host_max
        self._per_webhook_max = max(int(per_host_max * SHARE_OF_HOST), 1)
        self._own: WeakKeyDictionary[Consumer, asyncio.Semaphore] = WeakKeyDictionary()
        self._gates: dict[Host, _Gate] = {}

    def __len__(self) -> int:
        return len(self._gates)

    @asynccontextmanager
    async def turn(self, consumer: Consumer) -> AsyncIterator[None]:
        """Of a webhook, at the host that it sends to when it begins to wait."""
        own = self._own.get(consumer)
        if own is None:
            own = self._own[consumer] = asyncio.Semaphore(self._per_webhook_max)
        async with own, self._at(_host_of(consumer.definition.url)):
            yield

    @asynccontextmanager
    async def _at(self, host: Host) -> AsyncIterator[None]:
        gate = self._gates.get(host)
        if gate is None:
            gate = self._gates[host] = _Gate(self._per_host_max)
        gate.users += 1
        try:
            # The host's own gate first: who waits there takes no place from those who send elsewhere.
            async with gate.semaphore, self._all:
                yield
        finally:
            gate.users -= 1
            if gate.users == 0:
                del self._gates[host]


def _host_of(url: str) -> Host:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or {"https": 443, "http": 80}.get(parts.scheme)
