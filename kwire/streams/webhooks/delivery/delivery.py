"""The work itself: events are read, sent, and what comes of it is noted.

A lane is one webhook in one topic. Workers go through it, one attempt after the other, as many at a time as the webhook
allows; they come when there is something to do (`nudge`) and go when there is nothing. So there is a task per delivery
under way, never one per event. All lanes share a bound on requests under way, in memory and in time: a receiver that
hangs is let go after the timeout.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kwire.broker.events.event import Event
from kwire.broker.events.reading import EventReader
from kwire.broker.webhooks.consumer import Consumer, Verdict
from kwire.broker.webhooks.cursor import Delivery, TopicCursor
from kwire.broker.webhooks.host_turns import HostTurns
from kwire.broker.webhooks.sending import Request, Response, Send
from kwire.broker.webhooks.turns import WorkTurns
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from kwire.streams.log import NotReady, StreamLog, Unreadable

logger = logging.getLogger("kwire.webhooks")

# What a lane reads ahead: enough to keep its workers busy, little enough for ten thousand lanes.
AHEAD_EVENTS = 100
AHEAD_BYTES = 64 * 1024
# What these take of a turn: a portion of the log; to make, sign and send a request; and to note what came of it.
READ_WEIGHT = 8
REQUEST_WEIGHT = 2
ANSWER_WEIGHT = 1
# In ordered mode one beside the line, which somebody wants to have sent again.
ORDERED_WORKERS = 2
# A sender keeps its time by itself; this is for one that does not. It begins when the request does.
TIMEOUT_GRACE_SECONDS = 5.0
# A timer goes off after so long at the latest: the time of day may have been set meanwhile.
TIMER_SECONDS_MAX = 60.0
# What a stop waits for requests under way; those that take longer are sent again after the next start.
DRAIN_SECONDS = 1.0

CallLater = Callable[..., asyncio.TimerHandle]


class Counts:
    """Since the start, of all webhooks."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.delivered = 0
        self.failed = 0
        self.dead = 0


class Gap(NamedTuple):
    """Events from one offset up to and without another that could not be read any more."""

    from_offset: int
    to_offset: int
    reason: str


class Lane:
    """One webhook in one topic. `log` is None while the topic does not exist or cannot be read."""

    __slots__ = ("consumer", "is_gone", "is_reading", "log", "reader", "timer", "topic", "workers")

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.consumer = consumer
        self.topic = topic
        self.log: StreamLog | None = None
        self.reader: EventReader | None = None
        self.workers = 0
        self.is_reading = False
        # The webhook or the topic in it was taken away.
        self.is_gone = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def cursor(self) -> TopicCursor | None:
        return None if self.is_gone else self.consumer.cursors.get(self.topic)

    @property
    def is_behind(self) -> bool:
        cursor, log = self.cursor, self.log
        return cursor is not None and log is not None and cursor.read_to < log.committed_end

    def set_log(self, log: StreamLog | None) -> None:
        self.log = log
        self.reader = None

    def end(self) -> None:
        self.is_gone = True
        self.set_log(None)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Told(Protocol):
    """Who wants to know what became of deliveries."""

    def changed(self, consumer: Consumer) -> None:
        """It has changes to be written down."""
        ...

    def judged(self, lane: Lane, offset: int, verdict: Verdict) -> None: ...

    def lost(self, lane: Lane, gap: Gap) -> None: ...


