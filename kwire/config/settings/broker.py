"""The table of all broker settings, from which DescribeConfigs responses and docs/configuration.md are derived.

Names and meanings are Kafka's. kwire's own settings start with ``kwire.``. If a default differs from Kafka's, the
documentation of the setting says so. Rows with ``has_effect=False`` have no effect. They are accepted, so that an
existing ``server.properties`` works, and DescribeConfigs shows them. Rows with ``is_dynamic`` can be changed while the
server runs.
"""

from kwire.config.setting import (
    INT_MAX,
    LONG_MAX,
    Kind,
    Rule,
    Setting,
    at_least,
    between,
    between_or,
    one_of,
)
from kwire.config.settings.access import ACCESS_SETTINGS, SECRETS_SETTINGS
from kwire.config.settings.audit import AUDIT_SETTINGS
from kwire.config.settings.events import EVENT_SETTINGS
from kwire.config.settings.groups import GROUP_PROTOCOL_SETTINGS
from kwire.config.settings.http_api import (
    METRICS_SETTINGS,
    REST_GROUP_SETTINGS,
    ROOM_SETTINGS,
    STREAM_SETTINGS,
    WEB_SETTINGS,
)
from kwire.config.settings.network import NETWORK_SETTINGS
from kwire.config.settings.quotas import QUOTA_SETTINGS
from kwire.config.settings.sasl import SASL_SETTINGS
from kwire.config.settings.start import START_SETTINGS
from kwire.config.settings.tls import TLS_SETTINGS
from kwire.config.settings.transactions import TRANSACTION_SETTINGS
from kwire.config.settings.webhooks import WEBHOOK_SETTINGS
from kwire.config.unused import UNUSED_SECTIONS

COMPRESSION_TYPES = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
# Kafka's default for the maximum size of one record. It is the length of the longest JVM array, so it limits nothing.
RECORD_BYTES_UNLIMITED = INT_MAX - 8


ONE_REPLICA = Rule("1", lambda value: None if value == 1 else "Value must be 1: a single node stores one replica")

_IDENTITY = (
    Setting("node.id", Kind.INT, 1, "Id of this node in the cluster.", at_least(0)),
    Setting(
        "broker.id", Kind.INT, None, "Older name of node.id. If both are set, node.id takes precedence.", at_least(0)
    ),
    Setting(
        "cluster.id",
        Kind.STRING,
        None,
        "Id of the cluster. If it is not set, one is generated at the first start and stored in the data directory.",
    ),
    Setting("broker.rack", Kind.STRING, None, "Rack of this node, for clients that prefer the closest replica."),
)

_TOPICS = (
    Setting("num.partitions", Kind.INT, 1, "Default number of partitions of a new topic.", at_least(1)),
    Setting(
        "default.replication.factor",
        Kind.INT,
        1,
        "Default replication factor of a new topic. A single node stores one replica.",
        ONE_REPLICA,
    ),
    Setting("auto.create.topics.enable", Kind.BOOLEAN, True, "Create a missing topic when a client requests it."),
    Setting("delete.topic.enable", Kind.BOOLEAN, True, "Whether topics may be deleted."),
    Setting(
        "max.request.partition.size.limit",
        Kind.INT,
        2000,
        "Maximum number of partitions in one DescribeTopicPartitions response. The client requests the rest with a "
        "cursor.",
        at_least(1),
    ),
)

