"""What the tests of transactions ask of a client."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

# How long a client may take for one call; a server that is restarted meanwhile is away for a second or two.
CALL_TIMEOUT_S = 30.0
# Long enough that no test meets it by chance.
TRANSACTION_TIMEOUT_MS = 60_000
POLL_MS = 100
# Where nothing listens for a while, as when a server restarts, most clients' defaults grow to seconds.
RECONNECT_MS_MAX = 200
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 300


class Refused(Exception):
    """What a client raised, in the client's words."""


class Record(NamedTuple):
    partition: int
    offset: int
    value: str


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Consumer(Protocol):
    def poll(self) -> list[Record]:
        """What comes within a short while."""
        ...

    def is_at_end(self) -> bool:
        """Whether a reader of one partition has nothing left to read, by what the server names as its end."""
        ...

    def close(self) -> None: ...


class Producer(Protocol):
    """One with a transactional id, initialised. Every call raises `Refused` for what the client raises."""

    def begin(self) -> None: ...

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        """Hand a record to the client."""
        ...

    def flush(self) -> None:
        """Until the server has answered for every record."""
        ...

    def send_offsets(self, consumer: Consumer, offsets: Mapping[Place, int]) -> None:
        """Make these offsets of the consumer's group a part of the transaction."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Family(Protocol):
    """Clients of one kind for one server; `close` ends those that are still there."""

    bootstrap: str
    # Whether a new member of a group waits for offsets in transactions that are open (KIP-447).
    waits_for_stable_offsets: bool

    def producer(self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> Producer: ...

    def reader(self, place: Place, *, is_committed: bool = True) -> Consumer:
        """A consumer of one partition, from its beginning."""
        ...

    def member(self, topic: str, group: str) -> Consumer:
        """A member of a group, that reads committed records and commits nothing by itself."""
        ...

    def close(self) -> None: ...
