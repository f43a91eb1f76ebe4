"""Webhooks as the doors use them: made, changed, paused, removed; their deliveries looked at, repeated and replayed.

This is also where everything that belongs to a webhook comes together: its definition, its consumer, and a lane in the
dispatcher of each of its topics.
"""

import asyncio
import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from kwire.broker.catalogue import AUDIT_TOPIC
from kwire.broker.events.event import EMPTY, Event
from kwire.broker.store.event_ids import EventId
from kwire.broker.subscriptions.start import Start, find_place
from kwire.broker.topics import Topic, Topics
from kwire.broker.webhooks.audit import Audit
from kwire.broker.webhooks.consumer import Attempt, Consumer, ConsumerRules, DeadLetter, Outcome, Verdict
from kwire.broker.webhooks.cursor import ASIDE_MAX
from kwire.broker.webhooks.definition import LATEST, Asked, Definition, TopicStart, checked_secrets
from kwire.broker.webhooks.definitions import Definitions, NoDefinitions, StoredDefinitions
from kwire.broker.webhooks.delivering import CallLater, Delivering, Gap, Lane
from kwire.broker.webhooks.dispatcher import CallSoon, Dispatcher
from kwire.broker.webhooks.schedule import Schedule
from kwire.broker.webhooks.sending import Response, Send
from kwire.broker.webhooks.signing import InvalidSecret, TooManySecrets
from kwire.broker.webhooks.state_log import NoStateLog, StateLog, TopicStateLog
from kwire.clock import Clock
from kwire.config.webhooks import WebhooksConfig
from kwire.errors import (
    EventNotFound,
    InvalidEvent,
    InvalidWebhook,
    KafkaError,
    TooManyWebhooks,
    TopicHasPartitions,
    TopicNotFound,
    WebhookConflict,
    WebhookNotFound,
)
from kwire.metastore import MetaStore
from kwire.streams.log import Bounds
from storage.errors import StorageError

log = logging.getLogger("kwire.webhooks")

R = TypeVar("R")

# Attempts of each webhook that are remembered.
ATTEMPTS_KEPT = 200
TEST_TYPE = "webhook.test"

# Raises InvalidWebhook for a URL that events may not go to.
CheckUrl = Callable[[str], None]


class ShownPlace(NamedTuple):
    """`pending` is how many events of the topic lie behind the place; `retrying` how many wait for another attempt."""

    last_event_id: str | None
    pending: int
    retrying: int


class WebhookStatistics(NamedTuple):
    """Of all webhooks of this process: how many there are in each state, and what has become of events."""

    states: Mapping[str, int]
    pending: int
    retrying: int
    dead_letters: int
    in_flight: int
    delivered: int
    failed: int
    died: int


