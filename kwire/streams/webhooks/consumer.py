"""The state of one webhook: its definition, a cursor per topic, dead letters and the delivery log.

This module does no I/O and reads no clock. Everything that must survive a restart is a record with a key.
`take_changes` returns all records that have changed, with their current values. The caller stores them in one batch, so
the stored state is always consistent. The keys of one webhook are:

| key | value |
|---|---|
| `p`, topic | the position in the topic, and the failed attempts of the event at this position |
| `r`, topic, offset | an event in the retry queue |
| `d`, topic, offset | a dead letter |
| `a`, slot | an entry of the delivery log, which is a ring buffer: a new entry overwrites the oldest |
| `s` | counters, the time since which all deliveries have failed, and the pause requested by the receiver |
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from kwire.streams.event_store.event_ids import EventId
from kwire.streams.events.event import Event
from kwire.streams.webhooks.cursor import Delivery, Retry, TopicCursor
from kwire.streams.webhooks.definition import Definition
from kwire.streams.webhooks.delivery.bodies import body_of
from kwire.streams.webhooks.delivery.rate_limit import RateLimit
from kwire.streams.webhooks.delivery.retry_schedule import Schedule, granted_pause_ms
from kwire.streams.webhooks.delivery.sender import Request, Response

# A webhook with this many dead letters is disabled. None of the dead letters is discarded.
DEAD_LETTERS_MAX = 10_000
# This status disables the webhook.
GONE_STATUS = 410
# These statuses pause all deliveries of the webhook.
THROTTLE_STATUSES = frozenset({429, 502, 503, 504})
# The pause after a throttle status if the response has no Retry-After header.
THROTTLE_MS = 5000
EXCERPT_LENGTH_MAX = 500

Key = tuple[str | int, ...]
COUNTS_KEY: Key = ("s",)


class Outcome(Enum):
    """The outcome of an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"
    # The webhook is removed, because its policy is `remove`.
    REMOVE = "remove"
    # The webhook is disabled. Unless the event became a dead letter, it is sent again when the webhook is resumed.
    DISABLE = "disable"
    # This is not an attempt: events that are damaged or no longer stored were skipped.
    GAP = "gap"


class Attempt(NamedTuple):
    """An entry of the delivery log.

    `number` is the entry's number among all entries of the webhook. `attempt` is the number of the attempt among those
    of this event.
    """

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
    """An event that is no longer retried. The event itself is in its topic, until retention deletes it."""

    event_type: str
    attempts: int
    died_ms: int
    status: int | None
    problem: str | None


class AttemptResult(NamedTuple):
    """The outcome of an attempt. `reason` is empty if the event was delivered.

    `is_dead_letter` is whether the event became a dead letter. The outcome is then DEAD or DISABLE.
    """

    outcome: Outcome
    reason: str = ""
    is_dead_letter: bool = False


class ConsumerRules(NamedTuple):
    """Settings shared by all webhooks of a node."""

    schedule: Schedule
    attempts_kept: int
    disable_after_ms: int


