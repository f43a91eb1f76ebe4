"""Collects what the server reports when it is ready."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kwire import __version__
from kwire.broker.topics.catalogue import TopicCounts
from kwire.config import Config
from kwire.config.http_api import BASIC
from kwire.config.listeners import Address, Listener
from kwire.logs.start_report import ConnectionCounts, ListenerReport, OpenToAll, Recovery, StartReport
from kwire.server.kafka.listener import KafkaListener
from kwire.server.kafka.shared import Shared

if TYPE_CHECKING:
    from kwire.server.http.server import HttpServer

# The addresses of clients on this machine, for listeners on all interfaces.
_LOCAL_HOSTS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def start_report(
    config: Config,
    counts: TopicCounts,
    user_count: int,
    recovery: Recovery,
    listeners: Sequence[KafkaListener],
    http: "HttpServer | None",
    *,
    is_first_start: bool,
) -> StartReport:
    """Return the report of a start."""
    first = listeners[0]
    return StartReport(
        version=__version__,
        data_dirs=tuple(str(path.absolute()) for path in config.log.data_dirs),
        is_first_start=is_first_start,
        topic_count=counts.topics,
        partition_count=counts.partitions,
        recovery=recovery,
        listeners=tuple(_listener(one) for one in listeners),
        bootstrap=_local(first.listener.host, first.port),
        http_url=_http_url(config, http),
        monitoring_url=_monitoring_url(config, http),
        needs_login=first.listener.has_sasl or bool(config.web.authentication),
        has_tls=first.listener.has_tls or config.http_tls is not None,
        open_to_all=_open_to_all(config, listeners, http) if user_count else None,
    )


def _open_to_all(config: Config, listeners: Sequence[KafkaListener], http: "HttpServer | None") -> OpenToAll | None:
    """Return what everybody may use without a login. None if a login or an authorizer is in the way."""
    if config.access.has_acls and not config.access.is_default_allowed:
        return None
    opened = [one for one in listeners if not _has_login(config, one.listener)]
    addresses = [_listener(one).address for one in opened]
    settings = list(_login_settings(listeners, opened))
    url = _http_url(config, http)
    if url is not None and not config.web.authentication:
        addresses.append(url)
        settings.append(f"kwire.http.authentication={BASIC}")
    return OpenToAll(tuple(addresses), tuple(settings)) if addresses else None


def _has_login(config: Config, listener: Listener) -> bool:
    tls = config.tls.get(listener.name)
    return listener.has_sasl or (tls is not None and tls.authenticates)


def _login_settings(listeners: Sequence[KafkaListener], opened: Sequence[KafkaListener]) -> Iterator[str]:
    """Yield the settings by which the clients of the opened listeners have to log in."""
    renamed = []
    for one in listeners:
        listener = one.listener
        address = Address(listener.host or "0.0.0.0", one.port)
        protocol = "SASL_SSL" if listener.has_tls else "SASL_PLAINTEXT"
        if one in opened and listener.name == listener.security_protocol:
            renamed.append(f"{protocol}://{address}")
        else:
            renamed.append(f"{listener.name}://{address}")
            if one in opened:
                yield f"listener.security.protocol.map={listener.name}:{protocol}"
    if renamed != [_listener(one).address for one in listeners]:
        yield f"listeners={','.join(renamed)}"


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
