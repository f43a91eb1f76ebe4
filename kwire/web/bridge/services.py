"""Containers with the services of a bridge that HTTP handlers use. kwire.bridge creates them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kwire.access.audit.queue import AuditQueue
from kwire.coordinator.group_reports import GroupReport
from kwire.descriptors import Descriptors
from kwire.metrics import LoopMetrics
from kwire.streams.webhooks.statistics import WebhookStatistics
from kwire.web.services import (
    AccessCounts,
    AccessServices,
    DbEventServices,
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


@dataclass(frozen=True, slots=True)
class BridgeOverviewServices:
    """The services for the overview of the console."""

    monitoring: BridgeMonitoring
    sampler: "Sampler[BridgeSample]"


@dataclass(frozen=True, slots=True)
class BridgeServices:
    """All containers. `routes.py` binds each handler to the container that it takes."""

    rooms: RoomServices
    topics: TopicServices
    webhooks: WebhookServices
    db_events: DbEventServices
    groups: GroupServices
    access: AccessServices
    monitoring: BridgeMonitoring
    overview: BridgeOverviewServices
    kafka_requests: KafkaRequestServices
    # The addresses of the cluster.
    upstream: Sequence[str]
