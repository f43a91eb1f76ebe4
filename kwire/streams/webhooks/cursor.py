"""The cursor of a webhook in one topic: events read ahead, deliveries in flight and retries. It does no I/O.

Deliveries start in log order. `position` is the offset from which events are read again after a restart. After a failed
attempt, the event waits for its retry. Where it waits depends on the mode:

- **ordered**: The event stays at `position`, and `head` holds its retry. All later events of the topic wait too.
- **parallel**: The event is in the retry queue, and later events are delivered. Each entry of the queue is stored as a
  record of its own, so `position` moves past events in the queue.

An event that a user asks to send again is added to the retry queue in both modes.

Events that wait for a retry are not kept in memory. They are read again when they are due.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kwire.streams.events.event import Event

# Events in the retry queue of one topic. While the queue is full, only events of the queue are delivered.
RETRY_QUEUE_MAX = 1000
# Offsets that may be read beyond the oldest delivery in flight. After a crash, about this many events may be delivered
# again.
WINDOW_OFFSETS = 10_000

IsDue = Callable[[int], bool]


class Retry(NamedTuple):
    """A pending retry of an event. `attempts` is the number of failed attempts. The next one may start at `due_ms`."""

    attempts: int
    due_ms: int


class Delivery(NamedTuple):
    """One attempt in flight. `event` is None if the event is in the retry queue: it has to be read first."""

    offset: int
    attempt: int
    event: Event | None
    # The cursor and its generation when the attempt started. A seek or a change of mode starts a new generation, and a
    # topic that is created again gets a new cursor. The results of older attempts must not move the position.
    cursor: "TopicCursor"
    generation: int

    @property
    def is_from_retry_queue(self) -> bool:
        return self.event is None


class TopicCursor:
    """The position of one webhook in one topic, with its deliveries in flight and its retries.

    `start_id` is the id in the `TopicStart` of the webhook's definition; a stored position with another id is not
    valid. Methods call their `is_due` argument with a due time in milliseconds. It returns whether this time has been
    reached.
    """

    def __init__(self, topic_id: bytes, start_id: str, position: int, *, is_ordered: bool, parallel: int) -> None:
        self.topic_id = topic_id
        self.start_id = start_id
        self.is_ordered = is_ordered
        self.parallel = parallel
        # The next offset to read.
        self.read_to = position
        # In ordered mode: the retry of the event at `position`, if its last attempt failed.
        self.head: Retry | None = None
        self.retry_queue: dict[int, Retry] = {}
        # Events that match the definition and were not sent yet.
        self._read_ahead: deque[Event] = deque()
        self._generation = 0
        # Offsets in flight. `_in_flight` has those taken in log order by the current generation, `_retries_in_flight`
        # those taken from the retry queue.
        self._in_flight: set[int] = set()
        self._retries_in_flight: set[int] = set()
        # Number of deliveries in flight, including those of earlier generations.
        self.in_flight_count = 0
        # A lower bound of the due times in the retry queue. None if it is not known.
        self._next_retry_ms: int | None = None

    @property
    def position(self) -> int:
        """The first offset that is not complete.

        Every event below it was delivered, filtered out or skipped, is a dead letter, or is in the retry queue.
        """
        first = self._read_ahead[0].offset if self._read_ahead else self.read_to
        return min(min(self._in_flight), first) if self._in_flight else first

    # --- reading

    def wants_events(self, is_due: IsDue) -> bool:
        """Whether more events should be read from the log now."""
        if (
            self._read_ahead
            or len(self.retry_queue) >= RETRY_QUEUE_MAX
            or self.read_to - self.position >= WINDOW_OFFSETS
        ):
            return False
        if self.is_ordered and self._in_flight:
            return False
        return self.head is None or is_due(self.head.due_ms)

    def add(self, events: Sequence[Event], next_offset: int) -> None:
        """Add the matching events that were read from `read_to` on. `next_offset` is the first offset not read."""
        if self.head is not None and self.read_to < next_offset and (not events or events[0].offset != self.read_to):
            # The event that waited for a retry is no longer stored, or it no longer matches the definition.
            self.head = None
        self._read_ahead.extend(events)
        self.read_to = next_offset

    # --- sending

    def take(self, is_due: IsDue) -> Delivery | None:
        """Start the next attempt, if one may start now."""
        offset = self._due_retry(is_due)
        if offset is not None:
            self._retries_in_flight.add(offset)
            self.in_flight_count += 1
            return Delivery(offset, self.retry_queue[offset].attempts + 1, None, self, self._generation)
        if not self._may_send_next(is_due):
            return None
        event = self._read_ahead.popleft()
        self._in_flight.add(event.offset)
        self.in_flight_count += 1
        return Delivery(event.offset, self.head.attempts + 1 if self.head else 1, event, self, self._generation)

    def can_take(self, is_due: IsDue) -> bool:
        return self._may_send_next(is_due) or self._due_retry(is_due) is not None

    @property
    def _is_full(self) -> bool:
        return not self.is_ordered and self.in_flight_count >= self.parallel

    @property
    def _has_ordered_in_flight(self) -> bool:
        return self.in_flight_count > len(self._retries_in_flight)

    def _due_retry(self, is_due: IsDue) -> int | None:
        if not self.retry_queue or self._is_full or (self.is_ordered and self._retries_in_flight):
            return None
        if self._next_retry_ms is not None and not is_due(self._next_retry_ms):
            return None
        waiting = [
            (retry.due_ms, offset)
            for offset, retry in self.retry_queue.items()
            if offset not in self._retries_in_flight
        ]
        waiting.sort()
        for due_ms, offset in waiting:
            if is_due(due_ms):
                return offset
        self._next_retry_ms = waiting[0][0] if waiting else None
        return None

    def _may_send_next(self, is_due: IsDue) -> bool:
        if not self._read_ahead or self._is_full or len(self.retry_queue) >= RETRY_QUEUE_MAX:
            return False
        if self.is_ordered and self._has_ordered_in_flight:
            return False
        return self.head is None or is_due(self.head.due_ms)

    # --- the end of an attempt

    def release(self, delivery: Delivery) -> None:
        """Give back a delivery that was not sent. The number of attempts does not change."""
        self.in_flight_count -= 1
        if delivery.is_from_retry_queue:
            self._retries_in_flight.discard(delivery.offset)
            self._next_retry_ms = None
        elif delivery.generation == self._generation and delivery.event is not None:
            self._in_flight.discard(delivery.offset)
            self._reinsert(delivery.event)

    def complete(self, delivery: Delivery, retry: Retry | None) -> bool:
        """End an attempt. If `retry` is None, the event needs no more attempts. Otherwise it waits for `retry`.

        Returns False if a seek or a change of mode has made the result obsolete.
        """
        self.in_flight_count -= 1
        offset = delivery.offset
        if delivery.is_from_retry_queue:
            self._retries_in_flight.discard(offset)
            if offset not in self.retry_queue:
                return False
            self._set_retry(offset, retry)
            return True
        if delivery.generation != self._generation:
            return False
        self._in_flight.discard(offset)
        if not self.is_ordered:
            self._set_retry(offset, retry)
            return True
        self.head = retry
        if retry is not None:
            # The event is read again when its retry is due. Until then, no later event of this topic is needed.
            self._read_ahead.clear()
            self.read_to = offset
        return True

    def _reinsert(self, event: Event) -> None:
        """Insert an event into the events read ahead, in log order."""
        later: list[Event] = []
        while self._read_ahead and self._read_ahead[0].offset < event.offset:
            later.append(self._read_ahead.popleft())
        self._read_ahead.appendleft(event)
        self._read_ahead.extendleft(reversed(later))

    def _set_retry(self, offset: int, retry: Retry | None) -> None:
        if retry is None:
            self.retry_queue.pop(offset, None)
            return
        self.retry_queue[offset] = retry
        if self._next_retry_ms is not None and retry.due_ms < self._next_retry_ms:
            self._next_retry_ms = retry.due_ms

    # --- on request

    def send_again(self, offset: int, now_ms: int) -> None:
        """Add an event to the retry queue, due now. If it is already in the queue, its number of attempts stays."""
        waiting = self.retry_queue.get(offset)
        self.retry_queue[offset] = Retry(waiting.attempts if waiting else 0, now_ms)
        self._next_retry_ms = None

    def seek(self, position: int) -> list[int]:
        """Continue at `position`. Events from there on are removed from the retry queue; returns their offsets."""
        self._generation += 1
        self._in_flight.clear()
        self._read_ahead.clear()
        self.head = None
        self.read_to = position
        removed = [offset for offset in self.retry_queue if offset >= position]
        for offset in removed:
            del self.retry_queue[offset]
        self._next_retry_ms = None
        return removed

    def reread(self) -> None:
        """Discard the events read ahead, so that they are read again with the new filter."""
        if self._read_ahead:
            self.read_to = self._read_ahead[0].offset
            self._read_ahead.clear()

    def change_mode(self, *, is_ordered: bool, parallel: int) -> None:
        if is_ordered != self.is_ordered:
            position, head = self.position, self.head
            self._generation += 1
            self._in_flight.clear()
            self._read_ahead.clear()
            self.read_to = position
            self.head = None
            if head is not None:
                # Move the event that waits at `position` to the retry queue. Later events need not wait for it now.
                self._set_retry(position, head)
                self.read_to = position + 1
        self.is_ordered, self.parallel = is_ordered, parallel

    # --- timers

    def due_ms(self) -> int | None:
        """Return the earliest due time of a retry that is not in flight; None if there is none."""
        dues = [retry.due_ms for offset, retry in self.retry_queue.items() if offset not in self._retries_in_flight]
        if self.head is not None and not self._in_flight:
            dues.append(self.head.due_ms)
        return min(dues, default=None)