class Webhooks:
    """Called from the event loop; at work from `open` to `close`."""

    def __init__(
        self,
        *,
        topics: Topics,
        metastore: MetaStore,
        clock: Clock,
        send: Send,
        config: WebhooksConfig,
        audit: Audit,
        call_soon: CallSoon,
        call_later: CallLater,
        check_url: CheckUrl | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.config = config
        self.dispatchers: dict[str, Dispatcher] = {}
        self._topics = topics
        self._clock = clock
        self._audit = audit
        self._call_soon = call_soon
        self._call_later = call_later
        self._check_url = check_url
        self._definitions: Definitions = StoredDefinitions(metastore) if config.is_persisted else NoDefinitions()
        self._state: StateLog = TopicStateLog(topics, clock, call_later) if config.is_persisted else NoStateLog()
        self._rules = ConsumerRules(Schedule(config.retry_schedule_ms, chance), ATTEMPTS_KEPT, config.disable_after_ms)
        self._delivering = Delivering(
            send,
            clock,
            call_later,
            self,
            in_flight_max=config.connections_max,
            in_flight_per_host_max=config.connections_per_host_max,
            timeout_ms=config.timeout_ms,
        )
        self.counts = self._delivering.counts
        self._consumers: dict[str, Consumer] = {}
        self._changing = asyncio.Lock()
        # Definitions that are being written down without anybody waiting: one or two per webhook at most.
        self._jobs: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._consumers)

    async def open(self) -> None:
        """Go on where the last run ended; from now on events are delivered."""
        lost = ""
        try:
            stored = await self._state.open()
        except StorageError as error:
            log.exception("nobody knows where webhooks stand: they are paused")
            stored, lost = {}, f"its places cannot be read ({error}); resumed, it begins where it began first"
        for definition in self._definitions.load():
            if lost:
                definition = definition.changed(state="paused", reason=lost)
            consumer = Consumer(definition, self._rules)
            consumer.restore(stored.pop(definition.webhook_id, {}))
            self._add(consumer)
        for webhook_id, records in stored.items():
            # A crash came between the end of a webhook and that of its records.
            self._state.forget(webhook_id, list(records))

    async def close(self) -> None:
        for dispatcher in self.dispatchers.values():
            dispatcher.close()
        await self._delivering.close()
        if self._jobs:
            await asyncio.wait(self._jobs)
        await self._state.close()

    # --- who there is

    def get(self, webhook_id: str) -> Consumer:
        """Raises WebhookNotFound."""
        consumer = self._consumers.get(webhook_id)
        if consumer is None:
            raise WebhookNotFound(webhook_id)
        return consumer

    def page(self, after: str, limit: int, topic: str | None = None) -> list[Consumer]:
        """In the order of their ids, from behind `after` on."""
        found = [
            webhook_id
            for webhook_id, consumer in self._consumers.items()
            if webhook_id > after and (topic is None or topic in consumer.definition.topics)
        ]
        return [self._consumers[webhook_id] for webhook_id in sorted(found)[:limit]]

    def has_any_in(self, topic: str) -> bool:
        """Whether a webhook keeps a place in a topic."""
        return topic in self.dispatchers

    def places(self, consumer: Consumer) -> dict[str, ShownPlace]:
        """How far it is in each topic."""
        shown: dict[str, ShownPlace] = {}
        for name, cursor in consumer.cursors.items():
            position = cursor.position
            followed = self.dispatchers[name].log if name in self.dispatchers else None
            pending = max(followed.committed_end - position, 0) if followed is not None else 0
            last = str(EventId(name, position - 1)) if position > 0 else None
            shown[name] = ShownPlace(last, pending, len(cursor.aside) + (cursor.head is not None))
        return shown

    def statistics(self) -> WebhookStatistics:
        consumers, counts = self._consumers.values(), self.counts
        places = [place for one in consumers for place in self.places(one).values()]
        return WebhookStatistics(
            states=Counter(one.definition.state for one in consumers),
            pending=sum(place.pending for place in places),
            retrying=sum(place.retrying for place in places),
            dead_letters=sum(len(one.dead) for one in consumers),
            in_flight=counts.in_flight,
            delivered=counts.delivered,
            failed=counts.failed,
            died=counts.dead,
        )

    # --- changes

    async def register(self, asked: Asked) -> Consumer:
        """A webhook as `parse_webhook` has understood it; durable when this returns."""
        return await _to_the_end(self._register(asked))

    async def _register(self, asked: Asked) -> Consumer:
        async with self._changing:
            if len(self._consumers) >= self.config.webhooks_max:
                raise TooManyWebhooks(self.config.webhooks_max)
            if self._check_url is not None:
                self._check_url(asked.values["url"])
            definition = Definition(
                webhook_id=str(uuid.uuid4()),
                topics={name: self._start(name, last) for name, last in (asked.topics or {}).items()},
                secrets=checked_secrets(asked.secret),
                created_ms=self._clock.now_ms(),
                **asked.values,
            )
            await self._state.prepare()
            await self._definitions.put(definition)
            consumer = Consumer(definition, self._rules)
            self._add(consumer)
        self._note("webhook.registered", consumer)
        return consumer

    async def change(self, webhook_id: str, asked: Asked) -> Consumer:
        """A topic that stays keeps its place, whatever is said of it."""

        def changed(before: Definition) -> Definition:
            values = dict(asked.values)
            if self._check_url is not None and "url" in values:
                self._check_url(values["url"])
            if asked.topics is not None:
                values["topics"] = {
                    name: before.topics.get(name) or self._start(name, last) for name, last in asked.topics.items()
                }
            return before.changed(**values)

        return await self._change(webhook_id, changed, "webhook.changed")

    async def pause(self, webhook_id: str, reason: str = "") -> Consumer:
        """Nothing is sent until it is resumed; its places stay."""
        return await self._change(webhook_id, lambda one: one.changed(state="paused", reason=reason), "webhook.paused")

    async def resume(self, webhook_id: str) -> Consumer:
        """Also of one that was disabled."""
        return await self._change(webhook_id, lambda one: one.changed(state="active", reason=""), "webhook.resumed")

    async def rotate_secret(
        self, webhook_id: str, secret: str | None = None, overlap_ms: int | None = None
    ) -> Consumer:
        """The new secret signs from now on, the old one for a while more."""
        overlap_ms = self.config.secret_overlap_ms if overlap_ms is None else overlap_ms

        def rotated(one: Definition) -> Definition:
            try:
                return one.changed(secrets=one.secrets.rotated(self._clock.now_ms(), overlap_ms, secret))
            except InvalidSecret as error:
                raise InvalidWebhook(str(error)) from None
            except TooManySecrets as error:
                raise WebhookConflict(str(error)) from None

        return await self._change(webhook_id, rotated, "webhook.changed")

    async def _change(self, webhook_id: str, change: Callable[[Definition], Definition], what: str) -> Consumer:
        return await _to_the_end(self._change_to_the_end(webhook_id, change, what))

    async def _change_to_the_end(
        self, webhook_id: str, change: Callable[[Definition], Definition], what: str
    ) -> Consumer:
        async with self._changing:
            consumer = self.get(webhook_id)
            definition = change(consumer.definition)
            await self._definitions.put(definition)
            if consumer.is_removed:
                # Its policy has ended it meanwhile.
                await self._definitions.remove(webhook_id)
                raise WebhookNotFound(webhook_id)
            self._redefine(consumer, definition)
        self._note(what, consumer)
        return consumer

    async def remove(self, webhook_id: str, reason: str = "on request") -> None:
        await _to_the_end(self._remove(webhook_id, reason))

    async def _remove(self, webhook_id: str, reason: str) -> None:
        async with self._changing:
            consumer = self.get(webhook_id)
            await self._definitions.remove(webhook_id)
            if consumer.is_removed:
                # Its policy was quicker, and has told so.
                return
            self._drop(consumer)
        self._note("webhook.removed", consumer, reason=reason)

    # --- deliveries

    def attempts(
        self, webhook_id: str, before: int | None = None, limit: int = ATTEMPTS_KEPT, *, is_failed_only: bool = False
    ) -> list[Attempt]:
        """The newest first."""
        found = [
            one
            for one in self.get(webhook_id).attempts.values()
            if (before is None or one.number < before)
            and not (is_failed_only and one.outcome == Outcome.DELIVERED.value)
        ]
        found.sort(reverse=True)
        return found[:limit]

    def dead_letters(
        self, webhook_id: str, after: EventId | None = None, limit: int = ASIDE_MAX
    ) -> list[tuple[EventId, DeadLetter]]:
        """By topic and place, from behind `after` on."""
        dead = self.get(webhook_id).dead
        keys = sorted(key for key in dead if after is None or key > tuple(after))
        return [(EventId(*key), dead[key]) for key in keys[:limit]]

    async def resend(self, webhook_id: str, event_ids: Iterable[EventId]) -> int:
        """Send these again, out of turn and all or none; how many. What was not sent yet comes by itself."""
        consumer = self.get(webhook_id)
        wanted = list(dict.fromkeys(event_ids))
        for event_id in wanted:
            topic, offset = event_id
            cursor = consumer.cursors.get(topic)
            if cursor is None:
                raise InvalidWebhook(f"{event_id} is of a topic that the webhook does not have")
            if offset >= cursor.position:
                raise WebhookConflict(f"{event_id} has not been sent yet, so it cannot be sent again")
            followed = self.dispatchers[topic].log
            if followed is None or offset < followed.bounds().start:
                raise EventNotFound(offset)
        return await self._send_again(consumer, wanted)

    async def resend_dead(self, webhook_id: str, event_ids: Iterable[EventId] | None = None) -> int:
        """Try dead letters again: these, or all, as many as may wait at a time. They are dead until they arrive."""
        consumer = self.get(webhook_id)
        if event_ids is None:
            room = {name: ASIDE_MAX - len(cursor.aside) for name, cursor in consumer.cursors.items()}
            wanted = []
            for topic, offset in sorted(consumer.dead):
                if room.get(topic, 0) > 0 and offset not in consumer.cursors[topic].aside:
                    room[topic] -= 1
                    wanted.append(EventId(topic, offset))
        else:
            wanted = list(dict.fromkeys(event_ids))
            for event_id in wanted:
                if tuple(event_id) not in consumer.dead:
                    raise EventNotFound(event_id.offset)
        return await self._send_again(consumer, wanted)

    async def _send_again(self, consumer: Consumer, wanted: Sequence[EventId]) -> int:
        for topic in {one.topic for one in wanted}:
            new = sum(1 for one in wanted if one.topic == topic and one.offset not in consumer.cursors[topic].aside)
            if new + len(consumer.cursors[topic].aside) > ASIDE_MAX:
                raise WebhookConflict(f"more than {ASIDE_MAX} events of {topic!r} would wait to be sent again")
        now_ms = self._clock.now_ms()
        for topic, offset in wanted:
            consumer.send_again(topic, offset, now_ms)
        await self._settle(consumer)
        self._nudge(consumer)
        return len(wanted)

    async def drop_dead(self, webhook_id: str, event_ids: Iterable[EventId] | None = None) -> int:
        """Give dead letters up: these, or all of them; how many."""
        consumer = self.get(webhook_id)
        given_up = [EventId(*key) for key in consumer.dead] if event_ids is None else event_ids
        dropped = sum(consumer.drop_dead(one.topic, one.offset) for one in given_up)
        await self._settle(consumer)
        return dropped

    async def replay(self, webhook_id: str, start: Start, topic: str | None = None) -> dict[str, str | None]:
        """Deliver everything of a topic, or of all its topics, from there on; the last event of each that is not."""
        consumer = self.get(webhook_id)
        if topic is not None and topic not in consumer.cursors:
            raise InvalidWebhook(f"the webhook does not have the topic {topic!r}")
        offsets: dict[str, int] = {}
        for name in consumer.cursors if topic is None else [topic]:
            replayed = self._topic(name).stream()
            place = await find_place(start, replayed, None)
            if not place.is_recovered:
                raise InvalidWebhook(f"{name!r} has {replayed.bounds().end} events, so nothing begins there")
            offsets[name] = place.offset
        for name, offset in offsets.items():
            if name in consumer.cursors:
                consumer.seek(name, offset)
        await self._settle(consumer)
        self._nudge(consumer)
        return {name: str(EventId(name, offset - 1)) if offset > 0 else None for name, offset in offsets.items()}

    async def test(self, webhook_id: str) -> Response:
        """Send an event that is in no topic, and tell what came of it; it changes nothing else."""
        consumer = self.get(webhook_id)
        now_ms = self._clock.now_ms()
        event = Event(now_ms, "", TEST_TYPE, b'{"test":true}', now_ms, EMPTY, None, 0)
        return await self._delivering.send_beside(consumer, TEST_TYPE, event)

    async def _settle(self, consumer: Consumer) -> None:
        """What was asked for survives a crash when this returns; raises KafkaError."""
        self._state.note(consumer)
        await self._state.settle()

    # --- what lanes tell

    def changed(self, consumer: Consumer) -> None:
        if not consumer.is_removed:
            self._state.note(consumer)

    def judged(self, lane: Lane, offset: int, verdict: Verdict) -> None:
        consumer = lane.consumer
        if consumer.is_removed:
            return
        if verdict.outcome is Outcome.REMOVE:
            log.warning("webhook %s is removed: %s", consumer.webhook_id, verdict.reason)
            self._drop(consumer)
            self._note("webhook.removed", consumer, reason=verdict.reason, eventId=str(EventId(lane.topic, offset)))
            self._begin(self._erase(consumer))
        elif verdict.outcome is Outcome.DISABLE and consumer.is_active:
            log.warning("webhook %s is disabled: %s", consumer.webhook_id, verdict.reason)
            self._redefine(consumer, consumer.definition.changed(state="disabled", reason=verdict.reason))
            self._note("webhook.disabled", consumer, reason=verdict.reason)
            self._begin(self._write_down(consumer))
        elif verdict.outcome is Outcome.DEAD and lane.topic != AUDIT_TOPIC:
            self._note("webhook.failed", consumer, reason=verdict.reason, eventId=str(EventId(lane.topic, offset)))

    def lost(self, lane: Lane, gap: Gap) -> None:
        log.warning(
            "webhook %s: events %d to %d of %s could not be delivered: %s",
            lane.consumer.webhook_id,
            gap.from_offset,
            gap.to_offset - 1,
            lane.topic,
            gap.reason,
        )
        if lane.topic != AUDIT_TOPIC:
            first, last = EventId(lane.topic, gap.from_offset), EventId(lane.topic, gap.to_offset - 1)
            self._note("webhook.gap", lane.consumer, reason=gap.reason, first=str(first), last=str(last))

    async def _write_down(self, consumer: Consumer) -> None:
        async with self._changing:
            if not consumer.is_removed:
                await self._definitions.put(consumer.definition)

    async def _erase(self, consumer: Consumer) -> None:
        async with self._changing:
            await self._definitions.remove(consumer.webhook_id)

    def _begin(self, job: Coroutine[Any, Any, None]) -> None:
        """Without anybody who waits: what cannot be written down now comes out the same after the next start."""

        async def logged() -> None:
            try:
                await job
            except KafkaError:
                log.exception("a webhook's end could not be written down")

        task = asyncio.get_running_loop().create_task(logged())
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    # --- lanes

    def _add(self, consumer: Consumer) -> None:
        self._consumers[consumer.webhook_id] = consumer
        for name in consumer.definition.topics:
            self._add_lane(consumer, name)
        self._state.note(consumer)

    def _add_lane(self, consumer: Consumer, name: str) -> None:
        dispatcher = self.dispatchers.get(name)
        if dispatcher is None:
            dispatcher = self.dispatchers[name] = Dispatcher(
                name,
                self._topics,
                self._state,
                self._delivering.nudge,
                self._call_soon,
                self._call_later,
                self.config.dispatch_interval_ms,
            )
            dispatcher.start()
        dispatcher.add(Lane(consumer, name))

    def _remove_lane(self, consumer: Consumer, name: str) -> None:
        dispatcher = self.dispatchers.get(name)
        if dispatcher is not None:
            dispatcher.remove(consumer.webhook_id)
            if not dispatcher.lanes:
                dispatcher.close()
                del self.dispatchers[name]

    def _redefine(self, consumer: Consumer, definition: Definition) -> None:
        before = consumer.definition.topics
        consumer.redefine(definition)
        for name in before.keys() - definition.topics.keys():
            self._remove_lane(consumer, name)
        for name in definition.topics.keys() - before.keys():
            self._add_lane(consumer, name)
        self._state.note(consumer)
        self._nudge(consumer)

    def _drop(self, consumer: Consumer) -> None:
        if consumer.is_removed:
            return
        consumer.is_removed = True
        for name in tuple(consumer.cursors):
            self._remove_lane(consumer, name)
        self._consumers.pop(consumer.webhook_id, None)
        self._state.forget(consumer.webhook_id, consumer.all_keys())

    def _nudge(self, consumer: Consumer) -> None:
        for name in consumer.cursors:
            lane = self.dispatchers[name].lanes.get(consumer.webhook_id)
            if lane is not None:
                self._delivering.nudge(lane)

    # --- places

    def _topic(self, name: str) -> Topic:
        """Raises TopicNotFound, TopicHasPartitions."""
        topic = self._topics.get(name)
        if topic is None or topic.is_internal:
            raise TopicNotFound(name)
        if len(topic.partitions) != 1:
            raise TopicHasPartitions(name, len(topic.partitions))
        return topic

    def _start(self, name: str, last: str | None) -> TopicStart:
        topic = self._topic(name)
        offset = _offset_behind(name, last, topic.stream().bounds())
        return TopicStart(topic.topic_id, offset, uuid.uuid4().hex[:8])

    def _note(self, what: str, consumer: Consumer, **facts: object) -> None:
        definition = consumer.definition
        about: dict[str, object] = {
            "webhook": definition.webhook_id,
            "url": _without_query(definition.url),
            "policy": definition.policy,
            "topics": sorted(definition.topics),
            **facts,
        }
        self._audit.note(what, about)


def _offset_behind(name: str, last: str | None, bounds: Bounds) -> int:
    """Where reading begins after the last event that is known."""
    head = bounds.committed_end
    if last is None:
        return bounds.start
    if last == LATEST:
        return head
    try:
        event_id = EventId.parse(last)
    except InvalidEvent as error:
        raise InvalidWebhook(str(error)) from None
    if event_id.topic != name:
        raise InvalidWebhook(f"{last!r} is no event of {name!r}")
    if event_id.offset >= head:
        raise InvalidWebhook(f"{last!r} is not there yet: {name!r} has {head} events")
    # One that is no longer stored is met while reading, and told as a gap.
    return event_id.offset + 1


def _without_query(url: str) -> str:
    # What follows may be a password.
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


async def _to_the_end(change: Coroutine[Any, Any, R]) -> R:
    """Whoever asked may go away; the change is finished."""
    return await asyncio.shield(asyncio.ensure_future(change))
