"""LiveFeed: decodes the new events of a log once, and delivers them to all subscribers at the head of the log.

A feed exists while its log has subscribers. `ready` subscribers are at the head and receive the next batch from the
feed. `blocked` subscribers are live too, but lag because their sinks could not be written to. All other subscribers
read history themselves. The feed only lists them in `subscribers`.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from kwire.errors import KafkaError, OffsetOutOfRange
from kwire.streams.events.reading import BYTES_PER_READ, EVENTS_PER_READ, EventReader
from kwire.streams.log import NotReady, StreamLog, Unreadable
from kwire.streams.subscriptions.control_messages import DAMAGED, ROOM_NOT_FOUND, SUBSCRIPTION_FAILED, Gap
from kwire.streams.subscriptions.delivery_scheduler import DeliveryScheduler
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.streams.subscriptions.event_reader import OpenReader, Reader
from kwire.streams.subscriptions.recent_events import RecentBytes, RecentEvents
from kwire.streams.subscriptions.shared_batches import SharedBatches

if TYPE_CHECKING:
    from kwire.streams.subscriptions.subscription import Subscription

logger = logging.getLogger("kwire.broker")

# The work of one check or control message for one subscriber, in the units of `delivery_scheduler`.
UNITS_PER_SUBSCRIBER = 2
# A head offset that is never reached: no lag check is due.
NEVER = 2**63
# A feed looks for due checkpoints CHECKS_PER_CHECKPOINT times per checkpoint interval, and at least once per
# CHECKPOINT_CHECK_MS_MAX.
CHECKS_PER_CHECKPOINT = 4
CHECKPOINT_CHECK_MS_MAX = 1000


class DeliveryCounts:
    """Delivery counters of all feeds."""

    __slots__ = ("batches", "checkpoints", "events", "gaps", "lag_actions", "lag_notices")

    def __init__(self) -> None:
        # Events and batches sent. Each delivery to a subscriber is counted separately.
        self.events = 0
        self.batches = 0
        self.checkpoints = 0
        self.gaps = 0
        self.lag_notices = 0
        # How often an on_lag rule was applied.
        self.lag_actions = 0


class LiveFeed:
    """The live feed of one log. Use it only in the event loop's thread.

    `head` is the offset of the next event that the feed reads from the log.
    """

    __slots__ = (
        "_at",
        "_batch",
        "_checkpoint_check_seconds",
        "_checkpoints_checked_at",
        "_has_progressed",
        "_is_tick_due",
        "_is_waiting",
        "_lag_check_at",
        "_on_empty",
        "_reader",
        "_ready_list",
        "_recent",
        "_round",
        "_scheduler",
        "_serve",
        "_shared",
        "blocked",
        "counts",
        "has_more",
        "head",
        "is_queued",
        "log",
        "name",
        "open_reader",
        "ready",
        "subscribers",
    )

    def __init__(
        self,
        name: str,
        log: StreamLog,
        scheduler: DeliveryScheduler,
        counts: DeliveryCounts,
        recent_events_max: int,
        recent_bytes: RecentBytes,
        shared: SharedBatches,
        on_empty: Callable[["LiveFeed"], None],
        open_reader: OpenReader = EventReader,
    ) -> None:
        """`on_empty` is called when the last subscriber has left and the feed is closed."""
        self.name = name
        self.log = log
        self.head = log.committed_end
        # Dictionaries are used as ordered sets: subscribers are served in the order in which they joined.
        self.subscribers: dict[Subscription, None] = {}
        self.ready: dict[Subscription, None] = {}
        self.blocked: dict[Subscription, None] = {}
        self.is_queued = False
        self.has_more = False
        self.counts = counts
        self._scheduler = scheduler
        self._on_empty = on_empty
        self.open_reader = open_reader
        self._reader: Reader | None = None
        self._is_waiting = False
        # The current round delivers a batch (`_batch`), or calls a function for each subscriber (`_serve`). `_round`
        # lists the subscribers of the round, and `_at` is the index of the next one. Rounds do not overlap.
        self._batch: EventBatch | None = None
        self._serve: Callable[[Subscription], None] | None = None
        self._round: list[Subscription] = []
        # `ready` as a list, or None if `ready` has changed since the list was made.
        self._ready_list: list[Subscription] | None = None
        self._at = 0
        self._recent = RecentEvents(self.head, scheduler.clock, recent_events_max, recent_bytes)
        self._shared = shared
        # The lowest head offset at which the lag of a blocked subscriber has to be checked.
        self._lag_check_at = NEVER
        self._is_tick_due = False
        self._has_progressed = False
        self._checkpoint_check_seconds = CHECKPOINT_CHECK_MS_MAX / 1000
        self._checkpoints_checked_at = 0.0
        log.watch(self._on_rise)

    # --- subscribers

    def add(self, subscription: "Subscription", checkpoint_ms: int) -> None:
        self.subscribers[subscription] = None
        check_seconds = checkpoint_ms / CHECKS_PER_CHECKPOINT / 1000
        self._checkpoint_check_seconds = min(self._checkpoint_check_seconds, check_seconds)

    def make_ready(self, subscription: "Subscription") -> None:
        """Deliver new events to a subscriber that has read everything below the head."""
        self.blocked.pop(subscription, None)
        self.ready[subscription] = None
        self._ready_list = None

    def block(self, subscription: "Subscription") -> None:
        """Stop the delivery to a live subscriber, because its sink is not writable."""
        if self.ready.pop(subscription, self) is None:
            self._ready_list = None
        self.blocked[subscription] = None
        self._lag_check_at = min(self._lag_check_at, subscription.lag_check_at)
        self._scheduler.schedule_tick(self)

    def detach(self, subscription: "Subscription") -> None:
        """Stop serving a subscriber, because it reads history again or leaves."""
        self.blocked.pop(subscription, None)
        if self.ready.pop(subscription, self) is None:
            self._ready_list = None

    def remove(self, subscription: "Subscription") -> None:
        self.detach(subscription)
        self.subscribers.pop(subscription, None)
        if not self.subscribers:
            self._close()
            self._on_empty(self)

    def _close(self) -> None:
        self.log.unwatch(self._on_rise)
        self._recent.restart_at(self.head)
        self._shared.forget(self)
        self._scheduler.forget(self)
        self._batch, self._serve, self._round, self._at = None, None, [], 0
        self.has_more = self._is_tick_due = self._has_progressed = False

    # --- rounds

    def _on_rise(self, log: StreamLog) -> None:
        self.has_more = True
        if not self.is_queued and not self._is_waiting:
            self._scheduler.add_live(self)

    def step(self, units_max: int) -> int:
        """Continue the current round, or begin the next one, for at most `units_max` units. Returns the units done."""
        try:
            units = 0
            if self._batch is None and self._serve is None:
                units = self._begin_round()
            if self._batch is not None:
                units += self._deliver(self._batch, units_max - units)
            elif self._serve is not None:
                units += self._serve_some(self._serve, units_max - units)
            return units
        except Exception as error:
            logger.exception("the live feed of %s failed", self.name)
            self._end_live(SUBSCRIPTION_FAILED, f"{type(error).__name__}: {error}")
            return UNITS_PER_SUBSCRIBER

    def _begin_round(self) -> int:
        """Begin a lag check if one is due, else a periodic check, else the delivery of new events."""
        self.has_more = False
        if self.head >= self._lag_check_at:
            self._lag_check_at = NEVER
            self._begin(self.blocked, self._check_lag)
        elif self._is_tick_due:
            self._begin_tick()
        elif not self._is_waiting:
            self._batch = self._decode()
            if self._batch is not None:
                return len(self._batch.events) + self._batch.units
        return 0

    def _begin(self, subscriptions: Iterable["Subscription"], serve: Callable[["Subscription"], None]) -> None:
        """Begin a round that calls `serve` for each subscriber, over several iterations if there are many."""
        self._round, self._at, self._serve = list(subscriptions), 0, serve
        self.has_more = True

    def _serve_some(self, serve: Callable[["Subscription"], None], units_max: int) -> int:
        at = self._at
        some = self._round[at : at + max(units_max // UNITS_PER_SUBSCRIBER, 1)]
        self._at = at + len(some)
        is_over = self._at >= len(self._round)
        for one in some:
            try:
                serve(one)
            except Exception as error:
                self._end_broken(one, error)
        if is_over:
            self._batch, self._serve, self._round, self._at = None, None, [], 0
        self.has_more = bool(self.subscribers)
        return len(some) * UNITS_PER_SUBSCRIBER

    def _end_broken(self, one: "Subscription", error: Exception) -> None:
        logger.exception("delivery to a subscriber of %s failed", self.name)
        one.end(SUBSCRIPTION_FAILED, f"{type(error).__name__}: {error}")

    def _decode(self) -> EventBatch | None:
        log, start = self.log, self.head
        if log.is_gone:
            self._begin(self.subscribers, partial(_end, ROOM_NOT_FOUND, f"{self.name!r} was deleted"))
            return None
        if not self.ready and not self.blocked:
            self._skip_to(log.committed_end)
            return None
        reader = self._reader
        if reader is None:
            reader = self._reader = self.open_reader(log, start)
        try:
            events = reader.read()
        except Unreadable as error:
            self._skip_damaged(Gap(error.from_offset, error.to_offset - 1, DAMAGED))
        except OffsetOutOfRange as error:
            self._skip_deleted(error)
        except KafkaError as error:
            self._end_live(SUBSCRIPTION_FAILED, str(error))
        else:
            if isinstance(events, NotReady):
                self._is_waiting = True
                events.begin(self._on_read_ready)
                return None
            next_offset = reader.next_offset
            self.head = next_offset
            self.has_more = self.has_more or next_offset < log.committed_end
            if next_offset > start:
                self._recent.add(events, next_offset)
                self._at = 0
                return EventBatch(self.name, events, start, next_offset)
            if next_offset < log.committed_end:
                self._end_live(SUBSCRIPTION_FAILED, f"the log cannot be read from offset {start} on")
            return None
        return None

    def _on_read_ready(self, error: BaseException | None) -> None:
        self._is_waiting = False
        if error is not None:
            if not isinstance(error, KafkaError):
                logger.error("%s could not be read", self.name, exc_info=error)
            self._end_live(SUBSCRIPTION_FAILED, str(error))
        if self.subscribers:
            self.has_more = True
            self._scheduler.add_live(self)

    def _skip_to(self, offset: int) -> None:
        """Move the head to `offset`. Subscribers that read history still read the events before it from the log."""
        if offset != self.head:
            self.head = offset
            self._reader = None
            self._recent.restart_at(offset)
            self._shared.forget(self)

    # --- delivery

    def _deliver(self, batch: EventBatch, units_max: int) -> int:
        """Deliver a batch to some of the ready subscribers. Returns the units of work done.

        This is the hot path: it takes a few attribute reads and two calls per subscriber.
        """
        at, units_each = self._at, batch.units
        count_max = max(units_max // units_each, 1)
        units = 0
        if not at:
            # The subscribers may change during the round. The position of a subscriber that becomes ready is already
            # after this batch. A subscriber that leaves is skipped, because its `is_ready` is False.
            if self._ready_list is None:
                self._ready_list = list(self.ready)
            self._round = self._ready_list
        some = self._round[at : at + count_max]
        start, next_offset, events = batch.start_offset, batch.next_offset, batch.events
        count = served = 0
        for one in some:
            served += 1
            try:
                if one.position == start and one.is_fast_path and events:
                    sink = one.sink
                    if sink.is_writable():
                        sink.send_events(one, batch)
                        one.position = next_offset
                        count += 1
                        if next_offset >= one.checkpoint_at:
                            one.checkpoint()
                    else:
                        one.fall_behind()
                elif one.is_ready:
                    units += one.offer(batch)
                    if units >= units_max:
                        break
            except Exception as error:
                self._end_broken(one, error)
        self.counts.batches += count
        self.counts.events += count * len(events)
        self._at = at + served
        if self._at >= len(self._round):
            self._batch, self._round, self._at = None, [], 0
            self.has_more = self.has_more or self.head >= self._lag_check_at
        else:
            self.has_more = True
        if self.subscribers:
            self.note_progress()
        return units + served * units_each

    def _skip_damaged(self, gap: Gap) -> None:
        """Skip damaged records, and report the gap to ready subscribers.

        The other subscribers detect the damage when they read these records.
        """
        self._skip_to(gap.to_offset + 1)
        self._begin(self.ready, lambda one: one.skip_when_ready(gap))

    def _skip_deleted(self, error: OffsetOutOfRange) -> None:
        """Skip events that retention deleted before they were delivered.

        This happens in a room that keeps few events and gets many at once.
        """
        self._skip_to(error.oldest)
        self._begin(self.ready, lambda one: one.skip_deleted_when_ready(error.oldest))

    def _end_live(self, code: str, reason: str) -> None:
        # Do not move the head, because a later subscriber may be able to read at that offset.
        self._reader = self._batch = None
        self._begin((*self.ready, *self.blocked), partial(_end, code, reason))

    # --- subscribers that lag slightly

    def recent_batch_at(self, offset: int) -> EventBatch | None:
        """Return a batch of recent events from `offset` on; None if they have to be read from the log."""
        recent = self._recent
        if not recent.start_offset <= offset < recent.next_offset:
            return None
        if offset < self.log.start_offset:
            return None  # deleted events are not delivered from memory either
        batch = self._shared.get(self, offset)
        if batch is None:
            events, next_offset = recent.since(offset, EVENTS_PER_READ, BYTES_PER_READ)
            batch = EventBatch(self.name, events, offset, next_offset)
            self._shared.add(self, batch)
        return batch

    # --- periodic checks

    def note_progress(self) -> None:
        """Schedule checks for due checkpoints, because the position of a subscriber has advanced."""
        if not self._has_progressed:
            self._has_progressed = True
            self._scheduler.schedule_tick(self)

    def tick(self) -> bool:
        """Schedule the checks of stalls and checkpoints. Returns False if no further tick is needed."""
        if self.blocked or self._are_checkpoints_due():
            self._is_tick_due = self.has_more = True
            self._scheduler.add_live(self)
        return self._has_progressed or bool(self.blocked)

    def _are_checkpoints_due(self) -> bool:
        passed_seconds = self._scheduler.clock.monotonic() - self._checkpoints_checked_at
        return self._has_progressed and passed_seconds >= self._checkpoint_check_seconds

    def _begin_tick(self) -> None:
        self._is_tick_due = False
        if not self._are_checkpoints_due():
            self._begin(self.blocked, self._check_stall)
            return
        self._checkpoints_checked_at = self._scheduler.clock.monotonic()
        # `_check_one` sets this again if the checkpoint of a subscriber is due later.
        self._has_progressed = False
        self._begin(self.subscribers, self._check_one)

    def _check_one(self, one: "Subscription") -> None:
        self._check_stall(one)
        if one.checkpoint_if_due(self._checkpoints_checked_at):
            self.note_progress()

    def _check_stall(self, one: "Subscription") -> None:
        if one in self.blocked:
            one.check_stall()

    def _check_lag(self, one: "Subscription") -> None:
        if one in self.blocked:
            one.check_lag()
        if one in self.blocked:
            self._lag_check_at = min(self._lag_check_at, one.lag_check_at)


def _end(code: str, reason: str, one: "Subscription") -> None:
    one.end(code, reason)
