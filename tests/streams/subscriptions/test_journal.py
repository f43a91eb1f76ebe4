"""Subscribers of everything: the same machine with the journal of the event store as its source."""

import json
import random
from pathlib import Path

import pytest

from kwire.streams.event_store import global_reader as global_reading
from kwire.streams.events import decoding
from kwire.streams.events.event import Event
from kwire.streams.log import NotReady
from kwire.streams.subscriptions import OnLag, Start
from kwire.streams.subscriptions.control_messages import LAGGED, CaughtUp, Gap
from kwire.streams.subscriptions.start import StartKind
from tests.support.event_store import draft
from tests.support.everything import everything
from tests.support.node import in_loop
from tests.support.subscribing import RecordingSink


def ids_of(sink: RecordingSink) -> list[str]:
    return [message.event_id for message in sink.messages if isinstance(message, Event)]


@pytest.mark.proves("S3-6", "S3-17")
@in_loop
async def test_history_and_what_is_new_are_one_sequence_of_positions(tmp_path: Path) -> None:
    async with everything(tmp_path) as one:
        await one.publish("a", "b", "a")
        _, sink = await one.listen()
        one.settle()
        await one.publish("b", "a")
        await one.publish("b")
        one.settle()
        assert sink.offsets == [0, 1, 2, 3, 4, 5]
        assert ids_of(sink) == ["a-1", "b-1", "a-2", "b-2", "a-3", "b-3"]
        assert sink.messages.index(CaughtUp(2)) == 3


@in_loop
async def test_two_subscribers_of_everything_get_the_very_same_portion(tmp_path: Path) -> None:
    async with everything(tmp_path) as one:
        sinks = [(await one.listen())[1] for _ in range(2)]
        one.settle()
        await one.publish("a", "b")
        one.settle()
        assert sinks[0].batches[0] is sinks[1].batches[0]
        assert one.subscriptions.feed_count == 1


@in_loop
async def test_a_subscriber_of_everything_who_is_too_slow_is_told_its_position(tmp_path: Path) -> None:
    async with everything(tmp_path, queue_events_max=10) as one:
        _, sink = await one.listen(sink=RecordingSink(room=2))
        _, patient = await one.listen(sink=RecordingSink(room=2), on_lag=OnLag.CATCHUP)
        one.settle()
        for _ in range(10):
            await one.publish("a", "b")
            one.settle()
        assert sink.closed is not None
        assert (sink.closed.code, sink.closed.offset) == (LAGGED, sink.offsets[-1])
        for subscription in one.subscriptions.of_log(one.journal.stream()):
            for _ in range(20):
                patient.take()
                subscription.resume()
                one.settle()
        assert patient.offsets == list(range(20))


@in_loop
async def test_events_of_a_deleted_topic_are_passed_over_without_a_word(tmp_path: Path) -> None:
    async with everything(tmp_path) as one:
        # More batches than are looked at in one turn.
        for _ in range(250):
            await one.publish("a")
        await one.publish("b")
        topic = one.node.topics.get("a")
        assert topic is not None
        await one.node.topics.delete(topic)
        _, sink = await one.listen()
        one.settle()
        assert ids_of(sink) == ["b-1"]
        assert sink.offsets == [250]
        assert sink.control_messages[-1] == CaughtUp(250)


@pytest.mark.parametrize("names", [["a", "b"] * 1000, [*"a" * 1000, *"b" * 1000]], ids=["by turns", "one by one"])
@in_loop
async def test_a_large_commit_comes_in_portions_from_any_place_inside_it(tmp_path: Path, names: list[str]) -> None:
    async with everything(tmp_path) as one:
        await one.publish("b")
        await one.publish(*names)
        expected = ["b-1"]
        for at, name in enumerate(names):
            number = names[:at].count(name) + (2 if name == "b" else 1)
            expected.append(f"{name}-{number}")
        for start in (0, 1, 2, 777, 1000, 1001, 1999, 2000, 2001):
            _, sink = await one.listen(Start(StartKind.OFFSET, start))
            one.settle()
            assert sink.offsets == list(range(start, 2001)), start
            assert ids_of(sink) == expected[start:], start
            assert all(len(batch.events) <= 500 for batch in sink.batches)


