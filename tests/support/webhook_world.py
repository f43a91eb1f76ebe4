"""A webhook that lives at random, without clock, disk or network, beside a naive twin that only remembers.

Events come, portions of the log are read, requests are begun and end in any order and any way, time passes, changes are
written down or not, the process dies and begins again from what was written. Somebody pauses, replays, resends and
changes the mode. The twin knows what was delivered and what was given up; after every step it is asked whether each
wanted event below the place that is written down is accounted for, and in the end whether everything arrived.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from kwire.streams.events.event import Event
from kwire.streams.webhooks.consumer import Consumer, ConsumerRules, Key, Outcome
from kwire.streams.webhooks.cursor import Delivery, TopicCursor
from kwire.streams.webhooks.definition import Definition, TopicStart
from kwire.streams.webhooks.delivery.retry_schedule import Schedule
from kwire.streams.webhooks.delivery.sender import Response
from kwire.streams.webhooks.delivery.signing import SigningSecrets

TOPIC = "orders"
TOPIC_ID = b"t" * 16
PAUSES_MS = (1000, 5000)
ATTEMPTS_MAX = len(PAUSES_MS) + 1
FINISH_STEPS_MAX = 20_000


class InFlight(NamedTuple):
    """A request that was begun."""

    delivery: Delivery
    event: Event
    # Of the topic: it may have been made again since.
    topic_id: bytes


class WebhookWorld:
    """See the module's words. A run is repeated by its seed."""

    def __init__(self, seed: int, *, is_ordered: bool, has_filter: bool) -> None:
        self.chance = Random(seed)
        self.now_ms = 1_700_000_000_000
        self.log: list[Event] = []
        self.topic_id = TOPIC_ID
        self.definition = Definition(
            webhook_id="w",
            url="https://example.com/",
            topics={TOPIC: TopicStart(TOPIC_ID, 0, "mark")},
            secrets=SigningSecrets.first(),
            types=frozenset({"wanted"}) if has_filter else frozenset(),
            is_ordered=is_ordered,
            parallel=1 if is_ordered else self.chance.choice([1, 3, 8]),
        )
        self.rules = ConsumerRules(Schedule(PAUSES_MS, self.chance.random), 7, 10**15)
        self.written: dict[Key, Any] = {}
        self.failure_rate = self.chance.choice([0.0, 0.2, 0.6])
        # The twin.
        self.delivered: set[int] = set()
        self.excused: set[int] = set()
        self.sent_count = self.crash_count = 0
        self.begin()

    def begin(self) -> None:
        """A process starts with what was written down."""
        self.consumer = Consumer(self.definition, self.rules)
        self.consumer.restore(self.written)
        self.consumer.follow(TOPIC, self.topic_id, len(self.log))
        self.in_flight: list[InFlight] = []

    @property
    def cursor(self) -> TopicCursor:
        return self.consumer.cursors[TOPIC]

    @property
    def in_flight_here(self) -> list[InFlight]:
        """Without those of a topic that is gone."""
        return [one for one in self.in_flight if one.topic_id == self.topic_id]

    def wants(self, event: Event) -> bool:
        return not self.definition.types or event.type in self.definition.types

    # --- a life

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.check_bounds()
        self.finish()

    def step(self) -> None:
        kinds = ["publish"] * 4 + ["read"] * 4 + ["send"] * 6 + ["end"] * 6 + ["write"] * 3 + ["wait"] * 3
        if self.chance.random() < 0.3:
            kinds += ["crash", "pause", "replay", "resend", "mode", "give_up", "make_again"]
        getattr(self, self.chance.choice(kinds))()

    def publish(self) -> None:
        for _ in range(self.chance.randint(1, 6)):
            kind = self.chance.choice(["wanted", "other"])
            self.log.append(Event(len(self.log), "", kind, b"{}", self.now_ms, {}, None, 10))

    def read(self) -> None:
        cursor = self.cursor
        if cursor.read_to < len(self.log) and cursor.wants_events(self.consumer.is_due(self.now_ms)):
            some = self.log[cursor.read_to : cursor.read_to + self.chance.randint(1, 5)]
            self.consumer.add_events(TOPIC, some, some[-1].offset + 1)

    def send(self) -> None:
        delivery = self.consumer.take(TOPIC, self.now_ms, self.now_ms / 1000)
        if delivery is None:
            return
        event = self.log[delivery.offset]
        assert self.wants(event) or delivery.is_from_retry_queue
        assert delivery.attempt >= 1
        if not delivery.is_from_retry_queue and self.definition.is_ordered:
            self.check_order(delivery.offset)
        self.in_flight.append(InFlight(delivery, event, self.topic_id))
        self.sent_count += 1
        if self.definition.is_ordered:
            # Also of those that were begun before the mode changed.
            assert (
                sum(one.delivery.is_from_retry_queue == delivery.is_from_retry_queue for one in self.in_flight_here)
                == 1
            )
        else:
            assert len(self.in_flight_here) <= self.definition.parallel

    def end(self) -> None:
        if not self.in_flight:
            return
        one = self.in_flight.pop(self.chance.randrange(len(self.in_flight)))
        if self.chance.random() < 0.05:
            self.consumer.release(one.delivery)
            return
        response = self.response()
        verdict = self.consumer.finish(TOPIC, one.delivery, one.event, response, self.now_ms)
        assert (verdict.outcome is Outcome.DELIVERED) == response.is_success
        if response.is_success and one.topic_id == self.topic_id:
            self.delivered.add(one.event.offset)

    def response(self) -> Response:
        if self.chance.random() >= self.failure_rate:
            return Response(200)
        if self.chance.random() < 0.3:
            return Response(None, "no answer")
        if self.chance.random() < 0.2:
            return Response(429, retry_after_ms=self.chance.choice([None, 100, 20_000]))
        return Response(500)

    def write(self) -> None:
        for key, value in self.consumer.take_changes():
            if value is None:
                self.written.pop(key, None)
            else:
                self.written[key] = list(value) if isinstance(value, tuple) else value
        self.check_written()
        self.check_restored()

    def wait(self) -> None:
        self.now_ms += self.chance.choice([1, 500, 2000, 10_000])

    def make_again(self) -> None:
        """The topic is deleted, and another one has its name; what is under way is of the old one."""
        self.topic_id = self.chance.randbytes(16)
        self.log.clear()
        self.delivered.clear()
        self.excused.clear()
        self.consumer.follow(TOPIC, self.topic_id, 0)
        # Until this is written down, a start finds places of the old topic, and follows the new one by itself.
        self.write()

    def crash(self) -> None:
        self.crash_count += 1
        self.begin()

    # --- what people ask for

    def pause(self) -> None:
        state = "paused" if self.definition.state == "active" else "active"
        self.redefine(self.definition.changed(state=state))

    def mode(self) -> None:
        is_ordered = self.chance.random() < 0.5
        self.redefine(self.definition.changed(is_ordered=is_ordered, parallel=1 if is_ordered else 4))

    def redefine(self, definition: Definition) -> None:
        self.definition = definition
        self.consumer.redefine(definition)

    def replay(self) -> None:
        before, offset = self.cursor.position, self.chance.randint(0, len(self.log))
        self.excused.update(range(before, offset))
        self.consumer.seek(TOPIC, offset)
        self.write()

    def resend(self) -> None:
        below = [event.offset for event in self.log[: self.cursor.position] if self.wants(event)]
        if below:
            self.consumer.send_again(TOPIC, self.chance.choice(below), self.now_ms)

    def give_up(self) -> None:
        if self.consumer.dead:
            topic, offset = self.chance.choice(sorted(self.consumer.dead))
            assert self.consumer.drop_dead(topic, offset)
            self.excused.add(offset)

    # --- what has to hold

    def check_bounds(self) -> None:
        cursor = self.cursor
        assert 0 <= cursor.position <= cursor.read_to <= len(self.log)
        assert cursor.in_flight_count == len(self.in_flight_here)
        assert len(self.consumer.attempts) <= 7

    def check_order(self, offset: int) -> None:
        """Nothing is sent in line before what is in front of it is done with."""
        for event in self.log[:offset]:
            if self.wants(event):
                assert self.is_accounted_for(event.offset), f"{offset} was sent before {event.offset}"

    def is_accounted_for(self, offset: int) -> bool:
        dead = (TOPIC, offset) in self.consumer.dead
        return dead or offset in self.delivered or offset in self.excused or offset in self.cursor.retry_queue

    def check_written(self) -> None:
        """Whatever happens from now on, a start from what is written down loses nothing."""
        place = self.written.get(("p", TOPIC))
        position = place["position"] if place else 0
        for event in self.log[:position]:
            offset = event.offset
            is_known = ("r", TOPIC, offset) in self.written or ("d", TOPIC, offset) in self.written
            if self.wants(event) and not is_known:
                assert offset in self.delivered or offset in self.excused, f"{offset} would be lost"

    def check_restored(self) -> None:
        """A start from what is written down is where the consumer is now, but for what is under way."""
        restored = Consumer(self.definition, self.rules)
        restored.restore(self.written)
        cursor, again = self.cursor, restored.cursors[TOPIC]
        assert (again.position, again.head, again.retry_queue) == (cursor.position, cursor.head, cursor.retry_queue)
        assert (restored.dead, restored.attempts) == (self.consumer.dead, self.consumer.attempts)
        assert restored.not_before_ms == self.consumer.not_before_ms
        assert not restored.has_changes

    def finish(self) -> None:
        """The receiver is well, and there is time."""
        self.failure_rate = 0.0
        self.redefine(self.definition.changed(state="active"))
        for _ in range(FINISH_STEPS_MAX):
            self.read()
            self.send()
            self.end()
            if not self.in_flight:
                self.now_ms += 10_000
                is_done = self.cursor.position == len(self.log) and not self.cursor.retry_queue
                if is_done:
                    break
        else:
            raise AssertionError("it never ends")
        for event in self.log:
            if self.wants(event):
                assert self.is_accounted_for(event.offset), f"{event.offset} was lost"
        self.write()
