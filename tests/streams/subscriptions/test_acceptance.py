"""The fourteen acceptance criteria of catch-up-then-live, through `subscribe_messages`.

A stream is a topic of one partition here, its version the offset. The fourteenth criterion, a clean build, is what
`scripts/check` runs for every change; here the quick part of it is run as well.
"""

import asyncio
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ParamSpec

import pytest

import kwire
from kwire.broker.topics.topics import Topic
from kwire.errors import BroadcastFailed, RoomNotFound, SubscriptionFailed
from kwire.streams.events.event import Event, NewEvent
from kwire.streams.events.publishing import Publisher
from kwire.streams.subscriptions import (
    FROM_NEWEST,
    FROM_OLDEST,
    Start,
    SubscribedMessages,
    SubscribeOptions,
    Subscriptions,
    subscribe_messages,
)
from kwire.streams.subscriptions.control_messages import CaughtUp, Lagging
from kwire.streams.subscriptions.messages import Message
from tests.support.node import QuietNode, in_loop
from tests.support.subscribing import publish, publish_many, rooms_settings, settled

P = ParamSpec("P")
WAIT_SECONDS = 5.0
ROOT = Path(kwire.__file__).parents[1]


class Store:
    """A node in a real loop, as the seed's store, broker and writer."""

    def __init__(self, node: QuietNode) -> None:
        loop = asyncio.get_running_loop()
        self.node = node
        self.subscriptions = Subscriptions(node.clock, loop.call_soon, loop.call_later, rooms_settings(node))

    async def stream(self, name: str = "all") -> Topic:
        return await self.node.create(name, 1, kwire_log_sync="os")

    async def subscribe(
        self, topic: Topic, start: Start = FROM_OLDEST, *, capacity: int | None = None
    ) -> SubscribedMessages:
        options = SubscribeOptions(queue_events_max=capacity)
        return await subscribe_messages(self.subscriptions, topic.name, topic.stream(), start, options)


@asynccontextmanager
async def store_of(node: QuietNode) -> AsyncIterator[Store]:
    store = Store(node)
    try:
        yield store
    finally:
        store.subscriptions.close()


def with_store(test: Callable[[Store], Awaitable[None]]) -> Callable[[QuietNode], None]:
    @in_loop
    async def run(node: QuietNode) -> None:
        async with store_of(node) as store:
            await test(store)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def take(messages: SubscribedMessages, count: int) -> list[Message]:
    async with asyncio.timeout(WAIT_SECONDS):
        return [await anext(messages) for _ in range(count)]


async def drain(messages: SubscribedMessages) -> list[Message]:
    """Until the message that says that it is caught up, which is the last."""
    taken: list[Message] = []
    while not taken or not isinstance(taken[-1], CaughtUp):
        taken += await take(messages, 1)
    return taken


async def is_idle(messages: SubscribedMessages) -> bool:
    """Open, and nothing comes."""
    waiting = asyncio.ensure_future(anext(messages))
    await settled()
    is_waiting = not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    return is_waiting


def offsets(messages: list[Message]) -> list[int]:
    return [message.offset for message in messages if isinstance(message, Event)]


@pytest.mark.proves("S3-18", "S3-4", "S3-5")
@with_store
async def test_ac_1_three_published_events_are_received(store: Store) -> None:
    topic = await store.stream()
    messages = await store.subscribe(topic, FROM_NEWEST)
    assert await take(messages, 1) == [CaughtUp(-1)]
    publish_many(topic.partitions[0], 3)
    received = await take(messages, 3)
    assert all(isinstance(message, Event) for message in received)
    assert offsets(received) == [0, 1, 2]


@pytest.mark.proves("S3-19", "S3-4")
@with_store
async def test_ac_2_two_subscribers_receive_both_events(store: Store) -> None:
    topic = await store.stream()
    both = [await store.subscribe(topic, FROM_NEWEST) for _ in range(2)]
    publish_many(topic.partitions[0], 2)
    for messages in both:
        assert offsets(await take(messages, 3)) == [0, 1]


@pytest.mark.proves("S3-20", "S3-2")
@with_store
async def test_ac_3_five_unread_events_are_too_many_for_a_capacity_of_two(store: Store) -> None:
    topic = await store.stream()
    small = await store.subscribe(topic, FROM_NEWEST, capacity=2)
    large = await store.subscribe(topic, FROM_NEWEST, capacity=5)
    await settled()
    publish_many(topic.partitions[0], 5)
    await settled()
    assert [type(message) for message in await take(small, 2)] == [CaughtUp, Lagging]
    with pytest.raises(SubscriptionFailed) as caught:
        await take(small, 1)
    assert caught.value.details["closed"] == "SubscriptionLagged"
    assert caught.value.details["last_offset"] == -1
    with pytest.raises(StopAsyncIteration):
        await anext(small)
    assert offsets(await take(large, 7)) == [0, 1, 2, 3, 4]