@pytest.mark.parametrize("names", [["a", "b"] * 300, [*"a" * 300, *"b" * 300]], ids=["by turns", "one by one"])
@in_loop
async def test_the_way_into_the_middle_of_a_large_commit_takes_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    monkeypatch.setattr(decoding, "RECORDS_PER_TAKE", 50)
    taken: list[int] = []
    take = decoding.BatchCursor.take

    def counted(cursor: decoding.BatchCursor, *args: object) -> int:
        taken.append(1)
        return take(cursor, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(decoding.BatchCursor, "take", counted)
    async with everything(tmp_path) as one:
        await one.publish(*names)
        for start in (1, 290, 310, 599):
            reader = one.store.global_reader(one.journal.stream(), start)
            found: list[int] = []
            while len(found) < 600 - start:
                taken.clear()
                events = reader.read(20)
                # One that leads nowhere ends the turn; what is found may be in both topics, or just behind.
                assert len(taken) <= 3
                if not isinstance(events, NotReady):
                    found += [event.offset for event in events]
            assert found == list(range(start, 600)), start


@in_loop
async def test_a_reader_that_was_put_down_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_reading, "IDLE_BATCH_BYTES_MAX", 0)
    async with everything(tmp_path) as one:
        await one.publish(*["a", "b", "b"] * 100)
        reader = one.store.global_reader(one.journal.stream(), 0)
        found: list[int] = []
        while len(found) < 300:
            events = reader.read(7)
            assert not isinstance(events, NotReady)
            found += [event.offset for event in events]
            reader.release_buffers()
        assert found == list(range(300))


@in_loop
async def test_what_is_compressed_and_large_is_unfolded_by_a_thread(tmp_path: Path) -> None:
    async with everything(tmp_path) as one:
        for name in ("y", "z"):
            await one.node.create_event_topic(name, compression_type="gzip")
        payloads = ["x" * 400_000, random.Random(1).randbytes(100_000).hex(), "small"]
        await one.publish("a", "b")
        await one.store.publish([draft(name, payload) for payload in payloads for name in ("y", "a", "z")])
        for start in (0, 2, 3, 9):
            _, sink = await one.listen(Start(StartKind.OFFSET, start))
            one.loop.settle()
            assert len(one.disk.waiting) == (1 if start < 10 else 0)
            assert sink.offsets == list(range(start, 2))
            one.settle()
            assert sink.offsets == list(range(start, 11))
            found = [json.loads(message.data) for message in sink.messages if isinstance(message, Event)]
            assert found == ([0, 1] + [payload for payload in payloads for _ in range(3)])[start:]


@in_loop
async def test_whoever_comes_whenever_gets_everything_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(5)
    async with everything(tmp_path) as one:
        readers: list[tuple[int, RecordingSink]] = []
        count = 0
        for _ in range(60):
            names = [chance.choice("ab") for _ in range(chance.randint(1, 5))]
            await one.publish(*names)
            count += len(names)
            if chance.random() < 0.4:
                start = chance.randint(0, count)
                _, sink = await one.listen(Start(StartKind.OFFSET, start))
                readers.append((start, sink))
            if chance.random() < 0.7:
                one.loop.turn()
        one.settle()
        for start, sink in readers:
            assert sink.offsets == list(range(start, count))
            assert sum(isinstance(message, CaughtUp) for message in sink.control_messages) == 1
            assert not any(isinstance(message, Gap) for message in sink.control_messages)
            events = [message for message in sink.messages if isinstance(message, Event)]
            assert all(json.loads(event.data) is not None for event in events)
