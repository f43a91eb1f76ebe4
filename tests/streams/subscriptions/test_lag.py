"""Slow subscribers: first a notice, then their on_lag rule, and never an event lost without a Gap."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.streams.subscriptions.control_messages import CaughtUp, Closed, Gap, Lagging
from kwire.streams.subscriptions.start import FROM_OLDEST, Start
from kwire.streams.subscriptions.subscription import OnLag, SubscribeOptions
from storage.log.quarantine import Quarantine
from tests.support.node import in_loop
from tests.support.partition_log import log_of
from tests.support.subscribing import Listening, RecordingSink, publish, publish_many

TIMEOUT_MS = 1000


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Listening]:
    made = Listening(tmp_path, broadcast_timeout_ms=TIMEOUT_MS)
    yield made
    made.close()


def rule(on_lag: OnLag, queue: int = 10) -> SubscribeOptions:
    return SubscribeOptions(on_lag=on_lag, queue_events_max=queue)


@in_loop
async def test_reader_that_was_short_of_room_gets_everything_later(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    subscription, sink = await listening.subscribe(topic, sink=RecordingSink(1))
    _, other = await listening.subscribe(topic)
    listening.loop.settle()
    for _ in range(5):
        publish(partition, "a")
        listening.loop.settle()
    assert (sink.offsets, other.offsets) == ([0], [0, 1, 2, 3, 4])
    sink.take()
    subscription.resume()
    subscription.resume()
    listening.loop.settle()
    assert sink.offsets == [0, 1, 2, 3, 4]
    assert sink.control_messages == [CaughtUp(-1)]
    sink.take()
    publish(partition, "a")
    listening.loop.settle()
    assert sink.offsets == [0, 1, 2, 3, 4, 5]


@in_loop
async def test_notice_comes_once_per_episode_at_half_of_the_queue(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    subscription, sink = await listening.subscribe(topic, sink=RecordingSink(1), options=rule(OnLag.TERMINATE))
    listening.loop.settle()
    for episode in range(2):
        publish(partition, "a")
        listening.loop.settle()
        for _ in range(9):
            publish(partition, "a")
            listening.loop.settle()
        assert len(sink.control_messages) == 2 + episode
        last = 10 * episode
        assert sink.control_messages[-1] == Lagging(last, 5)
        sink.take()
        subscription.resume()
        listening.loop.settle()
        sink.take()
    assert sink.offsets == list(range(20))


@pytest.mark.proves("S3-14")
@in_loop
async def test_terminate_tells_reason_and_last_offset_and_resuming_there_loses_nothing(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    _, sink = await listening.subscribe(topic, sink=RecordingSink(3), options=rule(OnLag.TERMINATE))
    listening.loop.settle()
    for _ in range(14):
        publish(partition, "a")
        listening.loop.settle()
    assert sink.control_messages == [
        CaughtUp(-1),
        Lagging(2, 5),
        Closed("SubscriptionLagged", "the subscriber lags by 11 events, 10 are allowed", 2),
    ]
    assert listening.subscriptions.count_of(topic.stream()) == 0
    _, again = await listening.subscribe(topic, Start.at(sink.control_messages[-1].offset + 1))
    listening.loop.settle()
    assert sink.offsets + again.offsets == list(range(14))


@pytest.mark.proves("S0-38", "S0-45")
@in_loop
async def test_sink_that_takes_nothing_for_the_broadcast_timeout_is_cut(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    _, sink = await listening.subscribe(topic, sink=RecordingSink(1))
    listening.loop.settle()
    publish(partition, "a")
    listening.loop.settle()
    listening.loop.advance(10 * TIMEOUT_MS)
    assert sink.control_messages == [CaughtUp(-1)]  # it is full, but nothing waits for it
    publish(partition, "a")
    listening.loop.settle()
    listening.loop.advance(TIMEOUT_MS // 2 + 100)
    assert sink.control_messages[1:] == [Lagging(0, 1)]
    listening.loop.advance(TIMEOUT_MS // 2 - 200)
    assert len(sink.control_messages) == 2
    listening.loop.advance(200)
    assert sink.closed == Closed("BroadcastFailed", "the subscriber has not read anything for 1000 ms", 0)
    assert listening.loop.timer_count == 0


@pytest.mark.proves("S0-30")
@in_loop
async def test_nobody_waits_for_who_takes_nothing(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    _, stuck = await listening.subscribe(topic, sink=RecordingSink(0))
    others = [(await listening.subscribe(topic))[1] for _ in range(100)]
    listening.loop.settle()
    for offset in range(3):
        publish(partition, "a")
        assert listening.loop.turn()
        # One loop iteration has served every subscriber that can be served.
        assert all(sink.offsets[-1:] == [offset] for sink in others)
    listening.loop.settle()
    assert (stuck.offsets, stuck.closed) == ([], None)
    listening.loop.advance(TIMEOUT_MS)
    assert stuck.closed is not None
    assert stuck.closed.code == "BroadcastFailed"
    assert all(sink.offsets == [0, 1, 2] and sink.closed is None for sink in others)


@in_loop
async def test_time_counts_anew_whenever_something_is_taken(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    subscription, sink = await listening.subscribe(topic, sink=RecordingSink(1))
    listening.loop.settle()
    for _ in range(20):
        publish(partition, "a")
        listening.loop.settle()
        listening.loop.advance(TIMEOUT_MS - 200)
        sink.take()
        subscription.resume()
        listening.loop.settle()
    assert sink.closed is None
    assert sink.offsets == list(range(20))


@in_loop
async def test_time_counts_anew_also_while_a_reader_is_still_behind(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    subscription, sink = await listening.subscribe(topic, sink=RecordingSink(1))
    listening.loop.settle()
    for count in (1, *[500] * 6):
        publish_many(partition, count)
        listening.loop.settle()
    for batches in range(6):
        assert len(sink.offsets) == 1 + 500 * batches
        listening.loop.advance(TIMEOUT_MS - 200)
        sink.take()
        subscription.resume()
        listening.loop.settle()
    assert sink.closed is None
    assert sink.offsets == list(range(3001))


@in_loop
async def test_nothing_comes_twice_from_a_place_in_history_that_was_left(tmp_path: Path) -> None:
    listening = Listening(tmp_path, recent_events_max=10)
    topic = await listening.room()
    partition = topic.partitions[0]
    publish_many(partition, 5)
    subscription, sink = await listening.subscribe(topic, FROM_OLDEST)
    listening.loop.settle()
    publish_many(partition, 5)
    listening.loop.settle()
    sink.room = 0
    for _ in range(30):
        publish(partition, "a")
        listening.loop.settle()
    sink.room = 1000
    subscription.resume()
    listening.loop.settle()
    assert sink.offsets == list(range(40))
    listening.close()


@in_loop
async def test_reader_beyond_the_head_is_told_of_its_part_of_a_gap(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    _, sink = await listening.subscribe(topic, Start.at(3))
    listening.loop.settle()
    publish(partition, "a", "b", "c", "d", "e")
    publish(partition, "f")
    segment = next(iter(log_of(partition).segments()))
    start, end = next(iter(segment.batches()))
    log_of(partition)._set_quarantined((Quarantine(segment.base_offset, start, end - start, 0, 5, "test"),))
    listening.loop.settle()
    assert sink.control_messages == [CaughtUp(2), Gap(3, 4, "damaged")]
    assert sink.offsets == [5]


@in_loop
async def test_forgotten_resume_is_made_up_for(listening: Listening) -> None:
    topic = await listening.room()
    _, sink = await listening.subscribe(topic, sink=RecordingSink(1))
    listening.loop.settle()
    for _ in range(3):
        publish(topic.partitions[0], "a")
        listening.loop.settle()
    sink.take()
    listening.loop.advance(TIMEOUT_MS // 2)
    assert sink.offsets == [0, 1, 2]


@in_loop
async def test_catchup_goes_back_to_history_and_is_caught_up_again(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    subscription, sink = await listening.subscribe(topic, sink=RecordingSink(1), options=rule(OnLag.CATCHUP))
    listening.loop.settle()
    for _ in range(100):
        publish(partition, "a")
        listening.loop.settle()
    assert not subscription.is_live
    listening.loop.advance(100 * TIMEOUT_MS)
    assert sink.control_messages == [CaughtUp(-1), Lagging(0, 5)]
    sink.room = 10_000
    subscription.resume()
    listening.loop.settle()
    publish(partition, "a")
    listening.loop.settle()
    assert sink.offsets == list(range(101))
    assert sink.control_messages[2:] == [CaughtUp(99)]
    assert sink.messages.index(CaughtUp(99)) == sink.offsets.index(99) + 3


@in_loop
async def test_catchup_by_time_works_as_well(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    subscription, sink = await listening.subscribe(topic, sink=RecordingSink(1), options=rule(OnLag.CATCHUP))
    listening.loop.settle()
    for _ in range(2):
        publish(partition, "a")
        listening.loop.settle()
    listening.loop.advance(2 * TIMEOUT_MS)
    assert not subscription.is_live
    sink.take()
    subscription.resume()
    listening.loop.settle()
    assert sink.offsets == [0, 1]
    assert sink.messages[-1] == CaughtUp(1)


@in_loop
async def test_drop_tells_one_gap_and_goes_on_at_the_head(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    subscription, sink = await listening.subscribe(topic, sink=RecordingSink(1), options=rule(OnLag.DROP))
    listening.loop.settle()
    for _ in range(100):
        publish(partition, "a")
        listening.loop.settle()
    listening.loop.advance(100 * TIMEOUT_MS)
    assert sink.control_messages == [CaughtUp(-1), Lagging(0, 5)]
    sink.room = 10_000
    subscription.resume()
    listening.loop.settle()
    publish(partition, "a")
    listening.loop.settle()
    assert sink.offsets == [0, 100]
    assert sink.control_messages[2:] == [Gap(1, 99, "lagged")]
    assert subscription.is_live


@pytest.mark.parametrize("on_lag", list(OnLag))
@in_loop
async def test_reader_of_history_may_be_as_slow_as_it_likes(listening: Listening, on_lag: OnLag) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    publish_many(partition, 2000)
    subscription, sink = await listening.subscribe(topic, FROM_OLDEST, RecordingSink(1), rule(on_lag))
    for batches in range(1, 9):
        listening.loop.settle()
        listening.loop.advance(10 * TIMEOUT_MS)
        assert sink.offsets == list(range(500 * batches))
        if batches <= 4:
            publish_many(partition, 500)
        assert sink.closed is None
        sink.take()
        subscription.resume()
    listening.loop.settle()
    assert [type(message) for message in sink.control_messages if isinstance(message, CaughtUp | Lagging | Gap)] == [
        CaughtUp
    ]


@pytest.mark.parametrize("on_lag", list(OnLag))
@in_loop
async def test_retention_overtakes_a_slow_reader(listening: Listening, on_lag: OnLag) -> None:
    topic = await listening.room(kwire_retention_messages="5")
    partition = topic.partitions[0]
    publish_many(partition, 4)
    subscription, sink = await listening.subscribe(topic, FROM_OLDEST, RecordingSink(0), rule(on_lag))
    listening.loop.settle()
    publish_many(partition, 8)
    sink.room = 10_000
    subscription.resume()
    listening.loop.settle()
    if on_lag is OnLag.TERMINATE:
        assert sink.closed is not None
        assert (sink.closed.code, sink.closed.offset) == ("OffsetOutOfRange", -1)
        assert sink.offsets == []
    else:
        assert sink.messages[0] == Gap(0, 6, "retention")
        assert sink.offsets == [7, 8, 9, 10, 11]
        assert sink.control_messages[1:] == [CaughtUp(11)]


@in_loop
async def test_deleted_events_are_not_served_from_memory(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    subscription, sink = await listening.subscribe(topic, sink=RecordingSink(1), options=rule(OnLag.CATCHUP, 1000))
    await listening.subscribe(topic)
    listening.loop.settle()
    for _ in range(10):
        publish(partition, "a")
        listening.loop.settle()
    log_of(partition).log_start_offset = 6
    sink.room = 1000
    subscription.resume()
    listening.loop.settle()
    assert sink.offsets == [0, 6, 7, 8, 9]
    assert sink.control_messages[1:] == [Gap(1, 5, "retention")]


@in_loop
async def test_many_who_come_back_at_once_share_what_was_decoded(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    await listening.subscribe(topic)
    listening.loop.settle()
    for _ in range(20):
        publish(partition, "a")
        listening.loop.settle()
    sinks = [(await listening.subscribe(topic, FROM_OLDEST))[1] for _ in range(30)]
    listening.loop.settle()
    assert all(sink.offsets == list(range(20)) for sink in sinks)
    assert all(sink.batches[0] is sinks[0].batches[0] for sink in sinks)


@in_loop
async def test_counts_tell_what_was_done(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    await listening.subscribe(topic)
    await listening.subscribe(topic, sink=RecordingSink(1), options=rule(OnLag.TERMINATE, 4))
    listening.loop.settle()
    publish(partition, "a")
    listening.loop.settle()
    publish(partition, "a")
    listening.loop.settle()
    assert listening.subscriptions.blocked_count == 1
    publish_many(partition, 5)
    listening.loop.settle()
    counts = listening.subscriptions.counts
    assert (counts.events, counts.lag_notices, counts.lag_actions, listening.subscriptions.blocked_count) == (
        8,
        1,
        1,
        0,
    )