@pytest.mark.proves("S3-21", "S3-9", "S3-12")
@with_store
async def test_ac_4_history_then_caught_up_then_idle_but_open(store: Store) -> None:
    topic = await store.stream()
    publish_many(topic.partitions[0], 5)
    messages = await store.subscribe(topic)
    received = await drain(messages)
    assert offsets(received) == [0, 1, 2, 3, 4]
    assert received[-1] == CaughtUp(4)
    assert await is_idle(messages)


@pytest.mark.proves("S3-22", "S3-11")
@with_store
async def test_ac_5_from_the_middle(store: Store) -> None:
    topic = await store.stream()
    publish_many(topic.partitions[0], 10)
    received = await drain(await store.subscribe(topic, Start.at(5)))
    assert offsets(received) == [5, 6, 7, 8, 9]
    assert received[-1] == CaughtUp(9)


@pytest.mark.proves("S3-23", "S3-32", "S3-17")
@with_store
async def test_ac_6_live_events_follow_history_without_a_gap(store: Store) -> None:
    topic = await store.stream()
    publish_many(topic.partitions[0], 3)
    messages = await store.subscribe(topic)
    received = await drain(messages)
    publish(topic.partitions[0], "a")
    publish(topic.partitions[0], "b")
    received += await take(messages, 2)
    assert offsets(received) == [0, 1, 2, 3, 4]


@pytest.mark.proves("S3-24", "S3-13", "S3-9", "S3-32")
@with_store
async def test_ac_7_no_duplicates_at_the_seam(store: Store) -> None:
    topic = await store.stream()
    messages = await store.subscribe(topic)
    for _ in range(5):
        publish(topic.partitions[0], "a")
    received = await take(messages, 6)
    assert offsets(received) == [0, 1, 2, 3, 4]
    assert [type(message) for message in received].count(CaughtUp) == 1
    assert await is_idle(messages)


@pytest.mark.proves("S3-24", "S3-13", "S3-32")
@with_store
async def test_ac_7_no_duplicates_wherever_in_history_the_writer_comes_between(store: Store) -> None:
    for number in range(12):
        topic = await store.stream(f"s{number}")
        publish_many(topic.partitions[0], 700)
        messages = await store.subscribe(topic)
        waiting = asyncio.ensure_future(take(messages, 706))
        for _ in range(number):
            await asyncio.sleep(0)
        for _ in range(5):
            publish(topic.partitions[0], "a")
        received = await waiting
        assert offsets(received) == list(range(705))
        assert await is_idle(messages)


@pytest.mark.proves("S3-25", "S3-7", "S3-15")
@with_store
async def test_ac_8_history_of_one_stream(store: Store) -> None:
    streams = {"A": await store.stream("A"), "B": await store.stream("B")}
    for name in "ABABA":
        publish(streams[name].partitions[0], name)
    received = await drain(await store.subscribe(streams["A"]))
    assert [message.type for message in received if isinstance(message, Event)] == ["A", "A", "A"]
    assert offsets(received) == [0, 1, 2]
    assert received[-1] == CaughtUp(2)


@pytest.mark.proves("S3-26", "S3-15")
@with_store
async def test_ac_9_live_events_of_one_stream(store: Store) -> None:
    streams = {"A": await store.stream("A"), "B": await store.stream("B")}
    messages = await store.subscribe(streams["A"])
    assert await drain(messages) == [CaughtUp(-1)]
    for name in "BAB":
        publish(streams[name].partitions[0], name)
    (event,) = await take(messages, 1)
    assert isinstance(event, Event)
    assert event.type == "A"
    assert await is_idle(messages)


@pytest.mark.proves("S3-27")
@with_store
async def test_ac_10_new_stream_is_caught_up_at_once_and_its_first_event_arrives_live(store: Store) -> None:
    topic = await store.stream("nothing-yet")
    messages = await store.subscribe(topic)
    assert await take(messages, 1) == [CaughtUp(-1)]
    publish(topic.partitions[0], "first")
    assert offsets(await take(messages, 1)) == [0]


@pytest.mark.proves("S3-28", "S3-14")
@with_store
async def test_ac_11_reader_that_does_not_drain_is_ended(store: Store) -> None:
    topic = await store.stream()
    messages = await store.subscribe(topic, capacity=4)
    for _ in range(100):
        publish(topic.partitions[0], "a")
        await settled(turns=2)
    with pytest.raises(SubscriptionFailed):
        await take(messages, 200)
    assert store.subscriptions.count_of(topic.stream()) == 0


@pytest.mark.proves("S3-29", "S3-1")
@with_store
async def test_ac_12_two_subscribers_get_the_very_same_object(store: Store) -> None:
    topic = await store.stream()
    both = [await store.subscribe(topic, FROM_NEWEST) for _ in range(2)]
    for messages in both:
        await drain(messages)
    publish(topic.partitions[0], "a")
    (one,), (other,) = [await take(messages, 1) for messages in both]
    assert one is other


