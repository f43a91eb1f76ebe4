"""One reader of a log: history first, at its own pace, then what is new, as it comes.

    begin --> reading history --> caught up --> live
                    ^                             |
                    '-------- on_lag=catchup -----'

The log is the queue: nothing is kept for a reader but its position. Live means that it stands at the head of the tail
and is handed what is new. When its sink takes nothing, it falls behind; the distance to the head is its queue, and when
that is too long, or the sink has been stuck for too long, the reader's own `on_lag` rule says what becomes of it.
"""

import logging
from enum import Enum
from typing import NamedTuple, Protocol

from kwire.broker.subscriptions.marks import (
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
    Gap,
    Lagging,
    Mark,
)
from kwire.broker.subscriptions.portions import Portion
from kwire.broker.subscriptions.readers import Reader
from kwire.broker.subscriptions.tails import NEVER, Tail
from kwire.broker.subscriptions.turns import DeliveryTurns
from kwire.errors import KafkaError, OffsetOutOfRange
from kwire.streams.log import NotReady, Unreadable

log = logging.getLogger("kwire.broker")


class Sink(Protocol):
    """Where a subscription's events go: a socket, mostly. Several subscriptions may share one.

    Its owner calls `resume` on each of them when it can be written to again. Marks may come although it cannot: there
    are few of them.
    """

    def is_writable(self) -> bool: ...

    def send_events(self, subscription: "Subscription", portion: Portion) -> None: ...

    def send_mark(self, subscription: "Subscription", mark: Mark) -> None: ...


class OnLag(Enum):
    """What becomes of a reader who is too slow."""

    # It is told why and where it was, and comes back.
    TERMINATE = "terminate"
    # It reads history again, as slow as it likes.
    CATCHUP = "catchup"
    # It goes on at the head, and is told what it did not get.
    DROP = "drop"


class SubscribeOptions(NamedTuple):
    """What a reader may choose; None is what the server has. `epoch` is the incarnation it has seen before."""

    on_lag: OnLag = OnLag.TERMINATE
    queue_events_max: int | None = None
    checkpoint_events: int | None = None
    checkpoint_ms: int | None = None
    types: frozenset[str] | None = None
    epoch: str | None = None


class SubscriptionFacts(NamedTuple):
    """What the answer to a subscriber says. `recovered`: nothing of what it asked for is missing."""

    subscription_id: str
    epoch: str
    oldest_offset: int
    newest_offset: int
    next_offset: int
    recovered: bool


class Patience(NamedTuple):
    """How far, and for how long, a live reader may stay behind, and how often it is told a place."""

    queue_events_max: int
    unwritable_ms_max: int
    checkpoint_events: int
    checkpoint_ms: int


