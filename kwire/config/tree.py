"""The configuration tree. It is immutable, has one section per package, and is built by ``load``.

The sections are named tuples, not data classes, because data classes take five times as long to define at every start.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kwire.config.access import AccessConfig, AuditConfig, access_config, audit_config
from kwire.config.connections import ConnectionLimits, QuotasConfig, connection_limits, quotas_config
from kwire.config.http_api import (
    BASIC,
    CERTIFICATE,
    KEY,
    EventsConfig,
    MetricsConfig,
    RestGroupsConfig,
    RoomsConfig,
    StreamsConfig,
    WebConfig,
    events_config,
    metrics_config,
    rest_groups_config,
    rooms_config,
    streams_config,
    web_config,
)
from kwire.config.listeners import Address, Listener, parse_address, parse_listener, parse_security_protocols
from kwire.config.sasl import SaslConfig, sasl_config, sasl_warnings
from kwire.config.setting import InvalidConfig
from kwire.config.sources import from_environment, from_file, from_flags
from kwire.config.streams_yaml import from_yaml
from kwire.config.tls import HTTP_LISTENER, NO_CERTIFICATE, TlsConfig, listener_tls, tls_config
from kwire.config.transactions import TransactionsConfig, transactions_config
from kwire.config.values import Values, resolve
from kwire.config.webhooks import WebhooksConfig, webhooks_config

YAML_SUFFIXES = (".yaml", ".yml")
SERVED_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class NetworkConfig(NamedTuple):
    """Limits of the Kafka port. A buffer size of -1 is the operating system's default. A limit of -1 is no limit."""

    request_bytes_max: int
    requests_bytes_max: int
    fetch_bytes_max: int
    fetch_session_slots: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    backlog: int
    connections_max: int
    connections_per_ip_max: int
    idle_ms_max: int
    inflight_max: int
    send_timeout_ms: int
    receive_rate_min: int
    receive_window_ms: int
    drain_ms: int


class TopicsConfig(NamedTuple):
    """Settings of the creation and deletion of topics."""

    is_auto_create: bool
    is_delete_allowed: bool
    partition_count: int
    described_partitions_max: int


class LogConfig(NamedTuple):
    """Settings of all logs. The settings of each topic are in kwire/config/resources/topic.py."""

    data_dirs: tuple[Path, ...]
    cordoned_dirs: frozenset[str]
    move_bytes_per_second_max: int
    open_max: int
    reserve_bytes: int
    starts_empty: bool
    retention_check_interval_ms: int
    producer_id_expiration_ms: int
    is_cleaner_enabled: bool
    cleaner_bytes_per_second_max: float
    cleaner_keys_bytes_max: int
    cleaner_backoff_ms: int
    scrub_interval_ms: int
    scrub_bytes_per_second_max: int

    @property
    def data_dir(self) -> Path:
        """The first data directory. It also has the files that do not belong to a partition."""
        return self.data_dirs[0]


class GroupsConfig(NamedTuple):
    """Settings of consumer groups and of the topic that stores their offsets."""

    initial_rebalance_delay_ms: int
    session_timeout_ms_min: int
    session_timeout_ms_max: int
    member_count_max: int
    offset_metadata_bytes_max: int
    offsets_retention_ms: int
    offsets_retention_check_interval_ms: int
    offsets_partition_count: int
    offsets_segment_bytes: int


class Config(NamedTuple):
    """The whole configuration. ``values`` has each setting with its source, for DescribeConfigs."""

    node_id: int
    cluster_id: str | None
    rack: str | None
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    http: Address | None
    # The address of /metrics and /healthz, None if the HTTP port serves them.
    http_monitoring: Address | None
    network: NetworkConfig
    connections: ConnectionLimits
    quotas: QuotasConfig
    topics: TopicsConfig
    log: LogConfig
    groups: GroupsConfig
    rooms: RoomsConfig
    streams: StreamsConfig
    rest_groups: RestGroupsConfig
    events: EventsConfig
    transactions: TransactionsConfig
    webhooks: WebhooksConfig
    web: WebConfig
    metrics: MetricsConfig
    access: AccessConfig
    sasl: SaslConfig
    # TLS of the Kafka listeners that have it, by their names, and of the HTTP port.
    tls: Mapping[str, TlsConfig]
    http_tls: TlsConfig | None
    audit: AuditConfig
    values: Values
    warnings: tuple[str, ...]


