"""The workers that deliver events: a worker reads an event, sends it, and records the response.

A lane is one webhook in one topic. A worker of a lane makes one attempt at a time. The definition of the webhook limits
the number of workers. `wake` starts a worker when there is work, and a worker ends when there is none. So the
number of tasks is bounded by the deliveries in flight, not by the events that wait. All lanes share a limit on requests
in flight. A request to a receiver that does not respond ends with a timeout.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from kwire.streams.events.event import Event
from kwire.streams.events.reading import EventReader
from kwire.streams.log import NotReady, StreamLog, Unreadable
from kwire.streams.webhooks.consumer import AttemptResult, Consumer
from kwire.streams.webhooks.cursor import Delivery, TopicCursor
from kwire.streams.webhooks.delivery.host_limits import HostLimits
from kwire.streams.webhooks.delivery.sender import Request, Response, Send
from kwire.streams.webhooks.delivery.work_budget import WorkBudget

logger = logging.getLogger("kwire.webhooks")

# Bounds of the events that a lane reads ahead. These are enough events to keep the workers busy, and they use little
# memory even with ten thousand lanes.
AHEAD_EVENTS = 100
AHEAD_BYTES = 64 * 1024
# Costs in the units of `WorkBudget`. READ_WEIGHT is for reading a batch of events, REQUEST_WEIGHT for building, signing
# and sending a request, and ANSWER_WEIGHT for recording a response.
READ_WEIGHT = 8
REQUEST_WEIGHT = 2
ANSWER_WEIGHT = 1
# Workers of a lane in ordered mode. One delivers in log order, the other delivers events that a user asked to resend.
ORDERED_WORKERS = 2
# The HTTP client enforces the request timeout. If the client has not returned this long after the timeout, the worker
# cancels the request.
TIMEOUT_GRACE_SECONDS = 5.0
# Longest timer of a lane. Due times are wall-clock times, and the system clock may be changed while the timer runs.
TIMER_SECONDS_MAX = 60.0
# How long `close` waits for requests in flight. Requests that take longer are sent again after the next start.
DRAIN_SECONDS = 1.0

CallLater = Callable[..., asyncio.TimerHandle]


class Counts:
    """Counters of all webhooks of this process since its start. `in_flight` is the current number of requests."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.delivered = 0
        self.failed = 0
        self.dead = 0


class Gap(NamedTuple):
    """A range of events, `to_offset` excluded, that could not be read."""

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
        # The webhook was removed, the topic was removed from the webhook, or the dispatcher was closed.
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


class DeliveryListener(Protocol):
    """Callbacks for the results of deliveries."""

    def on_changed(self, consumer: Consumer) -> None:
        """Called when the consumer may have changes that must be stored."""
        ...

    def on_result(self, lane: Lane, offset: int, result: AttemptResult) -> None: ...

    def on_gap(self, lane: Lane, gap: Gap) -> None: ...


