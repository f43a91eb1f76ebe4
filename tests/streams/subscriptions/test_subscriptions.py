"""Subscriptions: history, then live, in order, without a gap or a duplicate; counts and ends of subscriptions."""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from crc32c import crc32c

from kwire.broker.partition import Partition
from kwire.errors import RoomNotFound, SubscriptionFailed, TooManySubscribers
from kwire.streams.events.event import Event
from kwire.streams.subscriptions.control_messages import CaughtUp, Checkpoint, Closed, Gap
from kwire.streams.subscriptions.delivery_scheduler import LIVE_UNITS_PER_ITERATION
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.streams.subscriptions.start import FROM_NEWEST, FROM_OLDEST, Start
from kwire.streams.subscriptions.subscription import OnLag, SubscribeOptions, Subscription
from storage.batch.format import CRC_POSITION, CRC_START, HEADER_BYTES
from storage.batch.record_batch import check_batch
from storage.errors import DiskFailure
from storage.log.quarantine import Quarantine
from tests.support.batches import make_batch
from tests.support.node import in_loop
from tests.support.partition_log import log_of
from tests.support.subscribing import Listening, RecordingSink, publish, publish_many


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Listening]:
    made = Listening(tmp_path, subscribers_max=2000)
    yield made
    made.close()


@pytest.mark.proves("S0-26", "S0-28", "S0-29", "S0-48")
@in_loop
async def test_history_then_a_mark_then_live(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    publish_many(partition, 3)
    _, sink = await listening.subscribe(topic, FROM_OLDEST)
    assert sink.messages == []
    listening.loop.settle()
    publish(partition, "a", "b")
    publish(partition, "c")
    listening.loop.settle()
    assert sink.offsets == [0, 1, 2, 3, 4, 5]
    assert sink.messages[3] == CaughtUp(2)
    assert [message.type for message in sink.messages[4:] if isinstance(message, Event)] == ["a", "b", "c"]


@pytest.mark.proves("S3-10", "S3-16")
@in_loop
async def test_history_comes_in_portions_of_five_hundred(listening: Listening) -> None:
    topic = await listening.room()
    for _ in range(12):
        publish_many(topic.partitions[0], 100)
    _, sink = await listening.subscribe(topic, FROM_OLDEST)
    listening.loop.turn()
    assert len(sink.offsets) == 500
    listening.loop.settle()
    assert [len(batch.events) for batch in sink.batches] == [500, 500, 200]
    assert sink.offsets == list(range(1200))


@in_loop
async def test_nothing_is_sent_before_begin_and_nothing_is_missed(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    publish_many(partition, 2)
    sink = RecordingSink()
    subscription = await listening.subscriptions.subscribe("room", topic.stream(), FROM_NEWEST, sink)
    publish_many(partition, 3)
    subscription.resume()
    listening.loop.settle()
    listening.loop.advance(60_000)
    assert sink.messages == []
    subscription.begin()
    listening.loop.settle()
    publish_many(partition, 1)
    listening.loop.settle()
    assert sink.offsets == [2, 3, 4, 5]


@in_loop
async def test_caught_up_comes_after_everything_that_was_there_although_the_tail_is_late(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    await listening.subscribe(topic)
    listening.loop.settle()
    publish_many(partition, 5)
    # The feed has not read these five yet.
    _, sink = await listening.subscribe(topic, FROM_OLDEST)
    listening.loop.settle()
    publish_many(partition, 1)
    listening.loop.settle()
    assert sink.offsets == [0, 1, 2, 3, 4, 5]
    assert sink.messages[5] == CaughtUp(4)


@pytest.mark.proves("S0-30", "S0-48", "S0-52")
@in_loop
async def test_everybody_gets_the_same_bytes_encoded_once(listening: Listening) -> None:
    topic = await listening.room()
    encoded: list[tuple[str, int]] = []

    def encoding(name: str, events: Sequence[Event]) -> bytes:
        encoded.append((name, len(events)))
        return b"bytes"

    sinks = [(await listening.subscribe(topic))[1] for _ in range(150)]
    listening.loop.settle()
    publish(topic.partitions[0], "a", "b")
    listening.loop.settle()
    frames = [sink.batches[0].encoded(encoding) for sink in sinks]
    assert encoded == [("room", 2)]
    assert all(frame is frames[0] for frame in frames)
    assert all(sink.offsets == [0, 1] for sink in sinks)


@in_loop
async def test_many_subscribers_are_served_over_several_turns_in_order(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    pairs = [await listening.subscribe(topic) for _ in range(LIVE_UNITS_PER_ITERATION + 500)]
    listening.loop.settle()
    publish(partition, "a")
    listening.loop.turn()
    served = [sink for _, sink in pairs if sink.offsets]
    assert 0 < len(served) <= LIVE_UNITS_PER_ITERATION
    # In the middle of a round: a subscriber that has the batch, one that has not, and a new one.
    pairs[0][0].close()
    pairs[-1][0].close()
    _, new = await listening.subscribe(topic, FROM_OLDEST)
    publish(partition, "b")
    listening.loop.settle()
    assert pairs[0][1].offsets == [0]
    assert pairs[-1][1].offsets == []
    assert all(sink.offsets == [0, 1] for _, sink in pairs[1:-1])
    assert new.offsets == [0, 1]


@in_loop
async def test_rooms_do_not_hold_each_other_up(listening: Listening) -> None:
    topics = [await listening.room(f"room-{number}") for number in range(3)]
    sinks = [(await listening.subscribe(topic))[1] for topic in topics]
    listening.loop.settle()
    for topic in topics:
        publish_many(topic.partitions[0], 600)
    turns = listening.loop.settle()
    assert turns >= 3
    assert all(sink.offsets == list(range(600)) for sink in sinks)


@in_loop
async def test_large_batch_is_delivered_in_portions(listening: Listening) -> None:
    topic = await listening.room()
    _, sink = await listening.subscribe(topic)
    listening.loop.settle()
    publish_many(topic.partitions[0], 1700)
    listening.loop.settle()
    assert sink.offsets == list(range(1700))
    assert max(len(batch.events) for batch in sink.batches) == 500


@pytest.mark.proves("S0-6", "S0-29", "S0-48")
@in_loop
async def test_subscribers_are_counted_from_subscribe_to_close(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    subscriptions = listening.subscriptions
    first, sink = await listening.subscribe(topic)
    second, _ = await listening.subscribe(topic, Start.back(5))
    assert subscriptions.count_of(topic.stream()) == 2
    assert list(subscriptions.of_log(topic.stream())) == [first, second]
    assert (first.id, first.name, first.sink, first.position) == (first.facts.subscription_id, "room", sink, 0)
    assert first.subscribed_at_ms == listening.clock.now_ms()
    assert first.id != second.id
    listening.loop.settle()
    publish_many(partition, 4)
    listening.loop.settle()
    assert (first.position, second.position) == (4, 4)
    first.close()
    first.close()
    assert subscriptions.count_of(topic.stream()) == 1
    publish_many(partition, 1)
    listening.loop.settle()
    assert sink.offsets == [0, 1, 2, 3]
    second.close()
    assert (subscriptions.count_of(topic.stream()), subscriptions.feed_count, len(subscriptions)) == (0, 0, 0)
    assert not partition._watchers
    assert listening.subscriptions.recent_bytes == 0


@pytest.mark.proves("S0-44")
@in_loop
async def test_one_subscriber_too_many_is_refused(tmp_path: Path) -> None:
    listening = Listening(tmp_path, subscribers_max=2)
    topic = await listening.room()
    first, _ = await listening.subscribe(topic)
    await listening.subscribe(topic)
    with pytest.raises(TooManySubscribers) as caught:
        await listening.subscribe(topic)
    assert caught.value.details == {"limit": 2}
    first.close()
    await listening.subscribe(topic)
    listening.close()


@in_loop
async def test_limit_holds_for_all_names_of_a_partition_together(tmp_path: Path) -> None:
    listening = Listening(tmp_path, subscribers_max=2)
    topic = await listening.room()
    sinks = [RecordingSink(), RecordingSink()]
    for name, sink in zip(("one name", "another"), sinks, strict=True):
        one = await listening.subscriptions.subscribe(name, topic.stream(), FROM_NEWEST, sink)
        one.begin()
    with pytest.raises(TooManySubscribers):
        await listening.subscribe(topic)
    listening.loop.settle()
    publish(topic.partitions[0], "a")
    listening.loop.settle()
    assert [sink.batches[0].name for sink in sinks] == ["one name", "another"]
    listening.close()


@in_loop
async def test_filter_delivers_only_its_types_and_checkpoints_pass_the_rest(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    publish(partition, "a", "b", "a", "c")
    options = SubscribeOptions(types=frozenset({"a", "c"}), checkpoint_events=4)
    subscription, sink = await listening.subscribe(topic, FROM_OLDEST, options=options)
    listening.loop.settle()
    assert sink.offsets == [0, 2, 3]
    sink.room = 0  # what is not wanted passes a sink that takes nothing
    publish(partition, "b", "b", "b", "b")
    listening.loop.settle()
    assert subscription.position == 8
    assert sink.control_messages == [Checkpoint(3), CaughtUp(3)]  # sent when the sink is writable again
    sink.room = 100
    publish(partition, "b", "c")
    listening.loop.settle()
    assert sink.offsets == [0, 2, 3, 9]
    assert sink.control_messages[2:] == [Checkpoint(9)]


@in_loop
async def test_checkpoints_come_by_count(listening: Listening) -> None:
    topic = await listening.room()
    _, sink = await listening.subscribe(topic, options=SubscribeOptions(checkpoint_events=3))
    listening.loop.settle()
    for _ in range(7):
        publish(topic.partitions[0], "a")
        listening.loop.settle()
    assert sink.control_messages == [CaughtUp(-1), Checkpoint(2), Checkpoint(5)]


@in_loop
async def test_checkpoints_come_by_time_only_after_a_move(listening: Listening) -> None:
    topic = await listening.room()
    options = SubscribeOptions(checkpoint_ms=1000, types=frozenset({"wanted"}))
    _, sink = await listening.subscribe(topic, options=options)
    listening.loop.settle()
    listening.loop.advance(10_000)
    assert sink.control_messages == [CaughtUp(-1)]
    assert listening.loop.timer_count == 0
    publish(topic.partitions[0], "other", "other")
    listening.loop.settle()
    listening.loop.advance(400)
    publish(topic.partitions[0], "other")
    listening.loop.settle()
    listening.loop.advance(10_000)
    assert sink.control_messages[-1] == Checkpoint(2)
    assert len(sink.control_messages) == 3
    assert listening.loop.timer_count == 0


@pytest.mark.parametrize(
    "options",
    [
        SubscribeOptions(queue_events_max=0),
        SubscribeOptions(checkpoint_events=0),
        SubscribeOptions(checkpoint_ms=1),
        SubscribeOptions(types=frozenset()),
        SubscribeOptions(types=frozenset(map(str, range(101)))),
    ],
)
@in_loop
async def test_options_that_make_no_sense_are_refused(listening: Listening, options: SubscribeOptions) -> None:
    topic = await listening.room()
    with pytest.raises(SubscriptionFailed):
        await listening.subscribe(topic, options=options)


@in_loop
async def test_history_waits_for_the_disk_without_holding_others_up(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    publish_many(partition, 3)
    warm: list[int] = []

    def cold_start(self: Partition, offset: int) -> object:
        return None if warm or offset >= 3 else lambda: warm.append(offset)

    monkeypatch.setattr(Partition, "cold_start", cold_start)
    slow, slow_sink = await listening.subscribe(topic, FROM_OLDEST)
    _, sink = await listening.subscribe(topic)
    publish_many(partition, 1)
    listening.loop.settle()
    assert (slow_sink.messages, sink.offsets) == ([], [3])
    slow.resume()
    listening.loop.settle()
    assert len(listening.disk.waiting) == 1
    listening.disk.finish()
    listening.loop.settle()
    assert slow_sink.offsets == [0, 1, 2, 3]


@in_loop
async def test_disk_that_fails_ends_those_who_wait_for_it(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await listening.room()
    publish_many(topic.partitions[0], 3)
    monkeypatch.setattr(Partition, "cold_start", lambda self, offset: lambda: None)
    _, sink = await listening.subscribe(topic, FROM_OLDEST)
    gone, gone_sink = await listening.subscribe(topic, FROM_OLDEST)
    listening.loop.settle()
    gone.close()
    listening.disk.finish(DiskFailure("the disk is on fire"))
    listening.loop.settle()
    assert sink.closed == Closed("SubscriptionFailed", "the disk is on fire", -1)
    assert gone_sink.messages == []


@in_loop
async def test_tail_waits_for_the_disk_too(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    _, sink = await listening.subscribe(topic)
    listening.loop.settle()
    is_cold = [True]
    monkeypatch.setattr(Partition, "cold_start", lambda self, offset: is_cold.clear if is_cold else None)
    publish_many(partition, 2)
    listening.loop.settle()
    publish_many(partition, 2)
    listening.loop.settle()
    assert sink.offsets == []
    assert len(listening.disk.waiting) == 1
    listening.disk.finish()
    listening.loop.settle()
    assert sink.offsets == [0, 1, 2, 3]


@in_loop
async def test_tail_reads_nothing_while_a_thread_is_at_work_for_it(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    _, sink = await listening.subscribe(topic)
    await listening.subscribe(topic, sink=RecordingSink(0))
    listening.loop.settle()
    publish(partition, "a")
    listening.loop.settle()
    monkeypatch.setattr(Partition, "cold_start", lambda self, offset: lambda: None)
    publish(partition, "b")
    listening.loop.settle()
    # Time passes for the stalled subscriber: the feed's tick runs.
    listening.loop.advance(300)
    assert len(listening.disk.waiting) == 1
    monkeypatch.undo()
    listening.disk.finish()
    listening.loop.settle()
    assert sink.offsets == [0, 1]


@in_loop
async def test_damaged_events_are_a_typed_gap_for_history_and_live(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    _, live = await listening.subscribe(topic)
    listening.loop.settle()
    for _ in range(4):
        publish(partition, "a")
    segment = next(iter(log_of(partition).segments()))
    batch_bytes = segment.size_bytes // 4
    harm = Quarantine(segment.base_offset, batch_bytes, 2 * batch_bytes, 1, 3, "test")
    log_of(partition)._set_quarantined((harm,))
    _, history = await listening.subscribe(topic, FROM_OLDEST)
    listening.loop.settle()
    for sink in (live, history):
        assert sink.offsets == [0, 3]
        assert Gap(1, 2, "damaged") in sink.control_messages
        assert sink.closed is None


@in_loop
async def test_records_of_a_batch_that_nobody_can_read_are_a_typed_gap(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    _, sink = await listening.subscribe(topic)
    listening.loop.settle()
    publish(partition, "a")
    batch = make_batch(2, value=b"x", timestamp_ms=0)
    batch[HEADER_BYTES] = 0x7F  # the length of the first record: more than there is
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[CRC_START:]))
    partition.append(batch, check_batch(batch))
    publish(partition, "b")
    listening.loop.settle()
    assert sink.offsets == [0, 3]
    assert sink.control_messages == [CaughtUp(-1), Gap(1, 2, "damaged")]


@pytest.mark.proves("S0-34")
@pytest.mark.parametrize("start", [FROM_NEWEST, FROM_OLDEST])
@in_loop
async def test_deleted_room_ends_its_subscriptions(listening: Listening, start: Start) -> None:
    topic = await listening.room()
    publish_many(topic.partitions[0], 3)
    _, ready = await listening.subscribe(topic, start)
    listening.loop.settle()
    _, stuck = await listening.subscribe(topic, start, RecordingSink(0))
    await listening.node.topics.delete(topic)
    listening.loop.settle()
    for sink in (ready, stuck):
        assert sink.closed is not None
        assert sink.closed.code == "RoomNotFound"
    assert listening.subscriptions.feed_count == 0
    with pytest.raises(RoomNotFound):
        await listening.subscribe(topic)


@in_loop
async def test_stop_tells_everybody_where_they_were(listening: Listening) -> None:
    topic = await listening.room()
    publish_many(topic.partitions[0], 3)
    _, live = await listening.subscribe(topic)
    _, full = await listening.subscribe(topic, FROM_OLDEST, RecordingSink(0))
    listening.loop.settle()
    listening.subscriptions.close("over")
    assert live.closed == Closed("ServerStopping", "over", 2)
    assert full.closed == Closed("ServerStopping", "over", -1)
    assert listening.loop.timer_count == 0
    with pytest.raises(SubscriptionFailed):
        await listening.subscribe(topic)


class BrokenSink(RecordingSink):
    """A bug in the room above."""

    def __init__(self, breaks: str) -> None:
        super().__init__()
        self.breaks = breaks

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        if self.breaks == "events":
            raise RuntimeError("broken")
        super().send_events(subscription, batch)

    def send_control(self, subscription: Subscription, message: object) -> None:
        if self.breaks == "control_messages":
            raise RuntimeError("broken")
        super().send_control(subscription, message)  # type: ignore[arg-type]


@pytest.mark.parametrize("breaks", ["events", "control_messages"])
@pytest.mark.parametrize("start", [FROM_NEWEST, FROM_OLDEST])
@in_loop
async def test_sink_that_breaks_harms_nobody_else(listening: Listening, breaks: str, start: Start) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    publish(partition, "a")
    _, before = await listening.subscribe(topic, start)
    broken, _ = await listening.subscribe(topic, start, BrokenSink(breaks))
    _, behind = await listening.subscribe(topic, start)
    listening.loop.settle()
    publish(partition, "b")
    listening.loop.settle()
    assert broken.is_closed
    assert before.offsets == behind.offsets == ([1] if start is FROM_NEWEST else [0, 1])
    assert listening.subscriptions.count_of(topic.stream()) == 2


class LeavingSink(RecordingSink):
    """A socket that is found dead when it is written to, and takes its neighbour along."""

    neighbour: Subscription

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        super().send_events(subscription, batch)
        subscription.close()
        self.neighbour.close()


@pytest.mark.parametrize("start", [FROM_NEWEST, FROM_OLDEST])
@in_loop
async def test_subscriptions_may_be_closed_while_others_are_served(listening: Listening, start: Start) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    leaving = LeavingSink()
    await listening.subscribe(topic, start, leaving)
    leaving.neighbour, neighbour = await listening.subscribe(topic)
    _, last = await listening.subscribe(topic)
    listening.loop.settle()
    publish(partition, "a")
    listening.loop.settle()
    assert (leaving.offsets, neighbour.offsets, last.offsets) == ([0], [], [0])
    assert leaving.closed is None
    assert listening.subscriptions.count_of(topic.stream()) == 1


@in_loop
async def test_ring_that_is_smaller_than_one_batch_is_told_to_live_readers(listening: Listening) -> None:
    topic = await listening.room(kwire_retention_messages="3")
    partition = topic.partitions[0]
    _, ends = await listening.subscribe(topic)
    _, goes_on = await listening.subscribe(topic, options=SubscribeOptions(on_lag=OnLag.CATCHUP))
    listening.loop.settle()
    publish_many(partition, 10)
    listening.loop.settle()
    assert ends.closed is not None
    assert (ends.closed.code, ends.closed.offset) == ("OffsetOutOfRange", -1)
    assert goes_on.messages[:2] == [CaughtUp(-1), Gap(0, 6, "retention")]
    assert goes_on.offsets == [7, 8, 9]
