"""EventBatch: consecutive events of a log, decoded once and encoded once per format for all subscribers."""

from collections.abc import Callable, Sequence

from kwire.streams.events.event import Event

# A function that encodes events for a socket. Its first argument is the name of the room or topic that the subscriber
# has used. Two encodings are the same only if they are the same function object.
Encoding = Callable[[str, Sequence[Event]], bytes]

# The maximum number of cached encodings per batch. They use memory while the batch exists. WebSocket, SSE and NDJSON
# need one encoding each, and the limit leaves some for further formats.
ENCODINGS_MAX = 8
# The maximum number of cached filtered versions per batch. Further filters are applied for each subscriber separately.
FILTERS_MAX = 16
# The delivery of a batch takes two units of work, and one more for each BYTES_PER_UNIT bytes that are written to the
# sink.
BYTES_PER_UNIT = 8 * 1024


class EventBatch:
    """The events from `start_offset` up to, but not including, `next_offset`. There may be no events in this range.

    Unlike a Kafka record batch, an EventBatch exists only in memory, and its bounds depend on the read that created it.
    """

    __slots__ = ("_encoded", "_filtered", "_size_bytes", "events", "is_shared", "name", "next_offset", "start_offset")

    def __init__(self, name: str, events: Sequence[Event], start_offset: int, next_offset: int) -> None:
        self.name = name
        self.events = events
        self.start_offset = start_offset
        self.next_offset = next_offset
        # False for a filtered or shortened version until a second subscriber uses it. The work of making the version is
        # counted as part of the delivery to the first subscriber.
        self.is_shared = True
        self._size_bytes: int | None = None
        self._encoded: dict[Encoding, bytes] | None = None
        self._filtered: dict[frozenset[str], EventBatch] | None = None

    @property
    def size_bytes(self) -> int:
        """The approximate size of the events in the log."""
        size_bytes = self._size_bytes
        if size_bytes is None:
            size_bytes = self._size_bytes = sum([event.size_bytes for event in self.events])
        return size_bytes

    @property
    def units(self) -> int:
        """The work of delivering the batch to one subscriber, in the units of `delivery_scheduler`."""
        return 2 + self.size_bytes // BYTES_PER_UNIT

    def encoded(self, encoding: Encoding) -> bytes:
        """Return the encoded events. All subscribers with this encoding get the same bytes object if it is cached."""
        known = self._encoded
        if known is None:
            known = self._encoded = {}
        data = known.get(encoding)
        if data is None:
            data = encoding(self.name, self.events)
            if len(known) < ENCODINGS_MAX:
                known[encoding] = data
        return data

    def only(self, types: frozenset[str]) -> "EventBatch":
        """Return a batch for the same range of offsets that has only the events of these types."""
        known = self._filtered
        if known is None:
            known = self._filtered = {}
        batch = known.get(types)
        if batch is None:
            events = [event for event in self.events if event.type in types]
            batch = self._with(events, self.start_offset)
            if len(known) < FILTERS_MAX:
                known[types] = batch
        else:
            batch.is_shared = True
        return batch

    def since(self, offset: int) -> "EventBatch":
        """Return the part of the batch from `offset` on."""
        return self._with([event for event in self.events if event.offset >= offset], offset)

    def _with(self, events: Sequence[Event], start_offset: int) -> "EventBatch":
        if len(events) == len(self.events):
            events = self.events
        batch = EventBatch(self.name, events, start_offset, self.next_offset)
        batch.is_shared = False
        return batch
