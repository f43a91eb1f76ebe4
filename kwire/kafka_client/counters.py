"""ConnectionCounters: counts the connections to a cluster and their bytes, for metrics."""


class ConnectionCounters:
    """The connections of one client. `failed_count` counts attempts to connect or to log in."""

    __slots__ = ("failed_count", "open_count", "opened_count", "received_bytes", "sent_bytes")

    def __init__(self) -> None:
        self.open_count = 0
        self.opened_count = 0
        self.failed_count = 0
        self.sent_bytes = 0
        self.received_bytes = 0
