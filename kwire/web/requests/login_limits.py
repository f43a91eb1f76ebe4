"""Limits failed logins on the HTTP port: how many passwords one address may try, and how soon it gets an answer.

Each address has a budget of failed logins that refills over time. An attempt reserves a part of the budget before the
password is checked, so that many attempts at once do not exceed it. Attempts with the same credentials at the same time
count once. A user that has logged in from an address has a budget of its own there, so that others behind the same
address translation cannot lock the user out.
"""

import ipaddress
from collections import Counter
from hashlib import sha256
from typing import NamedTuple, TypeVar

from kwire.clock import Clock
from kwire.web.answers.errors import Refusal

V = TypeVar("V")

# An address may fail this many times at once; the budget refills completely within the time.
FAILURES_MAX = 10
FAILURES_REFILL_SECONDS = 60.0
# The delay of the answer to a failed login, and the maximum number of answers that wait. Further ones are not delayed.
FAILURE_DELAY_SECONDS = 0.5
DELAYED_MAX = 1_000
# The maximum number of addresses and of known users whose budgets are kept. The oldest are removed first.
BUDGETS_MAX = 10_000
KNOWN_USERS_MAX = 10_000
# An IPv6 client usually has a whole network of this prefix length.
IPV6_PREFIX_LENGTH = 64


class _Budget:
    """The failed logins that are left, as of `at`."""

    __slots__ = ("at", "left", "reserved")

    def __init__(self, at: float) -> None:
        self.at = at
        self.left = float(FAILURES_MAX)
        self.reserved: Counter[bytes] = Counter()

    def refill(self, now: float) -> None:
        self.left = min(float(FAILURES_MAX), self.left + (now - self.at) * FAILURES_MAX / FAILURES_REFILL_SECONDS)
        self.at = now


class Attempt(NamedTuple):
    """A password that is being checked."""

    key: tuple[str, str]
    known_key: tuple[str, str]
    digest: bytes


class LoginLimits:
    """The budgets of all addresses. `begin` precedes the check of a password, `end` follows it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._budgets: dict[tuple[str, str], _Budget] = {}
        self._known: dict[tuple[str, str], None] = {}
        self.delayed_count = 0

    def begin(self, host: str, name: str, password: str) -> Attempt:
        """Reserve a failed login. Raises a Refusal with status 429 if the budget is exhausted."""
        address = network_of(host)
        known_key = (address, name)
        key = known_key if known_key in self._known else (address, "")
        digest = sha256(f"{name}\0{password}".encode(errors="surrogatepass")).digest()
        budget = self._budget(key)
        if digest not in budget.reserved and budget.left - len(budget.reserved) < 1:
            raise Refusal(
                "too many failed logins from this address: try again later", code="TooManyFailedLogins", status=429
            )
        budget.reserved[digest] += 1
        return Attempt(key, known_key, digest)

    def end(self, attempt: Attempt, is_success: bool) -> None:
        budget = self._budgets.get(attempt.key)
        if budget is not None and budget.reserved[attempt.digest]:
            budget.reserved[attempt.digest] -= 1
            if not budget.reserved[attempt.digest]:
                del budget.reserved[attempt.digest]
                if not is_success:
                    budget.left -= 1
            if not budget.reserved and budget.left >= FAILURES_MAX:
                del self._budgets[attempt.key]
        if is_success:
            self._known.pop(attempt.known_key, None)
            self._known[attempt.known_key] = None
            _remove_oldest(self._known, KNOWN_USERS_MAX)

    def cancel(self, attempt: Attempt) -> None:
        """End an attempt without a result: the client has disconnected, or the check failed. It counts as failed."""
        self.end(attempt, is_success=False)

    def _budget(self, key: tuple[str, str]) -> _Budget:
        now = self._clock.monotonic()
        budget = self._budgets.pop(key, None)
        if budget is None:
            budget = _Budget(now)
        budget.refill(now)
        self._budgets[key] = budget
        _remove_oldest(self._budgets, BUDGETS_MAX)
        return budget


def network_of(host: str) -> str:
    """Return the address whose budget counts: an IPv4 address, or the network of an IPv6 address."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, IPV6_PREFIX_LENGTH), strict=False))


def _remove_oldest(table: dict[tuple[str, str], V], count_max: int) -> None:
    while len(table) > count_max:
        del table[next(iter(table))]
