"""The webhooks of a process: register, change, pause and remove them, and list, resend and replay their deliveries.

A webhook consists of its `Definition`, its `Consumer` (positions, retries, dead letters and the delivery log), and one
`Lane` in the `Dispatcher` of each of its topics.
"""

import asyncio
import logging
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from kwire.access.audit.entries import Audit
from kwire.access.authorizer import Authorizer, OpenAuthorizer
from kwire.broker.topics.catalogue import AUDIT_TOPIC
from kwire.clock import Clock
from kwire.config.webhooks import WebhooksConfig
from kwire.errors import (
    EventNotFound,
    InvalidWebhook,
    KafkaError,
    TooManyWebhooks,
    TopicHasPartitions,
    TopicNotFound,
    WebhookConflict,
    WebhookNotFound,
)
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.events.event import EMPTY, Event
from kwire.streams.subscriptions.start import Start, resolve_start
from kwire.streams.topic_directory import StreamTopic, TopicFinder
from kwire.streams.webhooks.audit import WebhookAudit
from kwire.streams.webhooks.consumer import Attempt, AttemptResult, Consumer, ConsumerRules, DeadLetter, Outcome
from kwire.streams.webhooks.cursor import RETRY_QUEUE_MAX
from kwire.streams.webhooks.definition import Definition, TopicStart, WebhookRequest, checked_secrets
from kwire.streams.webhooks.definition_store import DefinitionStore
from kwire.streams.webhooks.delivery.delivery import CallLater, DeliveryWorkers, Gap, Lane
from kwire.streams.webhooks.delivery.dispatcher import CallSoon
from kwire.streams.webhooks.delivery.lanes import Lanes
from kwire.streams.webhooks.delivery.retry_schedule import Schedule
from kwire.streams.webhooks.delivery.sender import Response, Send
from kwire.streams.webhooks.delivery.signing import InvalidSecret, TooManySecrets
from kwire.streams.webhooks.rights import CreatorRights, client_principal
from kwire.streams.webhooks.start_offset import offset_after
from kwire.streams.webhooks.state_log import StateLog
from kwire.streams.webhooks.statistics import TopicProgress, WebhookStatistics

log = logging.getLogger("kwire.webhooks")

R = TypeVar("R")

# Entries in the delivery log of each webhook.
ATTEMPTS_KEPT = 200
TEST_TYPE = "webhook.test"

# Raises InvalidWebhook for a URL whose address is not allowed.
CheckUrl = Callable[[str], None]
Change = Callable[[Definition], Awaitable[Definition]]


class WebhookStorage(NamedTuple):
    """Where webhooks are stored: what they are, and how far they are."""

    definitions: DefinitionStore
    state: StateLog


