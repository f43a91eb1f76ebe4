"""A portion: some events that lie one after the other, decoded once and encoded once for everybody who gets them."""

from collections.abc import Callable, Sequence

from kwire.broker.events.event import Event

# The name of the room or topic as its readers know it, and events: the bytes for a socket. Told apart by identity.
Encoding = Callable[[str, Sequence[Event]], bytes]

# Each encoding costs memory as long as the portion is remembered: WebSocket, SSE and NDJSON, and some to spare.
ENCODINGS_MAX = 8
# Readers of one room with different filters; beyond this each one is filtered by itself.
FILTERS_MAX = 16
# Bytes that are about as much work to hand to a sink as a portion is that has next to none.
BYTES_PER_UNIT = 8 * 1024


class Portion:
    """Events of the offsets from `start_offset` up to, not including, `next_offset`; there may be none in it."""

    __slots__ = ("_encoded", "_filtered", "_size_bytes", "events", "is_shared", "name", "next_offset", "start_offset")

    def __init__(self, name: str, events: Sequence[Event], start_offset: int, next_offset: int) -> None:
        self.name = name
        self.events = events
        self.start_offset = start_offset
        self.next_offset = next_offset
        # False for the first reader of a part that was made for him: it is filtered and encoded for him.
        self.is_shared = True
        self._size_bytes: int | None = None
        self._encoded: dict[Encoding, bytes] | None = None
        self._filtered: dict[frozenset[str], Portion] | None = None

    @property
    def size_bytes(self) -> int:
        """What its events take in the log, about."""
        size_bytes = self._size_bytes
        if size_bytes is None:
            size_bytes = self._size_bytes = sum([event.size_bytes for event in self.events])
        return size_bytes

    @property
    def units(self) -> int:
        """How much work it is to hand it to one reader, in the units of `turns.py`."""
        return 2 + self.size_bytes // BYTES_PER_UNIT

    def encoded(self, encoding: Encoding) -> bytes:
        """The bytes of all events; the very same object for everybody who asks in this encoding."""
        known = self._encoded
        if known is None:
            known = self._encoded = {}
        data = known.get(encoding)
        if data is None:
            data = encoding(self.name, self.events)
            if len(known) < ENCODINGS_MAX:
                known[encoding] = data
        return data

    def only(self, types: frozenset[str]) -> "Portion":
        """The same offsets, without the events of other types."""
        known = self._filtered
        if known is None:
            known = self._filtered = {}
        portion = known.get(types)
        if portion is None:
            events = [event for event in self.events if event.type in types]
            portion = self._with(events, self.start_offset)
            if len(known) < FILTERS_MAX:
                known[types] = portion
        else:
            portion.is_shared = True
        return portion

    def since(self, offset: int) -> "Portion":
        """What of it lies at `offset` or behind."""
        return self._with([event for event in self.events if event.offset >= offset], offset)

    def _with(self, events: Sequence[Event], start_offset: int) -> "Portion":
        if len(events) == len(self.events):
            events = self.events
        portion = Portion(self.name, events, start_offset, self.next_offset)
        portion.is_shared = False
        return portion