_LOG = (
    Setting("log.dirs", Kind.LIST, ("./kwire-data",), "Data directories; the first one also holds the catalogue."),
    Setting("log.dir", Kind.LIST, None, "Older name of log.dirs. If both are set, log.dirs takes precedence."),
    Setting(
        "cordoned.log.dirs",
        Kind.LIST,
        (),
        "Data directories of log.dirs in which no new partitions are created; * means all of them.",
        is_dynamic=True,
        is_per_broker=True,
    ),
    Setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        Kind.LONG,
        LONG_MAX,
        "Maximum rate, in bytes per second, at which a partition is copied when it moves to another data directory.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting(
        "kwire.log.sync",
        Kind.STRING,
        "group",
        "When a record counts as stored: group, when a sync round (group commit) has synced it to disk; os, when it is "
        "written to the operating system's page cache (as in Kafka by default).",
        one_of("group", "os"),
        is_dynamic=True,
    ),
    Setting(
        "kwire.log.open.max",
        Kind.INT,
        2000,
        "Maximum number of partitions with open files and memory maps. The least recently used partitions are closed. "
        "The limit is lowered at the start if the process may not open 8 files per partition.",
        at_least(16),
    ),
    Setting(
        "kwire.log.reserve.bytes",
        Kind.LONG,
        4 * 1024 * 1024,
        "Disk space reserved in each data directory. On a full disk the reserve is released, so that old records and "
        "deleted topics can be removed; it is restored when there is space again. 0 disables it.",
        at_least(0),
    ),
    Setting("log.cleaner.enable", Kind.BOOLEAN, True, "Compact topics whose cleanup.policy includes compact."),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        Kind.DOUBLE,
        float(2**63),
        "Maximum number of bytes that compaction reads and writes per second.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        134217728,
        "Memory for the keys of one compaction run. Keys that do not fit are left to the next run.",
        at_least(1048576),
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15000,
        "Interval between checks for logs to compact.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting(
        "kwire.scrub.interval.ms",
        Kind.LONG,
        604800000,
        "Period in which every closed segment is read once and its checksums are verified; -1 disables the check.",
        at_least(-1),
    ),
    Setting(
        "kwire.scrub.max.bytes.per.second",
        Kind.LONG,
        16777216,
        "Maximum number of bytes that the checksum verification (kwire.scrub.interval.ms) reads per second.",
        at_least(65536),
    ),
    Setting(
        "log.retention.check.interval.ms",
        Kind.LONG,
        300000,
        "Interval between checks for records that exceed their retention.",
        at_least(1),
    ),
    Setting(
        "producer.id.expiration.ms",
        Kind.INT,
        86400000,
        "The state of an idempotent producer is removed after this time without a record from it.",
        at_least(1),
        is_dynamic=True,
    ),
)

