"""What the server reports about a start and a stop. The node fills in these reports; `lifecycle.py` writes them."""

from typing import NamedTuple


class Recovery(NamedTuple):
    """What the start has recovered: logs that the last stop did not close cleanly.

    `is_needed` is False at the first start and after a clean stop.
    """

    is_needed: bool
    topic_count: int = 0
    log_count: int = 0
    seconds: float = 0.0


class ListenerReport(NamedTuple):
    """An open listener: `NAME://host:port`, its security protocol, and the advertised address, if it has one."""

    address: str
    security_protocol: str
    advertised: str | None = None


class OpenToAll(NamedTuple):
    """The addresses whose clients need no login although users exist, and the settings that change it."""

    addresses: tuple[str, ...]
    settings: tuple[str, ...]


class StartReport(NamedTuple):
    """The result of a successful start. `bootstrap` and `http_url` are addresses that clients on this machine use."""

    version: str
    data_dirs: tuple[str, ...]
    is_first_start: bool
    topic_count: int
    partition_count: int
    recovery: Recovery
    listeners: tuple[ListenerReport, ...]
    bootstrap: str
    http_url: str | None
    monitoring_url: str | None
    # Whether clients of one of these addresses have to log in, and whether they use TLS.
    needs_login: bool
    has_tls: bool
    # None if no users exist, or their logins are needed.
    open_to_all: OpenToAll | None = None


class ConnectionCounts(NamedTuple):
    """The number of open connections of each port. Streams are connections of the HTTP port."""

    kafka: int
    http: int

    def __str__(self) -> str:
        return f"{self.kafka} Kafka and {self.http} HTTP connections"
