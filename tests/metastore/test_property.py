"""Random commits, watches, leases, restarts and power cuts: the embedded store does what the naive twin does."""

import asyncio
import os
import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from kwire.metastore import Change, Condition, Conflict, MetaStore, Watch, embedded, history
from kwire.metastore.interface import ABSENT, Commit, Compacted, LeaseLost
from storage.errors import StorageFailed
from tests.metastore.implementations import Embedded
from tests.metastore.naive import NaiveLease, NaiveMetaStore
from tests.support.effort import repetitions
from tests.support.faulty_files import FaultyFiles
from tests.support.node import in_loop

KEYS = [f"{folder}/{number}" for folder in ("a", "b") for number in range(6)]
STEPS = 150
KEPT_CHANGES = 14
# Two leases that expire together: the store removed their keys in another order than the twin.
KEPT_SEEDS = [38, 98]


class Reader:
    """A watch on both stores with the same prefix. It reads now and then, and again from the start after Compacted."""

    def __init__(self, pair: "Pair", prefix: str) -> None:
        self._pair = pair
        self._prefix = prefix
        self.begin()

    def begin(self) -> None:
        start = self._pair.twin.revision + 1
        stores: tuple[MetaStore, MetaStore] = (self._pair.world.store, self._pair.twin)
        self._watches = [store.watch(self._prefix, start) for store in stores]

    async def read(self) -> None:
        """Read everything that is there from both, and compare."""
        outcomes = [await _read_all(watch) for watch in self._watches]
        assert outcomes[0] == outcomes[1]
        self._pair.counts["compacted" if outcomes[0] is None else "read"] += 1
        if outcomes[0] is None:
            for watch in self._watches:
                watch.close()
            self.begin()


def _sorted_by_key(commit: Commit) -> Commit:
    """Return a commit for comparison: a commit is atomic, and its changes have no order."""
    return Commit(commit.revision, tuple(sorted(commit.changes, key=lambda change: change.key)))


async def _read_all(watch: Watch) -> list[Commit] | None:
    found: list[Commit] = []
    while True:
        waiting = asyncio.ensure_future(watch.__anext__())
        for _ in range(3):
            await asyncio.sleep(0)
        if not waiting.done():
            waiting.cancel()
            await asyncio.wait([waiting])
            return found
        try:
            found.append(_sorted_by_key(waiting.result()))
        except Compacted:
            return None


