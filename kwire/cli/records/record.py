"""A record as it is read from a file, and one as it is written to a file."""

from typing import NamedTuple

Headers = tuple[tuple[bytes, bytes | None], ...]


class NewRecord(NamedTuple):
    """A record to produce. Without a partition, the key chooses it. Without a timestamp, it gets the time of now."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class StoredRecord(NamedTuple):
    """A record of a partition."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class InvalidInput(ValueError):
    """The input is not what the format says. The message names the line."""
