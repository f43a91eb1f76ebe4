"""Containers with the services of a bridge that HTTP handlers use. kwire.bridge creates them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kwire.access.audit.queue import AuditQueue
from kwire.coordinator.group_reports import GroupReport
from kwire.descriptors import Descriptors
from kwire.kafka_client.topic_names import ListedTopic
from kwire.metrics import LoopMetrics
from kwire.streams.event_store.interface import EventStoreFacts
from kwire.streams.webhooks.statistics import WebhookStatistics
from kwire.web.console.topic_list import Kind
from kwire.web.services import (
    AccessCounts,
    AccessServices,
    DbEventServices,
    EventStoreServices,
    GroupServices,
    KafkaRequestServices,
    PortServices,
    RoomServices,
    TopicServices,
    WebhookServices,
)

if TYPE_CHECKING:
    from kwire.web.bridge.load import BridgeSample
    from kwire.web.console.sampler import Sampler


class UpstreamFacts(NamedTuple):
    """What the bridge knows of its connections to the cluster, and of the work that waits for it."""

    connections: int
    connections_opened: int
    connections_failed: int
    sent_bytes: int
    received_bytes: int
    waiting_bytes: int
    cache_bytes: int
    open_logs: int
    trimmed_events: int
    trim_failures: int
    rooms_removed: int
    cleanup_failures: int
    group_members: int
    group_failures: int


class GroupSeries(NamedTuple):
    """The groups with their own series, and the numbers of groups and committed offsets without."""

    reports: Sequence[GroupReport]
    left_out_groups: int
    left_out_offsets: int


@dataclass(frozen=True, slots=True)
class BridgeMonitoring:
    """The services for health checks and metrics."""

    port: PortServices
    rooms: RoomServices
    db_events: DbEventServices
    upstream: Callable[[], UpstreamFacts]
    group_series: Callable[[], Awaitable[GroupSeries]]
    is_ready: Callable[[], bool]
    loop_metrics: LoopMetrics
    descriptors: Descriptors
    audit: AuditQueue
    access_counts: AccessCounts
    # None while this bridge does not deliver webhooks.
    webhook_statistics: Callable[[], WebhookStatistics | None]
    # Why webhooks are not delivered; empty if they are, or if they are disabled.
    webhook_problem: Callable[[], str]
    event_store: Callable[[], EventStoreFacts]


@dataclass(frozen=True, slots=True)
class BridgeOverviewServices:
    """The services for the overview of the console."""

    monitoring: BridgeMonitoring
    sampler: "Sampler[BridgeSample]"


class ClusterTopics(Protocol):
    """All topics of a cluster. Every method may raise KafkaError."""

    async def topics_from(self, start: str, limit: int) -> Sequence[ListedTopic]:
        """Return up to `limit` topics whose names do not sort before `start`, in order."""
        ...

    async def settings(self, names: Sequence[str], keys: Sequence[str]) -> Mapping[str, Mapping[str, str | None]]:
        """Return some settings of several topics. Topics whose settings the cluster does not show are left out."""
        ...


@dataclass(frozen=True, slots=True)
class BridgeTopicListServices:
    """The services for the list of topics of the console."""

    topics: ClusterTopics
    # The kind of a topic, by its name and id.
    kind: Callable[[str, bytes], Kind]
    # The time of the creation of a topic, by its name and id; None if it is not known.
    created_ms: Callable[[str, bytes], int | None]


@dataclass(frozen=True, slots=True)
class BridgeServices:
    """All containers. `routes.py` binds each handler to the container that it takes."""

    rooms: RoomServices
    topics: TopicServices
    event_store: EventStoreServices
    topic_list: BridgeTopicListServices
    webhooks: WebhookServices
    db_events: DbEventServices
    groups: GroupServices
    access: AccessServices
    monitoring: BridgeMonitoring
    overview: BridgeOverviewServices
    kafka_requests: KafkaRequestServices
    # The addresses of the cluster.
    upstream: Sequence[str]
