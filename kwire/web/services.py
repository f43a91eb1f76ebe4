"""What the HTTP resources may use of this node."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kwire.broker.events.partitioning import Partitioner
from kwire.broker.events.publishing import Publisher
from kwire.broker.fetch_sessions import FetchSessions
from kwire.broker.keepers import Keepers
from kwire.broker.rooms.rooms import Rooms
from kwire.broker.store.event_store import EventStore
from kwire.broker.store.event_topics import EventTopics
from kwire.broker.store.files.sink import EventFiles
from kwire.broker.stored_sizes import StoredSizes
from kwire.broker.subscriptions import Subscriptions
from kwire.broker.topics import Topics
from kwire.broker.webhooks.webhooks import WebhookStatistics
from kwire.clock import Clock
from kwire.config import Config
from kwire.coordinator.transaction.coordinator import TransactionCoordinator
from kwire.coordinator.web_groups import WebGroups
from kwire.descriptors import Descriptors
from kwire.metrics import HttpMetrics, LoopMetrics, ServerMetrics, StreamMetrics
from kwire.streams.commands import Commands
from kwire.web.groups.reports import GroupReports
from kwire.web.memory import HttpMemory
from kwire.web.page_turns import PageTurns

if TYPE_CHECKING:
    from kwire.web.streaming import TakeOver


@dataclass(frozen=True, slots=True)
class WebServices:
    topics: Topics
    groups: GroupReports
    server_metrics: ServerMetrics
    loop_metrics: LoopMetrics
    is_ready: Callable[[], bool]
    cold_reads: Callable[[], int]
    offline_directories: Callable[[], int]
    stored_sizes: StoredSizes
    keepers: Keepers
    fetch_sessions: FetchSessions
    config: Config
    web_groups: WebGroups
    clock: Clock
    rooms: Rooms
    publisher: Publisher
    subscriptions: Subscriptions
    partitioner: Partitioner
    stream_metrics: StreamMetrics
    take_over: "TakeOver"
    http_metrics: HttpMetrics
    memory: HttpMemory
    page_turns: PageTurns
    transactions: TransactionCoordinator
    event_store: EventStore
    event_topics: EventTopics
    commands: Commands
    # None where they are not served.
    webhook_statistics: Callable[[], WebhookStatistics] | None
    event_files: EventFiles | None
    descriptors: Descriptors