def load(
    *,
    files: Iterable[Path] = (),
    environment: Mapping[str, str] | None = None,
    kafka: str | None = None,
    http: str | None = None,
    data_dir: str | None = None,
    settings: Iterable[str] = (),
) -> Config:
    """Return the configuration. Raises InvalidConfig with all errors.

    The sources, in increasing order of precedence, are defaults, files, environment and flags. A later file takes
    precedence over an earlier one. Files that end in .yaml or .yml are read by `streams_yaml.py`.
    """
    sources = [
        *(from_yaml(path) if path.suffix in YAML_SUFFIXES else from_file(path) for path in files),
        from_environment(environment or {}),
        from_flags(kafka=kafka, http=http, data_dir=data_dir, settings=settings),
    ]
    values, warnings, refusals = resolve(sources)
    if refusals:
        raise InvalidConfig("\n".join(refusals))
    return _tree(values, tuple(warnings))


def with_dynamic(config: Config, of_broker: Mapping[str, str], of_all: Mapping[str, str]) -> Config:
    """Return the configuration with exactly these dynamic values. Raises InvalidConfig.

    ``of_broker`` has the values for this broker, ``of_all`` has the values for all brokers. All names must be known.
    """
    return _tree(config.values.with_dynamic(of_broker, of_all), config.warnings)


def _tree(values: Values, warnings: tuple[str, ...]) -> Config:
    listeners, advertised = _listeners(values)
    http_address = _http_address(values, "kwire.http.listener")
    monitoring_address = _http_address(values, "kwire.http.monitoring.listener")
    if monitoring_address is not None and http_address is None:
        raise InvalidConfig(values.refusal("kwire.http.monitoring.listener", "Requires kwire.http.listener"))
    access = access_config(values)
    sasl = sasl_config(values, listeners)
    tls = listener_tls(values, listeners)
    http_tls = tls_config(values, HTTP_LISTENER) if values.flag("kwire.http.tls") else None
    web = web_config(values)
    has_logins = (
        any(one.has_sasl for one in listeners)
        or any(one.client_auth != NO_CERTIFICATE for one in tls.values())
        or bool(web.authentication)
    )
    exposed = _check_exposure(values, _exposed(values, listeners, http_address, monitoring_address, tls, http_tls))
    # A change of a dynamic setting builds the tree again, with the warnings that it had.
    warnings = tuple(
        dict.fromkeys(
            (*warnings, *exposed, *sasl_warnings(sasl, listeners), *_http_warnings(http_address, web, http_tls))
        )
    )
    return Config(
        node_id=values.number(
            "node.id" if values.is_given("node.id") or not values.is_given("broker.id") else "broker.id"
        ),
        cluster_id=values.string_or_none("cluster.id") or None,
        rack=values.string_or_none("broker.rack") or None,
        listeners=listeners,
        advertised_listeners=advertised,
        http=http_address,
        http_monitoring=monitoring_address,
        network=_network(values),
        connections=connection_limits(values, listeners),
        quotas=quotas_config(values),
        topics=TopicsConfig(
            is_auto_create=values.flag("auto.create.topics.enable"),
            is_delete_allowed=values.flag("delete.topic.enable"),
            partition_count=values.number("num.partitions"),
            described_partitions_max=values.number("max.request.partition.size.limit"),
        ),
        log=LogConfig(
            data_dirs=_data_dirs(values),
            cordoned_dirs=_cordoned_dirs(values),
            move_bytes_per_second_max=values.number("replica.alter.log.dirs.io.max.bytes.per.second"),
            open_max=values.number("kwire.log.open.max"),
            reserve_bytes=values.number("kwire.log.reserve.bytes"),
            starts_empty=values.flag("kwire.start.empty"),
            retention_check_interval_ms=values.number("log.retention.check.interval.ms"),
            producer_id_expiration_ms=values.number("producer.id.expiration.ms"),
            is_cleaner_enabled=values.flag("log.cleaner.enable"),
            cleaner_bytes_per_second_max=values.real("log.cleaner.io.max.bytes.per.second"),
            cleaner_keys_bytes_max=values.number("log.cleaner.dedupe.buffer.size"),
            cleaner_backoff_ms=values.number("log.cleaner.backoff.ms"),
            scrub_interval_ms=values.number("kwire.scrub.interval.ms"),
            scrub_bytes_per_second_max=values.number("kwire.scrub.max.bytes.per.second"),
        ),
        groups=_groups(values),
        rooms=rooms_config(values),
        streams=streams_config(values),
        rest_groups=rest_groups_config(values),
        events=events_config(values),
        transactions=transactions_config(values),
        webhooks=webhooks_config(values),
        web=web,
        metrics=metrics_config(values),
        access=access,
        sasl=sasl,
        tls=tls,
        http_tls=http_tls,
        audit=audit_config(values, is_access_controlled=access.has_acls or has_logins),
        values=values,
        warnings=warnings,
    )


