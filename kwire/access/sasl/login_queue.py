"""Logins on the Kafka port of addresses that have failed too often: they wait, and few of them are checked per second.

A login is not refused, because clients regard a refusal as final, and other clients may share the address. Waiting
logins take turns by network, then by user name, and the newest of a user is next, because those that wait for long are
abandoned. A login that waits holds its connection until the deadline of the login.
"""

import asyncio
from contextlib import suppress

from kwire.access.hosts import network_of
from kwire.access.login_limits import Attempt, LoginLimits, TooManyFailedLogins
from kwire.concurrency.fair_slots import FairSlots, SlotsExhausted

# The number of logins that are checked per second although the budget of their address is exhausted, of all addresses.
OVER_BUDGET_PER_SECOND = 20
# The maximum number of logins that wait, of an address that has failed too often. More could not be checked before
# their deadline, so the oldest of the user of whom most wait is given up.
WAITING_PER_NETWORK_MAX = 200


class LoginQueue:
    """Admits logins, those of addresses within their budget immediately. Use it only in the event loop's thread."""

    def __init__(self, limits: LoginLimits) -> None:
        self._limits = limits
        self._waiting = FairSlots(0, is_newest_first=True)
        self._timer: asyncio.TimerHandle | None = None
        self._next_at = 0.0

    async def begin(self, host: str, user: str, *, is_known: bool = False) -> Attempt:
        """Wait until a login may be checked. The caller must call `end`. Raises TooManyFailedLogins if too many wait.

        `is_known` says that the check costs nothing, because the password is known to be right.
        """
        with suppress(TooManyFailedLogins):
            return self._limits.begin(host, user, is_admitted=is_known)
        try:
            # Without failures, these are many clients of one address that return at the same time.
            await self._wait(network_of(host), user, WAITING_PER_NETWORK_MAX if self.is_over_budget(host) else None)
        except SlotsExhausted:
            raise TooManyFailedLogins from None
        return self._limits.begin(host, user, is_admitted=True)

    def is_over_budget(self, host: str) -> bool:
        """Return whether logins of this address have failed too often."""
        return self._limits.is_exhausted(host)

    def end(self, attempt: Attempt, *, is_success: bool) -> None:
        self._limits.end(attempt, is_success)
        if is_success:
            # The attempt has not used the budget that it had reserved, so another one of this address gets it.
            self._waiting.release_to(attempt.key[0])

    def fail(self, host: str) -> None:
        """Count a login that failed before its user name was known."""
        self._limits.fail(host)

    async def _wait(self, network: str, user: str, waiting_max: int | None) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not self._waiting.is_awaited and now >= self._next_at:
            self._next_at = now + 1 / OVER_BUDGET_PER_SECOND
            return
        if self._timer is None:
            self._timer = loop.call_at(max(now, self._next_at), self._admit_next)
        await self._waiting.acquire(network, user, waiting_max)

    def _admit_next(self) -> None:
        self._timer = None
        if self._waiting.is_awaited:
            self._waiting.release()
            loop = asyncio.get_running_loop()
            self._next_at = loop.time() + 1 / OVER_BUDGET_PER_SECOND
            self._timer = loop.call_at(self._next_at, self._admit_next)
