"""Where a webhook stands in one topic: what has been read and not sent, what is under way, what failed. No I/O here.

Events come in line, in the order of the log; `position` is the first one that is not done with. What has failed waits:

- **ordered**: in its place, and everything behind it waits too (`head`). Only the one that failed counts attempts.
- **parallel**: beside the line (`aside`), which goes on. Those are written down one by one, so `position` passes them.

What somebody wants to have sent again goes beside the line in both cases.

No event is kept in memory while it waits: it is read again when its time has come.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kwire.broker.events.event import Event

# Failed events beside the line of one topic; then the line waits.
ASIDE_MAX = 1000
# How far the line may run ahead of an event that is still under way. After a crash so many may be delivered again.
WINDOW_OFFSETS = 10_000

IsDue = Callable[[int], bool]


class Retry(NamedTuple):
    """`attempts` have failed; `due_ms` is when the next one may begin."""

    attempts: int
    due_ms: int


class Delivery(NamedTuple):
    """One attempt. `event` is None if it has to be read first: it is beside the line."""

    offset: int
    attempt: int
    event: Event | None
    # Whose it is, and of which of its lines: a seek begins another line, a topic that is made again another cursor.
    cursor: "TopicCursor"
    line: int

    @property
    def is_aside(self) -> bool:
        return self.event is None


class TopicCursor:
    """`is_due` says of a retry's due time whether it has come; `mark` is that of the topic's start."""

    def __init__(self, topic_id: bytes, mark: str, position: int, *, is_ordered: bool, parallel: int) -> None:
        self.topic_id = topic_id
        self.mark = mark
        self.is_ordered = is_ordered
        self.parallel = parallel
        # The next offset to read.
        self.read_to = position
        # Of the event at `position`, in ordered mode.
        self.head: Retry | None = None
        self.aside: dict[int, Retry] = {}
        # Read, wanted, and not sent yet.
        self._ahead: deque[Event] = deque()
        self._line = 0
        # In line and under way.
        self._sent: set[int] = set()
        self._sent_aside: set[int] = set()
        # All that is under way, of lines that were left too.
        self.flying = 0
        # No retry beside the line is due before; a look at all of them finds the next one.
        self._aside_due_ms: int | None = None

    @property
    def position(self) -> int:
        """Everything before it is delivered, not wanted, dead, or beside the line."""
        first = self._ahead[0].offset if self._ahead else self.read_to
        return min(min(self._sent), first) if self._sent else first

    # --- reading

    def wants_events(self, is_due: IsDue) -> bool:
        """Whether more of the log is to be read now."""
        if self._ahead or len(self.aside) >= ASIDE_MAX or self.read_to - self.position >= WINDOW_OFFSETS:
            return False
        if self.is_ordered and self._sent:
            return False
        return self.head is None or is_due(self.head.due_ms)

    def add(self, events: Sequence[Event], next_offset: int) -> None:
        """What was read from `read_to` on, without those that are not wanted; `next_offset` is the one behind it."""
        if self.head is not None and self.read_to < next_offset and (not events or events[0].offset != self.read_to):
            # The one that waited is not there any more, or not wanted any more.
            self.head = None
        self._ahead.extend(events)
        self.read_to = next_offset

    # --- sending

    def take(self, is_due: IsDue) -> Delivery | None:
        """The next attempt, if there is one and it may begin."""
        offset = self._aside_that_is_due(is_due)
        if offset is not None:
            self._sent_aside.add(offset)
            self.flying += 1
            return Delivery(offset, self.aside[offset].attempts + 1, None, self, self._line)
        if not self._may_send_in_line(is_due):
            return None
        event = self._ahead.popleft()
        self._sent.add(event.offset)
        self.flying += 1
        return Delivery(event.offset, self.head.attempts + 1 if self.head else 1, event, self, self._line)

    def can_take(self, is_due: IsDue) -> bool:
        return self._may_send_in_line(is_due) or self._aside_that_is_due(is_due) is not None

    @property
    def _is_full(self) -> bool:
        return not self.is_ordered and self.flying >= self.parallel

    @property
    def _has_line_flying(self) -> bool:
        return self.flying > len(self._sent_aside)

    def _aside_that_is_due(self, is_due: IsDue) -> int | None:
        if not self.aside or self._is_full or (self.is_ordered and self._sent_aside):
            return None
        if self._aside_due_ms is not None and not is_due(self._aside_due_ms):
            return None
        waiting = [(retry.due_ms, offset) for offset, retry in self.aside.items() if offset not in self._sent_aside]
        waiting.sort()
        for due_ms, offset in waiting:
            if is_due(due_ms):
                return offset
        self._aside_due_ms = waiting[0][0] if waiting else None
        return None

    def _may_send_in_line(self, is_due: IsDue) -> bool:
        if not self._ahead or self._is_full or len(self.aside) >= ASIDE_MAX:
            return False
        if self.is_ordered and self._has_line_flying:
            return False
        return self.head is None or is_due(self.head.due_ms)

    # --- what came of it

    def put_back(self, delivery: Delivery) -> None:
        """It was not sent after all, and counts as no attempt."""
        self.flying -= 1
        if delivery.is_aside:
            self._sent_aside.discard(delivery.offset)
            self._aside_due_ms = None
        elif delivery.line == self._line and delivery.event is not None:
            self._sent.discard(delivery.offset)
            self._return(delivery.event)

    def settle(self, delivery: Delivery, retry: Retry | None) -> bool:
        """It is delivered or dead, or is to be tried again. False if nobody asks any more: a seek came between."""
        self.flying -= 1
        offset = delivery.offset
        if delivery.is_aside:
            self._sent_aside.discard(offset)
            if offset not in self.aside:
                return False
            self._set_aside(offset, retry)
            return True
        if delivery.line != self._line:
            return False
        self._sent.discard(offset)
        if not self.is_ordered:
            self._set_aside(offset, retry)
            return True
        self.head = retry
        if retry is not None:
            # Read again when it is due: until then nothing of this topic is needed.
            self._ahead.clear()
            self.read_to = offset
        return True

    def _return(self, event: Event) -> None:
        """Into the line again, where it belongs."""
        later: list[Event] = []
        while self._ahead and self._ahead[0].offset < event.offset:
            later.append(self._ahead.popleft())
        self._ahead.appendleft(event)
        self._ahead.extendleft(reversed(later))

    def _set_aside(self, offset: int, retry: Retry | None) -> None:
        if retry is None:
            self.aside.pop(offset, None)
            return
        self.aside[offset] = retry
        if self._aside_due_ms is not None and retry.due_ms < self._aside_due_ms:
            self._aside_due_ms = retry.due_ms

    # --- on request

    def send_again(self, offset: int, now_ms: int) -> None:
        """Put an event beside the line, due now. One that waits there keeps its attempts."""
        waiting = self.aside.get(offset)
        self.aside[offset] = Retry(waiting.attempts if waiting else 0, now_ms)
        self._aside_due_ms = None

    def seek(self, position: int) -> list[int]:
        """Go on from there. Returns which events are no longer beside the line, because the line comes there again."""
        self._line += 1
        self._sent.clear()
        self._ahead.clear()
        self.head = None
        self.read_to = position
        outrun = [offset for offset in self.aside if offset >= position]
        for offset in outrun:
            del self.aside[offset]
        self._aside_due_ms = None
        return outrun

    def reread(self) -> None:
        """Look at what was read and not sent again: what is wanted has changed."""
        if self._ahead:
            self.read_to = self._ahead[0].offset
            self._ahead.clear()

    def change_mode(self, *, is_ordered: bool, parallel: int) -> None:
        if is_ordered != self.is_ordered:
            position, head = self.position, self.head
            self._line += 1
            self._sent.clear()
            self._ahead.clear()
            self.read_to = position
            self.head = None
            if head is not None:
                # It goes on waiting, beside the line, which may pass it now.
                self._set_aside(position, head)
                self.read_to = position + 1
        self.is_ordered, self.parallel = is_ordered, parallel

    # --- when to look again

    def due_ms(self) -> int | None:
        """When the first of those that wait is due; what is under way is not waited for."""
        dues = [retry.due_ms for offset, retry in self.aside.items() if offset not in self._sent_aside]
        if self.head is not None and not self._sent:
            dues.append(self.head.due_ms)
        return min(dues, default=None)
