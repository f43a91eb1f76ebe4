"""SIGKILL at any moment of POST /events: a batch is wholly there afterwards, or wholly absent, wherever one looks.

That is in its topics, as a stock Kafka client reads them; in the order of all events, as a subscriber of everything
reads it; and in the files of events. What was answered is there, once, where the answer said.
"""

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kwire.streams.event_store.files.layout import NotAnEventFile, parse_event
from storage.disk.files import Files
from tests.end_to_end.seeds import announced_seed
from tests.support.effort import repetitions
from tests.support.event_files import found_events
from tests.support.event_ledger import Found, Ledger, PositionReader, answered_count, make_topics, published
from tests.support.event_senders import Publisher, StockProducer
from tests.support.server import KwireProcess, wait_until

StartKwire = Callable[..., KwireProcess]

KILLS = repetitions(quick=3, full=5)
TOPICS = ("orders", "users", "audit", "stock")
PUBLISHERS = 6
TIMEOUT_S = 60.0


class Looker:
    """Reads on where it was when it looked last: events by topic, in the order of everything, and by file."""

    def __init__(self, process: KwireProcess, files_dir: Path) -> None:
        self._process = process
        self._files_dir = files_dir
        self._offsets = dict.fromkeys(TOPICS, 0)
        self._positions = PositionReader()
        self._consumer = Consumer(
            {"bootstrap.servers": process.bootstrap, "group.id": "looker", "enable.auto.commit": False, "log_level": 0}
        )

    def by_topic(self) -> Found:
        found: Found = []
        for name in TOPICS:
            place = TopicPartition(name, 0, self._offsets[name])
            _, end = self._consumer.get_watermark_offsets(place, TIMEOUT_S)
            self._consumer.assign([place])
            while self._offsets[name] < end:
                message = self._consumer.poll(TIMEOUT_S)
                assert message is not None, f"{name} ends at {end}, and nothing comes at {self._offsets[name]}"
                assert message.error() is None, message.error()
                assert message.offset() == self._offsets[name]
                self._offsets[name] += 1
                found.append((f"{name}-{self._offsets[name]}", json.loads(message.value() or b"")))
        return found

    def by_position(self) -> Found:
        return self._positions.read_on(self._process.http_url)

    def by_file(self, ids: Sequence[str]) -> Found:
        """The files of these events; those that a kill kept from being written come soon."""
        found: Found = []
        for one in ids:
            topic, _, number = one.rpartition("-")
            group = f"{(int(number) - 1) // 1000:04}"
            pattern = f"data/{topic}/*/{group}/{one}.json"
            (path,) = wait_until(partial(_all, self._files_dir, pattern), f"{one} has a file", TIMEOUT_S)
            event = json.loads(path.read_bytes())
            assert event["id"] == one
            found.append((one, event["payload"]))
        return found

    def close(self) -> None:
        self._consumer.close()


def _all(directory: Path, pattern: str) -> list[Path]:
    return list(directory.glob(pattern))


def check_files_are_whole(files_dir: Path, checked: set[Path]) -> None:
    """While the server is down: what has its name is whole. Groups that are being written have names with a dot."""
    for path in set(files_dir.glob("data/*/*/[0-9]*/*.json")) - checked:
        try:
            event = parse_event(path.parts[-4], path.read_bytes())
        except NotAnEventFile as error:
            raise AssertionError(f"{path}: {error}") from error
        assert path.stem == f"{path.parts[-4]}-{event.sequence}"
        checked.add(path)


@pytest.fixture
def looker_of() -> Iterator[Callable[[KwireProcess, Path], Looker]]:
    made: list[Looker] = []

    def make(process: KwireProcess, files_dir: Path) -> Looker:
        made.append(Looker(process, files_dir))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.timeout(180 + 15 * KILLS)
