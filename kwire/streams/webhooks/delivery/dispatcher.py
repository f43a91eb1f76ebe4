"""One dispatcher per topic with webhooks: it knows the latest event, and nudges each of them when there is a later one.

It watches the log like every reader, so webhooks learn of an event in the same moment as subscribers do. Every interval
it looks anyway: for a retry whose time has come, and for a topic that was deleted, made again or could not be read.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from kwire.broker.store.event_ids import EventId
from kwire.broker.topics import Topics
from kwire.broker.webhooks.delivering import CallLater, Lane
from kwire.broker.webhooks.state_log import StateLog
from kwire.errors import KafkaError
from kwire.streams.log import StreamLog

logger = logging.getLogger("kwire.webhooks")

# To nudge one takes some ten microseconds.
LANES_PER_TURN = 100

Nudge = Callable[[Lane], None]
CallSoon = Callable[..., object]


class Dispatcher:
    """Called from the event loop; at work from `start` to `close`."""

    def __init__(
        self,
        name: str,
        topics: Topics,
        state: StateLog,
        nudge: Nudge,
        call_soon: CallSoon,
        call_later: CallLater,
        interval_ms: int,
    ) -> None:
        self.name = name
        self.lanes: dict[str, Lane] = {}
        self._topics = topics
        self._state = state
        self._nudge = nudge
        self._call_soon = call_soon
        self._call_later = call_later
        self._interval_seconds = interval_ms / 1000
        # The topic's, while there is one that can be read.
        self.log: StreamLog | None = None
        self._topic_id = b""
        self._timer: asyncio.TimerHandle | None = None
        self._is_dispatching = False
        self._is_closed = False

    @property
    def latest(self) -> str | None:
        """The id of the latest event, if there is one."""
        log = self.log
        if log is None or log.committed_end == 0:
            return None
        return str(EventId(self.name, log.committed_end - 1))

    def start(self) -> None:
        self._look()
        self._tick()

    def close(self) -> None:
        self._is_closed = True
        self._leave()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for lane in self.lanes.values():
            lane.end()

    def add(self, lane: Lane) -> None:
        self.lanes[lane.consumer.webhook_id] = lane
        if self.log is not None:
            self._join(lane, self.log)
            self._nudge(lane)

    def remove(self, webhook_id: str) -> None:
        lane = self.lanes.pop(webhook_id, None)
        if lane is not None:
            lane.end()

    # --- what wakes it

    def _rose(self, log: StreamLog) -> None:
        # Later: watchers must be quick, and several rises of one turn are one.
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
            self._look()
        self._nudge_from(tuple(self.lanes.values()), 0)

    def _nudge_from(self, lanes: Sequence[Lane], first: int) -> None:
        for lane in lanes[first : first + LANES_PER_TURN]:
            self._nudge(lane)
        if first + LANES_PER_TURN < len(lanes):
            self._call_soon(self._nudge_from, lanes, first + LANES_PER_TURN)

    # --- the topic

    def _look(self) -> None:
        """Find the topic of this name, which may be another than before."""
        self._leave()
        topic = self._topics.get(self.name)
        if topic is None or len(topic.partitions) != 1:
            return
        log = topic.stream()
        try:
            log.bounds()
        except KafkaError as error:
            logger.warning("%s cannot be read for webhooks: %s", self.name, error)
            return
        self.log, self._topic_id = log, topic.topic_id
        log.watch(self._rose)
        for lane in self.lanes.values():
            self._join(lane, log)

    def _join(self, lane: Lane, log: StreamLog) -> None:
        lane.consumer.follow(self.name, self._topic_id, log.bounds().end)
        lane.set_log(log)
        self._state.note(lane.consumer)

    def _leave(self) -> None:
        if self.log is not None:
            self.log.unwatch(self._rose)
            self.log = None
            for lane in self.lanes.values():
                lane.set_log(None)
