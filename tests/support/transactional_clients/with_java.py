"""Transactions of the Java client: all of a test's clients in one JVM.

`compat/java/TransactionClient.java` says how calls and answers travel.
"""

import subprocess
import threading
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from tests.support.transactional_clients.interface import (
    CALL_TIMEOUT_S,
    HEARTBEAT_INTERVAL_MS,
    POLL_MS,
    RECONNECT_MS_MAX,
    SESSION_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    Consumer,
    Place,
    Record,
    Refused,
)

PROGRAM = Path(__file__).resolve().parents[3] / "compat" / "java" / "transaction_client"
# The first call fetches and compiles.
START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 10.0


class TransactionJvm:
    """It is called from one thread at a time; a call that takes too long ends it, and with it the wait."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._timeout_s = START_TIMEOUT_S
        self._numbers = count()

    def new_name(self) -> str:
        return f"client-{next(self._numbers)}"

    def call(self, *words: str) -> str:
        """What was answered; `Refused` tells what the client threw."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(self._timeout_s, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(" ".join(words) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        # The client has the same time for its own waits and must be able to say that it is up.
        self._timeout_s = 2 * CALL_TIMEOUT_S
        word, _, rest = answer.rstrip("\n").partition(" ")
        if word == "refused":
            raise Refused(rest)
        assert word == "ok", f"the JVM ended before it had answered {words}"
        return rest

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
        self._process.stdout.close()


class JavaClient:
    def __init__(self, jvm: TransactionJvm, kind: str, settings: Mapping[str, object]) -> None:
        self._jvm = jvm
        self.name = jvm.new_name()
        self._is_open = True
        self._jvm.call(kind, self.name, *(f"{name}={value}" for name, value in settings.items()))

    def call(self, word: str, *arguments: str) -> str:
        return self._jvm.call(word, self.name, *arguments)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.call("close")


class JavaProducer(JavaClient):
    def begin(self) -> None:
        self.call("begin")

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self.call("send", topic, str(partition), value)

    def flush(self) -> None:
        self.call("flush")

    def send_offsets(self, consumer: Consumer, offsets: Mapping[Place, int]) -> None:
        assert isinstance(consumer, JavaConsumer)
        self.call(
            "offsets", consumer.name, *(f"{topic}:{index}={offset}" for (topic, index), offset in offsets.items())
        )

    def commit(self) -> None:
        self.call("commit")

    def abort(self) -> None:
        self.call("abort")


class JavaConsumer(JavaClient):
    place: Place | None = None

    def assign(self, place: Place) -> None:
        self.place = place
        self.call("assign", f"{place.topic}:{place.partition}")

    def poll(self) -> list[Record]:
        records = []
        for word in self.call("poll", str(POLL_MS)).split():
            partition, offset, value = word.split(":", 2)
            records.append(Record(int(partition), int(offset), value))
        return records

    def is_at_end(self) -> bool:
        assert self.place is not None
        where = f"{self.place.topic}:{self.place.partition}"
        return self.call("position", where) == self.call("end", where)


class JavaClients:
    waits_for_stable_offsets = True

    def __init__(self, jvm: TransactionJvm, bootstrap: str) -> None:
        self.jvm = jvm
        self.bootstrap = bootstrap
        self._clients: list[JavaClient] = []

    def producer(self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> JavaProducer:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "max.block.ms": int(CALL_TIMEOUT_S * 1000),
            "linger.ms": 0,
            "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
        }
        producer = JavaProducer(self.jvm, "producer", settings)
        self._clients.append(producer)
        producer.call("init")
        return producer

    def reader(self, place: Place, *, is_committed: bool = True) -> JavaConsumer:
        consumer = self._consumer(**{"isolation.level": "read_committed" if is_committed else "read_uncommitted"})
        consumer.assign(place)
        return consumer

    def member(self, topic: str, group: str) -> JavaConsumer:
        settings = {
            "group.id": group,
            "isolation.level": "read_committed",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        }
        consumer = self._consumer(**settings)
        consumer.call("subscribe", topic)
        return consumer

    def _consumer(self, **settings: object) -> JavaConsumer:
        common = {
            "bootstrap.servers": self.bootstrap,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
        }
        consumer = JavaConsumer(self.jvm, "consumer", {**common, **settings})
        self._clients.append(consumer)
        return consumer

    def close(self) -> None:
        for client in self._clients:
            client.close()
