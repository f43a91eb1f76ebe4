"""The table of broker settings: each one declared once, everything else (tree, answers, docs) is derived.

Names and meanings are Kafka's; what is ours alone starts with ``kwire.``. Where a default differs from Kafka's the
sentence says so. Rows marked ``has_effect=False`` are accepted, so that an existing ``server.properties`` works, and
shown by DescribeConfigs, but change nothing here. Rows marked ``is_dynamic`` can be changed while the server runs.
"""

from kwire.config.event_settings import EVENT_SETTINGS
from kwire.config.group_settings import GROUP_PROTOCOL_SETTINGS
from kwire.config.network_settings import NETWORK_SETTINGS
from kwire.config.rooms_settings import REST_GROUP_SETTINGS, ROOM_SETTINGS, STREAM_SETTINGS, WEB_SETTINGS
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
from kwire.config.start_settings import START_SETTINGS
from kwire.config.transaction_settings import TRANSACTION_SETTINGS
from kwire.config.unused import UNUSED_SECTIONS
from kwire.config.webhook_settings import WEBHOOK_SETTINGS

COMPRESSION_TYPES = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
# Kafka's default for one record's bytes: the longest array of the Java machine, so it bounds nothing.
ANY_RECORD_BYTES = INT_MAX - 8


ONE_COPY = Rule("1", lambda value: None if value == 1 else "Value must be 1: one node keeps one copy")

_IDENTITY = (
    Setting("node.id", Kind.INT, 1, "Number of this node in the cluster.", at_least(0)),
    Setting("broker.id", Kind.INT, None, "Older name of node.id; node.id wins when both are set.", at_least(0)),
    Setting(
        "cluster.id",
        Kind.STRING,
        None,
        "Name of the cluster. Left out, one is made at the first start and kept in the data directory.",
    ),
    Setting("broker.rack", Kind.STRING, None, "Where this node stands, told to clients that prefer near replicas."),
)

_TOPICS = (
    Setting("num.partitions", Kind.INT, 1, "Partitions of a topic that does not say how many.", at_least(1)),
    Setting(
        "default.replication.factor",
        Kind.INT,
        1,
        "Copies of a topic that does not say how many: one node keeps one.",
        ONE_COPY,
    ),
    Setting("auto.create.topics.enable", Kind.BOOLEAN, True, "Create a missing topic when a client asks for it."),
    Setting("delete.topic.enable", Kind.BOOLEAN, True, "Whether topics may be deleted."),
    Setting(
        "max.request.partition.size.limit",
        Kind.INT,
        2000,
        "Most partitions in one answer to DescribeTopicPartitions; the rest is asked for with a cursor.",
        at_least(1),
    ),
)

_LOG = (
    Setting("log.dirs", Kind.LIST, ("./kwire-data",), "Data directories; the first one also holds the catalogue."),
    Setting("log.dir", Kind.LIST, None, "Older name of log.dirs; log.dirs wins when both are set."),
    Setting(
        "cordoned.log.dirs",
        Kind.LIST,
        (),
        "Data directories, out of log.dirs, that get no new partitions; * is all of them.",
        is_dynamic=True,
        is_per_broker=True,
    ),
    Setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        Kind.LONG,
        LONG_MAX,
        "Most bytes per second that one partition is copied with when it moves to another data directory.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting(
        "kwire.log.sync",
        Kind.STRING,
        "group",
        "When a record counts as stored: group, when a sync round has put it on disk; os, when the operating system "
        "has it (as Kafka does by default).",
        one_of("group", "os"),
        is_dynamic=True,
    ),
    Setting(
        "kwire.log.open.max",
        Kind.INT,
        2000,
        "Partitions that hold files and maps open at once; the least recently used give theirs back. Lowered at the "
        "start if the process may not open 8 files for each.",
        at_least(16),
    ),
    Setting(
        "kwire.log.reserve.bytes",
        Kind.LONG,
        4 * 1024 * 1024,
        "Disk space reserved in each data directory; on a full disk it is given up so that old records and deleted "
        "topics can go, and taken again when there is space. 0: none.",
        at_least(0),
    ),
    Setting("log.cleaner.enable", Kind.BOOLEAN, True, "Compact topics whose cleanup.policy asks for it."),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        Kind.DOUBLE,
        float(2**63),
        "Most bytes that compaction reads and writes per second.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        134217728,
        "Memory for the keys of one compaction; what does not fit waits for the next one.",
        at_least(1048576),
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15000,
        "Time between two looks for something to compact.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting(
        "kwire.scrub.interval.ms",
        Kind.LONG,
        604800000,
        "Time in which every closed segment is read once and its checksums are checked; -1 never.",
        at_least(-1),
    ),
    Setting(
        "kwire.scrub.max.bytes.per.second",
        Kind.LONG,
        16777216,
        "Most bytes that the check reads per second.",
        at_least(65536),
    ),
    Setting(
        "log.retention.check.interval.ms",
        Kind.LONG,
        300000,
        "Time between two looks for old data.",
        at_least(1),
    ),
    Setting(
        "producer.id.expiration.ms",
        Kind.INT,
        86400000,
        "An idempotent producer silent for so long is forgotten.",
        at_least(1),
        is_dynamic=True,
    ),
)