class Delivering:
    """Called from the event loop. `send` is who has the sockets."""

    def __init__(
        self,
        send: Send,
        clock: Clock,
        call_later: CallLater,
        told: Told,
        *,
        in_flight_max: int,
        in_flight_per_host_max: int,
        timeout_ms: int,
    ) -> None:
        self.counts = Counts()
        self._send = send
        self._clock = clock
        self._call_later = call_later
        self._told = told
        self._timeout_ms = timeout_ms
        self._host_turns = HostTurns(in_flight_max, in_flight_per_host_max)
        self._turns = WorkTurns()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def nudge(self, lane: Lane) -> None:
        """Look whether there is something to do, and begin it. Called for whatever may have changed that."""
        if self._is_closed or not self._has_work(lane):
            return
        consumer = lane.consumer
        workers_max = ORDERED_WORKERS if consumer.definition.is_ordered else consumer.definition.parallel
        if lane.workers < workers_max:
            lane.workers += 1
            task = asyncio.get_running_loop().create_task(self._work(lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Begin nothing more, and let what is under way end if it does so soon."""
        self._is_closed = True
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=DRAIN_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    # --- a worker

    def _has_work(self, lane: Lane) -> bool:
        consumer, cursor = lane.consumer, lane.cursor
        if cursor is None or lane.log is None or not consumer.is_active:
            return False
        now_ms = self._clock.now_ms()
        if consumer.wait_seconds(now_ms, self._clock.monotonic()) > 0:
            self._arm(lane)
            return False
        is_due = consumer.is_due(now_ms)
        if cursor.can_take(is_due):
            return True
        return not lane.is_reading and lane.is_behind and cursor.wants_events(is_due)

    async def _work(self, lane: Lane) -> None:
        try:
            while not self._is_closed and self._has_work(lane):
                delivery = lane.consumer.take(lane.topic, self._clock.now_ms(), self._clock.monotonic())
                if delivery is not None:
                    await self._deliver(lane, delivery)
                elif not await self._read_more(lane):
                    break
        except Exception:
            # The next tick begins anew.
            logger.exception("a worker of webhook %s failed", lane.consumer.webhook_id)
        finally:
            lane.workers -= 1
            self._arm(lane)

    async def _deliver(self, lane: Lane, delivery: Delivery) -> None:
        consumer, topic = lane.consumer, lane.topic
        is_over = False
        try:
            # There may be more to do than one can.
            self.nudge(lane)
            event = delivery.event or await self._read_one(lane, delivery.offset)
            if event is None:
                is_over = True
                lost = consumer.lose(topic, delivery, self._clock.now_ms())
                if lost is not None:
                    self.counts.dead += 1
                    self._told.judged(lane, delivery.offset, lost)
                return
            async with self._host_turns.turn(consumer):
                await self._turns.wait(REQUEST_WEIGHT)
                # Much may have happened during these waits.
                if self._is_closed or delivery.cursor is not lane.cursor:
                    return
                now_ms = self._clock.now_ms()
                if consumer.is_held_back(now_ms):
                    return
                response = await self._sent(consumer.request(topic, event, now_ms, self._timeout_ms))
            # Answers may come many at a time.
            await self._turns.wait(ANSWER_WEIGHT)
            verdict = consumer.finish(topic, delivery, event, response, self._clock.now_ms())
            is_over = True
            self._count(response, verdict)
            self._told.judged(lane, delivery.offset, verdict)
        finally:
            if not is_over:
                consumer.put_back(delivery)
            self._told.changed(consumer)

    async def send_beside(self, consumer: Consumer, topic: str, event: Event) -> Response:
        """One request that has no place in any topic, and changes nothing; it waits for its turn as all do."""
        async with self._host_turns.turn(consumer):
            return await self._sent(consumer.request(topic, event, self._clock.now_ms(), self._timeout_ms))

    async def _sent(self, request: Request) -> Response:
        """What came of it, whatever it was."""
        begun = self._clock.monotonic()
        self.counts.in_flight += 1
        try:
            async with asyncio.timeout(request.timeout_ms / 1000 + TIMEOUT_GRACE_SECONDS):
                response = await self._send(request)
        except TimeoutError:
            response = Response(None, f"no answer within {request.timeout_ms} ms")
        except Exception as error:
            logger.exception("a delivery could not be sent")
            response = Response(None, f"{type(error).__name__}: {error}")
        finally:
            self.counts.in_flight -= 1
        if response.duration_ms == 0:
            response = response._replace(duration_ms=round((self._clock.monotonic() - begun) * 1000))
        return response

    def _count(self, response: Response, verdict: Verdict) -> None:
        if response.is_success:
            self.counts.delivered += 1
        else:
            self.counts.failed += 1
            self.counts.dead += verdict.outcome.value == "dead"

    # --- reading

    async def _read_more(self, lane: Lane) -> bool:
        """Take the next portion of the log into the line. False if that has to wait for something."""
        if lane.is_reading:
            return False
        lane.is_reading = True
        try:
            return await self._read_portion(lane)
        finally:
            lane.is_reading = False

    async def _read_portion(self, lane: Lane) -> bool:
        cursor, log = lane.cursor, lane.log
        if cursor is None or log is None:
            return False
        reader = lane.reader
        if reader is None or reader.next_offset != cursor.read_to:
            reader = lane.reader = EventReader(log, cursor.read_to)
        await self._turns.wait(READ_WEIGHT)
        if cursor is not lane.cursor or log is not lane.log or reader.next_offset != cursor.read_to:
            # A seek, or the end of the topic, came between.
            return True
        start = cursor.read_to
        try:
            events = reader.read(AHEAD_EVENTS, AHEAD_BYTES)
            if isinstance(events, NotReady):
                await events.wait()
                # Read again, and from where the line is by then.
                return True
            next_offset = reader.next_offset
        except Unreadable as error:
            lane.reader = None
            if error.from_offset > start:  # markers and the like lie before it, and are not missed
                lane.consumer.add_events(lane.topic, [], error.from_offset)
            self._skip(lane, Gap(error.from_offset, error.to_offset, str(error)))
            return True
        except OffsetOutOfRange as error:
            lane.reader = None
            if start >= error.oldest:
                return False
            self._skip(lane, Gap(start, error.oldest, "they are no longer stored"))
            return True
        except KafkaError as error:
            # A deleted topic, or a disk that fails: the dispatcher looks again.
            lane.reader = None
            logger.warning("webhook %s cannot read %s: %s", lane.consumer.webhook_id, lane.topic, error)
            return False
        if next_offset == start:
            return False
        lane.consumer.add_events(lane.topic, events, next_offset)
        self._told.changed(lane.consumer)
        return True

    def _skip(self, lane: Lane, gap: Gap) -> None:
        lane.consumer.skip_to(lane.topic, gap.to_offset, gap.reason, self._clock.now_ms())
        self._told.lost(lane, gap)
        self._told.changed(lane.consumer)

    async def _read_one(self, lane: Lane, offset: int) -> Event | None:
        """One event beside the line; None if it is gone. Raises KafkaError if that cannot be known."""
        if lane.log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic is gone")
        reader = EventReader(lane.log, offset)
        # Not further than that: what was aborted is passed over, and the next event may be far away.
        while reader.next_offset <= offset:
            try:
                events = reader.read(1, 1)
            except (Unreadable, OffsetOutOfRange):
                return None
            if isinstance(events, NotReady):
                await events.wait()
            else:
                return events[0] if events and events[0].offset == offset else None
        return None

    # --- time

    def _arm(self, lane: Lane) -> None:
        """Come back when something is due."""
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        consumer, cursor = lane.consumer, lane.cursor
        if self._is_closed or cursor is None or not consumer.is_active:
            return
        now_ms = self._clock.now_ms()
        wait_seconds = consumer.wait_seconds(now_ms, self._clock.monotonic())
        is_due = consumer.is_due(now_ms)
        if not cursor.can_take(is_due) and not (lane.is_behind and cursor.wants_events(is_due)):
            due_ms = cursor.due_ms()
            if due_ms is None or is_due(due_ms):
                # Nothing waits for a time; the next event, or the end of what is under way, comes by itself.
                return
            wait_seconds = max(wait_seconds, (due_ms - now_ms) / 1000)
        if wait_seconds > 0:
            lane.timer = self._call_later(min(wait_seconds, TIMER_SECONDS_MAX), self._wake, lane)

    def _wake(self, lane: Lane) -> None:
        lane.timer = None
        self.nudge(lane)
        if lane.timer is None and lane.workers == 0:
            self._arm(lane)
