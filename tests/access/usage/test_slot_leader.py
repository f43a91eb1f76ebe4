"""Subscription slots: limits, leases, crashes, and what is stored."""

import asyncio
import os
import random
from contextlib import suppress

import pytest

from kwire.access.keys.key import Key, KeyLimits
from kwire.access.usage.slot_leader import LEADER_KEY, SLOTS_PREFIX, SlotLeader
from kwire.access.usage.subscription_slots import SLOT_SECONDS, Slot, SlotDenied, SlotsUnavailable
from kwire.metastore import Change
from kwire.metastore.interface import ABSENT
from storage.errors import DiskFailure
from tests.support.effort import repetitions
from tests.support.keys import KeyStore
from tests.support.node import in_loop

SLOT_MS = SLOT_SECONDS * 1000


def key(limit: int | None, name: str = "kwk_a", alias_of: str | None = None) -> Key:
    return Key(
        id=name, scope=None, is_root=False, limits=KeyLimits(max_subscriptions=limit), alias_of=alias_of,
        description="", secret_hash=b"", secret_number=1, previous_hash=b"", previous_until_ms=0, created_ms=0,
        expires_ms=0, used_ms=0,
    )  # fmt: skip


async def leader(store: KeyStore, holder: str = "node-1") -> SlotLeader:
    """The slots as a start of the server finds them. Without `close` before it, the start follows a crash."""
    store.open()
    slots = SlotLeader(store.metastore, store.clock, holder)
    await slots.tick()
    return slots


def stored(store: KeyStore, usage_id: str = "kwk_a") -> dict[str, int]:
    entry = store.metastore.get(SLOTS_PREFIX + usage_id)
    return {} if entry is None else dict(entry.value)