class Pair:
    """The store and its twin, which get the same calls."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.rng = rng
        self.files = FaultyFiles()
        self.world = Embedded(directory, self.files)
        self.twin = NaiveMetaStore(self.world.clock, KEPT_CHANGES)
        self.readers = [Reader(self, prefix) for prefix in ("", "a/", "b/1")]
        self.leases: list[int] = []
        self.counts: Counter[str] = Counter()
        self.lost: tuple[list[int], list[int]] = ([], [])

    async def step(self) -> None:
        kind = self.rng.choices(
            ["commit", "read", "lease", "keep", "revoke", "time", "restart", "crash"], [50, 15, 8, 8, 4, 8, 3, 4]
        )[0]
        await getattr(self, kind)()
        self.compare()

    def compare(self) -> None:
        store = self.world.store
        assert dict(store.entries("")) == dict(self.twin.entries(""))
        assert store.revision == self.twin.revision
        assert self.lost[0] == self.lost[1]

    def random_commit(self) -> tuple[list[Change], list[Condition]]:
        rng = self.rng
        changes = []
        for key in rng.sample(KEYS, rng.randint(0, 4)):
            entry = self.twin.get(key)
            expected = entry.revision if entry else ABSENT
            value = rng.choice([None, rng.random(), {"x": rng.randint(0, 9)}, "ü" * rng.randint(0, 30)])
            lease_id = rng.choice([0, 0, *self.leases[-3:]]) if value is not None else 0
            changes.append(Change(key, value, expected + (rng.random() < 0.03), lease_id))
        conditions = []
        if rng.random() < 0.2:
            key = rng.choice(KEYS)
            entry = self.twin.get(key)
            conditions.append(Condition(key, entry.revision if entry and rng.random() < 0.8 else ABSENT))
        return changes, conditions

    async def commit(self) -> None:
        changes, conditions = self.random_commit()
        outcomes: list[object] = []
        stores: tuple[MetaStore, MetaStore] = (self.world.store, self.twin)
        for store in stores:
            try:
                outcomes.append(await store.commit(changes, conditions))
            except (Conflict, LeaseLost) as error:
                outcomes.append(repr(error))
        assert outcomes[0] == outcomes[1]

    async def read(self) -> None:
        await self.rng.choice(self.readers).read()

    async def lease(self) -> None:
        ttl = self.rng.randint(1, 20)
        number = len(self.leases)
        made = await self.world.store.lease(ttl, lambda: self.lost[0].append(number))
        twin = await self.twin.lease(ttl, lambda: self.lost[1].append(number))
        assert made.lease_id == twin.lease_id
        self.leases.append(made.lease_id)

    async def keep(self) -> None:
        if not self.leases:
            return
        lease_id = self.rng.choice(self.leases)
        outcomes = []
        stores: tuple[MetaStore, MetaStore] = (self.world.store, self.twin)
        for store, lost in zip(stores, self.lost, strict=True):
            try:
                await store.resume_lease(lease_id, partial(lost.append, lease_id))
                outcomes.append(True)
            except LeaseLost:
                outcomes.append(False)
        assert outcomes[0] == outcomes[1]

    async def revoke(self) -> None:
        for lease_id in self.rng.sample(self.leases, min(1, len(self.leases))):
            try:
                lease = await self.world.store.resume_lease(lease_id)
            except LeaseLost:
                continue
            await lease.revoke()
            twin: NaiveLease = await self.twin.resume_lease(lease_id)
            await twin.revoke()

    async def time(self) -> None:
        clock = self.world.clock
        clock.set_wall(clock.now_ms() + self.rng.randint(-(10**9), 10**9))
        clock.advance(self.rng.randint(0, 8000))
        # One lease at a time, in the order of their deadlines: the store removes several in one commit.
        for lease in sorted(self.twin._leases.values(), key=lambda one: (one.deadline, one.lease_id)):
            if lease.deadline <= clock.monotonic() and not lease.is_lost:
                await self.expire_together()
                return

    async def expire_together(self) -> None:
        """Expire on both, and let the twin take the store's division into commits."""
        now = self.world.clock.monotonic()
        due = [one for one in self.twin._leases.values() if one.deadline <= now]
        due.sort(key=lambda one: (one.deadline, one.lease_id))
        await self.world.store.expire_leases()
        held = {key for key, lease_id in self.twin._lease_of.items() if lease_id in {one.lease_id for one in due}}
        self.counts["expired"] += len(held)
        keys = [key for one in due for key, lease_id in self.twin._lease_of.items() if lease_id == one.lease_id]
        assert held == set(keys)
        for one in due:
            one.is_lost = True
            if one.on_lost is not None:
                one.on_lost()
            del self.twin._leases[one.lease_id]
        self.lost[0].sort()
        self.lost[1].sort()
        self.twin._apply(dict.fromkeys(keys, (None, 0)))

    async def restart(self) -> None:
        self.world.restart()
        self.restart_twin()

    def restart_twin(self) -> None:
        self.twin.restart()
        for reader in self.readers:
            reader.begin()

    async def crash(self) -> None:
        """A commit fails; then power is cut, or only the process ends. The frame may be on the disk."""
        changes, conditions = self.random_commit()
        self.files.fail_next("fdatasync")
        revision = self.world.store.revision
        failed = False
        try:
            await self.world.store.commit(changes, conditions)
        except StorageFailed:
            failed = True
            assert self.world.store.revision == revision
        except (Conflict, LeaseLost):
            pass
        is_cut = self.rng.random() < 0.5
        if is_cut:
            self.files.cut_power()
        self.files.repair()
        self.world.restart()
        self.counts["cut" if is_cut else "found"] += failed
        if failed and not is_cut:
            # Nobody was told, but the next start finds it: a commit is there or not, never in part.
            await self.twin.commit(changes, conditions)
        self.restart_twin()

    def close(self) -> None:
        self.world.close()


def seeds() -> list[int]:
    given = os.environ.get("KWIRE_TEST_SEED")
    if given:
        return [int(given)]
    return [*range(8), *KEPT_SEEDS, *(random.randrange(2**32) for _ in range(repetitions(quick=4, full=40)))]


@in_loop
async def test_store_does_what_its_twin_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "HISTORY_CHANGES_MAX", KEPT_CHANGES)
    monkeypatch.setattr(embedded, "HISTORY_WRITES_MIN", 30)
    counts: Counter[str] = Counter()
    for seed in seeds():
        print(f"KWIRE_TEST_SEED={seed}")
        directory = tmp_path / str(seed)
        directory.mkdir()
        pair = Pair(directory, random.Random(seed))
        for _ in range(STEPS):
            await pair.step()
        pair.close()
        counts += pair.counts
    print(dict(counts))
    assert {"compacted", "read", "expired", "cut", "found"} <= set(counts)
