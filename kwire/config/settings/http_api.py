"""Broker settings of rooms, of topics and consumer groups created over REST, of the HTTP port, and of metrics.

The defaults for rooms apply only to rooms, and the defaults for topics only to topics created by
``POST /topics/{name}``. All other topics have Kafka's defaults.
"""

import re

from kwire.config.setting import INT_MAX, LONG_MAX, Kind, Rule, Setting, SettingValue, at_least, between, one_of

RETENTION_MODES = ("time", "count", "hybrid")
STREAM_RETENTIONS = ("Time", "Size", "Messages", "Combined", "Infinite")
STRATEGIES = ("round_robin", "range", "sticky")
AUTHENTICATION_METHODS = ("basic", "key", "certificate")

_HOURS_MAX = LONG_MAX // 3_600_000
_MINUTES_MAX = LONG_MAX // 60_000
_SECONDS_MAX = LONG_MAX // 1000


def _replication_factor_problem(value: SettingValue) -> str | None:
    return None if value == 1 else "Value must be 1: a single node stores one replica"


def _origins_problem(value: SettingValue) -> str | None:
    assert isinstance(value, tuple)
    for origin in value:
        scheme, separator, host = origin.partition("://")
        if origin != "*" and (not separator or scheme not in ("http", "https") or not host or "/" in host):
            return f"{origin} is not a valid origin; expected http://host, https://host:port, or * for all"
    return None


def _hosts_problem(value: SettingValue) -> str | None:
    assert isinstance(value, tuple)
    for host in value:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
            return f"{host} is not a valid host name; expected a name without a port"
    return None


def _authentication_problem(value: SettingValue) -> str | None:
    assert isinstance(value, tuple)
    for method in value:
        if method not in AUTHENTICATION_METHODS:
            return f"{method} is not a valid method; expected {' or '.join(AUTHENTICATION_METHODS)}"
    return None


ROOM_SETTINGS = (
    Setting("kwire.rooms.enable", Kind.BOOLEAN, True, "Whether the server offers rooms."),
    Setting(
        "kwire.rooms.auto.create",
        Kind.BOOLEAN,
        True,
        "Whether publishing to a missing room, or subscribing to it, creates the room.",
    ),
    Setting(
        "kwire.rooms.retention.mode",
        Kind.STRING,
        "hybrid",
        "Retention of a new room: time (kwire.rooms.retention.hours), count (kwire.rooms.max.events), or hybrid "
        "(whichever limit is reached first).",
        one_of(*RETENTION_MODES),
    ),
    Setting(
        "kwire.rooms.retention.hours",
        Kind.LONG,
        24,
        "Age at which the events of a new room are deleted.",
        between(1, _HOURS_MAX),
    ),
    Setting(
        "kwire.rooms.max.events",
        Kind.LONG,
        100_000,
        "Number of newest events that a new room keeps. The limit is exact, not rounded to segments.",
        at_least(1),
    ),
    Setting(
        "kwire.rooms.max",
        Kind.INT,
        100_000,
        "Maximum number of rooms. The creation of another room is refused.",
        at_least(0),
    ),
    Setting(
        "kwire.rooms.cleanup.interval.minutes",
        Kind.LONG,
        60,
        "Interval between checks for inactive rooms.",
        between(1, _MINUTES_MAX),
    ),
    Setting(
        "kwire.rooms.inactive.timeout.hours",
        Kind.LONG,
        24,
        "A room is deleted after this time without a subscriber, a new event or a read, unless a consumer group has "
        "committed offsets for it or was created to read it. -1 keeps all rooms.",
        Rule(
            f"-1, or 1 to {_HOURS_MAX}",
            lambda value: None if value == -1 else between(1, _HOURS_MAX).problem(value),
        ),
    ),
    Setting(
        "kwire.rooms.max.subscribers",
        Kind.INT,
        10_000,
        "Maximum number of concurrent subscribers of one room.",
        at_least(1),
    ),
    Setting(
        "kwire.rooms.broadcast.timeout.ms",
        Kind.LONG,
        1000,
        "How long the connection of a live subscriber may accept no data before the subscriber's on_lag rule applies.",
        at_least(1),
    ),
    Setting(
        "kwire.rooms.queue.events",
        Kind.INT,
        10_000,
        "Number of events by which a live subscriber may lag before its on_lag rule applies. A subscriber may request "
        "a lower limit.",
        at_least(2),
    ),
    Setting(
        "kwire.rooms.checkpoint.events",
        Kind.INT,
        1000,
        "Number of events after which a subscriber is sent a position to resume from.",
        at_least(1),
    ),
    Setting(
        "kwire.rooms.checkpoint.ms",
        Kind.LONG,
        10_000,
        "Time after which a subscriber whose position has changed is sent a position to resume from.",
        at_least(1),
    ),
    Setting(
        "kwire.rooms.log.sync",
        Kind.STRING,
        "os",
        "When an event of a new room counts as stored (see kwire.log.sync): os, when it is written to the operating "
        "system's page cache; group, when it is synced to disk.",
        one_of("group", "os"),
    ),
    Setting(
        "kwire.rooms.recent.events",
        Kind.INT,
        100_000,
        "Maximum number of newest events that a room with subscribers keeps decoded in memory. Rooms with little "
        "traffic keep fewer.",
        at_least(1),
        former_name="kwire.rooms.tail.events",
    ),
    Setting(
        "kwire.bridge.cleanup",
        Kind.BOOLEAN,
        False,
        "Whether a bridge deletes rooms that it has created and that were not used for "
        "kwire.rooms.inactive.timeout.hours. A bridge does not see which rooms are read by other Kafka clients. "
        "A server ignores this setting.",
    ),
)

