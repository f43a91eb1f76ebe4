"""Broker settings of the bridge: rooms, partitioned topics and groups made over REST, and the HTTP port's bounds.

Defaults of rooms and of topics made by ``POST /topics/{name}`` apply to those alone: every other topic has Kafka's.
"""

from kwire.config.setting import INT_MAX, LONG_MAX, Kind, Rule, Setting, SettingValue, at_least, between, one_of

RETENTION_MODES = ("time", "count", "hybrid")
STREAM_RETENTIONS = ("Time", "Size", "Messages", "Combined", "Infinite")
STRATEGIES = ("round_robin", "range", "sticky")

_HOURS_MAX = LONG_MAX // 3_600_000
_MINUTES_MAX = LONG_MAX // 60_000
_SECONDS_MAX = LONG_MAX // 1000


def _copies_problem(value: SettingValue) -> str | None:
    return None if value == 1 else "Value must be 1: one node keeps one copy"


def _origins_problem(value: SettingValue) -> str | None:
    assert isinstance(value, tuple)
    for origin in value:
        scheme, separator, host = origin.partition("://")
        if origin != "*" and (not separator or scheme not in ("http", "https") or not host or "/" in host):
            return f"{origin} is no origin; expected http://host, https://host:port, or * for all"
    return None


ROOM_SETTINGS = (
    Setting("kwire.rooms.enable", Kind.BOOLEAN, True, "Whether rooms are served."),
    Setting(
        "kwire.rooms.auto.create",
        Kind.BOOLEAN,
        True,
        "Create a missing room when somebody publishes to it or subscribes to it.",
    ),
    Setting(
        "kwire.rooms.retention.mode",
        Kind.STRING,
        "hybrid",
        "What bounds a new room's history: time (kwire.rooms.retention.hours), count (kwire.rooms.max.events), or "
        "hybrid, whichever comes first.",
        one_of(*RETENTION_MODES),
    ),
    Setting(
        "kwire.rooms.retention.hours",
        Kind.LONG,
        24,
        "Age at which events of a new room go.",
        between(1, _HOURS_MAX),
    ),
    Setting(
        "kwire.rooms.max.events",
        Kind.LONG,
        100_000,
        "Newest events that a new room keeps, to the event.",
        at_least(1),
    ),
    Setting("kwire.rooms.max", Kind.INT, 100_000, "Most rooms; one more is refused.", at_least(0)),
    Setting(
        "kwire.rooms.cleanup.interval.minutes",
        Kind.LONG,
        60,
        "Time between two looks for rooms that nobody uses.",
        between(1, _MINUTES_MAX),
    ),
    Setting(
        "kwire.rooms.inactive.timeout.hours",
        Kind.LONG,
        24,
        "A room without a subscriber, an event or a reader for so long, and that no group has committed offsets in or "
        "was made to read, is deleted; -1 keeps all rooms.",
        Rule(
            f"-1, or 1 to {_HOURS_MAX}",
            lambda value: None if value == -1 else between(1, _HOURS_MAX).problem(value),
        ),
    ),
    Setting("kwire.rooms.max.subscribers", Kind.INT, 10_000, "Most subscribers of one room at a time.", at_least(1)),
    Setting(
        "kwire.rooms.broadcast.timeout.ms",
        Kind.LONG,
        1000,
        "How long a live subscriber's connection may take nothing before its on_lag rule acts.",
        at_least(1),
    ),
    Setting(
        "kwire.rooms.queue.events",
        Kind.INT,
        10_000,
        "Events a live subscriber may be behind before its on_lag rule acts; it may ask for fewer.",
        at_least(2),
    ),
    Setting(
        "kwire.rooms.checkpoint.events",
        Kind.INT,
        1000,
        "Events after which a subscriber is told a place to resume from.",
        at_least(1),
    ),
    Setting(
        "kwire.rooms.checkpoint.ms",
        Kind.LONG,
        10_000,
        "Time after which a subscriber whose position has moved is told a place to resume from.",
        at_least(1),
    ),
    Setting(
        "kwire.rooms.log.sync",
        Kind.STRING,
        "os",
        "When an event of a new room counts as stored, as in kwire.log.sync: os, when the operating system has it; "
        "group, when it is on disk.",
        one_of("group", "os"),
    ),
    Setting(
        "kwire.rooms.tail.events",
        Kind.INT,
        100_000,
        "Most newest events of a room with subscribers that are kept decoded in memory; quiet rooms keep fewer.",
        at_least(1),
    ),
)