# Broker-wide defaults of topic settings. kwire/config/resources/topic.py has the topic setting of each of them.
_TOPIC_DEFAULTS = (
    Setting("message.max.bytes", Kind.INT, 1048588, "Maximum size of a record batch.", at_least(0), is_dynamic=True),
    Setting(
        "max.decompressed.message.bytes",
        Kind.INT,
        RECORD_BYTES_UNLIMITED,
        "Maximum decompressed size of a single record in a compressed batch; checked when the batch is produced.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "min.insync.replicas",
        Kind.INT,
        1,
        "Minimum number of in-sync replicas that must have a record when acks=all. As in Kafka, it is limited to the "
        "number of replicas, which in kwire is one.",
        at_least(1),
        has_effect=False,
        is_dynamic=True,
    ),
    Setting(
        "compression.type",
        Kind.STRING,
        "producer",
        "Compression codec of stored batches: producer keeps the producer's codec; with any other value all batches "
        "are stored with that codec.",
        COMPRESSION_TYPES,
        is_dynamic=True,
    ),
    Setting(
        "compression.gzip.level",
        Kind.INT,
        -1,
        "Compression level if compression.type is gzip; -1 is the codec's default.",
        between_or(1, 9, -1),
        is_dynamic=True,
    ),
    Setting(
        "compression.lz4.level",
        Kind.INT,
        9,
        "Compression level if compression.type is lz4. As in Kafka, 9 selects the fast mode and every other level the "
        "slow mode.",
        between(1, 17),
        is_dynamic=True,
    ),
    Setting(
        "compression.zstd.level",
        Kind.INT,
        3,
        "Compression level if compression.type is zstd.",
        between(-131072, 22),
        is_dynamic=True,
    ),
    Setting(
        "log.cleanup.policy",
        Kind.LIST,
        ("delete",),
        "Cleanup policy for old records: delete, compact, both, or none (empty).",
        one_of("compact", "delete"),
        is_dynamic=True,
    ),
    Setting(
        "log.segment.bytes",
        Kind.INT,
        1073741824,
        "Size at which a segment is closed.",
        at_least(1048576),
        is_dynamic=True,
    ),
    Setting(
        "log.roll.ms",
        Kind.LONG,
        None,
        "Age at which a segment is closed; takes precedence over log.roll.hours.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting("log.roll.hours", Kind.INT, 168, "Age at which a segment is closed.", at_least(1)),
    Setting(
        "log.roll.jitter.ms",
        Kind.LONG,
        None,
        "Maximum random jitter that is subtracted from the roll time.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "log.roll.jitter.hours",
        Kind.INT,
        0,
        "Maximum random jitter that is subtracted from the roll time.",
        at_least(0),
    ),
    Setting(
        "log.index.interval.bytes",
        Kind.INT,
        4096,
        "Bytes of records between two index entries.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "log.index.size.max.bytes",
        Kind.INT,
        10485760,
        "Maximum size of an index file.",
        at_least(4),
        has_effect=False,
        is_dynamic=True,
    ),
    Setting(
        "log.retention.ms",
        Kind.LONG,
        None,
        "Age at which records are deleted; -1 keeps them forever. Takes precedence over log.retention.minutes and "
        "log.retention.hours.",
        is_dynamic=True,
    ),
    Setting(
        "log.retention.minutes",
        Kind.INT,
        None,
        "Age at which records are deleted; takes precedence over log.retention.hours.",
    ),
    Setting("log.retention.hours", Kind.INT, 168, "Age at which records are deleted; -1 keeps them forever."),
    Setting(
        "log.retention.bytes",
        Kind.LONG,
        -1,
        "Partition size above which the oldest segments are deleted; -1 means no limit.",
        is_dynamic=True,
    ),
    Setting(
        "log.message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Timestamp of a record: the producer's (CreateTime) or the broker's (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
        is_dynamic=True,
    ),
    Setting(
        "log.message.timestamp.before.max.ms",
        Kind.LONG,
        LONG_MAX,
        "How far a record's timestamp may be before the broker's clock.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "log.message.timestamp.after.max.ms",
        Kind.LONG,
        3600000,
        "How far a record's timestamp may be ahead of the broker's clock.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.delete.retention.ms",
        Kind.LONG,
        86400000,
        "How long a compacted topic keeps the tombstone of a deleted key.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.min.compaction.lag.ms",
        Kind.LONG,
        0,
        "Minimum age at which a record may be removed by compaction.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.max.compaction.lag.ms",
        Kind.LONG,
        LONG_MAX,
        "Maximum time that a record may remain uncompacted.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.min.cleanable.ratio",
        Kind.DOUBLE,
        0.5,
        "Minimum ratio of uncompacted bytes to all bytes of a log at which the log is compacted.",
        between(0, 1),
        is_dynamic=True,
    ),
    Setting(
        "log.segment.delete.delay.ms",
        Kind.LONG,
        60000,
        "Delay before the files of a removed segment are deleted.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "log.flush.interval.messages",
        Kind.LONG,
        LONG_MAX,
        "Number of records after which a log is synced to disk.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting("log.flush.interval.ms", Kind.LONG, None, "Time after which a log is synced to disk.", is_dynamic=True),
    Setting(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        LONG_MAX,
        "Interval between checks for logs to sync to disk.",
    ),
    Setting(
        "log.preallocate",
        Kind.BOOLEAN,
        False,
        "Preallocate the disk space of a segment.",
        has_effect=False,
        is_dynamic=True,
    ),
    Setting(
        "log.local.retention.ms",
        Kind.LONG,
        -2,
        "Age up to which records stay on local disk.",
        at_least(-2),
        has_effect=False,
        is_dynamic=True,
    ),
    Setting(
        "log.local.retention.bytes",
        Kind.LONG,
        -2,
        "Size up to which a partition stays on local disk.",
        at_least(-2),
        has_effect=False,
        is_dynamic=True,
    ),
    Setting(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "Let a replica that is not in sync become leader.",
        has_effect=False,
        is_dynamic=True,
    ),
)

_GROUPS = (
    Setting("offsets.topic.num.partitions", Kind.INT, 50, "Partitions of __consumer_offsets.", at_least(1)),
    Setting(
        "offsets.topic.segment.bytes", Kind.INT, 104857600, "Segment size of __consumer_offsets.", at_least(1048576)
    ),
    Setting(
        "offsets.topic.replication.factor",
        Kind.SHORT,
        1,
        "Replication factor of __consumer_offsets. A single node stores one replica; Kafka's default is 3.",
        ONE_REPLICA,
    ),
    Setting(
        "offset.metadata.max.bytes", Kind.INT, 4096, "Maximum size of the metadata of a committed offset.", at_least(0)
    ),
    Setting(
        "offsets.retention.minutes",
        Kind.INT,
        10080,
        "How long unused offsets are kept: after the last member has left the group, or after the last commit.",
        at_least(1),
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        600000,
        "Interval between checks for expired offsets, and for groups that have neither members nor offsets.",
        at_least(1),
    ),
    Setting(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        0,
        "How long the first member of an empty group waits for others. Kafka's default is 3000; kwire uses 0, as "
        "Kafka's sample file does.",
        at_least(0),
    ),
    Setting(
        "group.min.session.timeout.ms",
        Kind.INT,
        6000,
        "Minimum session timeout that a member may request.",
        at_least(0),
    ),
    Setting(
        "group.max.session.timeout.ms",
        Kind.INT,
        1800000,
        "Maximum session timeout that a member may request.",
        at_least(0),
    ),
    Setting("group.max.size", Kind.INT, INT_MAX, "Maximum number of members of a group.", at_least(1)),
)

_KWIRE = (
    Setting(
        "kwire.http.listener",
        Kind.STRING,
        "127.0.0.1:8082",
        "Address of the HTTP port, host:port. If it is empty, there is no HTTP port. Port 0 lets the operating system "
        "choose a port.",
    ),
    Setting(
        "kwire.allow.unauthenticated",
        Kind.BOOLEAN,
        False,
        "Allow unauthenticated connections from other machines. Required to listen on any address but loopback.",
    ),
    Setting(
        "kwire.connection.inflight.max",
        Kind.INT,
        128,
        "Maximum number of unanswered requests of one connection. At the limit the server stops reading from it.",
        at_least(1),
    ),
    Setting(
        "kwire.send.timeout.ms",
        Kind.LONG,
        30000,
        "A connection is closed if its client does not accept a response for this time.",
        at_least(1),
    ),
    Setting(
        "kwire.receive.rate.min",
        Kind.INT,
        32768,
        "Minimum rate, in bytes per second, at which a request must arrive while the memory for requests "
        "(queued.max.request.bytes) is exhausted. Slower requests are dropped first and their connections closed. 0 "
        "disables this.",
        at_least(0),
    ),
    Setting(
        "kwire.receive.window.ms",
        Kind.LONG,
        2000,
        "Time over which kwire.receive.rate.min is measured.",
        at_least(1),
    ),
    Setting(
        "kwire.shutdown.drain.ms",
        Kind.LONG,
        10000,
        "How long a stopping server waits for requests in flight.",
        at_least(0),
    ),
)

SECTIONS: dict[str, tuple[Setting, ...]] = {
    "Identity": _IDENTITY,
    "Network": NETWORK_SETTINGS,
    "Quotas": QUOTA_SETTINGS,
    "Topics": _TOPICS,
    "Log": _LOG + START_SETTINGS,
    "Defaults of topic settings": _TOPIC_DEFAULTS,
    "Groups": _GROUPS,
    "Groups of the newer protocols": GROUP_PROTOCOL_SETTINGS,
    "Rooms": ROOM_SETTINGS,
    "Partitioned topics over REST": STREAM_SETTINGS,
    "Consumer groups over REST": REST_GROUP_SETTINGS,
    "Transactions": TRANSACTION_SETTINGS,
    "Event store": EVENT_SETTINGS,
    "Webhooks": WEBHOOK_SETTINGS,
    "HTTP and WebSocket": WEB_SETTINGS,
    "Metrics": METRICS_SETTINGS,
    "Authorization": ACCESS_SETTINGS,
    "Stored secrets": SECRETS_SETTINGS,
    "Authentication with SASL": SASL_SETTINGS,
    "TLS": TLS_SETTINGS,
    "Audit": AUDIT_SETTINGS,
    "kwire's own": _KWIRE,
    **UNUSED_SECTIONS,
}

SETTINGS: dict[str, Setting] = {setting.name: setting for section in SECTIONS.values() for setting in section}
# The current name of each former name.
FORMER_NAMES = {setting.former_name: name for name, setting in SETTINGS.items() if setting.former_name}
