"""An event that is sent again: the record it was, and where it comes from."""

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """All that a consumer sees of it, besides its place."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


class ReplayEvent(NamedTuple):
    """`partition` and `offset` are where it was in its own topic."""

    partition: int
    offset: int
    record: Record

    @property
    def name(self) -> str:
        """As errors call it."""
        return f"partition {self.partition} offset {self.offset}"

    @property
    def size_bytes(self) -> int:
        """What it takes in a batch, or a little more."""
        key, value, _, headers = self.record
        size = RECORD_BYTES_MAX + len(key or b"") + len(value or b"")
        return size + sum(HEADER_BYTES_MAX + len(name.encode()) + len(content or b"") for name, content in headers)


# Lengths, attributes and places, as varints: what a record and each of its headers take besides their content.
RECORD_BYTES_MAX = 32
HEADER_BYTES_MAX = 10


class CannotReplay(ValueError):
    """Why nothing, or nothing more, is sent."""