@pytest.mark.proves("S2-1", "S2-7", "C-24")
def test_batches_are_whole_everywhere_after_kill_dash_nine(
    start_kwire: StartKwire, tmp_path: Path, looker_of: Callable[[KwireProcess, Path], Looker]
) -> None:
    seed = announced_seed()
    chance, files_dir = random.Random(seed), tmp_path / "files"
    process = start_kwire(settings={"kwire.events.files.dir": str(files_dir)})
    make_topics(process, TOPICS)
    assert process.http_port
    publishers = [Publisher(number, ("127.0.0.1", process.http_port), TOPICS, seed) for number in range(PUBLISHERS)]
    producer = StockProducer(process.bootstrap, TOPICS[0])
    looker, ledger = looker_of(process, files_dir), Ledger(publishers)
    for thread in (*publishers, producer):
        thread.start()
    restarts_s: list[float] = []
    whole_files: set[Path] = set()
    event_count = late_count = 0

    for _ in range(KILLS):
        target = answered_count(publishers) + chance.randint(1, 80)
        producer.may_go.set()
        for one in publishers:
            one.may_go.set()
        wait_until(lambda target=target: answered_count(publishers) >= target, "batches are answered", TIMEOUT_S)  # type: ignore[misc]
        threading.Event().wait(chance.uniform(0.0, 0.05))  # not a wait for anything: the moment of the kill
        assert process.is_running, "the server ended by itself"
        process.kill()
        producer.may_go.clear()
        for one in publishers:
            one.rest()
        check_files_are_whole(files_dir, whole_files)
        restarts_s.append(process.restart())
        in_topics, in_order = published(looker.by_topic()), published(looker.by_position())
        assert in_topics == in_order
        assert published(looker.by_file([one for one, _ in in_topics])) == in_topics
        ledger.add(in_topics)
        ledger.check()
        event_count += len(in_topics)
        late_count += len({one for one, _ in in_topics} - {path.stem for path in whole_files})
    for one in publishers:
        one.end()
    producer.end()
    _check_everything(process, files_dir, looker_of(process, files_dir), ledger, producer)
    absent_count = sum(len(one.asked) for one in publishers) - len(ledger.found)
    print(
        f"{KILLS} kills; {answered_count(publishers)} batches answered, {len(ledger.found)} there with {event_count} "
        f"events, {absent_count} absent, none in part; {late_count} events got their files after a kill; "
        f"{len(producer.acknowledged)} records of a stock producer; starts in {max(restarts_s):.2f} s at most"
    )


@pytest.mark.timeout(120)
@pytest.mark.proves("S2-1", "C-24")
def test_a_stop_in_the_middle_of_batches_leaves_them_whole_and_nothing_to_repair(
    start_kwire: StartKwire, tmp_path: Path, looker_of: Callable[[KwireProcess, Path], Looker]
) -> None:
    process = start_kwire()
    make_topics(process, TOPICS)
    assert process.http_port
    publishers = [Publisher(number, ("127.0.0.1", process.http_port), TOPICS, number) for number in range(PUBLISHERS)]
    for one in publishers:
        one.start()
        one.may_go.set()
    wait_until(lambda: answered_count(publishers) > 50, "batches are answered", TIMEOUT_S)
    assert process.stop() == 0
    for one in publishers:
        one.rest()
    process.restart()
    looker, ledger = looker_of(process, tmp_path), Ledger(publishers)
    in_topics = published(looker.by_topic())
    assert in_topics == published(looker.by_position())
    ledger.add(in_topics)
    ledger.check()
    assert "added to their topics from the event journal" not in process.output_tail()
    for one in publishers:
        one.end()


def _check_everything(
    process: KwireProcess, files_dir: Path, looker: Looker, ledger: Ledger, producer: StockProducer
) -> None:
    """All that was ever written, from the beginning, once nobody writes any more."""
    in_topics, in_order = looker.by_topic(), looker.by_position()
    assert sorted(in_topics, key=str) == sorted(in_order, key=str)
    assert Counter(payload["batch"] for _, payload in published(in_topics)) == {
        name: len(ids) for name, ids in ledger.found.items()
    }
    numbers = [(int(one.rpartition("-")[2]) - 1, said["produced"]) for one, said in in_topics if "produced" in said]
    assert [number for _, number in sorted(numbers)] == list(range(producer.sent))
    assert {number: offset for offset, number in numbers} == producer.acknowledged
    in_files: Found = []
    for name in TOPICS:
        ends = [int(one.rpartition("-")[2]) for one, _ in in_topics if one.startswith(f"{name}-")]
        looker.by_file([f"{name}-{max(ends)}"])
        in_files += [
            (f"{name}-{one.sequence}", json.loads(one.payload)) for one in found_events(Files(), str(files_dir), name)
        ]
    assert sorted(in_files, key=str) == sorted(in_topics, key=str)
