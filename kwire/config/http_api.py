"""The configuration sections of the HTTP API: rooms, topics and groups over REST, the event store, the HTTP port and
its metrics."""

from typing import NamedTuple

from kwire.config.setting import InvalidConfig
from kwire.config.values import Values

# The values of kwire.http.authentication.
BASIC, KEY, CERTIFICATE = "basic", "key", "certificate"

_SECOND_MS, _MINUTE_MS, _HOUR_MS = 1000, 60_000, 3_600_000


class RoomsConfig(NamedTuple):
    """Rooms: the defaults of a new room, and the limits of rooms and subscribers.

    If `inactive_timeout_ms` is -1, inactive rooms are kept. A bridge keeps them unless `is_bridge_cleanup` is set.
    """

    is_enabled: bool
    is_auto_create: bool
    retention_mode: str
    retention_hours: int
    events_max: int
    rooms_max: int
    cleanup_interval_ms: int
    inactive_timeout_ms: int
    subscribers_max: int
    broadcast_timeout_ms: int
    queue_events_max: int
    checkpoint_events: int
    checkpoint_ms: int
    log_sync: str
    recent_events_max: int
    is_bridge_cleanup: bool


class StreamsConfig(NamedTuple):
    """The defaults of a topic that is created by POST /topics/{name}."""

    is_enabled: bool
    partition_count: int
    replication_factor: int
    retention_type: str
    retention_secs: int
    retention_bytes: int
    retention_messages: int
    segment_bytes: int


class RestGroupsConfig(NamedTuple):
    """Settings of consumer groups that are created and joined over REST."""

    is_enabled: bool
    strategy: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    is_auto_commit: bool
    auto_commit_interval_ms: int


class WebConfig(NamedTuple):
    """The HTTP port: who may use it, and its limits.

    `authentication` is empty if clients need no credentials. If `hosts` is empty, any Host is accepted except on a
    loopback address.
    """

    origins: frozenset[str]
    hosts: frozenset[str]
    authentication: frozenset[str]
    body_bytes_max: int
    connections_max: int
    sessions_max: int
    socket_message_bytes_max: int
    ping_interval_ms: int
    socket_idle_timeout_ms: int
    memory_bytes_max: int
    memory_wait_ms: int
    receive_timeout_ms: int
    receive_rate_min: int

    @property
    def is_open_to_all_origins(self) -> bool:
        return "*" in self.origins


class MetricsConfig(NamedTuple):
    """What GET /metrics contains. `topics_max` is the number of topics with series of their own."""

    topics_max: int
    has_kafka_exporter_names: bool


class EventsConfig(NamedTuple):
    """Settings of the event store."""

    retention_ms: int
    files_dir: str | None
    # The topic of the cluster in which a bridge stores the order of all events.
    bridge_topic: str


def metrics_config(values: Values) -> MetricsConfig:
    return MetricsConfig(
        topics_max=values.number("kwire.metrics.topics.max"),
        has_kafka_exporter_names=values.flag("kwire.metrics.kafka.exporter"),
    )


def events_config(values: Values) -> EventsConfig:
    return EventsConfig(
        retention_ms=values.number("kwire.events.retention.ms"),
        files_dir=values.string_or_none("kwire.events.files.dir") or None,
        bridge_topic=values.string("kwire.bridge.events.topic"),
    )


def rooms_config(values: Values) -> RoomsConfig:
    inactive_hours = values.number("kwire.rooms.inactive.timeout.hours")
    return RoomsConfig(
        is_enabled=values.flag("kwire.rooms.enable"),
        is_auto_create=values.flag("kwire.rooms.auto.create"),
        retention_mode=values.string("kwire.rooms.retention.mode"),
        retention_hours=values.number("kwire.rooms.retention.hours"),
        events_max=values.number("kwire.rooms.max.events"),
        rooms_max=values.number("kwire.rooms.max"),
        cleanup_interval_ms=values.number("kwire.rooms.cleanup.interval.minutes") * _MINUTE_MS,
        inactive_timeout_ms=inactive_hours * _HOUR_MS if inactive_hours >= 0 else -1,
        subscribers_max=values.number("kwire.rooms.max.subscribers"),
        broadcast_timeout_ms=values.number("kwire.rooms.broadcast.timeout.ms"),
        queue_events_max=values.number("kwire.rooms.queue.events"),
        checkpoint_events=values.number("kwire.rooms.checkpoint.events"),
        checkpoint_ms=values.number("kwire.rooms.checkpoint.ms"),
        log_sync=values.string("kwire.rooms.log.sync"),
        recent_events_max=values.number("kwire.rooms.recent.events"),
        is_bridge_cleanup=values.flag("kwire.bridge.cleanup"),
    )


