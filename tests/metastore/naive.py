"""The naive twin of a metadata store: everything in memory, a list of all commits, and no cleverness."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any, Self

from kwire.clock import Clock
from kwire.metastore import commits
from kwire.metastore.interface import (
    LEASES_MAX,
    NO_LEASE,
    WATCHES_MAX,
    Change,
    Commit,
    Compacted,
    Condition,
    Conflict,
    Entry,
    KeyChange,
    LeaseLost,
    OnLost,
    TooManyLeases,
    TooManyWatches,
)
from kwire.metastore.leases import check_ttl


class NaiveMetaStore:
    """A metadata store that a reader understands at once. A restart keeps entries and leases."""

    def __init__(self, clock: Clock, kept_changes_max: int) -> None:
        self._clock = clock
        self._kept_changes_max = kept_changes_max
        self._entries: dict[str, Entry] = {}
        self._lease_of: dict[str, int] = {}
        self._leases: dict[int, NaiveLease] = {}
        self._commits: list[Commit] = []
        self._watches: list[NaiveWatch] = []
        self._revision = 0
        self.oldest_revision = 1

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def entries(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        return iter([(key, entry) for key, entry in self._entries.items() if key.startswith(prefix)])

    async def erase_history(self) -> None:
        """Nothing is on a disk."""

    async def commit(self, changes: Sequence[Change], conditions: Sequence[Condition] = ()) -> int:
        commits.encode_changes(changes, conditions)
        for one in [*(Condition(one.key, one.expected_revision) for one in changes), *conditions]:
            entry = self._entries.get(one.key)
            if (entry.revision if entry else 0) != one.expected_revision:
                raise Conflict(one.key)
        for change in changes:
            if change.lease_id != NO_LEASE and change.lease_id not in self._leases:
                raise LeaseLost(change.lease_id)
        effective = [one for one in changes if one.value is not None or one.key in self._entries]
        if effective:
            self._apply({one.key: (one.value, one.lease_id) for one in effective})
        return self._revision

    def _apply(self, values: dict[str, tuple[Any, int]]) -> None:
        self._revision += 1
        for key, (value, lease_id) in values.items():
            self._lease_of.pop(key, None)
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = Entry(json.loads(json.dumps(value)), self._revision)
                if lease_id != NO_LEASE:
                    self._lease_of[key] = lease_id
        changed = tuple(KeyChange(key, self._entries.get(key)) for key in values)
        self._commits.append(Commit(self._revision, changed))
        while sum(max(len(one.changes), 1) for one in self._commits) > self._kept_changes_max:
            self.oldest_revision = self._commits.pop(0).revision + 1
        for watch in self._watches:
            watch.changed.set()

    def watch(self, prefix: str, from_revision: int) -> "NaiveWatch":
        if from_revision < 1:
            raise ValueError(from_revision)
        if len(self._watches) >= WATCHES_MAX:
            raise TooManyWatches
        self._watches.append(NaiveWatch(self, prefix, from_revision))
        return self._watches[-1]

    def next_commit(self, prefix: str, revision: int) -> Commit | None:
        if revision < self.oldest_revision:
            raise Compacted(revision, self.oldest_revision)
        for one in self._commits:
            found = tuple(change for change in one.changes if change.key.startswith(prefix))
            if one.revision >= revision and found:
                return Commit(one.revision, found)
        return None

    def forget(self, watch: "NaiveWatch") -> None:
        if watch in self._watches:
            self._watches.remove(watch)

    async def lease(self, ttl_seconds: int, on_lost: OnLost | None = None) -> "NaiveLease":
        check_ttl(ttl_seconds)
        if len(self._leases) >= LEASES_MAX:
            raise TooManyLeases
        self._apply({})
        self._leases[self._revision] = NaiveLease(self, self._revision, ttl_seconds, on_lost, self._clock.monotonic())
        return self._leases[self._revision]

    async def resume_lease(self, lease_id: int, on_lost: OnLost | None = None) -> "NaiveLease":
        if lease_id not in self._leases:
            raise LeaseLost(lease_id)
        lease = self._leases[lease_id]
        await lease.keep_alive()
        lease.on_lost = on_lost
        return lease

    def now(self) -> float:
        return self._clock.monotonic()

    def end(self, lease_id: int) -> None:
        keys = [key for key, holder in self._lease_of.items() if holder == lease_id]
        if self._leases.pop(lease_id, None) is not None:
            self._apply(dict.fromkeys(keys, (None, NO_LEASE)))

    async def expire_leases(self) -> None:
        for lease in list(self._leases.values()):
            if lease.deadline <= self.now():
                lease.is_lost = True
                if lease.on_lost is not None:
                    try:
                        lease.on_lost()
                    except Exception as error:
                        print(f"a holder failed: {error}")
                self.end(lease.lease_id)

    def restart(self) -> None:
        self._commits.clear()
        self.oldest_revision = self._revision + 1
        for watch in list(self._watches):
            watch.close()
        for lease in list(self._leases.values()):
            # The old holder's object is of the old process.
            lease.deadline = self.now() + lease.ttl_seconds
            lease.on_lost = None

    def close(self) -> None:
        for watch in list(self._watches):
            watch.close()


class NaiveWatch:
    def __init__(self, store: NaiveMetaStore, prefix: str, from_revision: int) -> None:
        self._store = store
        self._prefix = prefix
        self._next = from_revision
        self.changed = asyncio.Event()
        self._is_closed = False

    @property
    def revision(self) -> int:
        return self._next - 1

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Commit:
        while not self._is_closed:
            self.changed.clear()
            found = self._store.next_commit(self._prefix, self._next)
            if found is not None:
                self._next = found.revision + 1
                return found
            self._next = max(self._next, self._store.revision + 1)
            await self.changed.wait()
        raise StopAsyncIteration

    def close(self) -> None:
        self._is_closed = True
        self.changed.set()
        self._store.forget(self)


class NaiveLease:
    def __init__(
        self, store: NaiveMetaStore, lease_id: int, ttl_seconds: int, on_lost: OnLost | None, now: float
    ) -> None:
        self._store = store
        self.lease_id = lease_id
        self.ttl_seconds = ttl_seconds
        self.on_lost = on_lost
        self.deadline = now + ttl_seconds
        self.is_lost = False

    async def keep_alive(self) -> None:
        if self.is_lost or self.deadline <= self._store.now():
            raise LeaseLost(self.lease_id)
        self.deadline = self._store.now() + self.ttl_seconds

    async def revoke(self) -> None:
        self.is_lost = True
        self._store.end(self.lease_id)