# Defaults of topic settings; kwire/topic_config.py says which topic setting each stands behind.
_TOPIC_DEFAULTS = (
    Setting(
        "message.max.bytes", Kind.INT, 1048588, "Largest record batch that is accepted.", at_least(0), is_dynamic=True
    ),
    Setting(
        "max.decompressed.message.bytes",
        Kind.INT,
        ANY_RECORD_BYTES,
        "Largest single record of a compressed batch, decompressed; judged when it is produced.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "min.insync.replicas",
        Kind.INT,
        1,
        "Copies that must have a record when acks=all, but, as in Kafka, no more than there are; here it is one.",
        at_least(1),
        has_effect=False,
        is_dynamic=True,
    ),
    Setting(
        "compression.type",
        Kind.STRING,
        "producer",
        "Codec of stored batches: producer keeps what the producer chose, any other is what all of them get.",
        COMPRESSION_TYPES,
        is_dynamic=True,
    ),
    Setting(
        "compression.gzip.level",
        Kind.INT,
        -1,
        "Level where compression.type is gzip; -1 is the codec's own.",
        between_or(1, 9, -1),
        is_dynamic=True,
    ),
    Setting(
        "compression.lz4.level",
        Kind.INT,
        9,
        "Level where compression.type is lz4. As in Kafka, 9 is the fast mode and all others are the slow one.",
        between(1, 17),
        is_dynamic=True,
    ),
    Setting(
        "compression.zstd.level",
        Kind.INT,
        3,
        "Level where compression.type is zstd.",
        between(-131072, 22),
        is_dynamic=True,
    ),
    Setting(
        "log.cleanup.policy",
        Kind.LIST,
        ("delete",),
        "What happens to old records: delete, compact, both, or none of them.",
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
        "Age at which a segment is closed; wins over log.roll.hours.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting("log.roll.hours", Kind.INT, 168, "Age at which a segment is closed.", at_least(1)),
    Setting(
        "log.roll.jitter.ms",
        Kind.LONG,
        None,
        "Most that is taken off the roll time at random.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "log.roll.jitter.hours",
        Kind.INT,
        0,
        "Most that is taken off the roll time at random.",
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
        "Largest index file.",
        at_least(4),
        has_effect=False,
        is_dynamic=True,
    ),
    Setting(
        "log.retention.ms",
        Kind.LONG,
        None,
        "Age at which records go; -1 never. Wins over minutes and hours.",
        is_dynamic=True,
    ),
    Setting(
        "log.retention.minutes",
        Kind.INT,
        None,
        "Age at which records go; wins over log.retention.hours.",
    ),
    Setting("log.retention.hours", Kind.INT, 168, "Age at which records go; -1 never."),
    Setting(
        "log.retention.bytes",
        Kind.LONG,
        -1,
        "Size of a partition beyond which the oldest records go; -1 none.",
        is_dynamic=True,
    ),
    Setting(
        "log.message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Whose time a record carries: the producer's (CreateTime) or the broker's (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
        is_dynamic=True,
    ),
    Setting(
        "log.message.timestamp.before.max.ms",
        Kind.LONG,
        LONG_MAX,
        "How far a record's time may lie behind the broker's clock.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "log.message.timestamp.after.max.ms",
        Kind.LONG,
        3600000,
        "How far a record's time may lie ahead of the broker's clock.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.delete.retention.ms",
        Kind.LONG,
        86400000,
        "How long a compacted topic keeps the mark of a deleted key.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.min.compaction.lag.ms",
        Kind.LONG,
        0,
        "Least age at which a record may be compacted away.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.max.compaction.lag.ms",
        Kind.LONG,
        LONG_MAX,
        "Age at which a record must be considered for compaction.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting(
        "log.cleaner.min.cleanable.ratio",
        Kind.DOUBLE,
        0.5,
        "Share of uncompacted bytes from which compaction is worth its cost.",
        between(0, 1),
        is_dynamic=True,
    ),
    Setting("log.segment.delete.delay.ms", Kind.LONG, 60000, "Delay before files go.", at_least(0), is_dynamic=True),
    Setting(
        "log.flush.interval.messages",
        Kind.LONG,
        LONG_MAX,
        "Records after which the log is forced to disk.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting("log.flush.interval.ms", Kind.LONG, None, "Time after which the log is forced to disk.", is_dynamic=True),
    Setting(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        LONG_MAX,
        "Time between two looks for logs to force to disk.",
    ),
    Setting(
        "log.preallocate",
        Kind.BOOLEAN,
        False,
        "Reserve a segment's space in advance.",
        has_effect=False,
        is_dynamic=True,
    ),
    Setting(
        "log.local.retention.ms",
        Kind.LONG,
        -2,
        "Age kept on local disk.",
        at_least(-2),
        has_effect=False,
        is_dynamic=True,
    ),
    Setting(
        "log.local.retention.bytes",
        Kind.LONG,
        -2,
        "Size kept on local disk.",
        at_least(-2),
        has_effect=False,
        is_dynamic=True,
    ),
    Setting(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "Let a replica that is behind become leader.",
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
        "Copies of __consumer_offsets: one node keeps one. Kafka's default is 3.",
        ONE_COPY,
    ),
    Setting("offset.metadata.max.bytes", Kind.INT, 4096, "Largest note beside a committed offset.", at_least(0)),
    Setting(
        "offsets.retention.minutes",
        Kind.INT,
        10080,
        "How long offsets are kept that nobody uses: after the last member has left, or the last commit.",
        at_least(1),
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        600000,
        "How often offsets are looked for whose time is over, and groups without members and offsets.",
        at_least(1),
    ),
    Setting(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        0,
        "How long the first member of an empty group waits for others. Kafka's default is 3000; its sample file says "
        "0, and so does kwire.",
        at_least(0),
    ),
    Setting("group.min.session.timeout.ms", Kind.INT, 6000, "Shortest session a member may ask for.", at_least(0)),
    Setting("group.max.session.timeout.ms", Kind.INT, 1800000, "Longest session a member may ask for.", at_least(0)),
    Setting("group.max.size", Kind.INT, INT_MAX, "Most members of a group.", at_least(1)),
)

_KWIRE = (
    Setting(
        "kwire.http.listener",
        Kind.STRING,
        "127.0.0.1:8082",
        "Address of the HTTP port, host:port; empty for none. Port 0 lets the machine choose.",
    ),
    Setting(
        "kwire.allow.unauthenticated",
        Kind.BOOLEAN,
        False,
        "Let others than this machine connect without proving who they are. Needed to listen on anything but loopback.",
    ),
    Setting(
        "kwire.connection.inflight.max",
        Kind.INT,
        128,
        "Requests of one connection that may wait for their answer; beyond it reading pauses.",
        at_least(1),
    ),
    Setting(
        "kwire.send.timeout.ms",
        Kind.LONG,
        30000,
        "A connection that does not take an answer for so long is closed.",
        at_least(1),
    ),
    Setting(
        "kwire.receive.rate.min",
        Kind.INT,
        32768,
        "Bytes a second with which a request has to arrive while the memory for requests (queued.max.request.bytes) is "
        "used up; slower ones are given up first, and their connections closed. 0 gives none up.",
        at_least(0),
    ),
    Setting(
        "kwire.receive.window.ms",
        Kind.LONG,
        2000,
        "The time over which kwire.receive.rate.min is measured.",
        at_least(1),
    ),
    Setting(
        "kwire.shutdown.drain.ms",
        Kind.LONG,
        10000,
        "How long a stopping server lets requests in flight finish.",
        at_least(0),
    ),
)

SECTIONS: dict[str, tuple[Setting, ...]] = {
    "Identity": _IDENTITY,
    "Network": NETWORK_SETTINGS,
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
    "kwire's own": _KWIRE,
    **UNUSED_SECTIONS,
}

SETTINGS: dict[str, Setting] = {setting.name: setting for section in SECTIONS.values() for setting in section}
