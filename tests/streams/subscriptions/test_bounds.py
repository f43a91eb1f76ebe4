"""The work per loop iteration and the memory of stalled subscribers are bounded, however many subscribers there are."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topic
from kwire.streams.events.event import Event, NewEvent, record_of
from kwire.streams.events.reading import RETAINED_BYTES_MAX, EventReader
from kwire.streams.subscriptions import SubscribedMessages
from kwire.streams.subscriptions.control_messages import CaughtUp, Checkpoint, Closed, ControlMessage, Gap, Lagging
from kwire.streams.subscriptions.delivery_scheduler import (
    LIVE_UNITS_PER_ITERATION,
    TICKS_PER_ITERATION,
    DeliveryScheduler,
)
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.streams.subscriptions.shared_batches import BATCHES_MAX, COPIES, SharedBatches
from kwire.streams.subscriptions.start import FROM_NEWEST, FROM_OLDEST
from kwire.streams.subscriptions.subscription import OnLag, SubscribeOptions, Subscription
from storage.batch.format import GZIP
from storage.batch.record_batch import build_batch, check_batch
from storage.log.quarantine import Quarantine
from tests.support.clock import ManualClock
from tests.support.node import in_loop
from tests.support.partition_log import log_of
from tests.support.subscribing import Listening, ManualLoop, RecordingSink, publish, publish_many

MANY = 3 * LIVE_UNITS_PER_ITERATION
# Each event batch or control message for one subscriber costs two units.
READERS_PER_TURN = LIVE_UNITS_PER_ITERATION // 2
TIMEOUT_MS = 1000


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Listening]:
    made = Listening(tmp_path, subscribers_max=2 * MANY, broadcast_timeout_ms=TIMEOUT_MS)
    yield made
    made.close()


class Work:
    """What all sinks of a test got in one turn."""

    def __init__(self) -> None:
        self.control_messages = 0
        self.batches = 0
        self.control_messages_per_turn: list[int] = []
        self.batches_per_turn: list[int] = []

    def count(self, loop: ManualLoop) -> None:
        """Every turn until nothing is left to do."""
        while loop.turn():
            self.control_messages_per_turn.append(self.control_messages)
            self.batches_per_turn.append(self.batches)
            self.control_messages = self.batches = 0


class CountingSink(RecordingSink):
    def __init__(self, work: Work, room: int = 1_000_000) -> None:
        super().__init__(room)
        self.work = work

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        super().send_events(subscription, batch)
        self.work.batches += 1

    def send_control(self, subscription: Subscription, message: ControlMessage) -> None:
        super().send_control(subscription, message)
        self.work.control_messages += 1


def publish_large(partition: Partition, size_bytes: int, count: int = 1, codec: int = 0) -> None:
    data = b'"' + b"x" * size_bytes + b'"'
    records = [record_of(NewEvent("large", data), b"/rooms/room", f"id-{n}", 0) for n in range(count)]
    batch = memoryview(build_batch(records, compression=codec))
    partition.append(batch, check_batch(batch))


async def subscribed(
    listening: Listening, work: Work, count: int = MANY, **options: object
) -> tuple[Topic, list[CountingSink]]:
    topic = await listening.room()
    sinks = [CountingSink(work) for _ in range(count)]
    for sink in sinks:
        await listening.subscribe(topic, sink=sink, options=SubscribeOptions(**options))  # type: ignore[arg-type]
    listening.loop.settle()
    work.control_messages = work.batches = 0
    return topic, sinks


# --- in one turn


@in_loop
async def test_checkpoints_that_time_brings_are_told_to_some_in_each_turn(listening: Listening) -> None:
    work = Work()
    topic, sinks = await subscribed(listening, work, checkpoint_ms=1000)
    publish(topic.partitions[0], "a")
    listening.loop.settle()
    listening.clock.advance(2000)
    listening.loop.settle = partial(work.count, listening.loop)  # type: ignore[assignment, method-assign]
    listening.loop.advance(1000)
    assert all(sink.control_messages == [CaughtUp(-1), Checkpoint(0)] for sink in sinks)
    assert max(work.control_messages_per_turn) <= READERS_PER_TURN


@in_loop
async def test_deleted_room_is_told_to_some_in_each_turn(listening: Listening) -> None:
    work = Work()
    topic, sinks = await subscribed(listening, work)
    await listening.node.topics.delete(topic)
    work.count(listening.loop)
    assert all(sink.closed is not None and len(sink.control_messages) == 2 for sink in sinks)
    assert max(work.control_messages_per_turn) <= READERS_PER_TURN
    assert listening.subscriptions.feed_count == 0


@in_loop
async def test_gap_is_told_to_some_in_each_turn_and_nobody_gets_it_twice(listening: Listening) -> None:
    work = Work()
    topic, sinks = await subscribed(listening, work, on_lag=OnLag.CATCHUP)
    partition = topic.partitions[0]
    for _ in range(3):
        publish(partition, "a")
    segment = next(iter(log_of(partition).segments()))
    harm = Quarantine(segment.base_offset, 0, 2 * segment.size_bytes // 3, 0, 2, "test")
    log_of(partition)._set_quarantined((harm,))
    for _ in range(2):
        listening.loop.turn()
        assert work.control_messages <= READERS_PER_TURN
        work.control_messages = 0
    # In the middle of the round: a subscriber that has not been served yet leaves, and another one joins.
    listening.subscriptions.of_log(topic.stream())[-1].close()
    gone = sinks.pop()
    _, late = await listening.subscribe(topic, FROM_OLDEST)
    publish(partition, "b")
    work.count(listening.loop)
    assert max(work.control_messages_per_turn) <= READERS_PER_TURN
    for sink in (*sinks, late):
        assert [message for message in sink.control_messages if isinstance(message, Gap)] == [Gap(0, 1, "damaged")]
        assert sink.offsets == [2, 3]
    assert gone.messages == [CaughtUp(-1)]


@in_loop
async def test_large_events_are_handed_to_few_in_each_turn(listening: Listening) -> None:
    work = Work()
    topic, sinks = await subscribed(listening, work, 100)
    publish_large(topic.partitions[0], 900_000)
    work.count(listening.loop)
    assert all(sink.offsets == [0] for sink in sinks)
    assert 0 < max(work.batches_per_turn) <= 10
    # The same for subscribers that read history.
    again = Work()
    for _ in range(100):
        await listening.subscribe(topic, FROM_OLDEST, CountingSink(again))
    again.count(listening.loop)
    assert sum(again.batches_per_turn) == 100
    assert 0 < max(again.batches_per_turn) <= 10


@in_loop
async def test_readers_with_filters_of_their_own_are_served_few_in_each_turn(listening: Listening) -> None:
    work = Work()
    topic = await listening.room()
    sinks = [CountingSink(work) for _ in range(60)]
    for number, sink in enumerate(sinks):
        options = SubscribeOptions(types=frozenset({"message", f"other-{number}"}))
        await listening.subscribe(topic, sink=sink, options=options)
    listening.loop.settle()
    publish_many(topic.partitions[0], 400)
    work.count(listening.loop)
    assert all(sink.offsets == list(range(400)) for sink in sinks)
    # Each of them is as much work as to decode these events was.
    assert max(work.batches_per_turn) <= 3


@in_loop
async def test_readers_who_share_a_filter_cost_no_more_than_others(listening: Listening) -> None:
    work = Work()
    topic, sinks = await subscribed(listening, work, 300, types=frozenset({"message"}))
    publish_many(topic.partitions[0], 100)
    work.count(listening.loop)
    assert all(sink.offsets == list(range(100)) for sink in sinks)
    assert max(work.batches_per_turn) > 200


def test_tails_that_wait_for_time_are_asked_some_in_each_turn() -> None:
    clock = ManualClock()
    loop = ManualLoop(clock)
    scheduler = DeliveryScheduler(clock, loop.call_soon, loop.call_later, 100)
    asked: list[int] = []

    class Feed:
        is_queued = has_more = False
        ticks = 0

        def step(self, units_max: int) -> int:
            return 0

        def tick(self) -> bool:
            asked.append(1)
            self.ticks += 1
            return self.ticks < 2

    feeds = [Feed() for _ in range(2 * TICKS_PER_ITERATION + 1)]
    for feed in feeds:
        scheduler.schedule_tick(feed)
    clock.advance(100)
    scheduler._tick()
    per_turn = [len(asked)]
    while loop.turn():
        per_turn.append(len(asked) - sum(per_turn))
    assert per_turn == [TICKS_PER_ITERATION, TICKS_PER_ITERATION, 1]
    loop.advance(1000)
    assert all(feed.ticks == 2 for feed in feeds)
    assert loop.timer_count == 0


@in_loop
async def test_the_lag_of_stalled_subscribers_is_not_checked_with_every_event(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await listening.room()
    sinks = [RecordingSink(1) for _ in range(50)]
    for sink in sinks:
        await listening.subscribe(topic, sink=sink, options=SubscribeOptions(OnLag.DROP, 1000))
    listening.loop.settle()
    checked = []
    check_lag = Subscription.check_lag
    monkeypatch.setattr(
        Subscription,
        "check_lag",
        lambda self: checked.append(self) or check_lag(self),  # type: ignore[func-returns-value]
    )
    for _ in range(1100):
        publish(topic.partitions[0], "a")
        listening.loop.settle()
    # At half of the queue, and at its end.
    assert len(checked) == 2 * len(sinks)
    assert all(sink.control_messages == [CaughtUp(-1), Lagging(0, 500)] for sink in sinks)


# --- stalled subscribers


@in_loop
async def test_reader_who_takes_nothing_gets_no_marks_for_what_passes_him(listening: Listening) -> None:
    topic = await listening.room()
    options = SubscribeOptions(types=frozenset({"never"}), checkpoint_events=1, checkpoint_ms=100)
    subscription, sink = await listening.subscribe(topic, sink=RecordingSink(0), options=options)
    messages = SubscribedMessages()
    messages.subscription = await listening.subscriptions.subscribe(
        "room", topic.stream(), FROM_NEWEST, messages, options
    )
    messages.subscription.begin()
    listening.loop.settle()
    for _ in range(50):
        publish(topic.partitions[0], "a")
        listening.loop.settle()
        listening.loop.advance(200)
    assert sink.control_messages == [CaughtUp(-1)]
    assert list(messages._unread) == [CaughtUp(-1)]
    assert (subscription.position, subscription.is_live) == (50, True)
    sink.room = 1
    listening.loop.advance(2000)
    assert sink.control_messages == [CaughtUp(-1), Checkpoint(49)]


@in_loop
async def test_gaps_wait_for_a_reader_who_takes_nothing_and_become_one(listening: Listening) -> None:
    topic = await listening.room(kwire_retention_messages="3")
    options = SubscribeOptions(on_lag=OnLag.CATCHUP, types=frozenset({"never"}))
    subscription, sink = await listening.subscribe(topic, sink=RecordingSink(0), options=options)
    listening.loop.settle()
    for _ in range(50):
        publish_many(topic.partitions[0], 10)
        listening.loop.settle()
    assert sink.control_messages == [CaughtUp(-1)]
    sink.room = 1
    subscription.resume()
    listening.loop.settle()
    assert sink.control_messages[1:] == [Gap(0, 496, "retention")]
    assert subscription.position == 500


@in_loop
async def test_unfolded_batch_is_not_held_for_a_reader_who_takes_nothing(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    publish_large(partition, 50_000, count=10, codec=GZIP)
    subscription, sink = await listening.subscribe(topic, FROM_OLDEST, RecordingSink(1))
    listening.loop.settle()
    assert len(listening.disk.waiting) == 1
    sink.room = 0  # another room of the same connection has filled it meanwhile
    listening.disk.finish()
    listening.loop.settle()
    reader = subscription._reader
    assert isinstance(reader, EventReader)
    assert reader._decompressed is None or len(reader._decompressed[1]) <= RETAINED_BYTES_MAX  # type: ignore[arg-type]
    sink.room = 1000
    subscription.resume()
    for _ in range(10):
        listening.loop.settle()
        listening.disk.finish()
    assert sink.offsets == list(range(10))


# --- in memory


def batch(start: int, size_bytes: int) -> EventBatch:
    return EventBatch("room", [Event(start, "id", "t", b"1", 0, {}, None, size_bytes)], start, start + 1)


def test_shared_batches_of_all_rooms_are_bounded_in_bytes_and_number() -> None:
    shared = SharedBatches(100 * COPIES * 1000)
    for number in range(1000):
        shared.add(number % 7, batch(number, 1000))
        assert shared.used_bytes <= 100 * COPIES * 1000
    assert len(shared) == 100
    assert shared.get(999 % 7, 999) is not None
    assert shared.get(0, 0) is None
    shared.add(0, batch(5000, 10**6))
    assert shared.get(0, 5000) is None
    for owner in range(7):
        shared.forget(owner)
    assert (len(shared), shared.used_bytes) == (0, 0)
    for number in range(2 * BATCHES_MAX):
        shared.add(0, batch(number, 0))
    assert len(shared) == BATCHES_MAX


@in_loop
async def test_many_rooms_of_large_events_share_one_bound(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = 2_000_000
    listening.subscriptions._shared_batches._bytes_max = bound
    listening.subscriptions._recent_bytes.bytes_max = bound
    for number in range(20):
        topic = await listening.room(f"room-{number}")
        await listening.subscribe(topic)
        listening.loop.settle()
        for _ in range(3):
            publish_large(topic.partitions[0], 100_000)
            listening.loop.settle()
            _, sink = await listening.subscribe(topic, FROM_OLDEST)
            listening.loop.settle()
            assert sink.offsets[0] == 0
        assert listening.subscriptions.recent_bytes <= 2 * bound
    listening.subscriptions.close()
    assert listening.subscriptions.recent_bytes == 0


# --- when something breaks


@in_loop
async def test_room_that_breaks_harms_no_other_room(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [await listening.room(f"room-{number}") for number in range(3)]
    sinks = [(await listening.subscribe(topic))[1] for topic in topics]
    listening.loop.settle()
    broken = topics[0].partitions[0]

    def cold_start(self: Partition, offset: int) -> None:
        if self is broken:
            raise RuntimeError("a bug")

    monkeypatch.setattr(Partition, "cold_start", cold_start)
    for topic in topics:
        publish(topic.partitions[0], "a")
    listening.loop.settle()
    assert sinks[0].closed == Closed("SubscriptionFailed", "RuntimeError: a bug", -1)
    assert [sink.offsets for sink in sinks[1:]] == [[0], [0]]


@pytest.mark.parametrize("start", [FROM_NEWEST, FROM_OLDEST])
@in_loop
async def test_thread_that_breaks_ends_those_who_wait_for_it(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, start: object
) -> None:
    topic = await listening.room()
    if start is FROM_OLDEST:
        publish(topic.partitions[0], "a")
    _, sink = await listening.subscribe(topic, start)  # type: ignore[arg-type]
    monkeypatch.setattr(Partition, "cold_start", lambda self, offset: lambda: None)
    listening.loop.settle()
    if start is FROM_NEWEST:
        publish(topic.partitions[0], "a")
        listening.loop.settle()
    listening.disk.finish(MemoryError("too much"))
    listening.loop.settle()
    assert sink.closed == Closed("SubscriptionFailed", "too much", -1)
    assert listening.subscriptions.feed_count == 0


class MoodySink(RecordingSink):
    """Full, and then it cannot even say so."""

    is_broken = False

    def is_writable(self) -> bool:
        if self.is_broken:
            raise RuntimeError("a bug")
        return super().is_writable()


@in_loop
async def test_sink_that_breaks_when_it_is_asked_ends_alone(listening: Listening) -> None:
    topic = await listening.room()
    moody, stuck = MoodySink(0), RecordingSink(0)
    for sink in (moody, stuck):
        await listening.subscribe(topic, sink=sink)
    listening.loop.settle()
    publish(topic.partitions[0], "a")
    listening.loop.settle()
    moody.is_broken = True
    listening.loop.advance(2 * TIMEOUT_MS)
    assert moody.closed is not None
    assert moody.closed.code == "SubscriptionFailed"
    assert stuck.closed is not None
    assert stuck.closed.code == "BroadcastFailed"


class DeadSink(RecordingSink):
    """A socket that is found dead when it is written to."""

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        super().send_events(subscription, batch)
        subscription.close()


@pytest.mark.parametrize("types", [None, frozenset({"a"})])
@in_loop
async def test_nothing_follows_when_a_sink_has_closed_its_subscription(
    listening: Listening, types: frozenset[str] | None
) -> None:
    topic = await listening.room()
    options = SubscribeOptions(checkpoint_events=1, types=types)
    _, sink = await listening.subscribe(topic, sink=DeadSink(), options=options)
    listening.loop.settle()
    publish(topic.partitions[0], "a")
    listening.loop.settle()
    listening.loop.advance(60_000)
    assert sink.messages[:1] == [CaughtUp(-1)]
    assert len(sink.messages) == 2
    assert listening.loop.timer_count == 0


# --- at the seam between memory and log


@in_loop
async def test_nothing_comes_twice_when_a_reader_goes_from_the_log_to_memory_and_back(tmp_path: Path) -> None:
    listening = Listening(tmp_path, recent_events_max=600)
    topic = await listening.room()
    partition = topic.partitions[0]
    await listening.subscribe(topic)
    listening.loop.settle()
    for _ in range(11):
        publish_many(partition, 100)
        listening.loop.settle()
    # The last 600 are in memory, and a batch is 500.
    subscription, sink = await listening.subscribe(topic, FROM_OLDEST, RecordingSink(1))
    for count in (500, 1000):
        listening.loop.settle()
        assert sink.offsets == list(range(count))
        sink.take()
        sink.room = 0 if count == 1000 else 1
        subscription.resume()
    for _ in range(20):
        publish_many(partition, 100)
        listening.loop.settle()
    sink.room = 1_000_000
    subscription.resume()
    listening.loop.settle()
    assert sink.offsets == list(range(3100))
    listening.close()