class DeliveryWorkers:
    """The delivery workers of all lanes. Use it only in the event loop's thread. `send` is the HTTP client."""

    def __init__(
        self,
        send: Send,
        clock: Clock,
        call_later: CallLater,
        listener: DeliveryListener,
        *,
        in_flight_max: int,
        in_flight_per_host_max: int,
        timeout_ms: int,
    ) -> None:
        self.counts = Counts()
        self._send = send
        self._clock = clock
        self._call_later = call_later
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._host_limits = HostLimits(in_flight_max, in_flight_per_host_max)
        self._work_budget = WorkBudget()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def wake(self, lane: Lane) -> None:
        """Start a worker for a lane if there is work and the lane has fewer workers than allowed.

        Call this after every change that may have created work.
        """
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
        """Stop deliveries. Requests in flight may take DRAIN_SECONDS more, then they are cancelled."""
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
        except KafkaError as error:
            # An event of the retry queue cannot be read now. The dispatcher's next tick starts a new worker.
            logger.warning("webhook %s cannot read topic %s: %s", lane.consumer.webhook_id, lane.topic, error)
        except Exception:
            # The dispatcher's next tick starts a new worker.
            logger.exception("a worker of webhook %s failed", lane.consumer.webhook_id)
        finally:
            lane.workers -= 1
            self._arm(lane)

    async def _deliver(self, lane: Lane, delivery: Delivery) -> None:
        consumer, topic = lane.consumer, lane.topic
        is_over = False
        try:
            # This worker is busy until the response arrives. If there is more work, start another worker.
            self.wake(lane)
            event = delivery.event or await self._read_one(lane, delivery.offset)
            if event is None:
                is_over = True
                lost = consumer.finish_missing(topic, delivery, self._clock.now_ms())
                if lost is not None:
                    self.counts.dead += 1
                    self._listener.on_result(lane, delivery.offset, lost)
                return
            async with self._host_limits.slot(consumer):
                await self._work_budget.wait(REQUEST_WEIGHT)
                # The webhook or the topic may have changed during these waits.
                if self._is_closed or delivery.cursor is not lane.cursor:
                    return
                now_ms = self._clock.now_ms()
                if consumer.is_held_back(now_ms):
                    return
                response = await self._send_request(consumer.request(topic, event, now_ms, self._timeout_ms))
            # Many responses may arrive in the same loop iteration.
            await self._work_budget.wait(ANSWER_WEIGHT)
            result = consumer.finish(topic, delivery, event, response, self._clock.now_ms())
            is_over = True
            self._count(response, result)
            self._listener.on_result(lane, delivery.offset, result)
        finally:
            if not is_over:
                consumer.release(delivery)
            self._listener.on_changed(consumer)

    async def send_test(self, consumer: Consumer, topic: str, event: Event) -> Response:
        """Send an event that is not stored in a topic. The host limits apply. No state of the webhook changes."""
        async with self._host_limits.slot(consumer):
            return await self._send_request(consumer.request(topic, event, self._clock.now_ms(), self._timeout_ms))

    async def _send_request(self, request: Request) -> Response:
        """Send a request. A failure or a timeout is returned as a `Response` without a status."""
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

    def _count(self, response: Response, result: AttemptResult) -> None:
        if response.is_success:
            self.counts.delivered += 1
        else:
            self.counts.failed += 1
            self.counts.dead += result.is_dead_letter

    # --- reading

    async def _read_more(self, lane: Lane) -> bool:
        """Read the next events of the log into the cursor. Returns False if no events can be read now."""
        if lane.is_reading:
            return False
        lane.is_reading = True
        try:
            return await self._read_batch(lane)
        finally:
            lane.is_reading = False

    async def _read_batch(self, lane: Lane) -> bool:
        cursor, log = lane.cursor, lane.log
        if cursor is None or log is None:
            return False
        reader = lane.reader
        if reader is None or reader.next_offset != cursor.read_to:
            reader = lane.reader = EventReader(log, cursor.read_to)
        await self._work_budget.wait(READ_WEIGHT)
        if cursor is not lane.cursor or log is not lane.log or reader.next_offset != cursor.read_to:
            # A seek, or a change of the webhook or the topic, happened during the wait.
            return True
        start = cursor.read_to
        try:
            events = reader.read(AHEAD_EVENTS, AHEAD_BYTES)
            if isinstance(events, NotReady):
                await events.wait()
                # The caller tries again, because the cursor may have moved during the wait.
                return True
            next_offset = reader.next_offset
        except Unreadable as error:
            lane.reader = None
            if error.from_offset > start:  # only control records are between `start` and the damaged range
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
            # The topic was deleted or the disk failed. The dispatcher's next tick tries again.
            lane.reader = None
            logger.warning("webhook %s cannot read topic %s: %s", lane.consumer.webhook_id, lane.topic, error)
            return False
        if next_offset == start:
            return False
        lane.consumer.add_events(lane.topic, events, next_offset)
        self._listener.on_changed(lane.consumer)
        return True

    def _skip(self, lane: Lane, gap: Gap) -> None:
        lane.consumer.skip_to(lane.topic, gap.to_offset, gap.reason, self._clock.now_ms())
        self._listener.on_gap(lane, gap)
        self._listener.on_changed(lane.consumer)

    async def _read_one(self, lane: Lane, offset: int) -> Event | None:
        """Return an event of the retry queue; None if it is no longer stored. Raises KafkaError if reading fails."""
        if lane.log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        reader = EventReader(lane.log, offset)
        # Do not read beyond `offset`: the reader skips aborted transactions, so the next event may be far away.
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

    # --- timers

    def _arm(self, lane: Lane) -> None:
        """Set the timer of a lane to the time at which its next work is due. If there is none, clear the timer."""
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
                # No retry waits for its due time. The next event or the end of a delivery wakes the lane.
                return
            wait_seconds = max(wait_seconds, (due_ms - now_ms) / 1000)
        if wait_seconds > 0:
            lane.timer = self._call_later(min(wait_seconds, TIMER_SECONDS_MAX), self._on_timer, lane)

    def _on_timer(self, lane: Lane) -> None:
        lane.timer = None
        self.wake(lane)
        if lane.timer is None and lane.workers == 0:
            self._arm(lane)
