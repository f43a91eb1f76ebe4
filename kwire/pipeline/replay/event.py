"""The events that a replay sends. An event is a record with its partition and offset in the source."""

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """The key, value, timestamp and headers of a record, as a consumer receives them."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


class ReplayEvent(NamedTuple):
    """An event to send. `partition` and `offset` are its position in the source topic."""

    partition: int
    offset: int
    record: Record

    @property
    def name(self) -> str:
        """The name of the event in error messages."""
        return f"partition {self.partition} offset {self.offset}"

    @property
    def size_bytes(self) -> int:
        """An upper bound of the event's size in a batch."""
        key, value, _, headers = self.record
        size = RECORD_BYTES_MAX + len(key or b"") + len(value or b"")
        return size + sum(HEADER_BYTES_MAX + len(name.encode()) + len(content or b"") for name, content in headers)


# Upper bounds for the varints (lengths, attributes, deltas) of a record and of each header.
RECORD_BYTES_MAX = 32
HEADER_BYTES_MAX = 10


class CannotReplay(ValueError):
    """The replay cannot start or continue. The message gives the reason."""