class Subscription:
    """Called from the event loop. `position` is the offset of the event that comes next."""

    __slots__ = (
        "_catch_up_to",
        "_is_begun",
        "_is_dropping",
        "_is_lag_told",
        "_is_live",
        "_is_waiting",
        "_marked_at",
        "_marked_position",
        "_on_lag",
        "_patience",
        "_reader",
        "_tail",
        "_turns",
        "_types",
        "_unwritable_since",
        "checkpoint_at",
        "facts",
        "id",
        "is_closed",
        "is_queued",
        "is_quick",
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
        tail: Tail,
        turns: DeliveryTurns,
        patience: Patience,
        options: SubscribeOptions,
    ) -> None:
        self.id = facts.subscription_id
        self.name = tail.name
        self.facts = facts
        self.sink = sink
        self.position = facts.next_offset
        self.subscribed_at_ms = turns.clock.now_ms()
        self.is_closed = False
        # In the queue of those who can read on.
        self.is_queued = False
        # At the head of the tail; `is_quick` when a portion can go to the sink as it is.
        self.is_ready = False
        self.is_quick = False
        self._tail = tail
        self._turns = turns
        self._patience = patience
        self._on_lag = options.on_lag
        self._types = options.types
        self._is_begun = False
        self._is_live = False
        # Everything below was there before it began: it is not caught up before that.
        self._catch_up_to = tail.log.committed_end
        self._reader: Reader | None = None
        self._is_waiting = False
        self._unwritable_since: float | None = None
        self._is_lag_told = False
        self._is_dropping = False
        self._marked_position = self.position
        self._marked_at = turns.clock.monotonic()
        self.checkpoint_at = self.position + patience.checkpoint_events

    @property
    def is_live(self) -> bool:
        """Whether it has caught up and is still with the others."""
        return self._is_live

    @property
    def on_lag(self) -> OnLag:
        return self._on_lag

    # --- called by the owner of the sink

    def begin(self) -> None:
        """Send what there is, from now on. Who asked for nothing that is there is told so at once."""
        if not self._is_begun and not self.is_closed:
            self._is_begun = True
            if self._is_at_head():
                self._arrive()
            else:
                self._turns.add_history(self)

    def resume(self) -> None:
        """The sink can be written to again."""
        if self._is_begun and not (self.is_ready or self.is_closed or self.is_queued or self._is_waiting):
            self._turns.add_history(self)

    def close(self) -> None:
        """The reader has gone; nothing more is sent."""
        if not self.is_closed:
            self.is_closed = True
            self.is_ready = self.is_quick = False
            self._reader = None
            self._tail.remove(self)

    # --- reading by itself

    def step(self) -> int:
        """One portion of what lies between it and the head."""
        if self.is_closed or self.is_ready or self._is_waiting:
            return 0
        try:
            return self._step()
        except Exception as error:
            log.exception("a subscriber of %s could not be served", self.name)
            self.end(SUBSCRIPTION_FAILED, f"{type(error).__name__}: {error}")
            return 0

    def _step(self) -> int:
        if self._is_at_head():
            self._arrive()
            return 0
        if not self.sink.is_writable():
            self._wait()
            if self._reader is not None:
                self._reader.put_down()
            return 0
        if self._is_dropping:
            self._drop()
            return 0
        portion = self._next_portion()
        if portion is None:
            return 0
        units = len(portion.events) + portion.units + self.take(portion)
        if self.is_closed:  # by its own sink
            return units
        self._tail.note_move()
        if self._is_at_head():
            self._arrive()
        else:
            self._turns.add_history(self)
        return units

    def _is_at_head(self) -> bool:
        return self.position >= self._tail.head and self.position >= self._catch_up_to

    def _next_portion(self) -> Portion | None:
        """None when there is nothing to send now; then the next step is arranged for, or never comes."""
        portion = self._tail.portion_at(self.position)
        if portion is not None:
            self._reader = None
            return portion
        if self._tail.log.is_gone:
            self.end(ROOM_NOT_FOUND, f"{self.name} was deleted")
            return None
        reader = self._reader
        if reader is None:
            reader = self._reader = self._tail.open_reader(self._tail.log, self.position)
        try:
            events = reader.read()
        except Unreadable as error:
            self.pass_over(Gap(error.from_offset, error.to_offset - 1, DAMAGED))
        except OffsetOutOfRange as error:
            self.lose_up_to(error.oldest)
        except KafkaError as error:
            self.end(SUBSCRIPTION_FAILED, str(error))
        else:
            if isinstance(events, NotReady):
                self._is_waiting = True
                events.begin(self._waited)
                return None
            if reader.next_offset > self.position:
                return Portion(self.name, events, self.position, reader.next_offset)
            self.end(SUBSCRIPTION_FAILED, f"the log cannot be read from offset {self.position} on")
        if not self.is_closed:
            self._turns.add_history(self)
        return None

    def _waited(self, error: BaseException | None) -> None:
        self._is_waiting = False
        if self.is_closed:
            return
        if error is None:
            self._turns.add_history(self)
            return
        if not isinstance(error, KafkaError):
            log.error("%s could not be read", self.name, exc_info=error)
        self.end(SUBSCRIPTION_FAILED, str(error))

    def _arrive(self) -> None:
        """It stands at the head: the tail serves it from now on."""
        self._reader = None
        self._is_lag_told = self._is_dropping = False
        self.is_ready = True
        self.is_quick = self._types is None
        self._tail.make_ready(self)
        if not self._is_live:
            self._is_live = True
            self._note_mark()
            self._send(CaughtUp(self.position - 1))

    def _wait(self) -> None:
        """For `resume`."""
        if self._is_live and self._unwritable_since is None:
            self._unwritable_since = self._turns.clock.monotonic()
            self._tail.block(self)

    # --- taking events

    def take(self, portion: Portion) -> int:
        """Deliver what of it is new and wanted; how much work it was besides. The sink can be written to."""
        if portion.next_offset <= self.position:
            return 0
        wanted = self._wanted(portion)
        if wanted.events:
            self.sink.send_events(self, wanted)
            counts = self._tail.counts
            counts.portions += 1
            counts.events += len(wanted.events)
        self.position = portion.next_offset
        self._unwritable_since = None
        # A sink that is full gets a mark with events only: what it does not want may pass it for ever.
        if self.position >= self.checkpoint_at and (wanted.events or self.sink.is_writable()):
            self.checkpoint()
        return 0 if wanted.is_shared else len(portion.events)

    def offer(self, portion: Portion) -> int:
        """The same while it is ready: what it cannot take now it reads later."""
        if not self.sink.is_writable() and portion.next_offset > self.position and self._wanted(portion).events:
            self.fall_behind()
            return 0
        return self.take(portion)

    def _wanted(self, portion: Portion) -> Portion:
        if portion.start_offset < self.position:
            portion = portion.since(self.position)
        return portion if self._types is None else portion.only(self._types)

    def pass_over(self, gap: Gap) -> None:
        """What it names is not delivered, as far as it was to be."""
        if gap.to_offset < self.position:
            return
        gap = gap._replace(from_offset=max(gap.from_offset, self.position))
        self.position = gap.to_offset + 1
        self._reader = None
        self._tail.counts.gaps += 1
        self._note_mark()
        self._send(gap)

    def leave_out(self, gap: Gap) -> None:
        """The same while it is ready: a sink that is full is told when it reads on."""
        if self.is_ready and gap.to_offset >= self.position:
            if self.sink.is_writable():
                self.pass_over(gap)
            else:
                self.fall_behind()

    def lose(self, oldest: int) -> None:
        """Retention was faster than the tail."""
        if self.is_ready and self.position < oldest:
            if self._on_lag is OnLag.TERMINATE or self.sink.is_writable():
                self.lose_up_to(oldest)
            else:
                self.fall_behind()

    def lose_up_to(self, oldest: int) -> None:
        """Retention was faster."""
        if self.position >= oldest:
            return
        if self._on_lag is OnLag.TERMINATE:
            self.end(
                OFFSET_OUT_OF_RANGE,
                f"offset {self.position} is no longer stored, the oldest that is stored is {oldest}",
            )
        else:
            self.pass_over(Gap(self.position, oldest - 1, RETENTION))

    # --- being too slow

    def fall_behind(self) -> None:
        """There is something new, and the sink does not take it."""
        self.is_ready = self.is_quick = False
        self._unwritable_since = self._turns.clock.monotonic()
        self._tail.block(self)

    @property
    def judge_at(self) -> int:
        """The head at which there is something to say about its distance."""
        if self._is_dropping:
            return NEVER
        queue_max = self._patience.queue_events_max
        return self.position + (queue_max + 1 if self._is_lag_told else (queue_max + 1) // 2)

    def judge_distance(self) -> None:
        """It is live and behind: is it too far?"""
        if self._is_dropping or self.is_closed:
            return
        behind, queue_max = self._tail.head - self.position, self._patience.queue_events_max
        if behind > queue_max:
            self._lag(LAGGED, f"{behind} events behind, {queue_max} are allowed")
        elif behind * 2 >= queue_max:
            self._tell_lag()

    def judge_time(self) -> None:
        """It is live and behind: has it taken nothing for too long?"""
        since = self._unwritable_since
        if self.is_closed:
            return
        if self.sink.is_writable():
            self.resume()
            return
        if self._is_dropping or since is None:
            return
        waited_ms = (self._turns.clock.monotonic() - since) * 1000
        allowed_ms = self._patience.unwritable_ms_max
        if waited_ms >= allowed_ms:
            self._lag(BROADCAST_FAILED, f"nothing was taken for {allowed_ms} ms")
        elif waited_ms * 2 >= allowed_ms:
            self._tell_lag()

    def _tell_lag(self) -> None:
        if not self._is_lag_told:
            self._is_lag_told = True
            self._tail.counts.lag_notices += 1
            self._note_mark()
            self._send(Lagging(self.position - 1, max(self._tail.head - self.position, 0)))

    def _lag(self, code: str, reason: str) -> None:
        self._tell_lag()
        if self.is_closed:  # by its own sink
            return
        self._tail.counts.lag_cuts += 1
        if self._on_lag is OnLag.TERMINATE:
            self.end(code, reason)
            return
        if self._on_lag is OnLag.CATCHUP:
            self._is_live = self._is_lag_told = False
            self._unwritable_since = None
            self._catch_up_to = self._tail.log.committed_end
            self._tail.let_go(self)
        else:
            # One gap when the sink takes it, however long that lasts; meanwhile there is nothing to judge.
            self._is_dropping = True
        if self.sink.is_writable():
            self.resume()

    def _drop(self) -> None:
        head = self._tail.head
        if self.position < head:
            self.pass_over(Gap(self.position, head - 1, DROPPED))
        if not self.is_closed:
            self._arrive()

    # --- places to come back to

    def checkpoint(self) -> None:
        if self.is_closed:  # by its own sink
            return
        self._tail.counts.checkpoints += 1
        self._note_mark()
        self._send(Checkpoint(self.position - 1))

    def checkpoint_if_due(self, now: float) -> bool:
        """After some time, if it has got further; True if it will be due later."""
        if self.is_closed or not self._is_begun or self.position <= self._marked_position:
            return False
        if (now - self._marked_at) * 1000 < self._patience.checkpoint_ms or not self.sink.is_writable():
            return True
        self.checkpoint()
        return False

    def _note_mark(self) -> None:
        self._marked_position = self.position
        self._marked_at = self._turns.clock.monotonic()
        self.checkpoint_at = self.position + self._patience.checkpoint_events

    # --- the end

    def end(self, code: str, reason: str) -> None:
        """It is over, and not because the reader wanted it: tell why, and where it was."""
        if self.is_closed:
            return
        self.close()
        self._send(Closed(code, reason, self.position - 1))

    def _send(self, mark: Mark) -> None:
        try:
            self.sink.send_mark(self, mark)
        except Exception:
            # Others wait for their turn; whoever owns this sink finds the reason in the log.
            log.exception("a subscriber of %s could not be told %s", self.name, type(mark).__name__)
            self.close()
