"""Counters of the running server. They are plain numbers, so that an increment takes little time.

`kwire/web/monitoring/metrics.py` converts them to Prometheus text when `/metrics` is requested.
"""

from bisect import bisect_left

# Upper bounds of the histogram buckets, in seconds. The smallest are for requests that are served from memory, the
# largest for long polls that time out.
LATENCY_BOUNDS = (
    0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
)  # fmt: skip
# Stands for the path of requests that match no route. Their own paths are not used, because clients choose them.
UNKNOWN_ROUTE = "(unknown)"


class Latency:
    """A latency histogram, in seconds."""

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
    """Metrics of the Kafka port: requests by API, bytes, connections."""

    def __init__(self, api_names: dict[int, str]) -> None:
        self.requests = {key: Latency() for key in api_names}
        self.api_names = api_names
        self.received_bytes = 0
        self.sent_bytes = 0
        self.connections = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        # Connections that the server closed because of invalid bytes, a client that made no progress, or a failed
        # handler.
        self.connections_failed = 0
        self.connections_idled = 0
        # Authentications with SASL, also those of clients that authenticate again.
        self.logins = 0
        self.logins_failed = 0


class LoopMetrics:
    """Delays of the event loop. A stall is caused by this process. A run queue wait is a wait for a free processor."""

    def __init__(self) -> None:
        self.stall_seconds_max = 0.0
        # The longest stall since `take_recent_stall` was called.
        self.recent_stall_seconds = 0.0
        self.stalls = 0
        self.run_queue_wait_seconds_max = 0.0
        self.run_queue_wait_seconds = 0.0

    def take_recent_stall(self) -> float:
        """Return the longest stall since the last call."""
        taken, self.recent_stall_seconds = self.recent_stall_seconds, 0.0
        return taken


class RouteMetrics:
    """The requests of one route: their number by status, and their latency. Streams have no latency."""

    __slots__ = ("latency", "method", "path", "statuses")

    def __init__(self, method: str, path: str, *, is_streaming: bool = False) -> None:
        self.method = method
        self.path = path
        self.statuses: dict[int, int] = {}
        self.latency = None if is_streaming else Latency()

    def observe(self, status: int, seconds: float) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if self.latency is not None:
            self.latency.observe(seconds)


class HttpMetrics:
    """Metrics of the HTTP port: requests by route, connections that this node refused or closed."""

    def __init__(self) -> None:
        self._routes: dict[object, RouteMetrics] = {}
        # Requests for a path or a method that does not exist.
        self._unknown = RouteMetrics("", UNKNOWN_ROUTE)
        self.connections_refused = 0
        self.closed_stuck = 0  # the client did not read its response for too long

    def add_route(self, key: object, method: str, path: str, *, is_streaming: bool) -> None:
        """Register a route. `key` is the object by which `of_route` finds it."""
        self._routes[key] = RouteMetrics(method, path, is_streaming=is_streaming)

    def of_route(self, key: object) -> RouteMetrics:
        return self._routes.get(key, self._unknown)

    def used_routes(self) -> list[RouteMetrics]:
        """Return the routes with requests since the start."""
        return [one for one in (*self._routes.values(), self._unknown) if one.statuses]

    @property
    def request_count(self) -> int:
        """The requests since the start. A stream is counted when it ends."""
        return sum(sum(one.statuses.values()) for one in self.used_routes())


class StreamMetrics:
    """Metrics of the streaming connections of the HTTP port: WebSockets, Server-Sent Events, JSON lines."""

    def __init__(self) -> None:
        self.open_count = 0
        self.opened = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.commands = 0
        self.closed_stuck = 0  # the client did not read for too long
        self.closed_idle = 0  # the client of a WebSocket did not answer a ping
        self.closed_violating = 0  # the client violated the WebSocket protocol
        self.closed_failed = 0  # the code of the server raised an exception
