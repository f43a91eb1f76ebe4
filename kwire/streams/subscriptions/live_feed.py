"""The tail of a log: new events are decoded once and go to all subscribers that have read everything before them.

A tail exists while somebody subscribes. Those who are `ready` stand at its head and get the next portion from it; those
who are `blocked` are live too, but their sinks took nothing, so they are behind. Everybody else reads history by
himself and is only listed.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from kwire.broker.events.reading import PORTION_BYTES, PORTION_EVENTS, EventReader
from kwire.broker.subscriptions.marks import DAMAGED, ROOM_NOT_FOUND, SUBSCRIPTION_FAILED, Gap
from kwire.broker.subscriptions.portions import Portion
from kwire.broker.subscriptions.readers import OpenReader, Reader
from kwire.broker.subscriptions.recent_events import RecentBytes, RecentEvents
from kwire.broker.subscriptions.shared_portions import SharedPortions
from kwire.broker.subscriptions.turns import DeliveryTurns
from kwire.errors import KafkaError, OffsetOutOfRange
from kwire.streams.log import NotReady, StreamLog, Unreadable

if TYPE_CHECKING:
    from kwire.broker.subscriptions.subscription import Subscription

logger = logging.getLogger("kwire.broker")

# To tell one reader something, or to ask whether it is too slow, in the units of `turns.py`.
UNITS_PER_READER = 2
# No reader is judged before the head gets there.
NEVER = 2**63
# How often subscribers of one tail are looked at for checkpoints that time brings.
CHECKPOINT_LOOKS = 4
CHECKPOINT_LOOK_MS_MAX = 1000


class DeliveryCounts:
    """What all tails have done so far."""

    __slots__ = ("checkpoints", "events", "gaps", "lag_cuts", "lag_notices", "portions")

    def __init__(self) -> None:
        # Events handed to sinks, counted once for each; portions likewise.
        self.events = 0
        self.portions = 0
        self.checkpoints = 0
        self.gaps = 0
        self.lag_notices = 0
        # Times that an on_lag rule acted.
        self.lag_cuts = 0


class Tail:
    """Called from the event loop. `head` is the offset of the event that will be delivered next."""

    __slots__ = (
        "_at",
        "_checkpoint_look_seconds",
        "_checkpoints_looked_at",
        "_has_moved",
        "_is_look_due",
        "_is_waiting",
        "_judge_at",
        "_on_empty",
        "_portion",
        "_reader",
        "_ready_list",
        "_recent",
        "_round",
        "_serve",
        "_shared",
        "_turns",
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
        turns: DeliveryTurns,
        counts: DeliveryCounts,
        recent_events_max: int,
        recent_bytes: RecentBytes,
        shared: SharedPortions,
        on_empty: Callable[["Tail"], None],
        open_reader: OpenReader = EventReader,
    ) -> None:
        """`on_empty` is called when the last one has left, which is the end of the tail."""
        self.name = name
        self.log = log
        self.head = log.committed_end
        # Dictionaries for their order: whoever came first is served first.
        self.subscribers: dict[Subscription, None] = {}
        self.ready: dict[Subscription, None] = {}
        self.blocked: dict[Subscription, None] = {}
        self.is_queued = False
        self.has_more = False
        self.counts = counts
        self._turns = turns
        self._on_empty = on_empty
        self.open_reader = open_reader
        self._reader: Reader | None = None
        self._is_waiting = False
        # A round: the portion that is on its way, or what else is done with each; with whom, and how many had their
        # turn already. Nothing else begins before it ends.
        self._portion: Portion | None = None
        self._serve: Callable[[Subscription], None] | None = None
        self._round: list[Subscription] = []
        # `ready` as a list, made anew when somebody came or went.
        self._ready_list: list[Subscription] | None = None
        self._at = 0
        self._recent = RecentEvents(self.head, turns.clock, recent_events_max, recent_bytes)
        self._shared = shared
        # The lowest head at which one of the blocked may be too far behind.
        self._judge_at = NEVER
        self._is_look_due = False
        self._has_moved = False
        self._checkpoint_look_seconds = CHECKPOINT_LOOK_MS_MAX / 1000
        self._checkpoints_looked_at = 0.0
        log.watch(self._rose)

    # --- who is in it

    def add(self, subscription: "Subscription", checkpoint_ms: int) -> None:
        self.subscribers[subscription] = None
        look_seconds = checkpoint_ms / CHECKPOINT_LOOKS / 1000
        self._checkpoint_look_seconds = min(self._checkpoint_look_seconds, look_seconds)

    def make_ready(self, subscription: "Subscription") -> None:
        """It has everything below the head."""
        self.blocked.pop(subscription, None)
        self.ready[subscription] = None
        self._ready_list = None

    def block(self, subscription: "Subscription") -> None:
        """It is live, and its sink takes nothing."""
        if self.ready.pop(subscription, self) is None:
            self._ready_list = None
        self.blocked[subscription] = None
        self._judge_at = min(self._judge_at, subscription.judge_at)
        self._turns.look_later(self)

    def let_go(self, subscription: "Subscription") -> None:
        """It reads history again."""
        self.blocked.pop(subscription, None)
        if self.ready.pop(subscription, self) is None:
            self._ready_list = None

    def remove(self, subscription: "Subscription") -> None:
        self.let_go(subscription)
        self.subscribers.pop(subscription, None)
        if not self.subscribers:
            self._close()
            self._on_empty(self)

    def _close(self) -> None:
        self.log.unwatch(self._rose)
        self._recent.restart_at(self.head)
        self._shared.forget(self)
        self._turns.forget(self)
        self._portion, self._serve, self._round, self._at = None, None, [], 0
        self.has_more = self._is_look_due = self._has_moved = False

    # --- what is new

    def _rose(self, log: StreamLog) -> None:
        self.has_more = True
        if not self.is_queued and not self._is_waiting:
            self._turns.add_live(self)

    def step(self, units_max: int) -> int:
        """Go on with a round, or begin the next one, for as many readers as there are units for."""
        try:
            units = 0
            if self._portion is None and self._serve is None:
                units = self._begin_round()
            if self._portion is not None:
                units += self._deliver(self._portion, units_max - units)
            elif self._serve is not None:
                units += self._serve_some(self._serve, units_max - units)
            return units
        except Exception as error:
            logger.exception("%s could not be read", self.name)
            self._end_live(SUBSCRIPTION_FAILED, f"{type(error).__name__}: {error}")
            return UNITS_PER_READER

    def _begin_round(self) -> int:
        """Whoever may be too slow is judged first, then comes what is new."""
        self.has_more = False
        if self.head >= self._judge_at:
            self._judge_at = NEVER
            self._begin(self.blocked, self._judge_distance)
        elif self._is_look_due:
            self._begin_look()
        elif not self._is_waiting:
            self._portion = self._decode()
            if self._portion is not None:
                return len(self._portion.events) + self._portion.units
        return 0

    def _begin(self, readers: Iterable["Subscription"], serve: Callable[["Subscription"], None]) -> None:
        """Do something with each of them, over several turns if they are many."""
        self._round, self._at, self._serve = list(readers), 0, serve
        self.has_more = True

    def _serve_some(self, serve: Callable[["Subscription"], None], units_max: int) -> int:
        at = self._at
        some = self._round[at : at + max(units_max // UNITS_PER_READER, 1)]
        self._at = at + len(some)
        is_over = self._at >= len(self._round)
        for one in some:
            try:
                serve(one)
            except Exception as error:
                self._end_broken(one, error)
        if is_over:
            self._portion, self._serve, self._round, self._at = None, None, [], 0
        self.has_more = bool(self.subscribers)
        return len(some) * UNITS_PER_READER

    def _end_broken(self, one: "Subscription", error: Exception) -> None:
        logger.exception("a subscriber of %s could not be served", self.name)
        one.end(SUBSCRIPTION_FAILED, f"{type(error).__name__}: {error}")

    def _decode(self) -> Portion | None:
        log, start = self.log, self.head
        if log.is_gone:
            self._begin(self.subscribers, partial(_end, ROOM_NOT_FOUND, f"{self.name} was deleted"))
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
            self._pass_over(Gap(error.from_offset, error.to_offset - 1, DAMAGED))
        except OffsetOutOfRange as error:
            self._lose(error)
        except KafkaError as error:
            self._end_live(SUBSCRIPTION_FAILED, str(error))
        else:
            if isinstance(events, NotReady):
                self._is_waiting = True
                events.begin(self._waited)
                return None
            behind = reader.next_offset
            self.head = behind
            self.has_more = self.has_more or behind < log.committed_end
            if behind > start:
                self._recent.add(events, behind)
                self._at = 0
                return Portion(self.name, events, start, behind)
            if behind < log.committed_end:
                self._end_live(SUBSCRIPTION_FAILED, f"the log cannot be read from offset {start} on")
            return None
        return None

    def _waited(self, error: BaseException | None) -> None:
        self._is_waiting = False
        if error is not None:
            if not isinstance(error, KafkaError):
                logger.error("%s could not be read", self.name, exc_info=error)
            self._end_live(SUBSCRIPTION_FAILED, str(error))
        if self.subscribers:
            self.has_more = True
            self._turns.add_live(self)

    def _skip_to(self, offset: int) -> None:
        """Nobody needs what lies before: who reads history finds it in the log."""
        if offset != self.head:
            self.head = offset
            self._reader = None
            self._recent.restart_at(offset)
            self._shared.forget(self)

    # --- to everybody

    def _deliver(self, portion: Portion, units_max: int) -> int:
        """To some of those who are ready. The hot path: a few attribute reads and two calls for each of them."""
        at, units_each = self._at, portion.units
        count_max = max(units_max // units_each, 1)
        units = 0
        if not at:
            # Who becomes ready meanwhile stands behind this portion already; who leaves is no longer ready.
            if self._ready_list is None:
                self._ready_list = list(self.ready)
            self._round = self._ready_list
        some = self._round[at : at + count_max]
        start, behind, events = portion.start_offset, portion.next_offset, portion.events
        count = served = 0
        for one in some:
            served += 1
            try:
                if one.position == start and one.is_quick and events:
                    sink = one.sink
                    if sink.is_writable():
                        sink.send_events(one, portion)
                        one.position = behind
                        count += 1
                        if behind >= one.checkpoint_at:
                            one.checkpoint()
                    else:
                        one.fall_behind()
                elif one.is_ready:
                    units += one.offer(portion)
                    if units >= units_max:
                        break
            except Exception as error:
                self._end_broken(one, error)
        self.counts.portions += count
        self.counts.events += count * len(events)
        self._at = at + served
        if self._at >= len(self._round):
            self._portion, self._round, self._at = None, [], 0
            self.has_more = self.has_more or self.head >= self._judge_at
        else:
            self.has_more = True
        if self.subscribers:
            self.note_move()
        return units + served * units_each

    def _pass_over(self, gap: Gap) -> None:
        """Nobody can read these: who is ready goes on behind them. The others come there by themselves."""
        behind = gap.to_offset + 1
        self._skip_to(behind)
        self._begin(self.ready, lambda one: one.leave_out(gap))

    def _lose(self, error: OffsetOutOfRange) -> None:
        """Retention took events before they were delivered, as a small ring does when many come at once."""
        self._skip_to(error.oldest)
        self._begin(self.ready, lambda one: one.lose(error.oldest))

    def _end_live(self, code: str, reason: str) -> None:
        # What they read next is at the head, which somebody may be able to read later.
        self._reader = self._portion = None
        self._begin((*self.ready, *self.blocked), partial(_end, code, reason))

    # --- for those who are a little behind

    def portion_at(self, offset: int) -> Portion | None:
        """Events from `offset` on that are still in memory; None if they have to be read from the log."""
        recent = self._recent
        if not recent.start_offset <= offset < recent.next_offset:
            return None
        if offset < self.log.start_offset:
            return None  # deleted means deleted, in memory too
        portion = self._shared.get(self, offset)
        if portion is None:
            events, behind = recent.since(offset, PORTION_EVENTS, PORTION_BYTES)
            portion = Portion(self.name, events, offset, behind)
            self._shared.add(self, portion)
        return portion

    # --- what time brings

    def note_move(self) -> None:
        """Somebody got further, so a checkpoint may come due."""
        if not self._has_moved:
            self._has_moved = True
            self._turns.look_later(self)

    def look(self) -> bool:
        """Whoever has to be asked is asked in the turns that follow."""
        if self.blocked or self._are_checkpoints_due():
            self._is_look_due = self.has_more = True
            self._turns.add_live(self)
        return self._has_moved or bool(self.blocked)

    def _are_checkpoints_due(self) -> bool:
        passed_seconds = self._turns.clock.monotonic() - self._checkpoints_looked_at
        return self._has_moved and passed_seconds >= self._checkpoint_look_seconds

    def _begin_look(self) -> None:
        self._is_look_due = False
        if not self._are_checkpoints_due():
            self._begin(self.blocked, self._judge_time)
            return
        self._checkpoints_looked_at = self._turns.clock.monotonic()
        # Until one of them says that it will be due later.
        self._has_moved = False
        self._begin(self.subscribers, self._look_at)

    def _look_at(self, one: "Subscription") -> None:
        self._judge_time(one)
        if one.checkpoint_if_due(self._checkpoints_looked_at):
            self.note_move()

    def _judge_time(self, one: "Subscription") -> None:
        if one in self.blocked:
            one.judge_time()

    def _judge_distance(self, one: "Subscription") -> None:
        if one in self.blocked:
            one.judge_distance()
        if one in self.blocked:
            self._judge_at = min(self._judge_at, one.judge_at)


def _end(code: str, reason: str, one: "Subscription") -> None:
    one.end(code, reason)
