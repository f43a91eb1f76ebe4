"""Clients of all kinds that load a server while it is backed up, and what they were told.

Each of them remembers what was acknowledged, in order. `told` of a client at one moment is what a backup that begins
after this moment has to have.
"""

import json
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.http_json import ask

TIMEOUT_S = 40.0
PLAIN, PAIRS, KEYED, SHORT, CHURN = "plain", "pairs", "keyed", "short", "churn"
EVENT_TOPICS = ("paid", "sent")
GROUP = "readers"
KEYS = 20
SCHEMA = {"eventType": "made", "type": "object"}
CONFIGS = {
    PLAIN: {},
    PAIRS: {"segment.bytes": str(1 << 20)},
    KEYED: {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "300",
        "delete.retention.ms": "0",
    },
    SHORT: {"retention.bytes": str(1 << 20), "segment.bytes": str(1 << 20), "file.delete.delay.ms": "0"},
}


class Client(threading.Thread):
    """One client. `step` does one thing; it is repeated until `stop`."""

    def __init__(self, bootstrap: str, http_url: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.http_url = http_url
        self.told: list[Any] = []
        self.failure: BaseException | None = None
        self.is_stopping = threading.Event()

    def run(self) -> None:
        try:
            self.open()
            while not self.is_stopping.is_set():
                self.step()
        except BaseException as error:
            if not self.is_stopping.is_set():
                self.failure = error

    def open(self) -> None: ...

    def step(self) -> None: ...

    def stop(self) -> None:
        self.is_stopping.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive(), f"{type(self).__name__} hangs"
        assert self.failure is None, f"{type(self).__name__}: {self.failure!r}"


class PlainWriter(Client):
    """An idempotent producer. `told`: (topic, partition, offset, value)."""

    topic = PLAIN

    def key_of(self, number: int) -> bytes | None:
        return None

    def open(self) -> None:
        self._producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
        )
        self._number = 0

    def step(self) -> None:
        for _ in range(20):
            self._number += 1
            value = b"%d." % self._number + b"x" * 1000
            self._producer.produce(self.topic, value, self.key_of(self._number), on_delivery=self._note)
        self._producer.flush(TIMEOUT_S)

    def _note(self, error: object, message: Message) -> None:
        if error is None:
            self.told.append((message.topic(), message.partition(), message.offset(), message.key(), message.value()))


class KeyedWriter(PlainWriter):
    """Writes to the topic that is compacted."""

    topic = KEYED

    def key_of(self, number: int) -> bytes | None:
        return b"key-%d" % (number % KEYS)


class ShortWriter(PlainWriter):
    """Writes to the topic whose oldest segments are deleted."""

    topic = SHORT


class PairWriter(Client):
    """Transactions that write one number to both partitions, and commit an offset of a group; every fourth is aborted.

    `told`: the numbers of committed transactions.
    """

    def __init__(self, bootstrap: str, http_url: str, name: str) -> None:
        super().__init__(bootstrap, http_url)
        self._name = name

    def open(self) -> None:
        self._producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": self._name, "linger.ms": 0, "log_level": 0}
        )
        self._producer.init_transactions(TIMEOUT_S)
        self._number = 0

    def step(self) -> None:
        self._number += 1
        producer, value = self._producer, f"{self._name}.{self._number}"
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(PAIRS, value.encode(), partition=partition)
        if self._number % 4 == 0:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
            self.told.append(value)


class Reader(Client):
    """A group that commits its position after every few records. `told`: (partition, offset)."""

    def open(self) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        self._consumer.subscribe([PLAIN])

    def step(self) -> None:
        messages = [one for one in self._consumer.consume(200, 0.1) if one.error() is None]
        if messages:
            try:
                done = self._consumer.commit(asynchronous=False)
            except KafkaException:
                return
            self.told += [(one.partition, one.offset) for one in done or ()]

    def stop(self) -> None:
        super().stop()
        self._consumer.close()


class EventWriter(Client):
    """Batches of events over two topics. `told`: the numbers of acknowledged batches."""

    def open(self) -> None:
        self._number = 0

    def step(self) -> None:
        self._number += 1
        events = [
            {"topic": EVENT_TOPICS[at % 2], "type": "made", "payload": {"batch": self._number, "of": 4}}
            for at in range(4)
        ]
        answer = ask(f"{self.http_url}/events", "POST", events)
        assert answer.status == 201, answer
        self.told.append(self._number)


class Churn(Client):
    """Creates topics with a record, and deletes them."""

    def open(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, "log_level": 0})
        self._number = 0

    def step(self) -> None:
        self._number += 1
        name = f"{CHURN}-{self._number % 3}"
        (made,) = self._admin.create_topics([NewTopic(name, 2, 1)], request_timeout=TIMEOUT_S).values()
        made.result(TIMEOUT_S)
        for partition in (0, 1):
            self._producer.produce(name, b"x", partition=partition)
        self._producer.flush(TIMEOUT_S)
        (gone,) = self._admin.delete_topics([name], request_timeout=TIMEOUT_S).values()
        gone.result(TIMEOUT_S)


def make_topics(bootstrap: str, http_url: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics(
        [NewTopic(name, 2, 1, config=configs) for name, configs in CONFIGS.items()], request_timeout=TIMEOUT_S
    ).values():
        made.result(TIMEOUT_S)
    for name in EVENT_TOPICS:
        assert ask(f"{http_url}/topics", "POST", {"name": name, "schemas": [SCHEMA]}).status == 201


def all_clients(bootstrap: str, http_url: str) -> list[Client]:
    kinds: list[Callable[[str, str], Client]] = [PlainWriter, KeyedWriter, ShortWriter, Reader, EventWriter, Churn]
    return [
        *(kind(bootstrap, http_url) for kind in kinds),
        *(PairWriter(bootstrap, http_url, name) for name in ("one", "two")),
    ]


# --- what a server has


def records_of(bootstrap: str, topic: str, *, is_committed: bool = True) -> list[Message]:
    """All records of both partitions of a topic, in the order of their offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if is_committed else "read_uncommitted",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[Message] = []
    try:
        count = len(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
        deadline = time.monotonic() + TIMEOUT_S
        ended: set[int] = set()
        while len(ended) < count:
            assert time.monotonic() < deadline, f"{topic} has no end"
            for message in consumer.consume(1000, 1.0):
                if message.error() is None:
                    found.append(message)
                else:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return found


def events_of(http_url: str) -> list[dict[str, Any]]:
    """All events in the order of their positions."""
    found: list[dict[str, Any]] = []
    with urllib.request.urlopen(f"{http_url}/subscribe/all?from=0", timeout=TIMEOUT_S) as lines:
        for line in lines:
            said = json.loads(line)
            if said.get("control") == "caught_up":
                return found
            if "control" not in said:
                found.append(said)
    raise AssertionError("the stream ended before it had caught up")
