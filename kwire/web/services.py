"""What the HTTP resources may use of this node."""

from collections.abc import Callable
from dataclasses import dataclass

from kwire.broker.fetch_sessions import FetchSessions
from kwire.broker.keepers import Keepers
from kwire.broker.stored_sizes import StoredSizes
from kwire.broker.topics import Topics
from kwire.metrics import LoopMetrics, ServerMetrics
from kwire.web.group_reports import GroupReports


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
