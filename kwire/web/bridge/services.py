"""Containers with the services of a bridge that HTTP handlers use. kwire.bridge creates them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kwire.access.audit.queue import AuditQueue
from kwire.descriptors import Descriptors
from kwire.metrics import LoopMetrics
from kwire.web.services import (
    AccessCounts,
    AccessServices,
    DbEventServices,
    KafkaRequestServices,
    PortServices,
    RoomServices,
    TopicServices,
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


@dataclass(frozen=True, slots=True)
class BridgeMonitoring:
    """The services for health checks and metrics."""

    port: PortServices
    rooms: RoomServices
    db_events: DbEventServices
    upstream: Callable[[], UpstreamFacts]
    is_ready: Callable[[], bool]
    loop_metrics: LoopMetrics
    descriptors: Descriptors
    audit: AuditQueue
    access_counts: AccessCounts


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
    db_events: DbEventServices
    access: AccessServices
    monitoring: BridgeMonitoring
    overview: BridgeOverviewServices
    kafka_requests: KafkaRequestServices
    # The addresses of the cluster.
    upstream: Sequence[str]
