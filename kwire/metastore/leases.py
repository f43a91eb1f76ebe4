"""The leases of a metadata store, their deadlines and their keys. It has no clock and no event loop."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from msgspec import Struct, field

from kwire.metastore.interface import LEASE_SECONDS_MAX, LEASE_SECONDS_MIN, LeaseLost, OnLost

log = logging.getLogger("kwire.metastore")

# Deadlines of removed leases are dropped when there are this many more deadlines than leases.
OBSOLETE_DEADLINES_MAX = 1000


class LeaseState(Struct, eq=False):
    """A lease in memory. `deadline` is a monotonic time in seconds. `keys` are the keys that are attached to it."""

    lease_id: int
    ttl_seconds: int
    deadline: float
    keys: dict[str, None] = field(default_factory=dict)
    is_lost: bool = False
    on_lost: OnLost | None = None


class LeaseTable:
    """All leases of a store. A lease that has ended stays here as lost, until the removal of its keys is durable."""

    def __init__(self) -> None:
        self._leases: dict[int, LeaseState] = {}
        # Lease ids by attached key.
        self._of_keys: dict[str, int] = {}
        # One item per lease: a time that is not after its deadline, and the id.
        self._deadlines: list[tuple[float, int]] = []
        # The leases that have ended and are not removed yet, in the order in which they ended.
        self._lost: dict[int, LeaseState] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[LeaseState]:
        return iter(self._leases.values())

    @property
    def has_keys(self) -> bool:
        return bool(self._of_keys)

    @property
    def next_deadline(self) -> float | None:
        """A time at which `expire` should be called, or None if there is no lease that can expire."""
        return self._deadlines[0][0] if self._deadlines else None

    def attached_keys(self) -> dict[str, int]:
        """Return the lease id of each attached key."""
        return self._of_keys.copy()

    def alive(self, lease_id: int) -> LeaseState:
        """Return a lease. Raises LeaseLost."""
        lease = self._leases.get(lease_id)
        if lease is None or lease.is_lost:
            raise LeaseLost(lease_id)
        return lease

    @property
    def has_lost(self) -> bool:
        return bool(self._lost)

    def lost(self) -> Iterator[LeaseState]:
        """Iterate over the leases that have ended and are not removed yet."""
        return iter(self._lost.values())

    def end(self, lease: LeaseState) -> None:
        """Mark a lease as lost. Its keys have to be removed."""
        lease.is_lost = True
        if lease.lease_id in self._leases:
            self._lost[lease.lease_id] = lease

    # --- stored changes, also of an earlier run

    def change(self, leases: Mapping[str, int | None], now: float) -> None:
        """Grant leases, by id and time to live, and remove those whose time is None."""
        for text, ttl_seconds in leases.items():
            if ttl_seconds is not None:
                self._grant(int(text), ttl_seconds, now)
            else:
                self._remove(int(text))

    def attach(self, keys: Iterable[str], attached: Mapping[str, int], now: float) -> None:
        """Attach changed keys to the leases in `attached`, and detach the others."""
        for key in keys:
            old = self._of_keys.pop(key, None)
            if old is not None:
                self._leases[old].keys.pop(key, None)
            lease_id = attached.get(key)
            if lease_id is None:
                continue
            if lease_id not in self._leases:
                # A damaged journal may have lost the grant. No holder keeps the lease alive, so it expires.
                self._grant(lease_id, LEASE_SECONDS_MIN, now)
            self._leases[lease_id].keys[key] = None
            self._of_keys[key] = lease_id

    def _remove(self, lease_id: int) -> None:
        removed = self._leases.pop(lease_id, None)
        self._lost.pop(lease_id, None)
        for key in removed.keys if removed is not None else ():
            self._of_keys.pop(key, None)
        if len(self._deadlines) > len(self._leases) + OBSOLETE_DEADLINES_MAX:
            self._deadlines = [(lease.deadline, lease.lease_id) for lease in self if not lease.is_lost]
            heapify(self._deadlines)

    def _grant(self, lease_id: int, ttl_seconds: int, now: float) -> None:
        deadline = now + ttl_seconds
        known = self._leases.get(lease_id)
        if known is not None:
            known.ttl_seconds, known.deadline = ttl_seconds, max(known.deadline, deadline)
            return
        self._leases[lease_id] = LeaseState(lease_id, ttl_seconds, deadline)
        heappush(self._deadlines, (deadline, lease_id))

    # --- time

    def keep_alive(self, lease_id: int, now: float) -> LeaseState:
        """Begin the time of a lease anew. Raises LeaseLost, also if the deadline has passed."""
        lease = self.alive(lease_id)
        if lease.deadline <= now:
            raise LeaseLost(lease_id)
        lease.deadline = now + lease.ttl_seconds
        return lease

    def expire(self, now: float) -> None:
        """End the leases whose time is over, and notify their holders."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, lease_id = heappop(self._deadlines)
            lease = self._leases.get(lease_id)
            if lease is None or lease.is_lost:
                continue
            if lease.deadline > now:
                heappush(self._deadlines, (lease.deadline, lease_id))
                continue
            self.end(lease)
            if lease.on_lost is not None:
                try:
                    lease.on_lost()
                except Exception:
                    # The other leases still have to expire.
                    log.exception("the holder of the lease %d failed when it was notified of its loss", lease_id)


def check_ttl(ttl_seconds: int) -> None:
    """Raise ValueError if a lease cannot have this time to live."""
    if not LEASE_SECONDS_MIN <= ttl_seconds <= LEASE_SECONDS_MAX:
        raise ValueError(
            f"the time to live of a lease must be {LEASE_SECONDS_MIN} to {LEASE_SECONDS_MAX} seconds, got {ttl_seconds}"
        )
