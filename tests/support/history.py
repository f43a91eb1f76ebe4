"""What transactional producers, readers and groups did and were told: the record that a checker judges afterwards.

Threads and processes may write at the same time: with a path every event is one line of JSON, written by one call to a
file opened for appending, and the times are of the machine's monotonic clock, which all processes share. What is asked
of the server is noted before the call, what it answered after it, so an interval always covers the moment at which the
server acted.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec

# What a value is made up to as a record, so that partitions soon have several segments.
RECORD_BYTES = 600
PADDING = b"."


def record_of(value: str) -> bytes:
    return value.encode().ljust(RECORD_BYTES, PADDING)


def value_in(record: object) -> str:
    """Whatever stands in the log becomes a value; what is no record of ours is one that nobody sent."""
    return record.rstrip(PADDING).decode(errors="replace") if isinstance(record, bytes) else repr(record)


class Place(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Source(NamedTuple):
    """The input from which a record was made."""

    place: Place
    offset: int

    def __str__(self) -> str:
        return f"{self.place}@{self.offset}"


class Outcome(StrEnum):
    """What a producer knows about the end of its transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    # The call failed without saying whether the server acted on it.
    UNKNOWN = "unknown"
    # Refused, because somebody else has the transactional id now.
    FENCED = "fenced"


class Isolation(StrEnum):
    """What a reader asks for."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


class Event(msgspec.Struct, kw_only=True, tag=True, tag_field="event"):
    """Something that happened; `at` is filled in when it is noted."""

    at: float = 0.0


class ProducerAsked(Event):
    """A producer asks for its transactional id; whoever had it before may lose it from now on."""

    transactional_id: str
    incarnation: int


class ProducerReady(Event):
    """It has the id: whoever had it before has lost it."""

    transactional_id: str
    incarnation: int


class Begun(Event):
    """A transaction begins; the server may abort it by itself once it is `timeout_s` old."""

    transaction: str
    transactional_id: str
    incarnation: int
    timeout_s: float


class Sent(Event):
    """A record is handed to the producer; its value is unlike any other."""

    transaction: str
    place: Place
    value: str
    source: Source | None = None


class Acknowledged(Event):
    """The producer was told that a record is stored, and where; an offset below 0 was not told."""

    place: Place
    value: str
    offset: int


class OffsetSent(Event):
    """A group's position in one partition is to be committed with the transaction."""

    transaction: str
    group: str
    place: Place
    offset: int


class EndAsked(Event):
    """The producer asks for the end of its transaction; everything it sent was acknowledged if it asks for a commit."""

    transaction: str
    is_commit: bool


class Ended(Event):
    """What it was told."""

    transaction: str
    outcome: Outcome


class ReaderStarted(Event):
    """A read_committed reader begins at a position. A reader that reconnects is a new one, with a new name."""

    reader: str
    place: Place
    position: int


class Read(Event):
    """A record was handed to a reader."""

    reader: str
    place: Place
    offset: int
    value: str


class Passed(Event):
    """A reader has everything below the position."""

    reader: str
    place: Place
    position: int


class GroupOffsetRead(Event):
    """The committed position of a group as told to somebody who asked at `asked_at`; -1 is none."""

    group: str
    place: Place
    offset: int
    asked_at: float
    is_final: bool = False


class FinalLog(Event):
    """A partition read from the first to the last offset after everything was settled."""

    place: Place
    isolation: Isolation
    records: list[tuple[int, str]]
    end_offset: int


AnyEvent = (
    ProducerAsked
    | ProducerReady
    | Begun
    | Sent
    | Acknowledged
    | OffsetSent
    | EndAsked
    | Ended
    | ReaderStarted
    | Read
    | Passed
    | GroupOffsetRead
    | FinalLog
)


class History:
    """Events in the order they were noted. Several processes write to the same path, and one loads it at the end."""

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.events: list[AnyEvent] = []
        self.clock = clock
        self._lock = threading.Lock()
        self._encode = msgspec.json.Encoder().encode
        self._file: int | None = None
        if path is not None:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def __enter__(self) -> "History":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def note(self, event: AnyEvent) -> None:
        """Add an event, at the present time."""
        self.note_all((event,))

    def note_all(self, events: Iterable[AnyEvent]) -> None:
        """Add events of one moment; nobody else's come in between."""
        with self._lock:
            at = self.clock()
            added = list(events)
            for event in added:
                event.at = at
            self.events += added
            if self._file is not None and added:
                lines = b"".join(self._encode(event) + b"\n" for event in added)
                if os.write(self._file, lines) != len(lines):
                    raise OSError("the history was written in part only")

    @classmethod
    def load(cls, path: Path) -> "History":
        """What all processes wrote, in the order of time."""
        decode = msgspec.json.Decoder(AnyEvent).decode
        history = cls()
        history.events = sorted(map(decode, path.read_bytes().splitlines()), key=lambda event: event.at)
        return history