STREAM_SETTINGS = (
    Setting("kwire.streams.enable", Kind.BOOLEAN, True, "Whether partitioned topics are available over REST."),
    Setting(
        "kwire.streams.partitions",
        Kind.INT,
        3,
        "Default number of partitions of a topic created by POST /topics/{name}.",
        between(1, 10_000),
    ),
    Setting(
        "kwire.streams.replication.factor",
        Kind.INT,
        1,
        "Default replication factor of a topic created by POST /topics/{name}. A single node stores one replica.",
        Rule("1", _replication_factor_problem),
    ),
    Setting(
        "kwire.streams.retention.type",
        Kind.STRING,
        "Combined",
        "Default retention policy of a topic created by POST /topics/{name}: Time, Size, Messages, Combined (whichever "
        "of the three limits is reached first), or Infinite.",
        one_of(*STREAM_RETENTIONS),
    ),
    Setting(
        "kwire.streams.retention.secs",
        Kind.LONG,
        3600,
        "Age at which the records of a topic created by POST /topics/{name} are deleted, for the policies Time and "
        "Combined.",
        between(1, _SECONDS_MAX),
    ),
    Setting(
        "kwire.streams.retention.bytes",
        Kind.LONG,
        104_857_600,
        "Partition size, in bytes, above which the oldest records of a topic created by POST /topics/{name} are "
        "deleted, for the policies Size and Combined.",
        at_least(1),
    ),
    Setting(
        "kwire.streams.retention.messages",
        Kind.LONG,
        100_000,
        "Number of newest records that each partition of a topic created by POST /topics/{name} keeps, for the "
        "policies Messages and Combined.",
        at_least(1),
    ),
    Setting(
        "kwire.streams.segment.bytes",
        Kind.INT,
        104_857_600,
        "Default segment size of a topic created by POST /topics/{name}.",
        at_least(1_048_576),
    ),
)

