"""Where a subscription begins, for everything that a reader may say."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.errors import OffsetOutOfRange, SubscriptionFailed
from kwire.streams.subscriptions.start import FROM_NEWEST, FROM_OLDEST, Start, StartKind
from kwire.streams.subscriptions.subscription import SubscribeOptions
from tests.support.node import in_loop
from tests.support.subscribing import Listening, publish, publish_many


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Listening]:
    made = Listening(tmp_path)
    yield made
    made.close()


@pytest.mark.proves("S0-22", "S0-23", "S0-24", "S0-25", "S0-12")
@pytest.mark.parametrize(
    ("from_offset", "replay", "start"),
    [
        (None, None, FROM_NEWEST),
        (None, False, FROM_NEWEST),
        (None, True, FROM_OLDEST),
        (0, None, FROM_OLDEST),
        (0, True, FROM_OLDEST),
        (0, False, FROM_NEWEST),
        (7, None, Start(StartKind.OFFSET, 7)),
        (7, True, Start(StartKind.OFFSET, 7)),
        (7, False, FROM_NEWEST),
        (-50, None, Start(StartKind.BACK, 50)),
        (-50, True, Start(StartKind.BACK, 50)),
        (-50, False, FROM_NEWEST),
    ],
)
def test_offset_decides_and_replay_only_adds_all_or_nothing(
    from_offset: int | None, replay: bool | None, start: Start
) -> None:
    assert Start.parse(from_offset, replay) == start


@pytest.mark.parametrize(
    "time", ["1700000000123", "2023-11-14T22:13:20.123Z", "2023-11-14T23:13:20.123+01:00", 1700000000123]
)
def test_time_is_milliseconds_or_iso(time: int | str) -> None:
    assert Start.parse(from_time=time) == Start(StartKind.TIME, 1_700_000_000_123)


def test_time_without_a_zone_is_utc() -> None:
    assert Start.parse(from_time="2023-11-14T22:13:20") == Start.at_time(1_700_000_000_000)


@pytest.mark.parametrize(
    "time", ["", "yesterday", "2023-13-01", "9" * 5000, "1969-12-31T00:00:00Z", -1, 2**63, "é" * 100]
)
def test_what_is_no_time_is_refused(time: int | str) -> None:
    with pytest.raises(SubscriptionFailed):
        Start.parse(from_time=time)


def test_offset_and_time_exclude_each_other() -> None:
    with pytest.raises(SubscriptionFailed):
        Start.parse(0, None, 1)


@pytest.mark.parametrize("offset", [2**63, -(2**63), 10**30, -(10**30)])
def test_number_that_is_no_offset_is_refused(offset: int) -> None:
    with pytest.raises(SubscriptionFailed):
        Start.parse(offset)


@pytest.mark.proves("S0-22", "S0-23", "S0-24", "S0-25")
@in_loop
async def test_each_start_delivers_what_it_says(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    publish_many(partition, 10)
    expected = {
        FROM_NEWEST: [],
        FROM_OLDEST: list(range(10)),
        Start.at(4): [4, 5, 6, 7, 8, 9],
        Start.at(10): [],
        Start.back(3): [7, 8, 9],
        Start.back(10): list(range(10)),
        Start.back(50): list(range(10)),
    }
    sinks = {start: (await listening.subscribe(topic, start))[1] for start in expected}
    listening.loop.settle()
    assert {start: sink.offsets for start, sink in sinks.items()} == expected
    publish(partition, "new")
    listening.loop.settle()
    assert all(sink.offsets[-1] == 10 for sink in sinks.values())


@in_loop
async def test_from_a_time_begins_with_the_first_event_of_that_time(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    for second in range(5):
        publish(partition, "tick", now_ms=1_700_000_000_000 + 1000 * second)
    _, at = await listening.subscribe(topic, Start.at_time(1_700_000_002_000))
    _, between = await listening.subscribe(topic, Start.at_time(1_700_000_002_001))
    _, before = await listening.subscribe(topic, Start.at_time(0))
    _, after = await listening.subscribe(topic, Start.at_time(1_700_000_009_000))
    listening.loop.settle()
    assert [sink.offsets for sink in (at, between, before, after)] == [[2, 3, 4], [3, 4], [0, 1, 2, 3, 4], []]


@pytest.mark.proves("S0-36")
@in_loop
async def test_below_the_oldest_is_out_of_range_but_zero_means_the_oldest(listening: Listening) -> None:
    topic = await listening.room(kwire_retention_messages="3")
    publish_many(topic.partitions[0], 10)
    with pytest.raises(OffsetOutOfRange) as caught:
        await listening.subscribe(topic, Start.at(6))
    assert (caught.value.requested, caught.value.oldest, caught.value.newest) == (6, 7, 9)
    assert listening.subscriptions.count_of(topic.stream()) == 0
    _, sink = await listening.subscribe(topic, Start.parse(0))
    listening.loop.settle()
    assert sink.offsets == [7, 8, 9]


@in_loop
async def test_beyond_the_head_is_caught_up_at_once_and_waits_for_its_offset(listening: Listening) -> None:
    topic = await listening.room()
    partition = topic.partitions[0]
    publish_many(partition, 2)
    subscription, sink = await listening.subscribe(topic, Start.at(5))
    assert subscription.facts.recovered is False
    listening.loop.settle()
    assert [type(message).__name__ for message in sink.control_messages] == ["CaughtUp"]
    publish_many(partition, 2)
    listening.loop.settle()
    assert sink.offsets == []
    publish_many(partition, 3)
    listening.loop.settle()
    assert sink.offsets == [5, 6]


@in_loop
async def test_facts_tell_epoch_and_range(listening: Listening) -> None:
    topic = await listening.room(kwire_retention_messages="3")
    subscription, _ = await listening.subscribe(topic)
    assert subscription.facts[1:] == (topic.stream().incarnation, 0, -1, 0, True)
    publish_many(topic.partitions[0], 10)
    subscription, _ = await listening.subscribe(topic, Start.at(8))
    assert subscription.facts[1:] == (topic.stream().incarnation, 7, 9, 8, True)
    assert len(topic.stream().incarnation) == 22


@in_loop
async def test_epoch_of_another_incarnation_begins_anew(listening: Listening) -> None:
    topic = await listening.room()
    old_epoch = topic.stream().incarnation
    await listening.node.topics.delete(topic)
    topic = await listening.room()
    publish_many(topic.partitions[0], 3)
    known = SubscribeOptions(epoch=old_epoch)
    subscription, sink = await listening.subscribe(topic, Start.at(2), options=known)
    assert subscription.facts.recovered is False
    assert subscription.facts.epoch != old_epoch
    same, _ = await listening.subscribe(topic, Start.at(2), options=SubscribeOptions(epoch=topic.stream().incarnation))
    assert same.facts.recovered is True
    listening.loop.settle()
    assert sink.offsets == [0, 1, 2]