STREAM_SETTINGS = (
    Setting("kwire.streams.enable", Kind.BOOLEAN, True, "Whether partitioned topics are served over REST."),
    Setting(
        "kwire.streams.partitions",
        Kind.INT,
        3,
        "Partitions of a topic made by POST /topics/{name} that does not say how many.",
        between(1, 10_000),
    ),
    Setting(
        "kwire.streams.replication.factor",
        Kind.INT,
        1,
        "Copies of a topic made by POST /topics/{name} that does not say how many: one node keeps one.",
        Rule("1", _copies_problem),
    ),
    Setting(
        "kwire.streams.retention.type",
        Kind.STRING,
        "Combined",
        "What bounds a topic made by POST /topics/{name} without a retention policy: Time, Size, Messages, Combined "
        "(the tightest of the three), or Infinite.",
        one_of(*STREAM_RETENTIONS),
    ),
    Setting(
        "kwire.streams.retention.secs",
        Kind.LONG,
        3600,
        "Age at which records of such a topic go.",
        between(1, _SECONDS_MAX),
    ),
    Setting(
        "kwire.streams.retention.bytes",
        Kind.LONG,
        104_857_600,
        "Bytes of a partition of such a topic beyond which the oldest records go.",
        at_least(1),
    ),
    Setting(
        "kwire.streams.retention.messages",
        Kind.LONG,
        100_000,
        "Newest records that a partition of such a topic keeps.",
        at_least(1),
    ),
    Setting(
        "kwire.streams.segment.bytes",
        Kind.INT,
        104_857_600,
        "Segment size of a topic made by POST /topics/{name} that does not say one.",
        at_least(1_048_576),
    ),
)

REST_GROUP_SETTINGS = (
    Setting("kwire.rest.groups.enable", Kind.BOOLEAN, True, "Whether consumer groups are served over REST."),
    Setting(
        "kwire.rest.groups.strategy",
        Kind.STRING,
        "round_robin",
        "How a group made over REST shares partitions when it does not say so.",
        one_of(*STRATEGIES),
    ),
    Setting(
        "kwire.rest.groups.session.timeout.secs",
        Kind.INT,
        30,
        "A member that joined over REST and is silent for so long is out, when it does not say how long.",
        between(1, INT_MAX // 1000),
    ),
    Setting(
        "kwire.rest.groups.rebalance.timeout.secs",
        Kind.INT,
        60,
        "How long a member may take to give up partitions that are another's now.",
        between(1, INT_MAX // 1000),
    ),
    Setting(
        "kwire.rest.groups.auto.commit",
        Kind.BOOLEAN,
        True,
        "Whether the stream of a group member commits what it has delivered, when the request does not say so.",
    ),
    Setting(
        "kwire.rest.groups.auto.commit.interval.secs",
        Kind.INT,
        5,
        "Time between two such commits.",
        between(1, INT_MAX // 1000),
    ),
)

WEB_SETTINGS = (
    Setting(
        "kwire.http.origins",
        Kind.LIST,
        (),
        "Origins whose pages may use the HTTP port: http://host:port, …, or * for all. Pages served by the port itself "
        "always may.",
        Rule("origins, or *", _origins_problem),
    ),
    Setting(
        "kwire.http.max.body.bytes",
        Kind.INT,
        10_485_760,
        "Largest body of a request; a stream of lines is bounded line by line.",
        at_least(1024),
    ),
    Setting(
        "kwire.http.max.connections",
        Kind.INT,
        20_000,
        "Most HTTP connections at a time, WebSockets and streams included; one more is closed at once.",
        at_least(1),
    ),
    Setting(
        "kwire.http.memory.bytes",
        Kind.LONG,
        67_108_864,
        "Memory for all request bodies being received or handled and all large answers being sent on the HTTP port; at "
        "least twice kwire.http.max.body.bytes. Requests that need more wait, in order.",
        at_least(2048),
    ),
    Setting(
        "kwire.http.memory.wait.ms",
        Kind.LONG,
        5_000,
        "How long a request waits for kwire.http.memory.bytes before it is answered 503 with Retry-After.",
        at_least(0),
    ),
    Setting(
        "kwire.http.receive.timeout.ms",
        Kind.LONG,
        30_000,
        "Time over which kwire.http.receive.rate.min is measured; a body that brings less, and is not complete, is "
        "answered 408.",
        at_least(1),
    ),
    Setting(
        "kwire.http.receive.rate.min",
        Kind.LONG,
        16_384,
        "Bytes per second with which a request body has to arrive. While other requests wait for "
        "kwire.http.memory.bytes it is 256 KiB per second, measured over 2 seconds.",
        at_least(1),
    ),
    Setting(
        "kwire.websocket.max.message.bytes",
        Kind.INT,
        1_048_576,
        "Largest message that a WebSocket may send.",
        at_least(125),
    ),
    Setting(
        "kwire.websocket.ping.interval.ms",
        Kind.LONG,
        10_000,
        "Time between two pings of a WebSocket.",
        at_least(1),
    ),
    Setting(
        "kwire.websocket.idle.timeout.ms",
        Kind.LONG,
        30_000,
        "A WebSocket that sends nothing for so long, not even a pong, is closed.",
        at_least(1),
    ),
)