def _network(values: Values) -> NetworkConfig:
    request_max = values.number("socket.request.max.bytes")
    if -1 < values.number("queued.max.request.bytes") < request_max:
        # The memory must suffice for one request of the maximum size. Otherwise this request could never be read.
        problem = f"Value must be at least socket.request.max.bytes ({request_max})"
        raise InvalidConfig(values.refusal("queued.max.request.bytes", problem))
    return NetworkConfig(
        request_bytes_max=request_max,
        requests_bytes_max=values.number("queued.max.request.bytes"),
        fetch_bytes_max=values.number("fetch.max.bytes"),
        fetch_session_slots=values.number("max.incremental.fetch.session.cache.slots"),
        send_buffer_bytes=values.number("socket.send.buffer.bytes"),
        receive_buffer_bytes=values.number("socket.receive.buffer.bytes"),
        backlog=values.number("socket.listen.backlog.size"),
        connections_max=values.number("max.connections"),
        connections_per_ip_max=values.number("max.connections.per.ip"),
        idle_ms_max=values.number("connections.max.idle.ms"),
        inflight_max=values.number("kwire.connection.inflight.max"),
        send_timeout_ms=values.number("kwire.send.timeout.ms"),
        receive_rate_min=values.number("kwire.receive.rate.min"),
        receive_window_ms=values.number("kwire.receive.window.ms"),
        drain_ms=values.number("kwire.shutdown.drain.ms"),
    )