REST_GROUP_SETTINGS = (
    Setting("kwire.rest.groups.enable", Kind.BOOLEAN, True, "Whether consumer groups are available over REST."),
    Setting(
        "kwire.rest.groups.strategy",
        Kind.STRING,
        "round_robin",
        "Default assignment strategy of a consumer group created over REST.",
        one_of(*STRATEGIES),
    ),
    Setting(
        "kwire.rest.groups.session.timeout.secs",
        Kind.INT,
        30,
        "Default session timeout of a member that joins over REST: after this time without a request the member is "
        "removed from its group.",
        between(1, INT_MAX // 1000),
    ),
    Setting(
        "kwire.rest.groups.rebalance.timeout.secs",
        Kind.INT,
        60,
        "How long a member may take to release partitions that have been assigned to another member.",
        between(1, INT_MAX // 1000),
    ),
    Setting(
        "kwire.rest.groups.auto.commit",
        Kind.BOOLEAN,
        True,
        "Whether the stream of a group member commits the offsets of delivered records, unless the request says "
        "otherwise.",
    ),
    Setting(
        "kwire.rest.groups.auto.commit.interval.secs",
        Kind.INT,
        5,
        "Interval between automatic commits (kwire.rest.groups.auto.commit).",
        between(1, INT_MAX // 1000),
    ),
)

WEB_SETTINGS = (
    Setting(
        "kwire.http.origins",
        Kind.LIST,
        (),
        "Origins whose web pages may use the HTTP port: http://host:port, …, or * for all. Pages that the port itself "
        "serves are always allowed.",
        Rule("origins, or *", _origins_problem),
    ),
    Setting(
        "kwire.http.hosts",
        Kind.LIST,
        (),
        "Names that clients may send in the header Host, against DNS rebinding. Addresses, localhost and the hosts of "
        "kwire.http.origins are always allowed. If empty, any name is allowed, except on a loopback address.",
        Rule("host names without a port", _hosts_problem),
    ),
    Setting(
        "kwire.http.authentication",
        Kind.LIST,
        (),
        "How clients of the HTTP port authenticate: basic (name and password of a SCRAM user), key (token of an API "
        "key), certificate (client certificate of the TLS connection), or several of these. If empty, all clients are "
        "anonymous.",
        Rule("basic, key and certificate", _authentication_problem),
    ),
    Setting(
        "kwire.http.monitoring.listener",
        Kind.STRING,
        "",
        "A separate address, HOST:PORT, for /metrics, /healthz and /readyz, without authentication. The HTTP port then "
        "does not serve these.",
    ),
    Setting(
        "kwire.http.max.body.bytes",
        Kind.INT,
        10_485_760,
        "Maximum size of a request body. In a stream of lines, the limit applies to each line.",
        at_least(1024),
    ),
    Setting(
        "kwire.http.max.connections",
        Kind.INT,
        20_000,
        "Maximum number of open HTTP connections, including WebSockets and streams. A further connection is closed "
        "immediately.",
        at_least(1),
    ),
    Setting(
        "kwire.http.memory.bytes",
        Kind.LONG,
        67_108_864,
        "Memory for all request bodies being received or handled and for all large responses being sent on the HTTP "
        "port; at least twice kwire.http.max.body.bytes. Requests that exceed it wait, in order of arrival.",
        at_least(2048),
    ),
    Setting(
        "kwire.http.memory.wait.ms",
        Kind.LONG,
        5_000,
        "How long a request waits for memory (kwire.http.memory.bytes) before it is answered with 503 and a "
        "Retry-After header.",
        at_least(0),
    ),
    Setting(
        "kwire.http.receive.timeout.ms",
        Kind.LONG,
        30_000,
        "Time over which kwire.http.receive.rate.min is measured. A request whose incomplete body arrives more slowly "
        "is answered with 408.",
        at_least(1),
    ),
    Setting(
        "kwire.http.receive.rate.min",
        Kind.LONG,
        16_384,
        "Minimum rate, in bytes per second, at which a request body must arrive. While other requests wait for memory "
        "(kwire.http.memory.bytes), the minimum is 256 KiB per second, measured over 2 seconds.",
        at_least(1),
    ),
    Setting(
        "kwire.sessions.max.connections",
        Kind.INT,
        10_000,
        "Maximum number of WebSockets of /db/api/v1/events/subscribe on this node. Further ones are refused with 503.",
        at_least(0),
    ),
    Setting(
        "kwire.websocket.max.message.bytes",
        Kind.INT,
        1_048_576,
        "Maximum size of a message that a WebSocket client may send.",
        at_least(125),
    ),
    Setting(
        "kwire.websocket.ping.interval.ms",
        Kind.LONG,
        10_000,
        "Interval between the pings that the server sends on a WebSocket.",
        at_least(1),
    ),
    Setting(
        "kwire.websocket.idle.timeout.ms",
        Kind.LONG,
        30_000,
        "A WebSocket is closed after this time without any data from the client, pongs included.",
        at_least(1),
    ),
)

METRICS_SETTINGS = (
    Setting(
        "kwire.metrics.topics.max",
        Kind.INT,
        1000,
        "Maximum number of topics with series of their own in /metrics. All further topics share the series with the "
        'label topic="(others)". 0: no topic has series of its own.',
        between(0, 10_000),
    ),
    Setting(
        "kwire.metrics.kafka.exporter",
        Kind.BOOLEAN,
        False,
        "Whether /metrics also contains topics and groups under the names of kafka_exporter, for dashboards and alerts "
        "that use these names.",
    ),
)
