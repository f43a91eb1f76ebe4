"""Settings of replicas, leaders and the broker's membership in a cluster. They have no effect on a single node."""

from kwire.config.setting import LONG_MAX, Kind, at_least, one_of
from kwire.config.unused.row import CLUSTER_WIDE, unused

REPLICATION_SETTINGS = (
    unused(
        "alter.log.dirs.replication.quota.window.num",
        Kind.INT,
        11,
        "Samples kept for the quota of moves between data directories.",
        at_least(1),
    ),
    unused(
        "alter.log.dirs.replication.quota.window.size.seconds",
        Kind.INT,
        1,
        "Length of a sample for the quota of moves between data directories.",
        at_least(1),
    ),
    unused(
        "auto.leader.rebalance.enable",
        Kind.BOOLEAN,
        True,
        "Give leadership back to preferred replicas in the background.",
    ),
    unused(
        "broker.heartbeat.interval.ms", Kind.INT, 2000, "Interval between heartbeats of a broker to the controller."
    ),
    unused("broker.session.timeout.ms", Kind.INT, 9000, "Silence after which the controller considers a broker dead."),
    unused("controlled.shutdown.enable", Kind.BOOLEAN, True, "Hand over leadership before a broker stops."),
    unused(
        "controller.socket.timeout.ms", Kind.INT, 30000, "Socket timeout of requests between controller and brokers."
    ),
    unused(
        "follower.replication.throttled.rate",
        Kind.LONG,
        LONG_MAX,
        "Maximum number of bytes per second that throttled replicas copy from leaders.",
        at_least(0),
        CLUSTER_WIDE,
    ),
    unused(
        "initial.broker.registration.timeout.ms",
        Kind.INT,
        60000,
        "Time in which a starting broker has to register with the controller.",
    ),
    unused("inter.broker.listener.name", Kind.STRING, None, "Listener that brokers use among themselves."),
    unused(
        "leader.imbalance.check.interval.seconds",
        Kind.LONG,
        300,
        "Interval between checks for leaders that are not the preferred ones.",
        at_least(1),
    ),
    unused(
        "leader.replication.throttled.rate",
        Kind.LONG,
        LONG_MAX,
        "Maximum number of bytes per second that throttled replicas send to followers.",
        at_least(0),
        CLUSTER_WIDE,
    ),
    unused(
        "log.dir.failure.timeout.ms",
        Kind.LONG,
        30000,
        "Time in which a broker has to report a failed data directory before it stops.",
        at_least(1),
    ),
    unused(
        "num.replica.alter.log.dirs.threads", Kind.INT, None, "Threads that move replicas between data directories."
    ),
    unused("num.replica.fetchers", Kind.INT, 1, "Threads that copy from each leader.", at_least(1), CLUSTER_WIDE),
    unused("replica.fetch.backoff.ms", Kind.INT, 1000, "Pause after a failed fetch of a follower.", at_least(0)),
    unused("replica.fetch.max.bytes", Kind.INT, 1048576, "Bytes that a follower fetches per partition.", at_least(0)),
    unused("replica.fetch.min.bytes", Kind.INT, 1, "Minimum number of bytes in a response to a follower."),
    unused(
        "replica.fetch.response.max.bytes",
        Kind.INT,
        10485760,
        "Maximum number of bytes in a response to a follower.",
        at_least(0),
    ),
    unused("replica.fetch.wait.max.ms", Kind.INT, 500, "Longest wait of a follower's fetch."),
    unused(
        "replica.high.watermark.checkpoint.interval.ms",
        Kind.LONG,
        5000,
        "Interval between writes of the high watermarks to disk.",
    ),
    unused("replica.lag.time.max.ms", Kind.LONG, 30000, "Time after which a follower that lags is no longer in sync."),
    unused("replica.selector.class", Kind.STRING, None, "Class that selects the replica a consumer reads from."),
    unused("replica.socket.receive.buffer.bytes", Kind.INT, 65536, "Receive buffer of a follower's connection."),
    unused("replica.socket.timeout.ms", Kind.INT, 30000, "Socket timeout of a follower's connection."),
    unused("replication.quota.window.num", Kind.INT, 11, "Samples kept for replication quotas.", at_least(1)),
    unused(
        "replication.quota.window.size.seconds", Kind.INT, 1, "Length of a sample for replication quotas.", at_least(1)
    ),
    unused("request.timeout.ms", Kind.INT, 30000, "Longest wait for a response from another broker or the controller."),
    unused(
        "security.inter.broker.protocol",
        Kind.STRING,
        "PLAINTEXT",
        "Security protocol between brokers.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    unused(
        "socket.connection.setup.timeout.max.ms",
        Kind.LONG,
        30000,
        "Longest time for an attempt to connect to another broker.",
    ),
    unused(
        "socket.connection.setup.timeout.ms",
        Kind.LONG,
        10000,
        "Time for the first attempt to connect to another broker.",
    ),
)
