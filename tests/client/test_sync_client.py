"""The sync client: the shapes of the source text, from threads without an event loop."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kwire.client import CaughtUp, Client, ClientClosed, Event, Position, Unreachable
from kwire.client.sync.item_iterator import SyncItemIterator
from kwire.client.sync.loop_thread import LoopThread
from tests.support.fake_rooms import FakeRooms, fake_rooms

WAIT_S = 10.0


@contextmanager
def rooms_in_a_thread() -> Iterator[tuple[FakeRooms, str, asyncio.AbstractEventLoop]]:
    """The fake rooms in a loop of their own, as a server would be."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    context = fake_rooms()
    rooms, url = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(WAIT_S)
    try:
        yield rooms, url, loop
    finally:
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(WAIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()


def test_a_game_lobby_reads_its_full_history_and_goes_on_live() -> None:
    with rooms_in_a_thread() as (_, url, _), Client(url, timeout_s=WAIT_S) as client:
        client.stream.publish("game-lobby-42", "player_join", {"player": "player-1"})
        lobby = client.stream.subscribe("game-lobby-42", from_offset=0, replay=True)
        client.stream.publish("game-lobby-42", "player_move", {"player": "player-1", "action": "attack"})
        items = [lobby.next_item(WAIT_S) for _ in range(3)]
        assert [item.type for item in items if isinstance(item, Event)] == ["player_join", "player_move"]
        assert sum(isinstance(item, CaughtUp) for item in items) == 1
        assert lobby.position == Position("epoch-1", 2)


def test_a_loop_over_a_subscription_survives_cuts_and_ends_when_it_is_closed() -> None:
    with rooms_in_a_thread() as (rooms, url, loop), Client(url, retry_delay_s_max=0.05) as client:
        subscription = client.stream.subscribe("r")
        seen = []
        for number in range(30):
            client_publish(rooms, loop, number)
            if number % 10 == 5:
                loop.call_soon_threadsafe(rooms.cut)
        for event in subscription:
            seen.append(event.data)
            if len(seen) == 30:
                subscription.close()
        assert seen == list(range(30))


def client_publish(rooms: FakeRooms, loop: asyncio.AbstractEventLoop, number: int) -> None:
    loop.call_soon_threadsafe(rooms.publish, "r", number)


def test_the_position_is_behind_what_was_taken_and_not_behind_what_was_fetched() -> None:
    with rooms_in_a_thread() as (_, url, _), Client(url) as client:
        for number in range(10):
            client.stream.publish("r", "n", number)
        subscription = client.stream.subscribe("r", from_offset=0)
        assert [subscription.next_event(WAIT_S).data for _ in range(4)] == [0, 1, 2, 3]
        assert subscription.position == Position("epoch-1", 4)


def test_waiting_for_an_event_ends_in_time() -> None:
    with rooms_in_a_thread() as (_, url, _), Client(url) as client:
        subscription = client.stream.subscribe("r")
        with pytest.raises(TimeoutError):
            subscription.next_event(0.05)


def test_a_closed_client_says_so() -> None:
    client = Client("http://127.0.0.1:9", timeout_s=0.1)
    with pytest.raises(Unreachable):
        client.stream.publish("r", "n", 1)
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        client.stream.publish("r", "n", 1)


def test_the_timeout_of_next_event_limits_the_whole_call() -> None:
    """A source that yields an item which is not an event just before each timeout."""

    timeouts_s: list[float] = []

    class Busy:
        position = Position("epoch-1", 0)

        async def next_batch(self, count_max: int, timeout_s: float | None = None) -> list[tuple[CaughtUp, Position]]:
            assert timeout_s is not None
            timeouts_s.append(timeout_s)
            if len(timeouts_s) > 50 or timeout_s <= 0:
                raise TimeoutError
            await asyncio.sleep(timeout_s / 2)
            return [(CaughtUp("r", 0), self.position)] * 2

        async def close(self) -> None:
            pass

    loop = LoopThread()
    try:
        with pytest.raises(TimeoutError):
            SyncItemIterator(loop, Busy(), Event).next_event(0.2)
        assert sum(timeouts_s) / 2 <= 0.2
    finally:
        loop.close()
