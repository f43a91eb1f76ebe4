"""One webhook at work: its definition, a cursor per topic, and what is remembered of its deliveries. No I/O, no clock.

Whatever has to survive a restart is a record with a key. `take_changes` hands out those that are others than before,
all as they are at one moment: written down together, they are a state that really was. Keys of one webhook:

| key | |
|---|---|
| `p`, topic | the position in a topic, and the attempts of the event there |
| `r`, topic, offset | an event beside the line that is to be tried (again) |
| `d`, topic, offset | a dead letter |
| `a`, slot | an attempt; the slots are a ring, so the log of deliveries stays short by itself |
| `s` | counts, and since when everything fails |
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from kwire.broker.events.event import Event
from kwire.broker.store.event_ids import EventId
from kwire.broker.webhooks.bodies import body_of
from kwire.broker.webhooks.cursor import Delivery, Retry, TopicCursor
from kwire.broker.webhooks.definition import Definition
from kwire.broker.webhooks.rate import RateLimit
from kwire.broker.webhooks.schedule import Schedule, asked_pause_ms
from kwire.broker.webhooks.sending import Request, Response

# A webhook with so many is disabled: nothing of it is thrown away to make room.
DEAD_LETTERS_MAX = 10_000
# An answer to one delivery that says something about all of them.
GONE_STATUS = 410
THROTTLE_STATUSES = frozenset({429, 502, 503, 504})
# Without a Retry-After.
THROTTLE_MS = 5000
EXCERPT_LENGTH_MAX = 500

Key = tuple[str | int, ...]
COUNTS_KEY: Key = ("s",)


class Outcome(Enum):
    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"
    # The webhook goes, by its policy.
    REMOVE = "remove"
    # The webhook is to be disabled; the event stays.
    DISABLE = "disable"
    # No attempt: events that are no longer stored were passed over.
    GAP = "gap"


class Attempt(NamedTuple):
    """One line of the log of deliveries. `number` counts all attempts of the webhook."""

    number: int
    topic: str
    offset: int
    event_type: str
    attempt: int
    started_ms: int
    duration_ms: int
    status: int | None
    problem: str | None
    excerpt: str
    outcome: str
    next_ms: int | None


class DeadLetter(NamedTuple):
    """The event itself is in its topic, as long as that keeps it."""

    event_type: str
    attempts: int
    died_ms: int
    status: int | None
    problem: str | None


class Verdict(NamedTuple):
    """`reason` says why, unless it was delivered."""

    outcome: Outcome
    reason: str = ""


class ConsumerRules(NamedTuple):
    """What all webhooks of a node have in common."""

    schedule: Schedule
    attempts_kept: int
    disable_after_ms: int


class Consumer:
    """Called from the event loop, or from a test. Times of day come in with each call."""

    def __init__(self, definition: Definition, rules: ConsumerRules) -> None:
        self.definition = definition
        self.cursors: dict[str, TopicCursor] = {}
        self.dead: dict[tuple[str, int], DeadLetter] = {}
        self.attempts: dict[int, Attempt] = {}
        self.delivered_count = 0
        self.failed_count = 0
        self.failing_since_ms: int | None = None
        # Nothing is sent before: the receiver asked for a pause.
        self.not_before_ms = 0
        # Gone for good: what is still under way changes nothing any more.
        self.is_removed = False
        self._rules = rules
        self._attempt_count = 0
        self._rate: RateLimit | None = None
        self._changed: dict[Key, None] = {}
        # Position and head of each topic as they were handed out last.
        self._known_places: dict[str, tuple[int, Retry | None]] = {}
        for name in definition.topics:
            self._begin(name)
        self._set_rate()

    @property
    def webhook_id(self) -> str:
        return self.definition.webhook_id

    @property
    def is_active(self) -> bool:
        return self.definition.state == "active" and not self.is_removed

    def _begin(self, name: str) -> None:
        start = self.definition.topics[name]
        self.cursors[name] = self._cursor(start.topic_id, start.mark, start.offset)
        self._note_place(name)

    def _cursor(self, topic_id: bytes, mark: str, offset: int) -> TopicCursor:
        definition = self.definition
        return TopicCursor(
            topic_id, mark, offset, is_ordered=definition.is_ordered, parallel=max(definition.parallel, 1)
        )

    def _set_rate(self) -> None:
        per_second = self.definition.rate_per_second
        if per_second is None:
            self._rate = None
        elif self._rate is None or self._rate.per_second != per_second:
            self._rate = RateLimit(per_second)

    # --- sending

    def is_due(self, now_ms: int) -> Callable[[int], bool]:
        schedule = self._rules.schedule
        return lambda due_ms: schedule.is_due(due_ms, now_ms)

    def wait_seconds(self, now_ms: int, now: float) -> float:
        """How long nothing at all may be sent; `now` is of a clock that never goes back."""
        if not self._rules.schedule.is_due(self.not_before_ms, now_ms):
            return max((self.not_before_ms - now_ms) / 1000, 0.001)
        return self._rate.wait_seconds(now) if self._rate is not None else 0.0

    def is_held_back(self, now_ms: int) -> bool:
        """Whether nothing is to be sent just now, of what was taken before either."""
        return not self.is_active or not self._rules.schedule.is_due(self.not_before_ms, now_ms)

    def take(self, topic: str, now_ms: int, now: float) -> Delivery | None:
        """The next attempt in this topic, if there is one and it may begin now."""
        cursor = self.cursors.get(topic)
        if cursor is None or not self.is_active or self.wait_seconds(now_ms, now) > 0:
            return None
        delivery = cursor.take(self.is_due(now_ms))
        if delivery is not None and self._rate is not None:
            self._rate.take(now)
        return delivery

    def request(self, topic: str, event: Event, now_ms: int, timeout_ms: int) -> Request:
        """What is sent: signed now, with the id that all attempts of this event have."""
        definition = self.definition
        body = body_of(definition.body, topic, event)
        signed = definition.secrets.headers(str(EventId(topic, event.offset)), body.content, now_ms)
        return Request(definition.url, {**definition.headers, **body.headers, **signed}, body.content, timeout_ms)

    # --- reading

    def add_events(self, topic: str, events: list[Event], next_offset: int) -> None:
        """What was read in line; what is not wanted is done with."""
        cursor, wants = self.cursors[topic], self.definition.wants
        # After a restart or another mode the line may come to events that wait beside it: those stay there.
        aside = cursor.aside
        cursor.add([event for event in events if event.offset not in aside and wants(topic, event)], next_offset)
        self._note_place(topic)

    def skip_to(self, topic: str, offset: int, reason: str, now_ms: int) -> None:
        """Nobody can read what lies between: retention took it, or it is damaged. The log of deliveries tells."""
        cursor = self.cursors[topic]
        first, last = EventId(topic, cursor.read_to), EventId(topic, offset - 1)
        missed = Response(None, f"{first} to {last} could not be delivered: {reason}")
        self._log(topic, cursor.read_to, 0, "", missed, now_ms, Outcome.GAP, None)
        cursor.add([], offset)
        self._note_place(topic)

    def follow(self, topic: str, topic_id: bytes, end_offset: int) -> None:
        """The topic is there, with so many offsets. One that was made anew is read from its beginning; in one that a
        power cut has shortened, what comes next is new."""
        cursor = self.cursors[topic]
        if cursor.topic_id != topic_id:
            self._forget_events(topic)
            self.cursors[topic] = self._cursor(topic_id, cursor.mark, 0)
            # Another place, though the numbers may be the same.
            self._known_places.pop(topic, None)
            self._note_place(topic)
        elif cursor.position > end_offset:
            self.seek(topic, end_offset)

    # --- what came of an attempt

    def finish(self, topic: str, delivery: Delivery, event: Event, response: Response, now_ms: int) -> Verdict:
        """Note an attempt that ended now."""
        if self.is_removed:
            return Verdict(Outcome.DELIVERED if response.is_success else Outcome.RETRY)
        cursor = delivery.cursor
        is_followed = cursor is self.cursors.get(topic)
        verdict, retry = self._judge(delivery, response, now_ms)
        started_ms = now_ms - response.duration_ms
        next_ms = retry.due_ms if retry is not None and verdict.outcome is Outcome.RETRY and is_followed else None
        self._log(topic, delivery.offset, delivery.attempt, event.type, response, started_ms, verdict.outcome, next_ms)
        if not is_followed:
            # The topic was taken out or made again meanwhile: what the receiver said counts, the place does not.
            return verdict
        was_aside = delivery.offset in cursor.aside
        is_current = cursor.settle(delivery, retry)
        if was_aside or delivery.offset in cursor.aside:
            self._changed["r", topic, delivery.offset] = None
        if verdict.outcome is Outcome.DELIVERED:
            self._drop_dead(topic, delivery.offset)
        elif verdict.outcome is Outcome.DEAD and is_current:
            verdict = self._bury(topic, delivery, event.type, response, now_ms) or verdict
        self._note_place(topic)
        return verdict

    def lose(self, topic: str, delivery: Delivery, now_ms: int) -> Verdict | None:
        """An event beside the line is not in the log any more: it is a dead letter that nobody can send again. None if
        nobody asks for it any more either."""
        cursor = delivery.cursor
        if not cursor.settle(delivery, None) or cursor is not self.cursors.get(topic) or self.is_removed:
            return None
        self._changed["r", topic, delivery.offset] = None
        reason = "the event is no longer stored"
        gone = Response(None, reason)
        self._log(topic, delivery.offset, delivery.attempt, "", gone, now_ms, Outcome.DEAD, None)
        return self._bury(topic, delivery, "", gone, now_ms) or Verdict(Outcome.DEAD, reason)

    def put_back(self, delivery: Delivery) -> None:
        """It was not sent after all."""
        delivery.cursor.put_back(delivery)

    def _judge(self, delivery: Delivery, response: Response, now_ms: int) -> tuple[Verdict, Retry | None]:
        if response.is_success:
            self.delivered_count += 1
            self.failing_since_ms = None
            return Verdict(Outcome.DELIVERED), None
        self.failed_count += 1
        reason = response.problem or f"the receiver answered {response.status}"
        again_now = Retry(delivery.attempt, now_ms)
        if self.definition.policy == "remove":
            return Verdict(Outcome.REMOVE, reason), again_now
        if response.status == GONE_STATUS:
            return Verdict(Outcome.DISABLE, "the receiver answered 410: it wants no more"), again_now
        if response.status in THROTTLE_STATUSES or response.retry_after_ms:
            pause_ms = asked_pause_ms(response.retry_after_ms) or THROTTLE_MS
            self.not_before_ms = max(self.not_before_ms, now_ms + pause_ms)
        if self.failing_since_ms is None or self.failing_since_ms > now_ms:
            self.failing_since_ms = now_ms
        elif now_ms - self.failing_since_ms >= self._rules.disable_after_ms:
            days = self._rules.disable_after_ms / 86_400_000
            return Verdict(Outcome.DISABLE, f"nothing could be delivered for {days:g} days: {reason}"), again_now
        due_ms = self._rules.schedule.due_ms(delivery.attempt, now_ms, response.retry_after_ms)
        if due_ms is None:
            return Verdict(Outcome.DEAD, reason), None
        return Verdict(Outcome.RETRY, reason), Retry(delivery.attempt, due_ms)

    def _log(
        self,
        topic: str,
        offset: int,
        attempt_number: int,
        event_type: str,
        response: Response,
        started_ms: int,
        outcome: Outcome,
        next_ms: int | None,
    ) -> None:
        attempt = Attempt(
            self._attempt_count,
            topic,
            offset,
            event_type,
            attempt_number,
            started_ms,
            response.duration_ms,
            response.status,
            response.problem,
            response.excerpt[:EXCERPT_LENGTH_MAX],
            outcome.value,
            next_ms,
        )
        slot = self._attempt_count % self._rules.attempts_kept
        self.attempts[slot] = attempt
        self._attempt_count += 1
        self._changed["a", slot] = None
        self._changed[COUNTS_KEY] = None

    def _bury(self, topic: str, delivery: Delivery, event_type: str, response: Response, now_ms: int) -> Verdict | None:
        """Make it a dead letter. The verdict is one about the webhook, if there are too many by now."""
        letter = DeadLetter(event_type, delivery.attempt, now_ms, response.status, response.problem)
        self.dead[topic, delivery.offset] = letter
        self._changed["d", topic, delivery.offset] = None
        if len(self.dead) < DEAD_LETTERS_MAX:
            return None
        return Verdict(Outcome.DISABLE, f"it has {DEAD_LETTERS_MAX} dead letters")

    def _drop_dead(self, topic: str, offset: int) -> bool:
        if self.dead.pop((topic, offset), None) is None:
            return False
        self._changed["d", topic, offset] = None
        return True

    # --- on request

    def redefine(self, definition: Definition) -> None:
        """Go on by another definition: topics come and go, places in those that stay are kept."""
        before, self.definition = self.definition, definition
        for name, start in before.topics.items():
            if name not in definition.topics or definition.topics[name].mark != start.mark:
                self._forget_events(name)
                del self.cursors[name]
                self._known_places.pop(name, None)
                self._changed["p", name] = None
        for name in definition.topics:
            if name not in self.cursors:
                self._begin(name)
        for name, cursor in self.cursors.items():
            asides = set(cursor.aside)
            cursor.change_mode(is_ordered=definition.is_ordered, parallel=max(definition.parallel, 1))
            if (definition.types, definition.filter) != (before.types, before.filter):
                cursor.reread()
            for offset in asides ^ set(cursor.aside):
                self._changed["r", name, offset] = None
            self._note_place(name)
        if definition.state == "active" and before.state != "active":
            # Whoever says that it can go on has seen to the receiver.
            self.failing_since_ms = None
            self.not_before_ms = 0
            self._changed[COUNTS_KEY] = None
        self._set_rate()

    def seek(self, topic: str, offset: int) -> None:
        """Deliver everything from there on, whether it was delivered or not."""
        for outrun in self.cursors[topic].seek(offset):
            self._changed["r", topic, outrun] = None
        self._note_place(topic)

    def send_again(self, topic: str, offset: int, now_ms: int) -> None:
        """One event, out of turn. A dead letter stays one until it is delivered."""
        self.cursors[topic].send_again(offset, now_ms)
        self._changed["r", topic, offset] = None

    def drop_dead(self, topic: str, offset: int) -> bool:
        """Give a dead letter up; False if it is none. If it is on its way again, it stays so."""
        return self._drop_dead(topic, offset)

    def _forget_events(self, topic: str) -> None:
        """Nothing of what is written down about events of this topic is true any more."""
        for offset in self.cursors[topic].aside:
            self._changed["r", topic, offset] = None
        for name, offset in [key for key in self.dead if key[0] == topic]:
            self._drop_dead(name, offset)

    # --- written down

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def take_changes(self) -> list[tuple[Key, Any]]:
        """All records that are others than when this was asked last; None: there is none any more."""
        changed, self._changed = self._changed, {}
        return [(key, self._value(key)) for key in changed]

    def give_back(self, changes: list[tuple[Key, Any]]) -> None:
        """They could not be written down: they come again."""
        self._changed |= dict.fromkeys(key for key, _ in changes)

    def all_keys(self) -> list[Key]:
        """Of all records that may be written down."""
        keys: list[Key] = [COUNTS_KEY, *self._changed]
        keys += [("a", slot) for slot in self.attempts]
        keys += [("d", topic, offset) for topic, offset in self.dead]
        for name, cursor in self.cursors.items():
            keys += [("p", name), *(("r", name, offset) for offset in cursor.aside)]
        return list(dict.fromkeys(keys))

    def _note_place(self, topic: str) -> None:
        cursor = self.cursors[topic]
        place = cursor.position, cursor.head
        if self._known_places.get(topic) != place:
            self._known_places[topic] = place
            self._changed["p", topic] = None

    def _value(self, key: Key) -> Any:
        kind, *rest = key
        if kind == "s":
            return {
                "attempt_count": self._attempt_count,
                "delivered_count": self.delivered_count,
                "failed_count": self.failed_count,
                "failing_since_ms": self.failing_since_ms,
                "not_before_ms": self.not_before_ms,
            }
        if kind == "a":
            return self.attempts.get(int(rest[0]))
        name = str(rest[0])
        if kind == "d":
            return self.dead.get((name, int(rest[1])))
        cursor = self.cursors.get(name)
        if cursor is None:
            return None
        if kind == "r":
            return cursor.aside.get(int(rest[1]))
        return {
            "topic_id": cursor.topic_id.hex(),
            "mark": cursor.mark,
            "position": cursor.position,
            "head": cursor.head,
        }

    def restore(self, records: Mapping[Key, Any]) -> None:
        """Go on from what was written down. What belongs to no topic of the definition is to be removed there."""
        # Of a topic that was taken out and added again nothing counts that was written down before.
        places = {key[1] for key, value in records.items() if key[0] == "p" and self._restore_place(str(key[1]), value)}
        for key, value in records.items():
            kind, *rest = key
            if kind == "s":
                self._attempt_count = value["attempt_count"]
                self.delivered_count, self.failed_count = value["delivered_count"], value["failed_count"]
                self.failing_since_ms, self.not_before_ms = value["failing_since_ms"], value["not_before_ms"]
            elif kind == "a" and int(rest[0]) < self._rules.attempts_kept:
                self.attempts[int(rest[0])] = Attempt(*value)
            elif kind == "r" and rest[0] in places:
                self.cursors[str(rest[0])].aside[int(rest[1])] = Retry(*value)
            elif kind == "d" and rest[0] in places:
                self.dead[str(rest[0]), int(rest[1])] = DeadLetter(*value)
        numbers = [one.number for one in self.attempts.values()]
        self._attempt_count = max((self._attempt_count, *(number + 1 for number in numbers)))
        kept = set(self.all_keys())
        self._changed |= {key: None for key in records if key not in kept}

    def _restore_place(self, name: str, value: Mapping[str, Any]) -> bool:
        cursor = self.cursors.get(name)
        if cursor is None or value["mark"] != cursor.mark:
            return False
        cursor = self.cursors[name] = self._cursor(bytes.fromhex(value["topic_id"]), cursor.mark, value["position"])
        head = value["head"]
        if head is not None and cursor.is_ordered:
            cursor.head = Retry(*head)
        self._known_places[name] = cursor.position, cursor.head
        self._changed.pop(("p", name), None)
        return True
