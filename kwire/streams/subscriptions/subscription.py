"""Subscription: one subscriber of a log. It reads history at its own pace, then receives new events as they arrive.

    begin --> reading history --> caught up --> live
                    ^                             |
                    '-------- on_lag=catchup -----'

A subscription has no queue of its own: it keeps only its position in the log. A live subscription receives new events
from the log's live feed. If the sink of the subscription is not writable, the subscription falls behind. If the
distance to the head exceeds `queue_events_max`, or the sink stays unwritable for too long, the `on_lag` rule of the
subscription applies.
"""

import logging
from enum import Enum
from typing import NamedTuple, Protocol

from kwire.errors import KafkaError, OffsetOutOfRange
from kwire.streams.log import NotReady, Unreadable
from kwire.streams.subscriptions.control_messages import (
    BROADCAST_FAILED,
    DAMAGED,
    DROPPED,
    LAGGED,
    OFFSET_OUT_OF_RANGE,
    RETENTION,
    ROOM_NOT_FOUND,
    SUBSCRIPTION_FAILED,
    CaughtUp,
    Checkpoint,
    Closed,
    ControlMessage,
    Gap,
    Lagging,
)
from kwire.streams.subscriptions.delivery_scheduler import DeliveryScheduler
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.streams.subscriptions.event_reader import Reader
from kwire.streams.subscriptions.live_feed import NEVER, LiveFeed

log = logging.getLogger("kwire.broker")


class Sink(Protocol):
    """The receiver of a subscription's messages, usually a socket. Several subscriptions may share a sink.

    When the sink becomes writable again, its owner calls `resume` on each of these subscriptions. Control messages are
    also sent to a sink that is not writable, because they are few.
    """

    def is_writable(self) -> bool: ...

    def send_events(self, subscription: "Subscription", batch: EventBatch) -> None: ...

    def send_control(self, subscription: "Subscription", message: ControlMessage) -> None: ...


class OnLag(Enum):
    """The rule for a live subscriber that is too slow."""

    # End the subscription with a reason and the last offset. The client can subscribe again from the next offset.
    TERMINATE = "terminate"
    # Read history again, at the subscriber's own pace.
    CATCHUP = "catchup"
    # Continue at the head, and report the skipped events as a gap.
    DROP = "drop"


class SubscribeOptions(NamedTuple):
    """Options of a subscription. For limits and intervals, None selects the server's setting.

    `types` are the event types to deliver, or None for all types. `epoch` is the incarnation of the log that the
    subscriber has read before, or None.
    """

    on_lag: OnLag = OnLag.TERMINATE
    queue_events_max: int | None = None
    checkpoint_events: int | None = None
    checkpoint_ms: int | None = None
    types: frozenset[str] | None = None
    epoch: str | None = None
    # How long the sink may be unwritable. Clients cannot set it.
    unwritable_ms_max: int | None = None


class SubscriptionFacts(NamedTuple):
    """The facts in the response to a subscribe request.

    `recovered` is False if events may be missing, because the log was created again or has lost records.
    """

    subscription_id: str
    epoch: str
    oldest_offset: int
    newest_offset: int
    next_offset: int
    recovered: bool


class DeliveryLimits(NamedTuple):
    """The allowed lag and stall time of a live subscriber, and its checkpoint intervals."""

    queue_events_max: int
    unwritable_ms_max: int
    checkpoint_events: int
    checkpoint_ms: int