def streams_config(values: Values) -> StreamsConfig:
    return StreamsConfig(
        is_enabled=values.flag("kwire.streams.enable"),
        partition_count=values.number("kwire.streams.partitions"),
        replication_factor=values.number("kwire.streams.replication.factor"),
        retention_type=values.string("kwire.streams.retention.type"),
        retention_secs=values.number("kwire.streams.retention.secs"),
        retention_bytes=values.number("kwire.streams.retention.bytes"),
        retention_messages=values.number("kwire.streams.retention.messages"),
        segment_bytes=values.number("kwire.streams.segment.bytes"),
    )


def rest_groups_config(values: Values) -> RestGroupsConfig:
    return RestGroupsConfig(
        is_enabled=values.flag("kwire.rest.groups.enable"),
        strategy=values.string("kwire.rest.groups.strategy"),
        session_timeout_ms=values.number("kwire.rest.groups.session.timeout.secs") * _SECOND_MS,
        rebalance_timeout_ms=values.number("kwire.rest.groups.rebalance.timeout.secs") * _SECOND_MS,
        is_auto_commit=values.flag("kwire.rest.groups.auto.commit"),
        auto_commit_interval_ms=values.number("kwire.rest.groups.auto.commit.interval.secs") * _SECOND_MS,
    )


def web_config(values: Values) -> WebConfig:
    ping_ms, idle_ms = (
        values.number("kwire.websocket.ping.interval.ms"),
        values.number("kwire.websocket.idle.timeout.ms"),
    )
    if idle_ms <= ping_ms:
        # An idle client sends only pongs. If the timeout did not exceed the ping interval, every idle connection would
        # be closed.
        problem = f"Value must be greater than kwire.websocket.ping.interval.ms ({ping_ms})"
        raise InvalidConfig(values.refusal("kwire.websocket.idle.timeout.ms", problem))
    body_bytes_max = values.number("kwire.http.max.body.bytes")
    memory_bytes_max = values.number("kwire.http.memory.bytes")
    if memory_bytes_max < 2 * body_bytes_max:
        # With less memory a body of the maximum size could never be received. Its request would wait until the timeout.
        problem = f"Value must be at least twice kwire.http.max.body.bytes ({body_bytes_max})"
        raise InvalidConfig(values.refusal("kwire.http.memory.bytes", problem))
    origins = frozenset(values.strings("kwire.http.origins"))
    authentication = frozenset(values.strings("kwire.http.authentication"))
    if authentication and "*" in origins:
        # A page of any origin could act with the credentials that a browser has stored.
        raise InvalidConfig(
            values.refusal("kwire.http.origins", "* cannot be used with kwire.http.authentication: list the origins")
        )
    return WebConfig(
        origins=origins,
        hosts=frozenset(values.strings("kwire.http.hosts")),
        authentication=authentication,
        body_bytes_max=body_bytes_max,
        connections_max=values.number("kwire.http.max.connections"),
        sessions_max=values.number("kwire.sessions.max.connections"),
        socket_message_bytes_max=values.number("kwire.websocket.max.message.bytes"),
        ping_interval_ms=ping_ms,
        socket_idle_timeout_ms=idle_ms,
        memory_bytes_max=memory_bytes_max,
        memory_wait_ms=values.number("kwire.http.memory.wait.ms"),
        receive_timeout_ms=values.number("kwire.http.receive.timeout.ms"),
        receive_rate_min=values.number("kwire.http.receive.rate.min"),
    )
