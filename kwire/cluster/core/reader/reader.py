"""A reader of one stream: fetches acknowledged entries from any replica and follows bridges to the next segment."""

from msgspec import Struct

from kwire.cluster.core.control import Describe, Described, SegmentRecord
from kwire.cluster.core.entries import Entry, Kind, Position
from kwire.cluster.core.messages import Fetch, Fetched, Message, Refused, SegmentId
from kwire.cluster.core.policies import Limits


class Delivery(Struct, frozen=True):
    """An event, or a hole: a slot for which no event was acknowledged. The payload of a hole is None."""

    offset: int
    position: Position
    birth_epoch: int
    payload: bytes | None


class Trimmed(Struct, frozen=True):
    """A gap: retention or DeleteRecords has removed the entries from `first` on, up to the one before `following`."""

    first: Position
    following: Position


class Reader:
    """Reads a stream from its first segment on. One request is under way at a time."""

    def __init__(self, name: str, stream: str, limits: Limits, seed: int = 0) -> None:
        self.name, self.stream, self._limits = name, stream, limits
        self.position = Position(0, 1)
        self._segments: dict[int, SegmentRecord] = {}
        # Which replica is asked. Another one after each answer without progress, so that a slow one is left.
        self._turn = seed
        self._asked_at: int | None = None
        self.messages: list[Message] = []
        self.requests: list[Describe] = []
        self.deliveries: list[Delivery | Trimmed] = []

    def tick(self, now: int) -> None:
        if self._asked_at is None or now - self._asked_at >= self._limits.retry_ms:
            self._turn += 1
            self.requests.append(Describe(self.stream, max(self.position.segment_number, 1)))
            self._fetch(now)

    def control(self, answer: Described, now: int) -> None:
        """Take the list of segments, and where the stream starts."""
        for record in answer.segments:
            known = self._segments.get(record.number)
            # Answers may arrive in another order: what is known of a segment is not forgotten.
            if known is None or _knowledge(record) >= _knowledge(known):
                self._segments[record.number] = record
        before = self.position
        if answer.segments and not self.position.segment_number:
            # Not the first segment of this answer: it may have been meant for a reader that was further.
            self.position = Position(1, 1)
        if self.position.segment_number:
            self._skip_to(answer.start)
        if self.position != before:
            self._fetch(now)

    def step(self, answer: Fetched | Refused, now: int) -> None:
        """Take the answer of a store."""
        if isinstance(answer, Refused) or answer.segment != SegmentId(self.stream, self.position.segment_number):
            return
        before = self.position
        self._skip_to(Position(self.position.segment_number, answer.start))
        for entry in answer.entries:
            if entry.index == self.position.entry_index:
                self._deliver(entry)
        if self.position != before:
            self._fetch(now)

    def _skip_to(self, start: Position) -> None:
        """Go on at the start of the stream, or of a replica, if that is later."""
        if start > self.position:
            self.deliveries.append(Trimmed(self.position, start))
            self.position = start

    def _deliver(self, entry: Entry) -> None:
        number, index = self.position
        if entry.kind is Kind.BRIDGE:
            self.position = Position(number + 1, 1)
            return
        base = self._segments[number].base
        assert base is not None, "entries are served only after all earlier segments are sealed"
        payload = entry.payload if entry.kind is Kind.EVENT else None
        self.deliveries.append(Delivery(base + index - 1, self.position, entry.birth_epoch, payload))
        self.position = Position(number, index + 1)

    def _fetch(self, now: int) -> None:
        self._asked_at = now
        record = self._segments.get(self.position.segment_number)
        if record is None or record.base is None:
            return
        member = record.copy_set[self._turn % len(record.copy_set)]
        body = Fetch(SegmentId(self.stream, self.position.segment_number), self.position.entry_index)
        self.messages.append(Message(self.name, member.store, body))


def _knowledge(record: SegmentRecord) -> int:
    return (record.base is not None) + (record.end_index is not None)
