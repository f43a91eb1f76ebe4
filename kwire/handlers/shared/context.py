"""The context of a request, which is passed to its handler, and the types of a handler's results.

The ordered phase of a request is the part that must end before the next request of the same connection begins.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from kwire.access.access import Access
from kwire.access.audit.entries import NO_AUDIT, Audit
from kwire.access.authorizer import Authorizer
from kwire.access.keys.keys import Keys
from kwire.access.login_limits import LoginLimits
from kwire.access.quotas.client_quota import ClientQuota
from kwire.access.quotas.quotas import Quotas
from kwire.access.sasl.authentication import Authentication
from kwire.access.scope import ScopedNames
from kwire.access.usage.client_limits import ClientLimits
from kwire.access.usage.key_usage import KeyUsage
from kwire.access.users.users import Users
from kwire.broker.admin.dynamic_configs import DynamicConfigs
from kwire.broker.admin.features import Features
from kwire.broker.admin.log_dirs import LogDirs
from kwire.broker.admin.metadata_log import MetadataLog
from kwire.broker.admin.producer_ids import ProducerIds
from kwire.broker.batch_validation import ValidationWorker
from kwire.broker.fetch.cold_reads import ColdReads
from kwire.broker.fetch.sessions import FetchSessions
from kwire.broker.maintenance.relocation import Relocations
from kwire.broker.topics.topics import Topics
from kwire.clock import Clock
from kwire.concurrency.work_allowance import WorkAllowance
from kwire.config import Config
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.transaction.admission import TransactionAdmission
from kwire.coordinator.transaction.coordinator import TransactionCoordinator
from kwire.coordinator.transaction.marker_appender import MarkerAppender
from kwire.handlers.shared.client_context import ClientContext
from kwire.handlers.shared.needs import Need
from kwire.handlers.shared.views import ClusterView, GroupsView, TopicsView, TransactionsView, Views
from kwire.streams.event_store.event_store import EventStore
from kwire.wire.schema import Api


class DropConnection(Exception):
    """Raised to close the connection. This is the only way to report an error to a producer with acks=0."""


class Peer(Protocol):
    """The connection of a request."""

    @property
    def client_host(self) -> str: ...

    @property
    def endpoint(self) -> tuple[str, int]:
        """The address at which this client should connect to this node."""
        ...

    @property
    def authentication(self) -> Authentication | None:
        """The login of the client. It is None on a listener without SASL."""
        ...

    @property
    def is_frame_shared(self) -> bool:
        """Whether the request is in a buffer that the next read of any connection overwrites."""
        ...

    def mute(self, seconds: float) -> None:
        """Handle no later request of this connection for this time."""
        ...

    def reserve(self, size_bytes: int) -> bool:
        """Reserve memory, limited by `queued.max.request.bytes`, for copies that outlive the request's ordered phase.

        Return False if the memory is exhausted. Then the caller must not copy.
        """
        ...

    def release(self, size_bytes: int) -> None:
        """Release memory that `reserve` reserved."""
        ...


class NodeFacts(Struct, frozen=True):
    """The identity of this node."""

    node_id: int
    cluster_id: str
    rack: str | None


class Services(Struct, frozen=True):
    """The services that handlers use. They are created once, in node.py."""

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
    transaction_admission: TransactionAdmission
    markers: MarkerAppender
    cold_reads: ColdReads
    fetch_sessions: FetchSessions
    relocations: Relocations
    log_dirs: LogDirs
    event_store: EventStore
    validation: ValidationWorker
    work_allowance: WorkAllowance
    authorizer: Authorizer
    users: Users
    login_limits: LoginLimits
    keys: Keys
    quotas: Quotas
    key_usage: KeyUsage
    audit: Audit = NO_AUDIT

    @property
    def config(self) -> Config:
        """The current configuration. A dynamic change replaces this object, so read it again for each request."""
        return self.configs.config


class Context(ClientContext):
    """The context of one request: services, connection, API version, client id, views and quotas of the client."""

    __slots__ = ("api_version", "client_id", "limits", "peer", "quota", "services", "views")

    def __init__(
        self,
        services: Services,
        peer: Peer,
        api_version: int,
        client_id: str | None,
        views: Views,
        quota: ClientQuota | None = None,
        limits: ClientLimits | None = None,
    ) -> None:
        self.services = services
        self.peer = peer
        self.api_version = api_version
        self.client_id = client_id
        self.views = views
        self.quota = quota
        # None if the client's key has no limit of published events, or if the client has not logged in with a key.
        self.limits = limits

    @property
    def client_host(self) -> str:
        return self.peer.client_host

    @property
    def endpoint(self) -> tuple[str, int]:
        return self.peer.endpoint

    @property
    def access(self) -> Access:
        return self.views.access

    @property
    def names(self) -> ScopedNames | None:
        return self.views.names

    @property
    def topics(self) -> TopicsView:
        return self.views.topics

    @property
    def groups(self) -> GroupsView:
        return self.views.groups

    @property
    def transactions(self) -> TransactionsView:
        return self.views.transactions

    @property
    def cluster(self) -> ClusterView:
        return self.views.cluster


class DeferredFrame:
    """A response frame that is completed later, through a callback. Futures and tasks cost several times as much."""

    __slots__ = ("_call", "frame")

    def __init__(self) -> None:
        # None until the response frame is complete.
        self.frame: bytes | None = None
        self._call: Callable[[bytes], None] | None = None

    def complete(self, frame: bytes) -> None:
        """Set the frame. Call this method exactly once."""
        if self._call is None:
            self.frame = frame
        else:
            self._call(frame)

    def on_complete(self, call: Callable[[bytes], None]) -> None:
        """Call `call` once with the frame: immediately if the frame is complete, else when it is completed."""
        if self.frame is None:
            self._call = call
        else:
            call(self.frame)


class OrderedRest(Protocol):
    """The rest of an ordered phase: a coroutine, or one that has been started."""

    def __await__(self) -> Generator[Any, Any, Any]: ...

    def close(self) -> None:
        """End it without awaiting it."""
        ...


class BlockingContinuation(NamedTuple):
    """The rest of the ordered phase of a request, which a handler returns if this phase takes long.

    Until the coroutine has ended, the connection handles no later request. It also keeps the bytes of this request, if
    `keeps_frame` is True. Bytes in the shared buffer are not kept, so the handler must copy them. The coroutine returns
    a response as a handler does, or raises DropConnection.
    """

    rest: OrderedRest
    keeps_frame: bool = True


class TemplateCache(Protocol):
    """A connection's cached template for repeated requests: see `template.py` of Produce and of OffsetCommit."""

    @property
    def is_produce(self) -> bool:
        """Whether the requests are Produce requests."""
        ...

    def with_throttle_time(self, framed: bytes, version: int, throttle_ms: int) -> bytes:
        """Return a response frame that `answer` returned, with this throttle time."""
        ...

    def answer(self, frame: memoryview) -> bytes | DeferredFrame | None:
        """Handle a request that fits the template and return the response frame, complete or deferred.

        Return None, without any effect, if the request does not fit. Then the request must be decoded.
        """
        ...

    def update(self, context: Context, frame: memoryview, request: Any, response: Any | None) -> None:
        """Update the template after a request was decoded. `response` is None if the response is not known yet."""
        ...


class Handler(NamedTuple):
    """An API and its handler.

    The handler returns a response, None for no response, an awaitable of a response, or a BlockingContinuation.
    `needs` are all operations for which the handler may check the client's rights. A test compares them with the
    checks that the handler makes. `has_records` is True if requests of the API are large because they contain record
    batches. The codec does not decode these.
    """

    api: Api
    # Its first argument is a Context; on a bridge, the context of a request that is sent to the cluster.
    handle: Callable[[Any, Any], Any | Awaitable[Any]]
    needs: tuple[Need, ...]
    template_cache: Callable[[], TemplateCache] | None = None
    has_records: bool = False
