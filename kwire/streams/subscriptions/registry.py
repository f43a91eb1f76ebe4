"""Subscriptions: the registry of all subscriptions of this node."""

from collections.abc import Iterator, Sequence
from itertools import count

from kwire.clock import Clock
from kwire.config.http_api import RoomsConfig
from kwire.errors import RoomNotFound, SubscriptionFailed, TooManySubscribers
from kwire.streams.events.reading import EventReader
from kwire.streams.log import StreamLog
from kwire.streams.subscriptions.control_messages import STOPPING
from kwire.streams.subscriptions.delivery_scheduler import CallLater, CallSoon, DeliveryScheduler
from kwire.streams.subscriptions.event_reader import OpenReader
from kwire.streams.subscriptions.live_feed import DeliveryCounts, LiveFeed
from kwire.streams.subscriptions.messages import SubscribedMessages
from kwire.streams.subscriptions.recent_events import RecentBytes
from kwire.streams.subscriptions.shared_batches import SharedBatches
from kwire.streams.subscriptions.start import FROM_NEWEST, Start, resolve_start
from kwire.streams.subscriptions.subscription import (
    DeliveryLimits,
    Sink,
    SubscribeOptions,
    Subscription,
    SubscriptionFacts,
)

DEFAULT_OPTIONS = SubscribeOptions()
# The maximum number of event types in one filter. Subscribers with the same set of types share the filtered batches.
TYPES_MAX = 100
CHECKPOINT_MS_MIN = 100
# The number of checks for stalled subscribers per `broadcast_timeout_ms`.
TICKS_PER_TIMEOUT = 8


class Subscriptions:
    """All subscriptions and their live feeds. Use it only in the event loop's thread.

    Each log with subscribers has one live feed for each name that subscribers use for it.
    """

    def __init__(self, clock: Clock, call_soon: CallSoon, call_later: CallLater, settings: RoomsConfig) -> None:
        self._settings = settings
        self._scheduler = DeliveryScheduler(
            clock, call_soon, call_later, settings.broadcast_timeout_ms // TICKS_PER_TIMEOUT
        )
        self._recent_bytes = RecentBytes()
        self._shared_batches = SharedBatches()
        self._numbers = count(1)
        # A log has several feeds only if its subscribers use several names for it.
        self._feeds: dict[StreamLog, list[LiveFeed]] = {}
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
        """Register a subscription. Call its `begin` to start the delivery.

        `name` is the name that the subscriber uses for the log. All subscribers that use the same name for a log share
        one live feed, and a feed has only one reader. So a subscriber whose `open_reader` is not `EventReader` must use
        a different name for the log.

        Raises OffsetOutOfRange, TooManySubscribers, SubscriptionFailed, RoomNotFound, or KafkaError if the disk fails.
        """
        limits = self._limits(options)
        if log.is_gone:
            raise RoomNotFound(name)
        position = await resolve_start(start, log, options.epoch)
        # There is no await from here on, so the facts are consistent and no event is missed.
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
            next_offset=position.offset,
            recovered=position.is_recovered,
        )
        feed = self._feed(name, log, open_reader)
        subscription = Subscription(facts, sink, feed, self._scheduler, limits, options)
        feed.add(subscription, limits.checkpoint_ms)
        return subscription

    def count_of(self, log: StreamLog) -> int:
        """The number of subscribers of a log."""
        return sum(len(feed.subscribers) for feed in self._feeds.get(log, ()))

    def of_log(self, log: StreamLog) -> Sequence[Subscription]:
        return [one for feed in self._feeds.get(log, ()) for one in feed.subscribers]

    def __len__(self) -> int:
        return sum(len(feed.subscribers) for feed in self._all_feeds())

    @property
    def blocked_count(self) -> int:
        """The number of live subscribers that lag because their sinks cannot be written to."""
        return sum(len(feed.blocked) for feed in self._all_feeds())

    @property
    def feed_count(self) -> int:
        return sum(1 for _ in self._all_feeds())

    @property
    def recent_bytes(self) -> int:
        """The memory of decoded recent events, and of cached batches for subscribers slightly behind the head."""
        return self._recent_bytes.used + self._shared_batches.used_bytes

    def close(self, reason: str = "the server is stopping") -> None:
        """End all subscriptions, and send them `reason` and their last offset. Later calls of `subscribe` fail."""
        self._is_closed = True
        for feed in list(self._all_feeds()):
            for one in tuple(feed.subscribers):
                one.end(STOPPING, reason)
        self._scheduler.close()

    def _all_feeds(self) -> Iterator[LiveFeed]:
        return (feed for feeds in self._feeds.values() for feed in feeds)

    def _feed(self, name: str, log: StreamLog, open_reader: OpenReader) -> LiveFeed:
        feeds = self._feeds.setdefault(log, [])
        for feed in feeds:
            if feed.name == name:
                return feed
        feed = LiveFeed(
            name,
            log,
            self._scheduler,
            self.counts,
            self._settings.recent_events_max,
            self._recent_bytes,
            self._shared_batches,
            self._forget,
            open_reader,
        )
        feeds.append(feed)
        return feed

    def _forget(self, feed: LiveFeed) -> None:
        feeds = self._feeds[feed.log]
        feeds.remove(feed)
        if not feeds:
            del self._feeds[feed.log]

    def _limits(self, options: SubscribeOptions) -> DeliveryLimits:
        settings = self._settings
        if options.types is not None and not 0 < len(options.types) <= TYPES_MAX:
            raise SubscriptionFailed(f"types must have 1 to {TYPES_MAX} entries, not {len(options.types)}")
        return DeliveryLimits(
            queue_events_max=_chosen("queue", options.queue_events_max, 1, settings.queue_events_max),
            unwritable_ms_max=options.unwritable_ms_max or settings.broadcast_timeout_ms,
            checkpoint_events=_chosen("checkpoint_events", options.checkpoint_events, 1) or settings.checkpoint_events,
            checkpoint_ms=_chosen("checkpoint_ms", options.checkpoint_ms, CHECKPOINT_MS_MIN) or settings.checkpoint_ms,
        )


def _chosen(name: str, asked: int | None, at_least: int, at_most: int = 0) -> int:
    """Return the requested value, but not more than `at_most`. Returns `at_most` if no value was requested.

    `at_most` is the server's setting. If it is 0, there is no upper limit.
    """
    if asked is None:
        return at_most
    if asked < at_least:
        raise SubscriptionFailed(f"{name} must be at least {at_least}, not {asked}")
    return min(asked, at_most) if at_most else asked


async def subscribe_messages(
    subscriptions: Subscriptions,
    name: str,
    log: StreamLog,
    start: Start = FROM_NEWEST,
    options: SubscribeOptions = DEFAULT_OPTIONS,
) -> SubscribedMessages:
    """Subscribe from Python code. Returns an asynchronous iterator of events and control messages.

    The same limits apply as for any other subscription.
    """
    messages = SubscribedMessages()
    messages.subscription = await subscriptions.subscribe(name, log, start, messages, options)
    messages.subscription.begin()
    return messages
