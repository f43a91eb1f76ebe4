"""Slots: clients take turns by network and by user, and a client that goes away loses nothing for the others."""

import asyncio
import gc
import weakref

from kwire.concurrency.fair_slots import FairSlots, SlotsExhausted
from tests.support.node import in_loop


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class World:
    """Slots, and the order in which clients got one."""

    def __init__(self, count: int) -> None:
        self.slots = FairSlots(count)
        self.served: list[str] = []

    def ask(self, network: str, user: str, name: str) -> "asyncio.Task[None]":
        return asyncio.ensure_future(self._ask(network, user, name))

    async def _ask(self, network: str, user: str, name: str) -> None:
        await self.slots.acquire(network, user)
        self.served.append(name)

    async def serve_all(self) -> None:
        count = -1
        while count != len(self.served):
            count = len(self.served)
            self.slots.release()
            await settle()


@in_loop
async def test_networks_take_turns_and_their_users_too() -> None:
    world = World(1)
    asked = [world.ask("a", "root", f"guess {number}") for number in range(4)]
    asked += [world.ask("b", "alice", f"b alice {number}") for number in range(2)]
    asked += [world.ask("b", "bob", "b bob"), world.ask("a", "carol", "a carol")]
    await settle()
    assert world.served == ["guess 0"]
    await world.serve_all()
    assert world.served == [
        "guess 0", "guess 1", "b alice 0", "a carol", "b bob", "guess 2", "b alice 1", "guess 3"
    ]  # fmt: skip
    await asyncio.gather(*asked)


@in_loop
async def test_all_slots_are_free_again() -> None:
    world = World(3)
    for _ in range(3):
        asked = [world.ask(f"network {number % 4}", f"user {number % 3}", "") for number in range(20)]
        await settle()
        assert len(world.served) == 3
        for _ in range(20):
            world.slots.release()
            await settle()
        await asyncio.gather(*asked)
        assert (world.slots._free, world.slots._waiting) == (3, {})
        world.served.clear()


@in_loop
async def test_a_client_that_goes_away_keeps_no_slot_and_no_place() -> None:
    world = World(1)
    first, waiting, given, last = (world.ask("a", "root", name) for name in ("first", "waiting", "given", "last"))
    await settle()
    waiting.cancel()
    await settle()
    # It gets the slot, and is cancelled before it notices.
    world.slots.release()
    given.cancel()
    await settle()
    assert world.served == ["first", "last"]
    world.slots.release()
    assert (world.slots._free, world.slots._waiting) == (1, {})
    await asyncio.gather(first, last)


@in_loop
async def test_a_slot_is_not_given_to_a_client_that_was_cancelled_in_the_same_iteration() -> None:
    world = World(0)
    gone, last = world.ask("a", "root", "gone"), world.ask("a", "root", "last")
    await settle()
    gone.cancel()
    world.slots.release()
    await settle()
    assert world.served == ["last"]
    assert not world.slots.is_awaited
    gone, last = world.ask("a", "root", "gone"), world.ask("b", "root", "of another network")
    await settle()
    gone.cancel()
    world.slots.release_to("a")
    await settle()
    assert world.served == ["last"]
    world.slots.release()
    await asyncio.gather(last)
    assert not world.slots.is_awaited


class Connection:
    """Stands for what a waiting client holds."""


@in_loop
async def test_a_client_that_is_given_up_is_freed_without_the_garbage_collector() -> None:
    slots = FairSlots(0)
    given_up: list[weakref.ref[Connection]] = []

    async def wait() -> None:
        connection = Connection()
        try:
            await slots.acquire("a", "root", waiting_max=1)
        except SlotsExhausted:
            given_up.append(weakref.ref(connection))

    gc.disable()
    try:
        first, second = asyncio.ensure_future(wait()), asyncio.ensure_future(wait())
        await settle()
        assert first.done()
        assert [reference() for reference in given_up] == [None]
    finally:
        gc.enable()
    second.cancel()
