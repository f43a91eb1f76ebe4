"""What the leader knows of one replica of a segment."""

from collections import deque
from typing import Final

from kwire.cluster.core.entries import Run
from kwire.cluster.core.messages import Incarnation, Member, Sealed
from kwire.cluster.core.runs import EntryRuns

NEVER: Final = -(2**62)


class Progress:
    """The replica's incarnation, what it holds of the leader's log, and what was sent to it and not answered.

    `asserted` is the part of the matched index that the leader has found by comparing runs, and `confirmed` is what the
    replica has answered. `next_index` is the next one to send. `held` is what the replica held when it was sealed:
    entries that do not have to be sent again.
    """

    __slots__ = (
        "acked_sent", "asserted", "confirmed", "held", "incarnation", "is_closed", "matched", "member", "next_index",
        "rewound_to", "sent_at", "unanswered", "unanswered_bytes",
    )  # fmt: skip

    def __init__(self, member: Member) -> None:
        self.member = member
        self.sent_at = NEVER
        self.is_closed = False
        self.forget()

    def forget(self) -> None:
        """The store has started again: nothing is known of its replica until it is sealed."""
        self.incarnation: Incarnation | None = None
        self.asserted = self.confirmed = self.matched = self.acked_sent = 0
        self.next_index = 1
        self.rewound_to = 0
        self.held = EntryRuns()
        # The last index and the size of each message without an answer, in order.
        self.unanswered: deque[tuple[int, int]] = deque()
        self.unanswered_bytes = 0

    def seal(self, answer: Sealed, asserted: int) -> None:
        """The replica answers as this incarnation. It equals the log up to `asserted`."""
        self.forget()
        self.incarnation = answer.incarnation
        self.asserted = self.matched = asserted
        self.next_index = asserted + 1
        self.held = EntryRuns(answer.runs)

    def sent(self, last: int, size: int, now: int) -> None:
        self.unanswered.append((last, size))
        self.unanswered_bytes += size
        self.sent_at = now
        self.next_index = last + 1

    def stored(self, matched: int) -> None:
        """The replica has the log up to `matched`."""
        self.confirmed = max(self.confirmed, matched)
        self.matched = max(self.matched, matched)
        while self.unanswered and self.unanswered[0][0] <= self.matched:
            self.unanswered_bytes -= self.unanswered.popleft()[1]
        self.next_index = max(self.next_index, self.matched + 1)

    def rewind(self) -> None:
        """Send everything after the matched index again."""
        self.unanswered.clear()
        self.unanswered_bytes = 0
        self.next_index = self.rewound_to = self.matched + 1

    def holds(self, run: Run) -> Run | None:
        """The replica's run from `run.first` on, cut to `run`, or None if its content is another one."""
        present = self.held.at(run.first)
        if present is None or present.identity() != run.identity():
            return None
        return present._replace(first=run.first, last=min(present.last, run.last))
