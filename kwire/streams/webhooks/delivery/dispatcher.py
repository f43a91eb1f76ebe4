"""The dispatcher of a topic, which wakes the topic's webhooks when there are new events.

The dispatcher watches the log as subscribers do, so webhooks are notified of an event at the same time as subscribers.
It also wakes all its webhooks at a fixed interval, for retries that are due. If the topic was deleted or could not be
read, each of these ticks looks the topic up again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from kwire.errors import KafkaError
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.log import StreamLog
from kwire.streams.topic_directory import TopicFinder
from kwire.streams.webhooks.delivery.delivery import CallLater, Lane
from kwire.streams.webhooks.state_log import StateLog

logger = logging.getLogger("kwire.webhooks")

# The maximum number of lanes that are woken in one iteration of the event loop. A lane is one webhook in one topic.
# Waking a lane takes about ten microseconds.
LANES_PER_ITERATION = 100
# How long `found` waits.
FIND_SECONDS = 10.0

Wake = Callable[[Lane], None]
CallSoon = Callable[..., object]


class Dispatcher:
    """The dispatcher of one topic. Use it only in the event loop's thread. `start` activates it, `close` ends it."""

    def __init__(
        self,
        name: str,
        topics: TopicFinder,
        state: StateLog,
        wake: Wake,
        call_soon: CallSoon,
        call_later: CallLater,
        interval_ms: int,
    ) -> None:
        self.name = name
        self.lanes: dict[str, Lane] = {}
        self._topics = topics
        self._state = state
        self._wake = wake
        self._call_soon = call_soon
        self._call_later = call_later
        self._interval_seconds = interval_ms / 1000
        # The log of the topic; None while the topic does not exist or cannot be read.
        self.log: StreamLog | None = None
        self._topic_id = b""
        self._timer: asyncio.TimerHandle | None = None
        # The search for the topic.
        self._finding: asyncio.Task[None] | None = None
        # Why the last search failed, so that the same failure is logged once.
        self._problem = ""
        self._is_dispatching = False
        self._is_closed = False

    @property
    def latest(self) -> str | None:
        """The id of the latest event; None if there is none or the topic cannot be read."""
        log = self.log
        if log is None or log.committed_end == 0:
            return None
        return str(EventId(self.name, log.committed_end - 1))

    def start(self) -> None:
        self._find_topic()
        self._tick()

    def close(self) -> None:
        self._is_closed = True
        self._detach()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._finding is not None:
            self._finding.cancel()
        for lane in self.lanes.values():
            lane.end()

    async def found(self) -> None:
        """Wait until a search for the topic that has begun is over, but not longer than FIND_SECONDS."""
        if self._finding is not None:
            await asyncio.wait((self._finding,), timeout=FIND_SECONDS)

    def add(self, lane: Lane) -> None:
        self.lanes[lane.consumer.webhook_id] = lane
        if self.log is not None:
            self._attach(lane, self.log)
            self._wake(lane)

    def remove(self, webhook_id: str) -> None:
        lane = self.lanes.pop(webhook_id, None)
        if lane is not None:
            lane.end()

    # --- triggers

    def _on_rise(self, log: StreamLog) -> None:
        # The dispatch is deferred, because watchers must return quickly. Several calls in one loop iteration cause
        # only one dispatch.
        if not self._is_dispatching and not self._is_closed:
            self._is_dispatching = True
            self._call_soon(self._dispatch)

    def _tick(self) -> None:
        if not self._is_closed:
            self._dispatch()
            self._timer = self._call_later(self._interval_seconds, self._tick)

    def _dispatch(self) -> None:
        self._is_dispatching = False
        if self._is_closed:
            return
        if self.log is None or self.log.is_gone:
            self._find_topic()
        self._wake_from(tuple(self.lanes.values()), 0)

    def _wake_from(self, lanes: Sequence[Lane], first: int) -> None:
        for lane in lanes[first : first + LANES_PER_ITERATION]:
            self._wake(lane)
        if first + LANES_PER_ITERATION < len(lanes):
            self._call_soon(self._wake_from, lanes, first + LANES_PER_ITERATION)

    # --- the topic

    def _find_topic(self) -> None:
        """Look up the topic by name and watch its log. The topic may have been created again since the last call."""
        if self._finding is None:
            self._detach()
            self._finding = asyncio.get_running_loop().create_task(self._find())

    async def _find(self) -> None:
        try:
            topic = await self._topics.find(self.name)
            if topic is None or topic.partition_count != 1:
                return
            log = topic.stream()
            await log.ready()
            log.bounds()
        except KafkaError as error:
            if self._problem != str(error):
                self._problem = str(error)
                logger.warning("topic %s cannot be read for webhooks: %s", self.name, error)
            return
        except Exception:
            # The next tick searches again.
            logger.exception("the search for topic %s failed", self.name)
            return
        finally:
            self._finding = None
        if self._is_closed or log.is_gone:
            return
        self.log, self._topic_id, self._problem = log, topic.topic_id, ""
        log.watch(self._on_rise)
        lanes = tuple(self.lanes.values())
        for lane in lanes:
            self._attach(lane, log)
        self._wake_from(lanes, 0)

    def _attach(self, lane: Lane, log: StreamLog) -> None:
        lane.consumer.follow(self.name, self._topic_id, log.bounds().end)
        lane.set_log(log)
        self._state.enqueue(lane.consumer)

    def _detach(self) -> None:
        if self.log is not None:
            self.log.unwatch(self._on_rise)
            self.log = None
            for lane in self.lanes.values():
                lane.set_log(None)
