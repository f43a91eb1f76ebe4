"""Limits failed logins on both ports: how many passwords one address may try.

Each address has a budget of failed logins that refills over time. An attempt reserves a part of the budget before the
password is checked, so that many attempts at once do not exceed it. Attempts with the same credentials at the same time
count once. A user that has logged in from an address has a budget of its own there, so that others behind the same
address translation cannot lock the user out.

When the budget is exhausted, the HTTP port refuses a login. On the Kafka port it waits (`access/sasl/login_queue.py`).
"""

from collections import Counter
from hashlib import sha256
from typing import NamedTuple, TypeVar

from kwire.access.hosts import network_of
from kwire.clock import Clock

V = TypeVar("V")

# An address may fail this many times at once; the budget refills completely within the time.
FAILURES_MAX = 10
FAILURES_REFILL_SECONDS = 60.0
# The maximum number of addresses and of known users whose budgets are kept. The oldest are removed first.
BUDGETS_MAX = 10_000
KNOWN_USERS_MAX = 10_000


class TooManyFailedLogins(Exception):
    """The budget of the address, or of the user at this address, is exhausted."""


class _Budget:
    """The failed logins that are left, as of `at`."""

    __slots__ = ("at", "left", "reserved")

    def __init__(self, at: float) -> None:
        self.at = at
        self.left = float(FAILURES_MAX)
        # The attempts that have not ended, by the digest of their credentials.
        self.reserved: Counter[bytes] = Counter()

    def refill(self, now: float) -> None:
        self.left = min(float(FAILURES_MAX), self.left + (now - self.at) * FAILURES_MAX / FAILURES_REFILL_SECONDS)
        self.at = now


class Attempt(NamedTuple):
    """A login that has not ended. `digest` is equal for attempts that count once."""

    key: tuple[str, str]
    known_key: tuple[str, str]
    digest: bytes


class LoginLimits:
    """The budgets of all addresses. `begin` precedes the check of a password, `end` follows it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._budgets: dict[tuple[str, str], _Budget] = {}
        self._known: dict[tuple[str, str], None] = {}
        self._attempt_count = 0

    def begin(self, host: str, name: str, password: str | None = None, *, is_admitted: bool = False) -> Attempt:
        """Reserve a failed login. Raises TooManyFailedLogins if the budget is exhausted, unless `is_admitted`.

        Without a password, each attempt counts: the proof of a SCRAM login does not show whether two passwords are
        equal.
        """
        address = network_of(host)
        known_key = (address, name)
        key = known_key if known_key in self._known else (address, "")
        digest = self._digest(name, password)
        budget = self._budget(key)
        if not is_admitted and digest not in budget.reserved and budget.left - len(budget.reserved) < 1:
            raise TooManyFailedLogins
        budget.reserved[digest] += 1
        return Attempt(key, known_key, digest)

    def is_exhausted(self, host: str) -> bool:
        """Return whether logins have failed until the budget of the address was exhausted.

        Attempts that have not ended do not count. Users that are known at the address have budgets of their own.
        """
        budget = self._budgets.get((network_of(host), ""))
        if budget is None:
            return False
        budget.refill(self._clock.monotonic())
        return budget.left < 1

    def end(self, attempt: Attempt, is_success: bool) -> None:
        budget = self._budgets.get(attempt.key)
        if budget is not None and budget.reserved[attempt.digest]:
            budget.reserved[attempt.digest] -= 1
            if not budget.reserved[attempt.digest]:
                del budget.reserved[attempt.digest]
                if not is_success:
                    budget.left = max(0.0, budget.left - 1)
            if not budget.reserved and budget.left >= FAILURES_MAX:
                del self._budgets[attempt.key]
        if is_success:
            self._known.pop(attempt.known_key, None)
            self._known[attempt.known_key] = None
            _remove_oldest(self._known, KNOWN_USERS_MAX)

    def cancel(self, attempt: Attempt) -> None:
        """End an attempt without a result: the client has disconnected, or the check failed. It counts as failed."""
        self.end(attempt, is_success=False)

    def fail(self, host: str) -> None:
        """Count a login that failed before its user name was known."""
        self.cancel(self.begin(host, "", is_admitted=True))

    def _digest(self, name: str, password: str | None) -> bytes:
        if password is None:
            self._attempt_count += 1
            return self._attempt_count.to_bytes(8, "big")
        return sha256(f"{name}\0{password}".encode(errors="surrogatepass")).digest()

    def _budget(self, key: tuple[str, str]) -> _Budget:
        now = self._clock.monotonic()
        budget = self._budgets.pop(key, None)
        if budget is None:
            budget = _Budget(now)
        budget.refill(now)
        self._budgets[key] = budget
        _remove_oldest(self._budgets, BUDGETS_MAX)
        return budget


def _remove_oldest(table: dict[tuple[str, str], V], count_max: int) -> None:
    while len(table) > count_max:
        del table[next(iter(table))]