@pytest.mark.proves("S3-30", "S3-3")
@with_store
async def test_ac_13_what_the_writer_appends_reaches_a_subscriber(store: Store) -> None:
    topic = await store.stream()
    messages = await store.subscribe(topic, FROM_NEWEST)
    await drain(messages)
    publisher = Publisher(store.node.clock, asyncio.get_running_loop().call_soon)
    published = await publisher.publish_and_wait(topic.stream(), b"/rooms/all", [NewEvent("a", b'{"n":1}')])
    (event,) = await take(messages, 1)
    assert isinstance(event, Event)
    assert (event.offset, event.event_id, event.data) == (published.offset, published.event_ids[0], b'{"n":1}')


@pytest.mark.proves("S3-3")
@in_loop
async def test_ac_13_nothing_is_delivered_before_it_is_durable(tmp_path: Path) -> None:
    class Rounds:
        """A disk that takes its time."""

        def add(self, partition: object) -> None: ...

        def add_within(self, partition: object, delay_ms: int) -> None: ...

    with QuietNode(tmp_path, syncs=Rounds()) as node:
        async with store_of(node) as store:
            topic = await node.create("all", 1, kwire_log_sync="group")
            messages = await store.subscribe(topic)
            await drain(messages)
            publish(topic.partitions[0], "a")
            assert await is_idle(messages)
            topic.partitions[0].advance(1)
            assert offsets(await take(messages, 1)) == [0]


@pytest.mark.proves("S3-31")
@pytest.mark.parametrize(
    "tool",
    [
        ("ruff", "check", "--quiet", "."),
        ("ruff", "format", "--check", "--quiet", "."),
        ("mypy", "--strict", "kwire/streams/subscriptions", "kwire/streams/events"),
    ],
    ids=["lint", "format", "types"],
)
def test_ac_14_linter_formatter_and_type_checker_have_nothing_to_say(tool: tuple[str, ...]) -> None:
    """Types of the subscription machine only: `scripts/check` looks at those of everything, and takes its time."""
    found = subprocess.run([sys.executable, "-m", *tool], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.proves("S3-31")
def test_ac_14_everything_is_typed_strictly_and_checked_in_one_go() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["mypy"]["strict"] is True
    assert {"kwire", "storage", "tests"} <= set(project["tool"]["mypy"]["files"])
    check = (ROOT / "scripts" / "check").read_text()
    for command in ("ruff format --check", "ruff check", "mypy"):
        assert command in check


@pytest.mark.proves("S3-8")
def test_subscriptions_know_neither_a_wire_nor_a_server() -> None:
    """In an interpreter of its own: here everything is loaded already."""
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys; import {subscribe_messages.__module__}; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.split()
    assert subscribe_messages.__module__ in loaded
    outside = ("kwire.wire", "kwire.web", "kwire.server", "kwire.handlers", "kwire.node", "kwire.cli", "aiohttp")
    assert [name for name in loaded if name.startswith(outside)] == []


@with_store
async def test_close_ends_the_iteration_of_who_waits(store: Store) -> None:
    topic = await store.stream()
    async with await store.subscribe(topic) as messages:
        await drain(messages)
        waiting = asyncio.ensure_future(anext(messages))
        await settled()
        with pytest.raises(RuntimeError, match="already"):
            await anext(messages)
        await messages.aclose()
        with pytest.raises(StopAsyncIteration):
            await waiting
    assert store.subscriptions.count_of(topic.stream()) == 0


@with_store
async def test_deleted_topic_is_an_error_for_who_reads_it(store: Store) -> None:
    topic = await store.stream()
    messages = await store.subscribe(topic)
    await drain(messages)
    await store.node.topics.delete(topic)
    with pytest.raises(RoomNotFound):
        await take(messages, 1)


@with_store
async def test_reader_that_was_cancelled_while_it_waited_loses_nothing(store: Store) -> None:
    topic = await store.stream()
    messages = await store.subscribe(topic)
    await drain(messages)
    for number in range(5):
        waiting = asyncio.ensure_future(anext(messages))
        await settled(turns=2)
        publish(topic.partitions[0], "a")
        waiting.cancel()
        await settled()
        assert offsets(await take(messages, 1)) == [number]


@with_store
async def test_reader_that_takes_nothing_for_too_long_is_ended(store: Store) -> None:
    topic = await store.stream()
    settings = rooms_settings(store.node, broadcast_timeout_ms=50)
    loop = asyncio.get_running_loop()

    class LoopTime:
        """Wall time is not asked."""

        def now_ms(self) -> int:
            return 0

        def monotonic(self) -> float:
            return loop.time()

    store.subscriptions = Subscriptions(LoopTime(), loop.call_soon, loop.call_later, settings)
    messages = await store.subscribe(topic)
    await drain(messages)
    publish(topic.partitions[0], "a")
    async with asyncio.timeout(WAIT_SECONDS):
        while store.subscriptions.count_of(topic.stream()):
            await asyncio.sleep(0.01)
    with pytest.raises(BroadcastFailed):
        await take(messages, 3)
