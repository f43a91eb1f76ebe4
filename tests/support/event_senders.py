"""Those who write to an event store that is killed again and again, and what they know of it.

Publishers send batches over several topics by POST /events, some of them until they are answered; a stock idempotent
producer sends to the same topics. Publishers rest while somebody looks.
"""

import http.client
import json
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

EVENT_TYPE = "made"
EVENTS_MAX = 30
PADDING_MAX = 1500
# Of one request; a server that was killed is noticed at once.
ANSWER_TIMEOUT_S = 20.0
PAUSE_S = 0.01
END_TIMEOUT_S = 60.0
# Records without an answer: enough for several batches on their way when the server dies.
PRODUCED_AT_ONCE_MAX = 60


class Publisher(threading.Thread):
    """`asked` is how many events each batch has, `answered` the ids of those that were acknowledged.

    One that `is_stubborn` sends a batch again, under its key, until it is answered; another one goes on to the next.
    """

    def __init__(self, number: int, address: tuple[str, int], topics: Sequence[str], seed: int) -> None:
        super().__init__(daemon=True)
        self.asked: dict[str, int] = {}
        self.answered: dict[str, list[str]] = {}
        self.is_stubborn = number % 2 == 0
        self.may_go = threading.Event()
        self.is_at_rest = threading.Event()
        self.failure: str | None = None
        self._is_done = False
        self._number = number
        self._address = address
        self._topics = topics
        self._chance = random.Random(seed + number)

    def run(self) -> None:
        self._take_next()
        while True:
            if not self.may_go.is_set():
                self.is_at_rest.set()
                self.may_go.wait()
                self.is_at_rest.clear()
            if self._is_done:
                return
            self._send_until_cut()
            if not self.is_stubborn:
                self._take_next()

    def rest(self) -> None:
        self.may_go.clear()
        assert self.is_at_rest.wait(END_TIMEOUT_S), "a publisher hangs"
        assert self.failure is None, self.failure

    def move(self, address: tuple[str, int]) -> None:
        """Send to another server from the next connection on."""
        self._address = address

    def end(self) -> None:
        self._is_done = True
        self.may_go.set()
        self.join(END_TIMEOUT_S)
        assert not self.is_alive()

    def _take_next(self) -> None:
        name, count = f"{self._number}.{len(self.asked)}", self._chance.randint(2, EVENTS_MAX)
        self.asked[name] = count
        events = [
            {
                "topic": self._chance.choice(self._topics),
                "type": EVENT_TYPE,
                "payload": {
                    "batch": name,
                    "at": at,
                    "of": count,
                    "padding": "x" * self._chance.randint(0, PADDING_MAX),
                },
            }
            for at in range(count)
        ]
        self._name, self._body = name, json.dumps(events).encode()

    def _send_until_cut(self) -> None:
        connection = http.client.HTTPConnection(*self._address, timeout=ANSWER_TIMEOUT_S)
        try:
            while self.may_go.is_set() and not self._is_done:
                headers = {"Content-Type": "application/json", "Idempotency-Key": self._name}
                connection.request("POST", "/events", self._body, headers)
                answer = connection.getresponse()
                said = answer.read()
                if answer.status not in (200, 201):
                    if answer.status < 500:
                        self.failure = f"{self._name}: {answer.status} {said[:300]!r}"
                    return
                if not self.is_stubborn and answer.status == 200:
                    self.failure = f"{self._name} was never sent before"
                self.answered[self._name] = json.loads(said)["eventIds"]
                self._take_next()
        except (OSError, http.client.HTTPException):
            time.sleep(PAUSE_S)  # it is down; whether anybody may go on is asked again
        finally:
            connection.close()


class StockProducer(threading.Thread):
    """Sends numbers to one topic, in their order; `acknowledged` has the offset of each.

    What is on its way when it may not go on is sent until it is acknowledged, as such clients do.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self.acknowledged: dict[int, int] = {}
        self.may_go = threading.Event()
        self.failure: str | None = None
        self._topic = topic
        self._is_done = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "message.timeout.ms": 300_000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        while not self._is_done.is_set() and self.failure is None:
            if self.may_go.is_set() and self.sent - len(self.acknowledged) < PRODUCED_AT_ONCE_MAX:
                value = json.dumps({"produced": self.sent}).encode()
                headers: list[Any] = [("ce_type", EVENT_TYPE.encode())]
                self._producer.produce(self._topic, value, headers=headers, on_delivery=self._delivered)
                self.sent += 1
            self._producer.poll(0.001)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failure = str(error)
            return
        offset = message.offset()
        assert offset is not None
        self.acknowledged[json.loads(message.value() or b"")["produced"]] = offset

    def end(self) -> None:
        self._is_done.set()
        self.join(END_TIMEOUT_S)
        assert self._producer.flush(END_TIMEOUT_S) == 0
        assert self.failure is None, self.failure