class Subscription:
    """One subscriber of a log. `position` is the offset of its next event. Use it only in the event loop's thread."""

    __slots__ = (
        "_catch_up_to",
        "_feed",
        "_is_begun",
        "_is_dropping",
        "_is_lag_reported",
        "_is_live",
        "_is_waiting",
        "_limits",
        "_on_lag",
        "_reader",
        "_reported_at",
        "_reported_position",
        "_scheduler",
        "_types",
        "_unwritable_since",
        "checkpoint_at",
        "facts",
        "id",
        "is_closed",
        "is_fast_path",
        "is_queued",
        "is_ready",
        "name",
        "position",
        "sink",
        "subscribed_at_ms",
    )

    def __init__(
        self,
        facts: SubscriptionFacts,
        sink: Sink,
        feed: LiveFeed,
        scheduler: DeliveryScheduler,
        limits: DeliveryLimits,
        options: SubscribeOptions,
    ) -> None:
        self.id = facts.subscription_id
        self.name = feed.name
        self.facts = facts
        self.sink = sink
        self.position = facts.next_offset
        self.subscribed_at_ms = scheduler.clock.now_ms()
        self.is_closed = False
        # Whether the subscription is in the scheduler's queue.
        self.is_queued = False
        # `is_ready` is True while the subscription is at the head and the feed delivers to it. `is_fast_path` is True
        # if it also has no filter, so that batches are passed to the sink unchanged.
        self.is_ready = False
        self.is_fast_path = False
        self._feed = feed
        self._scheduler = scheduler
        self._limits = limits
        self._on_lag = options.on_lag
        self._types = options.types
        self._is_begun = False
        self._is_live = False
        # Events below this offset existed when the subscription started. CaughtUp is sent only after them.
        self._catch_up_to = feed.log.committed_end
        self._reader: Reader | None = None
        self._is_waiting = False
        self._unwritable_since: float | None = None
        self._is_lag_reported = False
        self._is_dropping = False
        self._reported_position = self.position
        self._reported_at = scheduler.clock.monotonic()
        self.checkpoint_at = self.position + limits.checkpoint_events

    @property
    def is_live(self) -> bool:
        """Whether the subscription has caught up, and the live feed serves it or lists it as blocked."""
        return self._is_live

    @property
    def on_lag(self) -> OnLag:
        return self._on_lag

    @property
    def types(self) -> frozenset[str] | None:
        """The event types that are delivered; None for all types."""
        return self._types

    # --- called by the owner of the sink

    def begin(self) -> None:
        """Start delivery. A subscriber that is already at the head receives CaughtUp immediately."""
        if not self._is_begun and not self.is_closed:
            self._is_begun = True
            if self._is_at_head():
                self._join_feed()
            else:
                self._scheduler.add_history(self)

    def resume(self) -> None:
        """Continue delivery. The owner of the sink calls this when the sink is writable again."""
        if self._is_begun and not (self.is_ready or self.is_closed or self.is_queued or self._is_waiting):
            self._scheduler.add_history(self)

    def close(self) -> None:
        """End the subscription without a message, because the client disconnected or unsubscribed."""
        if not self.is_closed:
            self.is_closed = True
            self.is_ready = self.is_fast_path = False
            self._reader = None
            self._feed.remove(self)

    # --- reading history

    def step(self) -> int:
        """Read and deliver one batch from the position on. Returns the units of work done."""
        if self.is_closed or self.is_ready or self._is_waiting:
            return 0
        try:
            return self._step()
        except Exception as error:
            log.exception("delivery to a subscriber of %s failed", self.name)
            self.end(SUBSCRIPTION_FAILED, f"{type(error).__name__}: {error}")
            return 0

    def _step(self) -> int:
        if self._is_at_head():
            self._join_feed()
            return 0
        if not self.sink.is_writable():
            self._wait_for_sink()
            if self._reader is not None:
                self._reader.release_buffers()
            return 0
        if self._is_dropping:
            self._drop()
            return 0
        batch = self._next_batch()
        if batch is None:
            return 0
        units = len(batch.events) + batch.units + self.deliver(batch)
        if self.is_closed:  # the sink has closed the subscription
            return units
        self._feed.note_progress()
        if self._is_at_head():
            self._join_feed()
        else:
            self._scheduler.add_history(self)
        return units

    def _is_at_head(self) -> bool:
        return self.position >= self._feed.head and self.position >= self._catch_up_to

    def _next_batch(self) -> EventBatch | None:
        """Return the batch at the position, or None if no batch can be sent now.

        If it returns None, the next step has been scheduled, or a pending read will schedule it, or the subscription
        has ended.
        """
        batch = self._feed.recent_batch_at(self.position)
        if batch is not None:
            self._reader = None
            return batch
        if self._feed.log.is_gone:
            self.end(ROOM_NOT_FOUND, f"{self.name!r} was deleted")
            return None
        reader = self._reader
        if reader is None:
            reader = self._reader = self._feed.open_reader(self._feed.log, self.position)
        try:
            events = reader.read()
        except Unreadable as error:
            self.skip(Gap(error.from_offset, error.to_offset - 1, DAMAGED))
        except OffsetOutOfRange as error:
            self.skip_deleted(error.oldest)
        except KafkaError as error:
            self.end(SUBSCRIPTION_FAILED, str(error))
        else:
            if isinstance(events, NotReady):
                self._is_waiting = True
                events.begin(self._on_read_ready)
                return None
            if reader.next_offset > self.position:
                return EventBatch(self.name, events, self.position, reader.next_offset)
            self.end(SUBSCRIPTION_FAILED, f"the log cannot be read from offset {self.position} on")
        if not self.is_closed:
            self._scheduler.add_history(self)
        return None

    def _on_read_ready(self, error: BaseException | None) -> None:
        self._is_waiting = False
        if self.is_closed:
            return
        if error is None:
            self._scheduler.add_history(self)
            return
        if not isinstance(error, KafkaError):
            log.error("%s could not be read", self.name, exc_info=error)
        self.end(SUBSCRIPTION_FAILED, str(error))

    def _join_feed(self) -> None:
        """Let the live feed deliver from now on, because the position is at the head."""
        self._reader = None
        self._is_lag_reported = self._is_dropping = False
        self.is_ready = True
        self.is_fast_path = self._types is None
        self._feed.make_ready(self)
        if not self._is_live:
            self._is_live = True
            self._note_reported()
            self._send(CaughtUp(self.position - 1))

    def _wait_for_sink(self) -> None:
        """Mark a live subscription as blocked until the owner of the sink calls `resume`."""
        if self._is_live and self._unwritable_since is None:
            self._unwritable_since = self._scheduler.clock.monotonic()
            self._feed.block(self)

    # --- delivery

    def deliver(self, batch: EventBatch) -> int:
        """Send the part of a batch that is new and passes the filter. The sink must be writable.

        Returns the additional units of work that the filter has cost.
        """
        if batch.next_offset <= self.position:
            return 0
        wanted = self._wanted(batch)
        if wanted.events:
            self.sink.send_events(self, wanted)
            counts = self._feed.counts
            counts.batches += 1
            counts.events += len(wanted.events)
        self.position = batch.next_offset
        self._unwritable_since = None
        # If the sink is not writable, a checkpoint is sent only together with events. Otherwise, if the filter excludes
        # all events, checkpoints would fill the sink without a limit.
        if self.position >= self.checkpoint_at and (wanted.events or self.sink.is_writable()):
            self.checkpoint()
        return 0 if wanted.is_shared else len(batch.events)

    def offer(self, batch: EventBatch) -> int:
        """Deliver a batch of the live feed. If the sink is not writable, the subscription reads the batch later."""
        if not self.sink.is_writable() and batch.next_offset > self.position and self._wanted(batch).events:
            self.fall_behind()
            return 0
        return self.deliver(batch)

    def _wanted(self, batch: EventBatch) -> EventBatch:
        if batch.start_offset < self.position:
            batch = batch.since(self.position)
        return batch if self._types is None else batch.only(self._types)

    def skip(self, gap: Gap) -> None:
        """Move the position past a gap, and report the part of the gap that has not been delivered."""
        if gap.to_offset < self.position:
            return
        gap = gap._replace(from_offset=max(gap.from_offset, self.position))
        self.position = gap.to_offset + 1
        self._reader = None
        self._feed.counts.gaps += 1
        self._note_reported()
        self._send(gap)

    def skip_when_ready(self, gap: Gap) -> None:
        """Skip a gap that the live feed found. If the sink is not writable now, the gap is reported later."""
        if self.is_ready and gap.to_offset >= self.position:
            if self.sink.is_writable():
                self.skip(gap)
            else:
                self.fall_behind()

    def skip_deleted_when_ready(self, oldest: int) -> None:
        """Handle deleted events that the live feed found (see `skip_deleted`).

        If the sink is not writable now, a gap is reported later.
        """
        if self.is_ready and self.position < oldest:
            if self._on_lag is OnLag.TERMINATE or self.sink.is_writable():
                self.skip_deleted(oldest)
            else:
                self.fall_behind()

    def skip_deleted(self, oldest: int) -> None:
        """Handle the deletion of events before `oldest` that were not delivered.

        The rule TERMINATE ends the subscription. The other rules report a gap.
        """
        if self.position >= oldest:
            return
        if self._on_lag is OnLag.TERMINATE:
            self.end(
                OFFSET_OUT_OF_RANGE,
                f"offset {self.position} is no longer stored, the oldest that is stored is {oldest}",
            )
        else:
            self.skip(Gap(self.position, oldest - 1, RETENTION))

    # --- lag

    def fall_behind(self) -> None:
        """Leave the live delivery, because there are new events and the sink is not writable."""
        self.is_ready = self.is_fast_path = False
        self._unwritable_since = self._scheduler.clock.monotonic()
        self._feed.block(self)

    @property
    def lag_check_at(self) -> int:
        """The head offset at which `check_lag` has to be called next."""
        if self._is_dropping:
            return NEVER
        queue_max = self._limits.queue_events_max
        return self.position + (queue_max + 1 if self._is_lag_reported else (queue_max + 1) // 2)

    def check_lag(self) -> None:
        """Check the lag of a blocked subscription. Sends a warning, or applies the `on_lag` rule."""
        if self._is_dropping or self.is_closed:
            return
        behind, queue_max = self._feed.head - self.position, self._limits.queue_events_max
        if behind > queue_max:
            self._lag(LAGGED, f"the subscriber lags by {behind} events, {queue_max} are allowed")
        elif behind * 2 >= queue_max:
            self._report_lag()

    def check_stall(self) -> None:
        """Check how long the sink has been unwritable. Sends a warning, or applies the `on_lag` rule."""
        since = self._unwritable_since
        if self.is_closed:
            return
        if self.sink.is_writable():
            self.resume()
            return
        if self._is_dropping or since is None:
            return
        waited_ms = (self._scheduler.clock.monotonic() - since) * 1000
        allowed_ms = self._limits.unwritable_ms_max
        if waited_ms >= allowed_ms:
            self._lag(BROADCAST_FAILED, f"the subscriber has not read anything for {allowed_ms} ms")
        elif waited_ms * 2 >= allowed_ms:
            self._report_lag()

    def _report_lag(self) -> None:
        if not self._is_lag_reported:
            self._is_lag_reported = True
            self._feed.counts.lag_notices += 1
            self._note_reported()
            self._send(Lagging(self.position - 1, max(self._feed.head - self.position, 0)))

    def _lag(self, code: str, reason: str) -> None:
        self._report_lag()
        if self.is_closed:  # the sink has closed the subscription
            return
        self._feed.counts.lag_actions += 1
        if self._on_lag is OnLag.TERMINATE:
            self.end(code, reason)
            return
        if self._on_lag is OnLag.CATCHUP:
            self._is_live = self._is_lag_reported = False
            self._unwritable_since = None
            self._catch_up_to = self._feed.log.committed_end
            self._feed.detach(self)
        else:
            # When the sink is writable again, one gap is sent for all skipped events. Until then the lag is not
            # checked.
            self._is_dropping = True
        if self.sink.is_writable():
            self.resume()

    def _drop(self) -> None:
        head = self._feed.head
        if self.position < head:
            self.skip(Gap(self.position, head - 1, DROPPED))
        if not self.is_closed:
            self._join_feed()

    # --- checkpoints

    def checkpoint(self) -> None:
        if self.is_closed:  # the sink has closed the subscription
            return
        self._feed.counts.checkpoints += 1
        self._note_reported()
        self._send(Checkpoint(self.position - 1))

    def checkpoint_if_due(self, now: float) -> bool:
        """Send a checkpoint if the interval has passed and the position has advanced.

        Returns True if a checkpoint will be due later.
        """
        if self.is_closed or not self._is_begun or self.position <= self._reported_position:
            return False
        if (now - self._reported_at) * 1000 < self._limits.checkpoint_ms or not self.sink.is_writable():
            return True
        self.checkpoint()
        return False

    def _note_reported(self) -> None:
        self._reported_position = self.position
        self._reported_at = self._scheduler.clock.monotonic()
        self.checkpoint_at = self.position + self._limits.checkpoint_events

    # --- the end

    def end(self, code: str, reason: str) -> None:
        """End the subscription, and send the reason and the last offset to the subscriber."""
        if self.is_closed:
            return
        self.close()
        self._send(Closed(code, reason, self.position - 1))

    def _send(self, message: ControlMessage) -> None:
        try:
            self.sink.send_control(self, message)
        except Exception:
            # A broken sink must not stop the delivery to other subscribers.
            log.exception("%s could not be sent to a subscriber of %s", type(message).__name__, self.name)
            self.close()
