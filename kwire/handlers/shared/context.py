"""What every handler is given besides the request: the services of this node, and who asks."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from kwire.broker.batch_validation import ValidationWorker
from kwire.broker.cold_reads import ColdReads
from kwire.broker.dynamic_configs import DynamicConfigs
from kwire.broker.features import Features
from kwire.broker.fetch_sessions import FetchSessions
from kwire.broker.log_dirs import LogDirs
from kwire.broker.metadata_log import MetadataLog
from kwire.broker.moves import Moves
from kwire.broker.producer_ids import ProducerIds
from kwire.broker.store.event_store import EventStore
from kwire.broker.topics import Topics
from kwire.broker.work_allowance import WorkAllowance
from kwire.clock import Clock
from kwire.config import Config
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.transaction.admissions import Admissions
from kwire.coordinator.transaction.coordinator import TransactionCoordinator
from kwire.coordinator.transaction.marker_writing import Markers
from kwire.wire.schema import Api


class DropConnection(Exception):
    """The only way to tell a client that asked for no answer (acks=0) that its request failed."""


class Peer(Protocol):
    """The connection a request came on."""

    @property
    def client_host(self) -> str: ...

    @property
    def endpoint(self) -> tuple[str, int]:
        """The address at which this client should look for this node."""
        ...

    @property
    def is_frame_shared(self) -> bool:
        """Whether the request lies in memory that the next read of any connection overwrites."""
        ...

    def hold(self, size_bytes: int) -> bool:
        """Count copies of a request that outlive its ordered phase against `queued.max.request.bytes`.

        False if that is used up: then there must be no copy.
        """
        ...

    def release(self, size_bytes: int) -> None:
        """The end of copies that were counted by `hold`."""
        ...


class NodeFacts(Struct, frozen=True):
    node_id: int
    cluster_id: str
    rack: str | None


class Services(Struct, frozen=True):
    """Everything a handler may use. Built once, in node.py."""

    apis: Mapping[int, Api]
    node: NodeFacts
    configs: DynamicConfigs
    clock: Clock
    topics: Topics
    producer_ids: ProducerIds
    features: Features
    metadata_log: MetadataLog
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    admissions: Admissions
    markers: Markers
    cold_reads: ColdReads
    fetch_sessions: FetchSessions
    moves: Moves
    log_dirs: LogDirs
    event_store: EventStore
    validation: ValidationWorker
    work_allowance: WorkAllowance

    @property
    def config(self) -> Config:
        """The configuration in force: it may be another one at the next look."""
        return self.configs.config


class Context:
    """One request's surroundings."""

    __slots__ = ("api_version", "client_id", "peer", "services")

    def __init__(self, services: Services, peer: Peer, api_version: int, client_id: str | None) -> None:
        self.services = services
        self.peer = peer
        self.api_version = api_version
        self.client_id = client_id

    @property
    def client_host(self) -> str:
        return self.peer.client_host

    @property
    def endpoint(self) -> tuple[str, int]:
        return self.peer.endpoint


class LaterFrame:
    """The frame of an answer that comes later, by a callback: a future or a task would cost several times as much."""

    __slots__ = ("_call", "frame")

    def __init__(self) -> None:
        # The answer, once it is there.
        self.frame: bytes | None = None
        self._call: Callable[[bytes], None] | None = None

    def complete(self, frame: bytes) -> None:
        """The answer is there; called once."""
        if self._call is None:
            self.frame = frame
        else:
            self._call(frame)

    def on_complete(self, call: Callable[[bytes], None]) -> None:
        """Call once with the frame; at once if it is there."""
        if self.frame is None:
            self._call = call
        else:
            call(self.frame)


class Held(NamedTuple):
    """What a handler returns when the ordered phase of a request takes long: the rest of that phase.

    Until it is done the connection handles no later request and keeps the memory of this one, unless that is shared.
    It returns what the handler would have returned, or raises DropConnection.
    """

    rest: Coroutine[Any, Any, Any]


class Shortcut(Protocol):
    """A connection's quick way for requests that are like one before: `template.py` of Produce and of OffsetCommit."""

    def answer(self, frame: memoryview) -> bytes | LaterFrame | None:
        """The frame of the answer, now or later. None: the request has to be decoded, and nothing has been done."""
        ...

    def learn(self, context: Context, frame: memoryview, request: Any, response: Any | None) -> None:
        """Take note of a request that was decoded, and of its response, which is None if it comes later."""
        ...


class Handler(NamedTuple):
    """An API and what answers it: at once (a response, or None for no answer at all), or later.

    What comes later is an awaitable of the response, or Held. `has_records` is for an API whose requests are long
    because of the records in them, which are not decoded.
    """

    api: Api
    handle: Callable[[Context, Any], Any | Awaitable[Any]]
    shortcut: Callable[[], Shortcut] | None = None
    has_records: bool = False
