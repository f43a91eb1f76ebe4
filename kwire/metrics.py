"""What is counted while the server runs, as plain numbers that cost next to nothing to raise.

The numbers become Prometheus text only when somebody asks (`kwire/web/metrics.py`).
"""

from bisect import bisect_left

# Seconds; from a request served from memory to a long poll that ran its full time.
LATENCY_BOUNDS = (
    0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
)  # fmt: skip


class Latency:
    """How often and how long: a histogram of seconds."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)


class ServerMetrics:
    """The Kafka port: requests by API, bytes, connections."""

    def __init__(self, api_names: dict[int, str]) -> None:
        self.requests = {key: Latency() for key in api_names}
        self.api_names = api_names
        self.received_bytes = 0
        self.sent_bytes = 0
        self.connections = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.connections_failed = 0  # ended by us: bad bytes, an unsent answer, a failed handler
        self.connections_idled = 0


class LoopMetrics:
    """How long the event loop was kept from its work: by ourselves, and by a processor that was busy elsewhere."""

    def __init__(self) -> None:
        self.stall_seconds_max = 0.0
        self.stalls = 0
        self.run_queue_wait_seconds_max = 0.0
        self.run_queue_wait_seconds = 0.0


class HttpMetrics:
    """Connections of the HTTP port that this node refused or ended."""

    def __init__(self) -> None:
        self.connections_refused = 0
        self.closed_stuck = 0  # took nothing of an answer for too long


class StreamMetrics:
    """Connections of the HTTP port that became streams: WebSockets, Server-Sent Events, lines of JSON."""

    def __init__(self) -> None:
        self.open_count = 0
        self.opened = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.commands = 0
        self.closed_stuck = 0  # took nothing for too long
        self.closed_idle = 0  # a WebSocket that answered no ping
        self.closed_violating = 0  # broke the rules of WebSocket
        self.closed_failed = 0  # our own code failed
