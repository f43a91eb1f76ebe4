"""Subscribers and transactions: committed events are delivered once they are committed; nothing else is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.errors import OffsetOutOfRange
from kwire.streams.events import reading
from kwire.streams.subscriptions.control_messages import CaughtUp, Checkpoint, Closed, Gap, Lagging
from kwire.streams.subscriptions.start import FROM_NEWEST, FROM_OLDEST, Start
from kwire.streams.subscriptions.subscription import OnLag, SubscribeOptions
from tests.support.node import in_loop
from tests.support.partition_log import log_of
from tests.support.subscribing import Listening, RecordingSink, publish, publish_many
from tests.support.transactions import TransactionalProducer


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Listening]:
    made = Listening(tmp_path)
    yield made
    made.close()


@in_loop
async def test_live_readers_get_a_transaction_when_it_is_committed(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    producer = TransactionalProducer(partition, 7)
    publish(partition, "a")
    _, sink = await listening.subscribe(topic, FROM_OLDEST)
    listening.loop.settle()
    assert sink.messages[1:] == [CaughtUp(0)]
    producer.publish("b", "c")
    publish(partition, "d")
    listening.loop.settle()
    assert sink.offsets == [0]
    producer.commit()
    listening.loop.settle()
    assert sink.offsets == [0, 1, 2, 3]
    publish(partition, "e")
    listening.loop.settle()
    # Nothing is sent for the marker at 4.
    assert sink.offsets == [0, 1, 2, 3, 5]
    assert sink.control_messages == [CaughtUp(0)]


@in_loop
async def test_nothing_is_told_of_what_was_aborted(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    aborting, committing = TransactionalProducer(partition, 7), TransactionalProducer(partition, 8)
    _, live = await listening.subscribe(topic)
    listening.loop.settle()
    aborting.publish("lost")  # 0
    committing.publish("kept")  # 1
    aborting.publish("lost")  # 2
    aborting.abort()  # 3
    listening.loop.settle()
    assert live.offsets == []
    committing.commit()  # 4
    publish(partition, "plain")  # 5
    listening.loop.settle()
    _, late = await listening.subscribe(topic, FROM_OLDEST)
    _, from_within = await listening.subscribe(topic, Start.at(2))
    listening.loop.settle()
    assert live.offsets == late.offsets == [1, 5]
    assert from_within.offsets == [5]
    assert (live.control_messages, late.control_messages, from_within.control_messages) == (
        [CaughtUp(-1)],
        [CaughtUp(5)],
        [CaughtUp(5)],
    )


@in_loop
async def test_history_ends_where_the_first_transaction_is_open(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    producer = TransactionalProducer(partition, 7)
    publish_many(partition, 3)
    producer.publish("open")
    publish_many(partition, 3)
    subscription, sink = await listening.subscribe(topic, FROM_OLDEST)
    assert (subscription.facts.newest_offset, subscription.facts.next_offset) == (2, 0)
    listening.loop.settle()
    assert sink.messages[3:] == [CaughtUp(2)]
    newest, newest_sink = await listening.subscribe(topic, FROM_NEWEST)
    assert newest.facts.next_offset == 3
    back, _ = await listening.subscribe(topic, Start.back(2))
    assert back.facts.next_offset == 1
    producer.commit()
    listening.loop.settle()
    assert sink.offsets == [0, 1, 2, 3, 4, 5, 6]
    assert newest_sink.offsets == [3, 4, 5, 6]


@in_loop
async def test_who_asks_for_what_is_not_decided_waits_for_it(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    producer = TransactionalProducer(partition, 7)
    producer.publish("a", "b", "c")
    publish(partition, "d")
    subscription, sink = await listening.subscribe(topic, Start.at(2))
    # It is of this log, and nothing before it was asked for.
    assert subscription.facts.recovered
    listening.loop.settle()
    assert sink.offsets == []
    producer.commit()
    listening.loop.settle()
    assert sink.offsets == [2, 3]
    beyond, _ = await listening.subscribe(topic, Start.at(99))
    assert not beyond.facts.recovered


@in_loop
async def test_a_time_is_looked_for_in_committed_data(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    producer = TransactionalProducer(partition, 7)
    publish(partition, "a", now_ms=1000)
    producer.publish("b", now_ms=2000)
    publish(partition, "c", now_ms=3000)
    subscription, _ = await listening.subscribe(topic, Start.at_time(1500))
    assert subscription.facts.next_offset == 1
    producer.abort()
    _, sink = await listening.subscribe(topic, Start.at_time(1500))
    listening.loop.settle()
    assert sink.offsets == [2]


@in_loop
async def test_checkpoints_and_caught_up_name_places_to_come_back_to(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    producer = TransactionalProducer(partition, 7)
    _, sink = await listening.subscribe(topic, options=SubscribeOptions(checkpoint_events=3))
    listening.loop.settle()
    producer.publish("a")
    producer.abort()
    producer.publish("b")
    producer.abort()
    listening.loop.settle()
    # Four offsets have passed without an event.
    assert sink.messages == [CaughtUp(-1), Checkpoint(3)]
    publish(partition, "c")
    _, again = await listening.subscribe(topic, Start.at(4))
    listening.loop.settle()
    assert (sink.offsets, again.offsets) == ([4], [4])
    assert topic.stream().bounds().newest == 4
    producer.publish("d")
    producer.abort()
    assert topic.stream().bounds().newest == 6
    _, late = await listening.subscribe(topic, FROM_OLDEST)
    listening.loop.settle()
    assert late.offsets == [4]
    assert late.control_messages == [CaughtUp(6)]


@in_loop
async def test_a_slow_reader_is_judged_by_what_could_be_read(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    producer = TransactionalProducer(partition, 7)
    sink = RecordingSink(room=1)
    options = SubscribeOptions(queue_events_max=4)
    subscription, _ = await listening.subscribe(topic, FROM_OLDEST, sink, options)
    listening.loop.settle()
    publish(partition, "a")
    listening.loop.settle()
    producer.publish(*"bcdefgh")
    publish_many(partition, 20)
    listening.loop.settle()
    assert sink.messages[1:] == [*sink.messages[1:2]]
    assert subscription.is_live
    producer.commit()
    listening.loop.settle()
    assert isinstance(sink.messages[-2], Lagging)
    assert isinstance(sink.messages[-1], Closed)


@in_loop
async def test_a_ring_is_not_emptied_by_a_transaction_that_is_open(listening: Listening) -> None:
    topic = await listening.room(kwire_retention_messages="5")
    partition = topic.partitions[0]
    producer = TransactionalProducer(partition, 7)
    publish_many(partition, 5)
    live, sink = await listening.subscribe(topic)
    listening.loop.settle()
    producer.publish("a")
    for _ in range(10):
        publish_many(partition, 2)
        listening.loop.settle()
    assert not live.is_closed
    _, late = await listening.subscribe(topic, FROM_OLDEST)
    listening.loop.settle()
    assert late.offsets == [0, 1, 2, 3, 4]
    producer.commit()
    listening.loop.settle()
    # Much came at once, as with a large batch.
    assert sink.closed is not None
    assert sink.closed.code == "OffsetOutOfRange"


@pytest.mark.parametrize("on_lag", [OnLag.TERMINATE, OnLag.DROP])
@in_loop
async def test_who_waits_for_records_that_are_deleted_is_told(listening: Listening, on_lag: OnLag) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    producer = TransactionalProducer(partition, 7)
    _, sink = await listening.subscribe(topic, options=SubscribeOptions(on_lag=on_lag))
    listening.loop.settle()
    producer.publish("a", "b", "c")
    log_of(partition).advance_log_start_offset(2)
    late, late_sink = await listening.subscribe(topic, FROM_OLDEST)
    assert (late.facts.oldest_offset, late.facts.newest_offset, late.facts.next_offset) == (2, 1, 2)
    with pytest.raises(OffsetOutOfRange):
        await listening.subscribe(topic, Start.at(1))
    producer.commit()
    listening.loop.settle()
    assert late_sink.offsets == [2]
    if on_lag is OnLag.DROP:
        assert sink.messages[1:2] == [Gap(0, 1, "retention")]
        assert sink.offsets == [2]
    else:
        assert sink.closed is not None
        assert sink.closed.code == "OffsetOutOfRange"


@in_loop
async def test_much_that_was_aborted_is_passed_over_in_turns(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "VIEWS_PER_READ", 2)
    monkeypatch.setattr(reading, "VIEW_BYTES", 1000)
    topic = await listening.room()
    partition = topic.partitions[0]
    producer = TransactionalProducer(partition, 7)
    for _ in range(50):
        producer.send(value=b"x" * 400)
    producer.abort()
    publish(partition, "a")
    _, sink = await listening.subscribe(topic, FROM_OLDEST)
    turns = 0
    while not sink.offsets:
        assert listening.loop.turn()
        turns += 1
    assert turns > 5
    listening.loop.settle()
    assert sink.messages[-1] == CaughtUp(51)
    assert sink.offsets == [51]