def _groups(values: Values) -> GroupsConfig:
    session_min = values.number("group.min.session.timeout.ms")
    session_max = values.number("group.max.session.timeout.ms")
    if session_min > session_max:
        raise InvalidConfig(
            values.refusal(
                "group.max.session.timeout.ms", f"Value must be at least group.min.session.timeout.ms ({session_min})"
            )
        )
    return GroupsConfig(
        initial_rebalance_delay_ms=values.number("group.initial.rebalance.delay.ms"),
        session_timeout_ms_min=session_min,
        session_timeout_ms_max=session_max,
        member_count_max=values.number("group.max.size"),
        offset_metadata_bytes_max=values.number("offset.metadata.max.bytes"),
        offsets_retention_ms=values.number("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=values.number("offsets.retention.check.interval.ms"),
        offsets_partition_count=values.number("offsets.topic.num.partitions"),
        offsets_segment_bytes=values.number("offsets.topic.segment.bytes"),
    )


def _data_dirs(values: Values) -> tuple[Path, ...]:
    name = "log.dirs" if values.is_given("log.dirs") or not values.is_given("log.dir") else "log.dir"
    directories = values.strings(name)
    if not directories or not all(directories):
        raise InvalidConfig(values.refusal(name, "Expected at least one data directory, and no empty name"))
    paths = tuple(map(Path, directories))
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidConfig(values.refusal(name, "Each data directory may be named once"))
    return paths


def _cordoned_dirs(values: Values) -> frozenset[str]:
    """Return the cordoned data directories as absolute paths."""
    name = "cordoned.log.dirs"
    known = {os.path.abspath(path) for path in _data_dirs(values)}
    cordoned = values.strings(name)
    if tuple(cordoned) == ("*",):
        return frozenset(known)
    found = frozenset(map(os.path.abspath, cordoned))
    if not found <= known:
        raise InvalidConfig(values.refusal(name, "Each directory must be one of log.dirs"))
    return found


def _listeners(values: Values) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
    """Return the listeners to open and the listeners to advertise, both without those of the controller."""
    try:
        protocols = parse_security_protocols(values.string("listener.security.protocol.map"))
    except ValueError as error:
        raise InvalidConfig(values.refusal("listener.security.protocol.map", str(error))) from None
    advertised = _parse_listeners(values, "advertised.listeners", protocols)
    if values.is_given("listeners") or not advertised:
        listeners = _parse_listeners(values, "listeners", protocols)
    else:
        # Listen on the advertised ports on all interfaces, as the official image does. For an advertised loopback
        # address, listen only on this address.
        listeners = tuple(
            Listener(one.name, one.security_protocol, one.host if one.address.is_loopback else "", one.port)
            for one in advertised
        )
    if not listeners:
        raise InvalidConfig(values.refusal("listeners", "Expected at least one listener for clients"))
    names = [listener.name for listener in listeners]
    ports = [listener.port for listener in listeners if listener.port]
    if len(set(names)) < len(names):
        raise InvalidConfig(values.refusal("listeners", "Each listener must have a different name"))
    if len(set(ports)) < len(ports):
        raise InvalidConfig(values.refusal("listeners", "Each listener must have a different port"))
    for listener in advertised:
        if listener.name not in names:
            raise InvalidConfig(values.refusal("advertised.listeners", f"No listener is named {listener.name}"))
        if not listener.host or listener.host in ("0.0.0.0", "::"):
            raise InvalidConfig(
                values.refusal("advertised.listeners", "Clients cannot connect to all interfaces; name a host")
            )
    return listeners, advertised


def _parse_listeners(values: Values, name: str, protocols: dict[str, str]) -> tuple[Listener, ...]:
    controllers = {one.upper() for one in values.strings("controller.listener.names")}
    listeners = []
    for text in filter(None, values.strings(name)):
        if text.partition("://")[0].strip().upper() in controllers:
            continue
        try:
            listener = parse_listener(text, protocols)
        except ValueError as error:
            raise InvalidConfig(values.refusal(name, str(error))) from None
        if listener.security_protocol not in SERVED_PROTOCOLS:
            problem = (
                f"Security protocol {listener.security_protocol} is not supported, only {', '.join(SERVED_PROTOCOLS)}"
            )
            raise InvalidConfig(values.refusal(name, problem))
        listeners.append(listener)
    return tuple(listeners)


def _http_address(values: Values, name: str) -> Address | None:
    text = values.string(name)
    if not text:
        return None
    try:
        return parse_address(text)
    except ValueError as error:
        raise InvalidConfig(values.refusal(name, str(error))) from None


def _http_warnings(http: Address | None, web: WebConfig, tls: TlsConfig | None) -> Iterator[str]:
    if http is None:
        return
    readable = [method for method in (BASIC, KEY) if method in web.authentication]
    if readable and tls is None and not http.is_loopback:
        yield (
            f"kwire.http.listener {http} is reachable from other machines without TLS: "
            f"{'passwords' if readable == [BASIC] else 'secrets'} of kwire.http.authentication={','.join(readable)} "
            "can be read on the network"
        )
    if CERTIFICATE in web.authentication and (tls is None or tls.client_auth == NO_CERTIFICATE):
        yield (
            f"kwire.http.authentication={CERTIFICATE}: clients cannot send certificates without kwire.http.tls=true "
            "and listener.name.http.ssl.client.auth=requested or required"
        )


class _Exposed(NamedTuple):
    """An address on which clients need no login, the setting that has it, and its TLS settings."""

    setting: str
    address: Address
    shown: str
    tls: TlsConfig | None


def _exposed(
    values: Values,
    listeners: tuple[Listener, ...],
    http: Address | None,
    monitoring: Address | None,
    tls: Mapping[str, TlsConfig],
    http_tls: TlsConfig | None,
) -> Iterator[_Exposed]:
    """Yield the addresses without logins."""
    for one in listeners:
        if not one.has_sasl:
            yield _Exposed("listeners", one.address, str(one), tls.get(one.name))
    if http is not None and not values.strings("kwire.http.authentication"):
        yield _Exposed("kwire.http.listener", http, str(http), http_tls)
    if monitoring is not None:
        yield _Exposed("kwire.http.monitoring.listener", monitoring, str(monitoring), None)


def _check_exposure(values: Values, exposed: Iterable[_Exposed]) -> list[str]:
    """Refuse addresses that other machines can reach without authentication, unless kwire.allow.unauthenticated is set.

    Returns warnings: with TLS such a listener looks protected, but serves every client that can connect.
    """
    warnings: list[str] = []
    for name, address, shown, security in exposed:
        if address.is_loopback or (security is not None and security.authenticates):
            continue
        if not values.flag("kwire.allow.unauthenticated"):
            raise InvalidConfig(
                f"{values[name].origin}: {name} {shown} is reachable from other machines, but its clients are not "
                "authenticated; listen on 127.0.0.1, use a listener with SASL (for HTTP set "
                "kwire.http.authentication), require client certificates (TLS with ssl.client.auth=required), or set "
                "kwire.allow.unauthenticated=true to allow this"
            )
        if security is not None:
            warnings.append(
                f"{values[name].origin}: {name} {shown} encrypts connections with TLS, but does not authenticate "
                "clients: every machine that reaches it is served"
            )
    return warnings