@in_loop
@pytest.mark.proves("S1-23", "S1-44", "S1-60")
async def test_two_requests_at_once_cannot_take_the_last_slot(store: KeyStore) -> None:
    slots = await leader(store)
    outcomes = await asyncio.gather(*(slots.request(key(3)) for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(one, Slot) for one in outcomes) == 3
    assert sum(isinstance(one, SlotDenied) for one in outcomes) == 17
    assert slots.count("kwk_a") == 3


@in_loop
@pytest.mark.proves("C-17")
async def test_a_denied_request_releases_nothing(store: KeyStore) -> None:
    slots = await leader(store)
    await slots.request(key(1))
    for _ in range(5):
        with pytest.raises(SlotDenied):
            await slots.request(key(1))
    assert slots.count("kwk_a") == 1


@in_loop
@pytest.mark.proves("S1-29", "S1-62")
async def test_the_stored_number_covers_the_slots_and_is_lowered_after_they_are_released(store: KeyStore) -> None:
    slots = await leader(store)
    before = store.metastore.revision
    taken = [await slots.request(key(None)) for _ in range(1000)]
    assert stored(store)["node-1"] >= 1000
    assert store.metastore.revision - before < 30
    for one in taken:
        slots.release(one)
    assert slots.count("kwk_a") == 0
    await slots.tick()
    await slots._writes.idle()
    assert stored(store) == {}


@in_loop
async def test_aliases_share_the_slots_of_their_key(store: KeyStore) -> None:
    slots = await leader(store)
    await slots.request(key(2))
    await slots.request(key(2, "kwk_b", alias_of="kwk_a"))
    with pytest.raises(SlotDenied):
        await slots.request(key(2))


@in_loop
@pytest.mark.proves("C-18")
async def test_a_slot_of_another_node_expires_unless_it_is_renewed(store: KeyStore) -> None:
    slots = await leader(store)
    kept = await slots.request_for(key(2), "peer-2")
    await slots.request_for(key(2), "peer-3")
    store.clock.advance(SLOT_MS - 1)
    assert await slots.request_for(key(2), "peer-2", kept.slot_id) == kept
    store.clock.advance(1)
    await slots.tick()
    assert slots.count("kwk_a") == 1
    store.clock.advance(SLOT_MS)
    await slots.tick()
    assert slots.count("kwk_a") == 0
    assert slots.expired == 2


@in_loop
async def test_slots_of_other_nodes_survive_a_crash_of_the_deciding_node(store: KeyStore) -> None:
    slots = await leader(store)
    remote = await slots.request_for(key(2), "peer-2")
    await slots.request(key(2))
    crashed = await leader(store)
    # The sessions of the process that has ended are gone. The slot of the other node is not.
    assert crashed.count("kwk_a") == 1
    assert not crashed.release_for("kwk_a", "peer-2", remote.slot_id)
    assert await crashed.request_for(key(2), "peer-2", remote.slot_id) == remote
    assert crashed.count("kwk_a") == 1
    assert crashed.release_for("kwk_a", "peer-2", remote.slot_id)
    assert not crashed.release_for("kwk_a", "peer-2", remote.slot_id)
    assert crashed.count("kwk_a") == 0


@in_loop
@pytest.mark.proves("C-48")
async def test_only_the_holder_of_the_lease_decides(store: KeyStore) -> None:
    slots = await leader(store)
    assert slots.is_leading
    other = SlotLeader(store.metastore, store.clock, "node-2")
    await other.tick()
    with pytest.raises(SlotsUnavailable):
        await other.request(key(1))
    await slots.request_for(key(5), "peer-9")
    await slots.close()
    await other.tick()
    assert other.is_leading
    assert other.count("kwk_a") == 1
    # A node that does not know yet that it has lost the lease changes nothing.
    entry = store.metastore.get(LEADER_KEY)
    assert entry is not None
    other._leader_revision = entry.revision + 1
    with pytest.raises(SlotsUnavailable):
        await other.request(key(5))
    assert stored(store) == {"peer-9": 1}


@in_loop
async def test_a_lease_that_was_lost_is_taken_again_and_own_slots_stay(store: KeyStore) -> None:
    slots = await leader(store)
    await slots.request(key(5))
    remote = await slots.request_for(key(5), "peer-2")
    assert slots._lease is not None
    await slots._lease.revoke()
    await slots.tick()
    assert slots.is_leading
    assert slots.count("kwk_a") == 2
    assert await slots.request_for(key(2), "peer-2", remote.slot_id) == remote


@in_loop
@pytest.mark.proves("S1-34")
async def test_a_clean_stop_leaves_no_slots_and_no_lease(store: KeyStore) -> None:
    slots = await leader(store)
    slot = await slots.request(key(5))
    slots.release(slot)
    await slots.close()
    assert stored(store) == {}
    assert store.metastore.get(LEADER_KEY) is None


@in_loop
async def test_a_slot_is_not_granted_if_it_cannot_be_stored(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = await leader(store)

    async def refuse(changes: list[Change], conditions: object = ()) -> int:
        raise DiskFailure("the disk refuses")

    with monkeypatch.context() as patched:
        patched.setattr(store.metastore, "commit", refuse)
        with pytest.raises(DiskFailure):
            await slots.request(key(1))
    assert slots.count("kwk_a") == 0
    await slots.request(key(1))


class Twin:
    """The sessions that exist: the own ones, and those of other nodes with the time of the last renewal."""

    def __init__(self) -> None:
        self.own: list[Slot] = []
        self.remote: dict[Slot, float] = {}

    def live(self, usage_id: str, now: float) -> int:
        renewed = [slot for slot, at in self.remote.items() if slot.usage_id == usage_id and now < at + SLOT_SECONDS]
        return len(renewed) + sum(one.usage_id == usage_id for one in self.own)


@in_loop
async def test_random_sessions_denials_crashes_and_expiry(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never negative, never under-counted, and nothing left once the leases have expired."""
    seed = int(os.environ.get("KWIRE_TEST_SEED") or random.randrange(2**32))
    print(f"KWIRE_TEST_SEED={seed}")
    chance = random.Random(seed)
    keys = {name: key(limit, name) for name, limit in (("kwk_a", 3), ("kwk_b", 10), ("kwk_c", None))}
    reached: dict[str, int] = {}
    for _ in range(repetitions(quick=6, full=60)):
        store.close()
        store.path.unlink(missing_ok=True)
        slots, twin = await leader(store), Twin()
        for _ in range(200):
            action = chance.choices(
                ("own", "remote", "renew", "release", "lose", "crash", "wait", "jump", "disk", "tick"),
                (20, 20, 15, 20, 5, 3, 10, 3, 3, 10),
            )[0]
            one = chance.choice(list(keys.values()))
            limit = one.limits.max_subscriptions
            now = store.clock.monotonic()
            if action in ("own", "remote"):
                live = twin.live(one.id, now)
                try:
                    if action == "own":
                        twin.own.append(await slots.request(one))
                    else:
                        twin.remote[await slots.request_for(one, f"peer-{chance.randrange(3)}")] = now
                    assert limit is None or live < limit, seed
                except SlotDenied:
                    action = "denied"
                    assert limit is not None, seed
                    assert slots.count(one.id) >= limit, seed
            elif action == "renew" and twin.remote:
                # A node does not renew a slot after its time: it asks for a new one.
                slot = chance.choice(list(twin.remote))
                is_late = now >= twin.remote.pop(slot) + SLOT_SECONDS
                try:
                    again = await slots.request_for(keys[slot.usage_id], slot.holder, None if is_late else slot.slot_id)
                    assert is_late or again == slot, seed
                    twin.remote[again] = now
                except SlotDenied:
                    assert is_late, seed
            elif action == "release":
                if twin.own and chance.random() < 0.5:
                    slots.release(twin.own.pop(chance.randrange(len(twin.own))))
                elif twin.remote:
                    slot = chance.choice(list(twin.remote))
                    for _ in range(chance.choice((1, 1, 2))):
                        slots.release_for(*slot)
                    del twin.remote[slot]
            elif action == "lose" and twin.remote:
                # The node has died, or its release was lost.
                del twin.remote[chance.choice(list(twin.remote))]
            elif action == "crash":
                await slots._writes.idle()
                slots = await leader(store)
                twin.own.clear()
            elif action == "wait":
                store.clock.advance(chance.choice((1000, 10_000, SLOT_MS)))
                await slots.tick()
            elif action == "jump":
                store.clock.set_wall(store.clock.now_ms() + chance.choice((-1, 1)) * 10**9)
            elif action == "disk":

                async def refuse(changes: list[Change], conditions: object = ()) -> int:
                    raise DiskFailure("the disk refuses")

                with monkeypatch.context() as patched:
                    patched.setattr(store.metastore, "commit", refuse)
                    with suppress(DiskFailure, SlotDenied):
                        twin.own.append(await slots.request(one))
                    await slots._writes.idle()
            elif action == "tick":
                await slots.tick()
            reached[action] = reached.get(action, 0) + 1
            now = store.clock.monotonic()
            for name in keys:
                assert slots.count(name) >= twin.live(name, now), (seed, action)
                await slots._writes.idle()
                assert sum(stored(store, name).values()) >= slots.count(name), (seed, action)
            assert slots.total == sum(map(slots.count, keys)) >= 0, (seed, action)
        for slot in twin.own:
            slots.release(slot)
        store.clock.advance(SLOT_MS)
        await slots.tick()
        await slots._writes.idle()
        assert slots.total == 0, seed
        assert [stored(store, name) for name in keys] == [{}, {}, {}], seed
    print(reached)
    assert {"denied", "crash", "renew", "disk"} <= reached.keys()


@in_loop
async def test_the_writes_of_many_keys_share_commits(store: KeyStore) -> None:
    slots = await leader(store)
    before = store.metastore.revision
    await asyncio.gather(*(slots.request(key(1, f"kwk_{number}")) for number in range(500)))
    assert store.metastore.revision - before <= 8
    assert store.metastore.get(SLOTS_PREFIX + "kwk_499") is not None
    await store.metastore.commit([Change("other", 1, ABSENT)])
