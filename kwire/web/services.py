"""Containers with the services of the node that HTTP handlers use. Each group of resources has one container. node.py
creates the containers."""

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from kwire.access.audit.entries import Audit
from kwire.access.audit.queue import AuditQueue
from kwire.access.authorizer import AclAuthorizer, Authorizer
from kwire.access.keys.keys import Keys
from kwire.access.quotas.quotas import Quotas
from kwire.access.usage.key_usage import KeyUsage
from kwire.access.usage.subscription_slots import SubscriptionSlots
from kwire.access.users.users import Users
from kwire.broker.admin.disk_space import DiskSpace
from kwire.broker.admin.lag import Lags
from kwire.broker.admin.segments import Segments
from kwire.broker.backup.snapshots import Snapshots
from kwire.broker.fetch.sessions import FetchSessions
from kwire.broker.maintenance.services import MaintenanceServices
from kwire.broker.topics.stored_sizes import StoredSizes
from kwire.broker.topics.topics import Topics
from kwire.clock import Clock
from kwire.config import Config
from kwire.coordinator.group_reports import GroupReports, LocalGroupReports
from kwire.coordinator.transaction.coordinator import TransactionCoordinator
from kwire.coordinator.web_groups.groups import WebGroups
from kwire.descriptors import Descriptors
from kwire.metrics import HttpMetrics, LoopMetrics, ServerMetrics, StreamMetrics
from kwire.streams.commands import EventCommands, EventTopicCommands, RoomCommands, TopicCommands, WebhookCommands
from kwire.streams.event_store.files.sink import EventFiles
from kwire.streams.event_store.interface import EventReads, EventTopicDirectory
from kwire.streams.events.partitioning import Partitioner
from kwire.streams.events.publishing import Publisher
from kwire.streams.rooms.interface import RoomDirectory
from kwire.streams.subscriptions import Subscriptions
from kwire.streams.topic_directory import TopicDirectory
from kwire.streams.webhooks.statistics import WebhookStatistics
from kwire.web.answers.page_scheduler import PageScheduler
from kwire.web.browse.scan_slots import ScanSlots
from kwire.web.requests.authentication import Authenticator
from kwire.web.requests.body_checks import BodyChecks
from kwire.web.requests.memory import HttpMemory
from storage.data_directory.directories import LogDirectories

if TYPE_CHECKING:
    from kwire.access.tls import TlsListener
    from kwire.web.console.node_load import NodeLoad, Sample
    from kwire.web.console.sampler import Sampler
    from kwire.web.db_events.event_sessions import EventSessions
    from kwire.web.kafka_requests.running import RunKafkaRequest
    from kwire.web.streaming.streaming import ServeStream


@dataclass(frozen=True, slots=True)
class PortServices:
    """The services that all resources need: configuration, memory, scheduling and streams of the HTTP port."""

    config: Config
    clock: Clock
    quotas: Quotas
    memory: HttpMemory
    page_scheduler: PageScheduler
    body_checks: BodyChecks
    serve_stream: "ServeStream"
    stream_metrics: StreamMetrics
    http_metrics: HttpMetrics


@dataclass(frozen=True, slots=True)
class RoomServices:
    port: PortServices
    rooms: RoomDirectory
    commands: RoomCommands
    publisher: Publisher
    subscriptions: Subscriptions


@dataclass(frozen=True, slots=True)
class TopicServices:
    """The services for topics and for the REST Proxy API, wherever the logs of the topics are."""

    port: PortServices
    topics: TopicDirectory
    commands: TopicCommands
    publisher: Publisher
    partitioner: Partitioner
    event_topics: EventTopicDirectory
    scan_slots: ScanSlots
    # The time of the last retention pass; None before the first one, and if it is not known.
    last_retention_ms: Callable[[], int | None]
    # Whether every topic can have a limit on the number of its records. Apache Kafka has no such setting.
    has_message_limits: bool


@dataclass(frozen=True, slots=True)
class SegmentServices:
    """The services for the files of partitions."""

    port: PortServices
    topics: TopicDirectory
    segments: Segments


@dataclass(frozen=True, slots=True)
class GroupServices:
    port: PortServices
    reports: GroupReports
    web_groups: WebGroups
    subscriptions: Subscriptions


@dataclass(frozen=True, slots=True)
class EventStoreServices:
    port: PortServices
    event_store: EventReads
    event_topics: EventTopicDirectory
    commands: EventCommands
    topic_commands: EventTopicCommands
    subscriptions: Subscriptions