class Webhooks:
    """The webhooks of a process. Use it in the event loop's thread. `open` starts deliveries, `close` ends them."""

    def __init__(
        self,
        *,
        topics: TopicFinder,
        storage: WebhookStorage,
        clock: Clock,
        send: Send,
        config: WebhooksConfig,
        audit: Audit,
        authorizer: Authorizer | None = None,
        call_soon: CallSoon,
        call_later: CallLater,
        check_url: CheckUrl | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.config = config
        self._topics = topics
        self._clock = clock
        self._audit = WebhookAudit(audit)
        self._rights = CreatorRights(authorizer or OpenAuthorizer(), call_later)
        self._check_url = check_url
        self._definitions, self._state = storage
        self._rules = ConsumerRules(Schedule(config.retry_schedule_ms, chance), ATTEMPTS_KEPT, config.disable_after_ms)
        self._workers = DeliveryWorkers(
            send,
            clock,
            call_later,
            self,
            in_flight_max=config.connections_max,
            in_flight_per_host_max=config.connections_per_host_max,
            timeout_ms=config.timeout_ms,
        )
        self._lanes = Lanes(topics, self._state, self._workers, call_soon, call_later, config.dispatch_interval_ms)
        self.dispatchers = self._lanes.dispatchers
        self.counts = self._workers.counts
        self._consumers: dict[str, Consumer] = {}
        self._change_lock = asyncio.Lock()
        # Background tasks that store or remove definitions: at most two per webhook.
        self._jobs: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._consumers)

    async def open(self) -> None:
        """Load all webhooks and start delivery where the last run ended."""
        lost = ""
        try:
            stored = await self._state.open()
        except KafkaError as error:
            log.exception("the state of webhooks cannot be read: all webhooks are paused")
            stored, lost = {}, f"its state cannot be read ({error}); if resumed, it starts at its first position again"
        for definition in await self._definitions.load(had_webhooks=self._state.exists):
            if definition.locked:
                self._report_disabled(definition)
            elif lost:
                definition = definition.changed(state="paused", reason=lost)
            consumer = Consumer(definition, self._rules)
            consumer.restore(stored.pop(definition.webhook_id, {}))
            self._add(consumer)
        for webhook_id, records in stored.items():
            # The process crashed after it removed the definition and before it removed these records.
            self._state.remove(webhook_id, list(records))
        await self._lanes.found(self.dispatchers)
        self._rights.watch(self._disable_all_without_rights)

    async def close(self) -> None:
        self._rights.close()
        self._lanes.close()
        await self._workers.close()
        if self._jobs:
            await asyncio.wait(self._jobs)
        await self._state.close()

    # --- lookup

    def get(self, webhook_id: str) -> Consumer:
        """Return a webhook; raises WebhookNotFound."""
        consumer = self._consumers.get(webhook_id)
        if consumer is None:
            raise WebhookNotFound(webhook_id)
        return consumer

    def _unlocked(self, webhook_id: str) -> Consumer:
        """Return a webhook whose secrets could be decrypted; raises WebhookNotFound, WebhookConflict."""
        consumer = self.get(webhook_id)
        if consumer.definition.locked:
            raise WebhookConflict(f"the webhook can only be deleted: {consumer.definition.locked}")
        return consumer

    def page(self, after: str, limit: int, topic: str | None = None) -> list[Consumer]:
        """Return up to `limit` webhooks whose ids sort after `after`. With `topic`, only webhooks of this topic."""
        found = [
            webhook_id
            for webhook_id, consumer in self._consumers.items()
            if webhook_id > after and (topic is None or topic in consumer.definition.topics)
        ]
        return [self._consumers[webhook_id] for webhook_id in sorted(found)[:limit]]

    def has_any_in(self, topic: str) -> bool:
        """Whether a webhook delivers events of a topic."""
        return topic in self.dispatchers

    def progress(self, consumer: Consumer) -> dict[str, TopicProgress]:
        """Return the progress of a webhook in each of its topics."""
        shown: dict[str, TopicProgress] = {}
        for name, cursor in consumer.cursors.items():
            position = cursor.position
            followed = self.dispatchers[name].log if name in self.dispatchers else None
            pending = max(followed.committed_end - position, 0) if followed is not None else 0
            last = str(EventId(name, position - 1)) if position > 0 else None
            shown[name] = TopicProgress(last, pending, len(cursor.retry_queue) + (cursor.head is not None))
        return shown

    def statistics(self) -> WebhookStatistics:
        consumers, counts = self._consumers.values(), self.counts
        topics = [topic for one in consumers for topic in self.progress(one).values()]
        return WebhookStatistics(
            states=Counter(one.definition.state for one in consumers),
            pending=sum(topic.pending for topic in topics),
            retrying=sum(topic.retrying for topic in topics),
            dead_letters=sum(len(one.dead) for one in consumers),
            in_flight=counts.in_flight,
            delivered=counts.delivered,
            failed=counts.failed,
            died=counts.dead,
        )

    # --- changes

    async def register(self, request: WebhookRequest) -> Consumer:
        """Register a webhook. `request` was parsed by `parse_webhook`. The webhook is durable when this returns."""
        return await _shielded(self._register(request))

    async def _register(self, request: WebhookRequest) -> Consumer:
        async with self._change_lock:
            if len(self._consumers) >= self.config.webhooks_max:
                raise TooManyWebhooks(self.config.webhooks_max)
            if self._check_url is not None:
                self._check_url(request.values["url"])
            definition = Definition(
                webhook_id=str(uuid.uuid4()),
                topics={name: await self._start(name, last) for name, last in (request.topics or {}).items()},
                secrets=checked_secrets(request.secret),
                created_ms=self._clock.now_ms(),
                creator=client_principal(),
                scope_prefix=request.scope_prefix,
                **request.values,
            )
            self._rights.check(definition.creator, definition.topics)
            await self._state.prepare()
            await self._definitions.put(definition)
            consumer = Consumer(definition, self._rules)
            self._add(consumer)
            await self._lanes.found(definition.topics)
        self._audit.changed("webhook.registered", definition)
        # The creator may have lost its rights while the webhook was stored.
        self._disable_without_rights(consumer)
        return consumer

    async def change(self, webhook_id: str, request: WebhookRequest) -> Consumer:
        """Change a webhook. For topics that it already has, the start positions (event ids) in the request are
        ignored: the webhook keeps its position. It keeps its creator, too, unless the request takes it over."""

        async def changed(before: Definition) -> Definition:
            values = dict(request.values)
            if self._check_url is not None and "url" in values:
                self._check_url(values["url"])
            if request.topics is not None:
                values["topics"] = {
                    name: before.topics.get(name) or await self._start(name, last)
                    for name, last in request.topics.items()
                }
            if request.is_takeover:
                values |= {"creator": client_principal(), "scope_prefix": request.scope_prefix}
            definition = before.changed(**values)
            if definition.state == "active":
                self._rights.check(definition.creator, definition.topics)
            return definition

        return await self._change(webhook_id, changed, "webhook.changed")

    async def pause(self, webhook_id: str, reason: str = "") -> Consumer:
        """Pause a webhook until it is resumed. Its positions stay the same."""

        async def paused(one: Definition) -> Definition:
            return one.changed(state="paused", reason=reason)

        return await self._change(webhook_id, paused, "webhook.paused")

    async def resume(self, webhook_id: str) -> Consumer:
        """Resume a paused or disabled webhook. Raises KafkaError if its creator may not read its topics."""

        async def resumed(one: Definition) -> Definition:
            self._rights.check(one.creator, one.topics)
            return one.changed(state="active", reason="")

        return await self._change(webhook_id, resumed, "webhook.resumed")

    async def rotate_secret(
        self, webhook_id: str, secret: str | None = None, overlap_ms: int | None = None
    ) -> Consumer:
        """Replace the signing secret. Messages are signed with both the new and the old one for `overlap_ms`."""
        overlap_ms = self.config.secret_overlap_ms if overlap_ms is None else overlap_ms

        async def rotated(one: Definition) -> Definition:
            try:
                return one.changed(secrets=one.secrets.rotated(self._clock.now_ms(), overlap_ms, secret))
            except InvalidSecret as error:
                raise InvalidWebhook(str(error)) from None
            except TooManySecrets as error:
                raise WebhookConflict(str(error)) from None

        return await self._change(webhook_id, rotated, "webhook.changed")

    async def _change(self, webhook_id: str, change: Change, what: str) -> Consumer:
        return await _shielded(self._apply_change(webhook_id, change, what))

    async def _apply_change(self, webhook_id: str, change: Change, what: str) -> Consumer:
        async with self._change_lock:
            consumer = self._unlocked(webhook_id)
            before: Definition | None = None
            while consumer.definition is not before:
                # A second pass is necessary if a failed delivery has disabled the webhook during the first one.
                before = consumer.definition
                definition = await change(before)
                await self._definitions.put(definition)
            if consumer.is_removed:
                # A failed delivery has removed the webhook meanwhile (policy `remove`).
                await self._definitions.remove(webhook_id)
                raise WebhookNotFound(webhook_id)
            self._redefine(consumer, definition)
            await self._lanes.found(definition.topics)
        self._audit.changed(what, definition)
        self._disable_without_rights(consumer)
        return consumer

    async def remove(self, webhook_id: str, reason: str = "on request") -> None:
        await _shielded(self._remove(webhook_id, reason))

    async def _remove(self, webhook_id: str, reason: str) -> None:
        async with self._change_lock:
            consumer = self.get(webhook_id)
            await self._definitions.remove(webhook_id)
            if consumer.is_removed:
                # A failed delivery has removed the webhook meanwhile (policy `remove`) and written the audit entry.
                return
            self._drop(consumer)
        self._audit.changed("webhook.removed", consumer.definition, reason=reason)

    # --- deliveries

    def attempts(
        self, webhook_id: str, before: int | None = None, limit: int = ATTEMPTS_KEPT, *, is_failed_only: bool = False
    ) -> list[Attempt]:
        """Return up to `limit` entries of the delivery log with numbers below `before`, newest first."""
        found = [
            one
            for one in self.get(webhook_id).attempts.values()
            if (before is None or one.number < before)
            and not (is_failed_only and one.outcome == Outcome.DELIVERED.value)
        ]
        found.sort(reverse=True)
        return found[:limit]

    def dead_letters(
        self, webhook_id: str, after: EventId | None = None, limit: int = RETRY_QUEUE_MAX
    ) -> list[tuple[EventId, DeadLetter]]:
        """Return up to `limit` dead letters after `after`, sorted by topic and offset."""
        dead = self.get(webhook_id).dead
        keys = sorted(key for key in dead if after is None or key > tuple(after))
        return [(EventId(*key), dead[key]) for key in keys[:limit]]

    async def resend(self, webhook_id: str, event_ids: Iterable[EventId]) -> int:
        """Schedule these events to be sent again, out of order, and return their number.

        If one of the events cannot be sent again, none is. Raises WebhookConflict if an event was not sent yet or the
        retry queue has too little space, EventNotFound if an event is no longer stored, and InvalidWebhook if the
        webhook does not have the topic of an event.
        """
        consumer = self.get(webhook_id)
        wanted = list(dict.fromkeys(event_ids))
        for event_id in wanted:
            topic, offset = event_id
            cursor = consumer.cursors.get(topic)
            if cursor is None:
                raise InvalidWebhook(f"event {event_id}: the webhook does not have its topic")
            if offset >= cursor.position:
                raise WebhookConflict(f"event {event_id} has not been sent yet, so it cannot be sent again")
            followed = self.dispatchers[topic].log
            if followed is None or offset < followed.bounds().start:
                raise EventNotFound(offset)
        return await self._send_again(consumer, wanted)

    async def resend_dead(self, webhook_id: str, event_ids: Iterable[EventId] | None = None) -> int:
        """Schedule these dead letters to be sent again, and return their number.

        Without `event_ids`, all dead letters are scheduled, up to the maximum length of the retry queues. A dead letter
        stays a dead letter until it is delivered.
        """
        consumer = self.get(webhook_id)
        if event_ids is None:
            room = {name: RETRY_QUEUE_MAX - len(cursor.retry_queue) for name, cursor in consumer.cursors.items()}
            wanted = []
            for topic, offset in sorted(consumer.dead):
                if room.get(topic, 0) > 0 and offset not in consumer.cursors[topic].retry_queue:
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
            new = sum(
                1 for one in wanted if one.topic == topic and one.offset not in consumer.cursors[topic].retry_queue
            )
            if new + len(consumer.cursors[topic].retry_queue) > RETRY_QUEUE_MAX:
                raise WebhookConflict(
                    f"more than {RETRY_QUEUE_MAX} events of topic {topic!r} would wait to be sent again"
                )
        now_ms = self._clock.now_ms()
        for topic, offset in wanted:
            consumer.send_again(topic, offset, now_ms)
        await self._flush_state(consumer)
        self._lanes.wake(consumer)
        return len(wanted)

    async def drop_dead(self, webhook_id: str, event_ids: Iterable[EventId] | None = None) -> int:
        """Discard these dead letters, or all if `event_ids` is None. Returns the number of discarded ones."""
        consumer = self.get(webhook_id)
        given_up = [EventId(*key) for key in consumer.dead] if event_ids is None else event_ids
        dropped = sum(consumer.drop_dead(one.topic, one.offset) for one in given_up)
        await self._flush_state(consumer)
        return dropped

    async def replay(self, webhook_id: str, start: Start, topic: str | None = None) -> dict[str, str | None]:
        """Deliver all events of a topic, or of all topics, from `start` on.

        Returns for each topic the id of the event before the start; None if the topic is delivered from offset 0.
        """
        consumer = self.get(webhook_id)
        if topic is not None and topic not in consumer.cursors:
            raise InvalidWebhook(f"the webhook does not have the topic {topic!r}")
        offsets: dict[str, int] = {}
        for name in consumer.cursors if topic is None else [topic]:
            replayed = (await self._topic(name)).stream()
            found = await resolve_start(start, replayed, None)
            if not found.is_recovered:
                raise InvalidWebhook(f"topic {name!r} has {replayed.bounds().end} events: the start is beyond its end")
            offsets[name] = found.offset
        for name, offset in offsets.items():
            if name in consumer.cursors:
                consumer.seek(name, offset)
        await self._flush_state(consumer)
        self._lanes.wake(consumer)
        return {name: str(EventId(name, offset - 1)) if offset > 0 else None for name, offset in offsets.items()}

    async def test(self, webhook_id: str) -> Response:
        """Send a test event that is not stored in a topic, and return the response. No state of the webhook changes."""
        consumer = self._unlocked(webhook_id)
        now_ms = self._clock.now_ms()
        event = Event(now_ms, "", TEST_TYPE, b'{"test":true}', now_ms, EMPTY, None, 0)
        return await self._workers.send_test(consumer, TEST_TYPE, event)

    async def _flush_state(self, consumer: Consumer) -> None:
        """Make the state of a webhook durable; raises KafkaError."""
        self._state.enqueue(consumer)
        await self._state.flush()

    # --- callbacks of deliveries

    def on_changed(self, consumer: Consumer) -> None:
        if not consumer.is_removed:
            self._state.enqueue(consumer)

    def on_result(self, lane: Lane, offset: int, result: AttemptResult) -> None:
        consumer = lane.consumer
        if consumer.is_removed:
            return
        if result.outcome is Outcome.REMOVE:
            log.warning("webhook %s is removed: %s", consumer.webhook_id, result.reason)
            self._drop(consumer)
            self._audit.happened(
                "webhook.removed", consumer.definition, reason=result.reason, eventId=str(EventId(lane.topic, offset))
            )
            self._run_in_background(self._remove_definition(consumer))
        elif result.outcome is Outcome.DISABLE and consumer.is_active:
            self._disable(consumer, result.reason)
        elif result.outcome is Outcome.DEAD and lane.topic != AUDIT_TOPIC:
            log.warning(
                "webhook %s gives up event %s: %s", consumer.webhook_id, EventId(lane.topic, offset), result.reason
            )
            self._audit.happened(
                "webhook.failed", consumer.definition, reason=result.reason, eventId=str(EventId(lane.topic, offset))
            )

    def on_gap(self, lane: Lane, gap: Gap) -> None:
        log.warning(
            "webhook %s: events %d to %d of topic %s could not be delivered: %s",
            lane.consumer.webhook_id,
            gap.from_offset,
            gap.to_offset - 1,
            lane.topic,
            gap.reason,
        )
        if lane.topic != AUDIT_TOPIC:
            first, last = EventId(lane.topic, gap.from_offset), EventId(lane.topic, gap.to_offset - 1)
            definition = lane.consumer.definition
            self._audit.happened("webhook.gap", definition, reason=gap.reason, first=str(first), last=str(last))

    def _disable_all_without_rights(self) -> None:
        for consumer in tuple(self._consumers.values()):
            self._disable_without_rights(consumer)

    def _disable_without_rights(self, consumer: Consumer) -> None:
        definition = consumer.definition
        reason = self._rights.missing(definition.creator, definition.topics) if consumer.is_active else None
        if reason is not None:
            self._disable(consumer, reason)

    def _disable(self, consumer: Consumer, reason: str) -> None:
        self._redefine(consumer, consumer.definition.changed(state="disabled", reason=reason))
        self._report_disabled(consumer.definition)
        self._run_in_background(self._store_definition(consumer))

    def _report_disabled(self, definition: Definition) -> None:
        log.warning("webhook %s is disabled: %s", definition.webhook_id, definition.reason)
        self._audit.happened("webhook.disabled", definition, reason=definition.reason)

    async def _store_definition(self, consumer: Consumer) -> None:
        async with self._change_lock:
            if not consumer.is_removed:
                await self._definitions.put(consumer.definition)

    async def _remove_definition(self, consumer: Consumer) -> None:
        async with self._change_lock:
            await self._definitions.remove(consumer.webhook_id)

    def _run_in_background(self, job: Coroutine[Any, Any, None]) -> None:
        """Run a task that stores or removes a definition. A failure is only logged.

        After the next start, the next failed delivery then removes or disables the webhook again.
        """

        async def logged() -> None:
            try:
                await job
            except KafkaError:
                log.exception("the removal or deactivation of a webhook could not be stored")

        task = asyncio.get_running_loop().create_task(logged())
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    # --- lanes

    def _add(self, consumer: Consumer) -> None:
        self._consumers[consumer.webhook_id] = consumer
        for name in consumer.definition.topics:
            self._lanes.add(consumer, name)
        self._state.enqueue(consumer)

    def _redefine(self, consumer: Consumer, definition: Definition) -> None:
        before = consumer.definition.topics
        consumer.redefine(definition)
        for name in before.keys() - definition.topics.keys():
            self._lanes.remove(consumer, name)
        for name in definition.topics.keys() - before.keys():
            self._lanes.add(consumer, name)
        self._state.enqueue(consumer)
        self._lanes.wake(consumer)

    def _drop(self, consumer: Consumer) -> None:
        if consumer.is_removed:
            return
        consumer.is_removed = True
        for name in tuple(consumer.cursors):
            self._lanes.remove(consumer, name)
        self._consumers.pop(consumer.webhook_id, None)
        self._state.remove(consumer.webhook_id, consumer.all_keys())

    # --- positions

    async def _topic(self, name: str) -> StreamTopic:
        """Return a topic with one partition; raises TopicNotFound, TopicHasPartitions."""
        topic = await self._topics.find(name)
        if topic is None:
            raise TopicNotFound(name)
        if topic.partition_count != 1:
            raise TopicHasPartitions(name, topic.partition_count)
        return topic

    async def _start(self, name: str, last: str | None) -> TopicStart:
        topic = await self._topic(name)
        log = topic.stream()
        await log.ready()
        offset = offset_after(name, last, log.bounds())
        return TopicStart(topic.topic_id, offset, uuid.uuid4().hex[:8])


async def _shielded(change: Coroutine[Any, Any, R]) -> R:
    """Await a change. If the caller is cancelled, the change still continues to its end."""
    return await asyncio.shield(asyncio.ensure_future(change))