class Consumer:
    """The state of one webhook. It is not thread-safe. Methods that need the current time have it as a parameter."""

    def __init__(self, definition: Definition, rules: ConsumerRules) -> None:
        self.definition = definition
        self.cursors: dict[str, TopicCursor] = {}
        self.dead: dict[tuple[str, int], DeadLetter] = {}
        self.attempts: dict[int, Attempt] = {}
        self.delivered_count = 0
        self.failed_count = 0
        self.failing_since_ms: int | None = None
        # No request is sent before this time, because the receiver requested a pause or returned a throttle status.
        self.not_before_ms = 0
        # Whether the webhook was removed. The results of its deliveries in flight are then ignored.
        self.is_removed = False
        self._rules = rules
        self._attempt_count = 0
        self._rate: RateLimit | None = None
        self._secret_texts = definition.secret_texts
        self._changed: dict[Key, None] = {}
        # The position and `head` of each cursor when its record was last marked as changed.
        self._tracked_positions: dict[str, tuple[int, Retry | None]] = {}
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
        self.cursors[name] = self._cursor(start.topic_id, start.start_id, start.offset)
        self._track_position(name)

    def _cursor(self, topic_id: bytes, start_id: str, offset: int) -> TopicCursor:
        definition = self.definition
        return TopicCursor(
            topic_id, start_id, offset, is_ordered=definition.is_ordered, parallel=max(definition.parallel, 1)
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
        """Return the seconds until a request may be sent; 0 if it may be sent now. `now` is a monotonic time."""
        if not self._rules.schedule.is_due(self.not_before_ms, now_ms):
            return max((self.not_before_ms - now_ms) / 1000, 0.001)
        return self._rate.wait_seconds(now) if self._rate is not None else 0.0

    def is_held_back(self, now_ms: int) -> bool:
        """Whether no request may be sent now, not even for a delivery that `take` has already returned."""
        return not self.is_active or not self._rules.schedule.is_due(self.not_before_ms, now_ms)

    def take(self, topic: str, now_ms: int, now: float) -> Delivery | None:
        """Start the next attempt in this topic, if one may start now."""
        cursor = self.cursors.get(topic)
        if cursor is None or not self.is_active or self.wait_seconds(now_ms, now) > 0:
            return None
        delivery = cursor.take(self.is_due(now_ms))
        if delivery is not None and self._rate is not None:
            self._rate.take(now)
        return delivery

    def request(self, topic: str, event: Event, now_ms: int, timeout_ms: int) -> Request:
        """Build and sign the request of an attempt. All attempts of an event have the same message id."""
        definition = self.definition
        topic = definition.shown_topic(topic)
        body = body_of(definition.body, topic, event)
        signed = definition.secrets.headers(str(EventId(topic, event.offset)), body.content, now_ms)
        headers = {**definition.headers, **body.headers, **signed}
        return Request(definition.url, headers, body.content, timeout_ms, self._secret_texts)

    # --- reading

    def add_events(self, topic: str, events: list[Event], next_offset: int) -> None:
        """Add events that were read in log order. Events that do not match the definition are skipped.

        `next_offset` is the first offset that was not read.
        """
        cursor, wants = self.cursors[topic], self.definition.wants
        # After a restart or a change of mode, events that are in the retry queue may be read again. The queue delivers
        # these events, so they are not added here.
        retry_queue = cursor.retry_queue
        cursor.add([event for event in events if event.offset not in retry_queue and wants(topic, event)], next_offset)
        self._track_position(topic)

    def skip_to(self, topic: str, offset: int, reason: str, now_ms: int) -> None:
        """Continue reading at `offset`, because the events before it were deleted by retention or are damaged.

        The skipped range is recorded in the delivery log.
        """
        cursor = self.cursors[topic]
        first, last = EventId(topic, cursor.read_to), EventId(topic, offset - 1)
        gap = Response(None, f"{first} to {last} could not be delivered: {reason}")
        self._log(topic, cursor.read_to, 0, "", gap, now_ms, Outcome.GAP, None)
        cursor.add([], offset)
        self._track_position(topic)

    def follow(self, topic: str, topic_id: bytes, end_offset: int) -> None:
        """Compare the cursor with the current topic, which ends at `end_offset`, and move the cursor if necessary.

        If the topic was deleted and created again, delivery starts at offset 0. If the position is beyond
        `end_offset`, because a power failure has shortened the topic, delivery continues at `end_offset`.
        """
        cursor = self.cursors[topic]
        if cursor.topic_id != topic_id:
            self._forget_events(topic)
            self.cursors[topic] = self._cursor(topic_id, cursor.start_id, 0)
            # Store the position even if the offset is the same, because the topic id has changed.
            self._tracked_positions.pop(topic, None)
            self._track_position(topic)
        elif cursor.position > end_offset:
            self.seek(topic, end_offset)

    # --- the end of an attempt

    def finish(self, topic: str, delivery: Delivery, event: Event, response: Response, now_ms: int) -> AttemptResult:
        """Record the response to an attempt and return the outcome. The attempt ended at `now_ms`."""
        if self.is_removed:
            return AttemptResult(Outcome.DELIVERED if response.is_success else Outcome.RETRY)
        cursor = delivery.cursor
        is_followed = cursor is self.cursors.get(topic)
        result, retry = self._classify(delivery, response, now_ms)
        started_ms = now_ms - response.duration_ms
        next_ms = retry.due_ms if retry is not None and result.outcome is Outcome.RETRY and is_followed else None
        self._log(topic, delivery.offset, delivery.attempt, event.type, response, started_ms, result.outcome, next_ms)
        if not is_followed:
            # The topic was removed from the webhook or created again during the attempt. The response is logged and
            # counted, but it does not change the position.
            return result
        was_queued = delivery.offset in cursor.retry_queue
        is_current = cursor.complete(delivery, retry)
        if was_queued or delivery.offset in cursor.retry_queue:
            self._changed["r", topic, delivery.offset] = None
        if result.outcome is Outcome.DELIVERED:
            self._drop_dead(topic, delivery.offset)
        elif result.outcome is Outcome.DEAD and is_current:
            result = self._add_dead_letter(topic, delivery, event.type, response, result.reason, now_ms)
        self._track_position(topic)
        return result

    def finish_missing(self, topic: str, delivery: Delivery, now_ms: int) -> AttemptResult | None:
        """End a delivery whose event is no longer stored. The event becomes a dead letter that cannot be sent again.

        Returns None and adds no dead letter if the delivery is obsolete, for example because of a seek.
        """
        cursor = delivery.cursor
        if not cursor.complete(delivery, None) or cursor is not self.cursors.get(topic) or self.is_removed:
            return None
        self._changed["r", topic, delivery.offset] = None
        reason = "the event is no longer stored"
        gone = Response(None, reason)
        self._log(topic, delivery.offset, delivery.attempt, "", gone, now_ms, Outcome.DEAD, None)
        return self._add_dead_letter(topic, delivery, "", gone, reason, now_ms)

    def release(self, delivery: Delivery) -> None:
        """Give back a delivery that was not sent, so that `take` can return it again."""
        delivery.cursor.release(delivery)

    def _classify(self, delivery: Delivery, response: Response, now_ms: int) -> tuple[AttemptResult, Retry | None]:
        if response.is_success:
            self.delivered_count += 1
            self.failing_since_ms = None
            return AttemptResult(Outcome.DELIVERED), None
        self.failed_count += 1
        reason = response.problem or f"the receiver answered {response.status}"
        again_now = Retry(delivery.attempt, now_ms)
        if self.definition.policy == "remove":
            return AttemptResult(Outcome.REMOVE, reason), again_now
        if response.status == GONE_STATUS:
            return AttemptResult(Outcome.DISABLE, "the receiver answered 410 Gone"), again_now
        if response.status in THROTTLE_STATUSES or response.retry_after_ms:
            pause_ms = granted_pause_ms(response.retry_after_ms) or THROTTLE_MS
            self.not_before_ms = max(self.not_before_ms, now_ms + pause_ms)
        if self.failing_since_ms is None or self.failing_since_ms > now_ms:
            self.failing_since_ms = now_ms
        elif now_ms - self.failing_since_ms >= self._rules.disable_after_ms:
            days = self._rules.disable_after_ms / 86_400_000
            return AttemptResult(Outcome.DISABLE, f"all deliveries failed for {days:g} days: {reason}"), again_now
        due_ms = self._rules.schedule.due_ms(delivery.attempt, now_ms, response.retry_after_ms)
        if due_ms is None:
            return AttemptResult(Outcome.DEAD, reason), None
        return AttemptResult(Outcome.RETRY, reason), Retry(delivery.attempt, due_ms)

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

    def _add_dead_letter(
        self, topic: str, delivery: Delivery, event_type: str, response: Response, reason: str, now_ms: int
    ) -> AttemptResult:
        """Add a dead letter. The outcome is DISABLE if the webhook now has DEAD_LETTERS_MAX of them, otherwise DEAD."""
        letter = DeadLetter(event_type, delivery.attempt, now_ms, response.status, response.problem)
        self.dead[topic, delivery.offset] = letter
        self._changed["d", topic, delivery.offset] = None
        if len(self.dead) < DEAD_LETTERS_MAX:
            return AttemptResult(Outcome.DEAD, reason, is_dead_letter=True)
        return AttemptResult(Outcome.DISABLE, f"the webhook has {DEAD_LETTERS_MAX} dead letters", is_dead_letter=True)

    def _drop_dead(self, topic: str, offset: int) -> bool:
        if self.dead.pop((topic, offset), None) is None:
            return False
        self._changed["d", topic, offset] = None
        return True

    # --- on request

    def redefine(self, definition: Definition) -> None:
        """Replace the definition. Topics that are in both definitions keep their positions."""
        before, self.definition = self.definition, definition
        self._secret_texts = definition.secret_texts
        for name, start in before.topics.items():
            if name not in definition.topics or definition.topics[name].start_id != start.start_id:
                self._forget_events(name)
                del self.cursors[name]
                self._tracked_positions.pop(name, None)
                self._changed["p", name] = None
        for name in definition.topics:
            if name not in self.cursors:
                self._begin(name)
        for name, cursor in self.cursors.items():
            queued = set(cursor.retry_queue)
            cursor.change_mode(is_ordered=definition.is_ordered, parallel=max(definition.parallel, 1))
            if (definition.types, definition.filter) != (before.types, before.filter):
                cursor.reread()
            for offset in queued ^ set(cursor.retry_queue):
                self._changed["r", name, offset] = None
            self._track_position(name)
        if definition.state == "active" and before.state != "active":
            # The webhook was resumed. Assume that the receiver is available again.
            self.failing_since_ms = None
            self.not_before_ms = 0
            self._changed[COUNTS_KEY] = None
        self._set_rate()

    def seek(self, topic: str, offset: int) -> None:
        """Continue delivery at `offset`. Events from there on are delivered, even if they were delivered before."""
        for removed in self.cursors[topic].seek(offset):
            self._changed["r", topic, removed] = None
        self._track_position(topic)

    def send_again(self, topic: str, offset: int, now_ms: int) -> None:
        """Schedule one event to be sent again, out of order. A dead letter stays a dead letter until delivered."""
        self.cursors[topic].send_again(offset, now_ms)
        self._changed["r", topic, offset] = None

    def drop_dead(self, topic: str, offset: int) -> bool:
        """Discard a dead letter. Returns False if there is none. If it is being sent, the request is not cancelled."""
        return self._drop_dead(topic, offset)

    def _forget_events(self, topic: str) -> None:
        """Discard the dead letters of this topic, and mark its stored retries and dead letters for removal."""
        for offset in self.cursors[topic].retry_queue:
            self._changed["r", topic, offset] = None
        for name, offset in [key for key in self.dead if key[0] == topic]:
            self._drop_dead(name, offset)

    # --- persistence

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def take_changes(self) -> list[tuple[Key, Any]]:
        """Return the records that changed since the last call. The value None removes a record."""
        changed, self._changed = self._changed, {}
        return [(key, self._value(key)) for key in changed]

    def restore_changes(self, changes: list[tuple[Key, Any]]) -> None:
        """Mark these records as changed again, because they could not be stored.

        The next `take_changes` returns them with their values at that time.
        """
        self._changed |= dict.fromkeys(key for key, _ in changes)

    def all_keys(self) -> list[Key]:
        """Return the keys of all records that may be stored."""
        keys: list[Key] = [COUNTS_KEY, *self._changed]
        keys += [("a", slot) for slot in self.attempts]
        keys += [("d", topic, offset) for topic, offset in self.dead]
        for name, cursor in self.cursors.items():
            keys += [("p", name), *(("r", name, offset) for offset in cursor.retry_queue)]
        return list(dict.fromkeys(keys))

    def _track_position(self, topic: str) -> None:
        cursor = self.cursors[topic]
        current = cursor.position, cursor.head
        if self._tracked_positions.get(topic) != current:
            self._tracked_positions[topic] = current
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
            return cursor.retry_queue.get(int(rest[1]))
        return {
            "topic_id": cursor.topic_id.hex(),
            "mark": cursor.start_id,
            "position": cursor.position,
            "head": cursor.head,
        }

    def restore(self, records: Mapping[Key, Any]) -> None:
        """Restore the stored state. Records of topics that the definition no longer has are marked for removal."""
        # If a topic was removed from the webhook and added again, its older records are invalid and not restored.
        restored_topics = {
            key[1] for key, value in records.items() if key[0] == "p" and self._restore_position(str(key[1]), value)
        }
        for key, value in records.items():
            kind, *rest = key
            if kind == "s":
                self._attempt_count = value["attempt_count"]
                self.delivered_count, self.failed_count = value["delivered_count"], value["failed_count"]
                self.failing_since_ms, self.not_before_ms = value["failing_since_ms"], value["not_before_ms"]
            elif kind == "a" and int(rest[0]) < self._rules.attempts_kept:
                self.attempts[int(rest[0])] = Attempt(*value)
            elif kind == "r" and rest[0] in restored_topics:
                self.cursors[str(rest[0])].retry_queue[int(rest[1])] = Retry(*value)
            elif kind == "d" and rest[0] in restored_topics:
                self.dead[str(rest[0]), int(rest[1])] = DeadLetter(*value)
        numbers = [one.number for one in self.attempts.values()]
        self._attempt_count = max((self._attempt_count, *(number + 1 for number in numbers)))
        kept = set(self.all_keys())
        self._changed |= {key: None for key in records if key not in kept}

    def _restore_position(self, name: str, value: Mapping[str, Any]) -> bool:
        cursor = self.cursors.get(name)
        if cursor is None or value["mark"] != cursor.start_id:
            return False
        cursor = self.cursors[name] = self._cursor(bytes.fromhex(value["topic_id"]), cursor.start_id, value["position"])
        head = value["head"]
        if head is not None and cursor.is_ordered:
            cursor.head = Retry(*head)
        self._tracked_positions[name] = cursor.position, cursor.head
        self._changed.pop(("p", name), None)
        return True