@dataclass(frozen=True, slots=True)
class WebhookServices:
    clock: Clock
    # Returns None if webhooks are disabled, and raises WebhooksUnavailable.
    commands: Callable[[], WebhookCommands | None]


@dataclass(frozen=True, slots=True)
class DbEventServices:
    """The services of the event API of tenants. `slots` are the slots of the sessions on this node."""

    port: PortServices
    rooms: RoomServices
    usage: KeyUsage
    slots: SubscriptionSlots
    sessions: "EventSessions"


@dataclass(frozen=True, slots=True)
class StorageServices:
    """The services for the metrics of logs and their maintenance."""

    topics: Topics
    stored_sizes: StoredSizes
    maintenance: MaintenanceServices
    disk_space: DiskSpace
    cold_reads: Callable[[], int]
    offline_directories: Callable[[], int]


@dataclass(frozen=True, slots=True)
class AccessCounts:
    """Return the numbers of users, keys and ACLs. Without an authorizer there are no ACLs."""

    users: Callable[[], int]
    keys: Callable[[], int]
    acls: Callable[[], int]

    @classmethod
    def of(cls, users: Sized, keys: Sized, authorizer: Authorizer) -> Self:
        acls: Sized = authorizer.acls() if isinstance(authorizer, AclAuthorizer) else ()
        return cls(users.__len__, keys.__len__, acls.__len__)


@dataclass(frozen=True, slots=True)
class MonitoringServices:
    """The services for health checks and metrics."""

    port: PortServices
    storage: StorageServices
    rooms: RoomServices
    db_events: DbEventServices
    reports: LocalGroupReports
    lags: Lags
    # The host and port that Kafka clients connect to.
    kafka_address: Callable[[], str]
    is_ready: Callable[[], bool]
    server_metrics: ServerMetrics
    loop_metrics: LoopMetrics
    fetch_sessions: FetchSessions
    transactions: TransactionCoordinator
    descriptors: Descriptors
    audit: AuditQueue
    access_counts: AccessCounts
    # None if webhooks (for the first field) or event files (for the second) are disabled.
    webhook_statistics: Callable[[], WebhookStatistics] | None
    event_files: EventFiles | None
    # The listeners with TLS.
    tls: Sequence["TlsListener"] = ()
    quotas: Quotas | None = None


@dataclass(frozen=True, slots=True)
class OverviewServices:
    """The services for the overview of the console."""

    monitoring: MonitoringServices
    load: "NodeLoad"
    sampler: "Sampler[Sample]"


@dataclass(frozen=True, slots=True)
class AccessServices:
    """The services that decide who may send which request."""

    clock: Clock
    authorizer: Authorizer
    # None if authentication is off.
    authenticator: Authenticator | None
    audit: Audit
    keys: Keys
    key_usage: KeyUsage
    users: Users
    password_length_min: int


@dataclass(frozen=True, slots=True)
class AboutServices:
    """What the process is. `upstream` has the addresses of the cluster of a bridge; it is None on a server."""

    upstream: Sequence[str] | None = None
    # The routes of a server that a bridge does not serve.
    not_served: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class KafkaRequestServices:
    """The services for Kafka's administrative requests as JSON."""

    port: PortServices
    run: "RunKafkaRequest"


class ServedListener(NamedTuple):
    """A listener of the Kafka port, with the port that it is bound to."""

    name: str
    host: str
    port: int
    advertised_host: str | None
    advertised_port: int | None
    security_protocol: str


@dataclass(frozen=True, slots=True)
class AdminServices:
    """The services for the state of the node and for backups."""

    port: PortServices
    cluster_id: str
    topics: Topics
    store: LogDirectories
    snapshots: Snapshots
    descriptors: Descriptors
    audit: Audit
    started_ms: int
    is_ready: Callable[[], bool]
    group_count: Callable[[], int]
    listeners: Callable[[], Sequence[ServedListener]]
    tls: Sequence["TlsListener"] = ()


@dataclass(frozen=True, slots=True)
class WebServices:
    """All containers. `routes.py` binds each handler to the container that it takes."""

    port: PortServices
    rooms: RoomServices
    topics: TopicServices
    segments: SegmentServices
    groups: GroupServices
    event_store: EventStoreServices
    webhooks: WebhookServices
    monitoring: MonitoringServices
    overview: OverviewServices
    access: AccessServices
    quotas: Quotas
    db_events: DbEventServices
    admin: AdminServices
    kafka_requests: KafkaRequestServices
