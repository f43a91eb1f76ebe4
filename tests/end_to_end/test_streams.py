"""Kafka Streams with exactly_once_v2: counts stay exact whoever is killed.

`compat/streams/KeyCount.java` is the program: every record of a topic raises the count of its key by one, and every new
count is written to another topic.
"""

import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.clients import Topics, unique_name
from tests.support.server import Broker, KwireProcess, wait_until
from tests.support.transactional_clients.interface import Place
from tests.support.transactional_clients.with_confluent import ConfluentClients, ConfluentConsumer

# The first run fetches Kafka Streams with Maven and compiles the program.
pytestmark = [pytest.mark.needs_java, pytest.mark.needs_mvn, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).resolve().parents[2] / "compat" / "streams" / "key_count"
PARTITIONS = 2
KEYS = 6
FEED_INTERVAL_S = 0.005
# From a start, or from a kill of the server, until counts come again.
WORK_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0
# What a program that was killed had open is in the way until then, where its heir does not know its transactional id.
TRANSACTION_TIMEOUT_MS = 4_000


class Feed:
    """Records with keys, in the background, until it is stopped; how many were sent by key."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent: Counter[str] = Counter()
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._wake.wait(FEED_INTERVAL_S):
            key = f"key-{number % KEYS}"
            self._producer.produce(self._topic, key=key, value=str(number), partition=number % PARTITIONS)
            self._producer.poll(0)
            self.sent[key] += 1
            number += 1

    def stop(self) -> None:
        self._wake.set()
        self._thread.join(END_TIMEOUT_S)
        assert self._producer.flush(END_TIMEOUT_S) == 0


class KeyCount:
    """The program as a process."""

    def __init__(self, bootstrap: str, application: str, origin: str, target: str, state_dir: Path) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "application.id": application,
            "state.dir": str(state_dir),
            "commit.interval.ms": "100",
            "replication.factor": "1",
            # One that starts again under its old name need not wait until its old self is given up.
            "consumer.group.instance.id": "one",
            "producer.transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
            "consumer.auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": "200",
        }
        self.log_path = state_dir.with_suffix(".log")
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [str(PROGRAM), origin, target, *(f"{name}={value}" for name, value in settings.items())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(END_TIMEOUT_S)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(END_TIMEOUT_S) == 0, self.log_path.read_text()


class Counts:
    """What the target topic has committed: for each key one count after the other, none twice and none left out."""

    def __init__(self, clients: ConfluentClients, topic: str) -> None:
        self.last: Counter[str] = Counter()
        self._readers: list[ConfluentConsumer] = [
            clients.reader(Place(topic, partition)) for partition in range(PARTITIONS)
        ]

    def poll(self) -> None:
        for reader in self._readers:
            for record in reader.poll():
                key, _, count = record.value.partition("=")
                self.last[key] += 1
                assert int(count) == self.last[key], f"{key}: {count} where {self.last[key]} is next"

    def wait_for_more(self) -> None:
        """Until every key has got on by some."""
        before = Counter(self.last)

        def is_more() -> bool:
            self.poll()
            return all(self.last[f"key-{number}"] > before[f"key-{number}"] + 10 for number in range(KEYS))

        wait_until(is_more, "every key is counted on", WORK_TIMEOUT_S)

    def wait_for(self, wanted: Counter[str]) -> None:
        def is_there() -> bool:
            self.poll()
            return sum(self.last.values()) >= sum(wanted.values())

        wait_until(is_there, f"all of {sum(wanted.values())} records are counted", WORK_TIMEOUT_S)
        assert self.last == wanted


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Broker]:
    """One that a test may kill; somebody else's is left alone."""
    external = os.environ.get("KWIRE_TEST_BOOTSTRAP")
    if external is not None:
        yield Broker(external, None)
        return
    process = KwireProcess(tmp_path / "kwire")
    process.start()
    process.ready()
    yield process.broker
    process.kill()


def test_counts_stay_exact_whoever_is_killed(server: Broker, tmp_path: Path) -> None:
    topics = Topics(server.bootstrap)
    origin = topics.create("streams-from", partitions=PARTITIONS)
    target = topics.create("streams-to", partitions=PARTITIONS)
    topics.close()
    clients = ConfluentClients(server.bootstrap)
    feed = Feed(server.bootstrap, origin)
    counts = Counts(clients, target)
    application = unique_name("counting")

    def started(state_dir: str) -> KeyCount:
        return KeyCount(server.bootstrap, application, origin, target, tmp_path / state_dir)

    program = started("state")
    try:
        counts.wait_for_more()
        # One that finds the state of its old self has the same transactional ids, and fences it.
        program.kill()
        program = started("state")
        counts.wait_for_more()
        if server.process is not None:
            server.process.kill()
            server.process.restart()
            counts.wait_for_more()
        # One that comes without has others: the server must give up the transaction that is open.
        program.kill()
        program = started("elsewhere")
        counts.wait_for_more()
        feed.stop()
        counts.wait_for(feed.sent)
        program.end()
    finally:
        program.kill()
    clients.close()
    print(f"{sum(counts.last.values())} records counted exactly once")
