"""All subscriptions of this node: who listens to what."""

from collections.abc import Iterator, Sequence
from itertools import count

from kwire.broker.events.reading import EventReader
from kwire.broker.subscriptions.marks import STOPPING
from kwire.broker.subscriptions.messages import SubscribedMessages
from kwire.broker.subscriptions.readers import OpenReader
from kwire.broker.subscriptions.recent_events import RecentBytes
from kwire.broker.subscriptions.shared_portions import SharedPortions
from kwire.broker.subscriptions.start import FROM_NEWEST, Start, find_place
from kwire.broker.subscriptions.subscription import (
    Patience,
    Sink,
    SubscribeOptions,
    Subscription,
    SubscriptionFacts,
)
from kwire.broker.subscriptions.tails import DeliveryCounts, Tail
from kwire.broker.subscriptions.turns import CallLater, CallSoon, DeliveryTurns
from kwire.clock import Clock
from kwire.config.bridge import RoomsConfig
from kwire.errors import RoomNotFound, SubscriptionFailed, TooManySubscribers
from kwire.streams.log import StreamLog

DEFAULT_OPTIONS = SubscribeOptions()
# What a reader may filter by; each portion is looked at once for each different set of types.
TYPES_MAX = 100
CHECKPOINT_MS_MIN = 100
# Looks at those who take nothing, for each time that they may take nothing.
LOOKS_PER_TIMEOUT = 8


class Subscriptions:
    """Called from the event loop. A tail exists for each log with subscribers, one for each name it is known by."""

    def __init__(self, clock: Clock, call_soon: CallSoon, call_later: CallLater, settings: RoomsConfig) -> None:
        self._settings = settings
        self._turns = DeliveryTurns(clock, call_soon, call_later, settings.broadcast_timeout_ms // LOOKS_PER_TIMEOUT)
        self._recent_bytes = RecentBytes()
        self._shared_portions = SharedPortions()
        self._numbers = count(1)
        # A log has one tail, unless it is known by several names.
        self._tails: dict[StreamLog, list[Tail]] = {}
        self._is_closed = False
        self.counts = DeliveryCounts()

    async def subscribe(
        self,
        name: str,
        log: StreamLog,
        start: Start,
        sink: Sink,
        options: SubscribeOptions = DEFAULT_OPTIONS,
        open_reader: OpenReader = EventReader,
    ) -> Subscription:
        """A subscription that is registered and delivers from its `begin` on. `name` is what readers know the log by.

        Subscribers with another reader than `EventReader` know the log by another name.

        Raises OffsetOutOfRange, TooManySubscribers, SubscriptionFailed, RoomNotFound, or KafkaError if the disk fails.
        """
        patience = self._patience(options)
        if log.is_gone:
            raise RoomNotFound(name)
        place = await find_place(start, log, options.epoch)
        # Nothing waits from here on, so the facts fit together and nothing is missed.
        if self._is_closed:
            raise SubscriptionFailed("the server is stopping")
        if log.is_gone:
            raise RoomNotFound(name)
        if self.count_of(log) >= self._settings.subscribers_max:
            raise TooManySubscribers(self._settings.subscribers_max)
        bounds = log.bounds()
        facts = SubscriptionFacts(
            subscription_id=f"sub_{next(self._numbers)}",
            epoch=log.incarnation,
            oldest_offset=bounds.start,
            newest_offset=bounds.newest,
            next_offset=place.offset,
            recovered=place.is_recovered,
        )
        tail = self._tail(name, log, open_reader)
        subscription = Subscription(facts, sink, tail, self._turns, patience, options)
        tail.add(subscription, patience.checkpoint_ms)
        return subscription

    def count_of(self, log: StreamLog) -> int:
        """The number of its subscribers."""
        return sum(len(tail.subscribers) for tail in self._tails.get(log, ()))

    def of_log(self, log: StreamLog) -> Sequence[Subscription]:
        return [one for tail in self._tails.get(log, ()) for one in tail.subscribers]

    def __len__(self) -> int:
        return sum(len(tail.subscribers) for tail in self._all_tails())

    @property
    def blocked_count(self) -> int:
        """How many are live and behind because their sinks take nothing."""
        return sum(len(tail.blocked) for tail in self._all_tails())

    @property
    def tail_count(self) -> int:
        return sum(1 for _ in self._all_tails())

    @property
    def recent_bytes(self) -> int:
        """What the newest events take that are kept decoded, and portions of them for those who are a little behind."""
        return self._recent_bytes.used + self._shared_portions.used_bytes

    def close(self, reason: str = "the server is stopping") -> None:
        """Every reader is told why and where it was; no one comes after that."""
        self._is_closed = True
        for tail in list(self._all_tails()):
            for one in tuple(tail.subscribers):
                one.end(STOPPING, reason)
        self._turns.close()

    def _all_tails(self) -> Iterator[Tail]:
        return (tail for tails in self._tails.values() for tail in tails)

    def _tail(self, name: str, log: StreamLog, open_reader: OpenReader) -> Tail:
        tails = self._tails.setdefault(log, [])
        for tail in tails:
            if tail.name == name:
                return tail
        tail = Tail(
            name,
            log,
            self._turns,
            self.counts,
            self._settings.tail_events_max,
            self._recent_bytes,
            self._shared_portions,
            self._forget,
            open_reader,
        )
        tails.append(tail)
        return tail

    def _forget(self, tail: Tail) -> None:
        tails = self._tails[tail.log]
        tails.remove(tail)
        if not tails:
            del self._tails[tail.log]

    def _patience(self, options: SubscribeOptions) -> Patience:
        settings = self._settings
        if options.types is not None and not 0 < len(options.types) <= TYPES_MAX:
            raise SubscriptionFailed(f"a filter has 1 to {TYPES_MAX} types")
        return Patience(
            queue_events_max=_chosen("queue", options.queue_events_max, 1, settings.queue_events_max),
            unwritable_ms_max=settings.broadcast_timeout_ms,
            checkpoint_events=_chosen("checkpoint_events", options.checkpoint_events, 1) or settings.checkpoint_events,
            checkpoint_ms=_chosen("checkpoint_ms", options.checkpoint_ms, CHECKPOINT_MS_MIN) or settings.checkpoint_ms,
        )


def _chosen(name: str, asked: int | None, at_least: int, at_most: int = 0) -> int:
    """What was asked for, but not more than the server allows; what the server has if nothing was asked."""
    if asked is None:
        return at_most
    if asked < at_least:
        raise SubscriptionFailed(f"{name} has to be at least {at_least}, not {asked}")
    return min(asked, at_most) if at_most else asked


async def subscribe_messages(
    subscriptions: Subscriptions,
    name: str,
    log: StreamLog,
    start: Start = FROM_NEWEST,
    options: SubscribeOptions = DEFAULT_OPTIONS,
) -> SubscribedMessages:
    """Subscribe from plain Python: an asynchronous iterator of events and marks, bounded like every subscription."""
    messages = SubscribedMessages()
    messages.subscription = await subscriptions.subscribe(name, log, start, messages, options)
    messages.subscription.begin()
    return messages
