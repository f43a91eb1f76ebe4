"""Collects what the server reports when it is ready."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kwire import __version__
from kwire.config import Config
from kwire.config.listeners import Address
from kwire.logs.start_report import ConnectionCounts, ListenerReport, Recovery, StartReport
from kwire.server.kafka.listener import KafkaListener
from kwire.server.kafka.shared import Shared

if TYPE_CHECKING:
    from kwire.server.http import HttpServer

# The addresses of clients on this machine, for listeners on all interfaces.
_LOCAL_HOSTS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def start_report(
    config: Config,
    partition_counts: Iterable[tuple[str, int]],
    recovery: Recovery,
    listeners: Sequence[KafkaListener],
    http: "HttpServer | None",
    *,
    is_first_start: bool,
) -> StartReport:
    """Return the report of a start. `partition_counts` has the name and the number of partitions of every topic."""
    counts = [count for name, count in partition_counts if not name.startswith("__")]
    first = listeners[0]
    return StartReport(
        version=__version__,
        data_dirs=tuple(str(path.absolute()) for path in config.log.data_dirs),
        is_first_start=is_first_start,
        topic_count=len(counts),
        partition_count=sum(counts),
        recovery=recovery,
        listeners=tuple(_listener(one) for one in listeners),
        bootstrap=_local(first.listener.host, first.port),
        http_url=_http_url(config, http),
        monitoring_url=_monitoring_url(config, http),
        needs_login=first.listener.has_sasl or bool(config.web.authentication),
        has_tls=first.listener.has_tls or config.http_tls is not None,
    )


def connection_counts(shared: Shared, http: "HttpServer | None") -> ConnectionCounts:
    return ConnectionCounts(len(shared.connections), 0 if http is None else http.connection_count)


def _listener(one: KafkaListener) -> ListenerReport:
    address = Address(one.listener.host or "0.0.0.0", one.port)
    advertised = None if one.advertised is None else str(one.advertised.address)
    if advertised == str(address):
        advertised = None
    return ListenerReport(f"{one.listener.name}://{address}", one.listener.security_protocol, advertised)


def _http_url(config: Config, http: "HttpServer | None") -> str | None:
    if http is None or config.http is None:
        return None
    scheme = "http" if config.http_tls is None else "https"
    return f"{scheme}://{_local(config.http.host, http.port)}"


def _monitoring_url(config: Config, http: "HttpServer | None") -> str | None:
    if http is None or config.http_monitoring is None or http.monitoring_port is None:
        return None
    return f"http://{_local(config.http_monitoring.host, http.monitoring_port)}"


def _local(host: str, port: int) -> str:
    return str(Address(_LOCAL_HOSTS.get(host, host), port))
