"""Settings of the KRaft quorum and its metadata log. They have no effect: kwire stores its catalogue in one file."""

from kwire.config.setting import Kind, at_least, one_of
from kwire.config.unused.row import unused

QUORUM_SETTINGS = (
    unused(
        "controller.quorum.append.linger.ms",
        Kind.INT,
        25,
        "Time for which the leader of the quorum collects records before it writes them.",
        at_least(0),
    ),
    unused("controller.quorum.auto.join.enable", Kind.BOOLEAN, False, "Let a controller join the quorum by itself."),
    unused("controller.quorum.bootstrap.servers", Kind.LIST, (), "Addresses to find the quorum."),
    unused(
        "controller.quorum.election.backoff.max.ms", Kind.INT, 1000, "Longest pause between two elections.", at_least(0)
    ),
    unused(
        "controller.quorum.election.timeout.ms",
        Kind.INT,
        1000,
        "Longest wait for the outcome of an election.",
        at_least(0),
    ),
    unused(
        "controller.quorum.fetch.max.bytes",
        Kind.INT,
        1048576,
        "Maximum number of bytes in one fetch of the metadata log.",
        at_least(1),
    ),
    unused(
        "controller.quorum.fetch.snapshot.max.bytes",
        Kind.INT,
        1048576,
        "Maximum number of bytes in one fetch of a snapshot.",
        at_least(1),
    ),
    unused(
        "controller.quorum.fetch.timeout.ms",
        Kind.INT,
        2000,
        "Time without a fetch after which a new election begins.",
        at_least(0),
    ),
    unused(
        "controller.quorum.request.timeout.ms",
        Kind.INT,
        2000,
        "Longest wait for a response of the quorum.",
        at_least(0),
    ),
    unused(
        "controller.quorum.retry.backoff.ms",
        Kind.INT,
        20,
        "Pause before a request to the quorum is repeated.",
        at_least(0),
    ),
    unused("controller.quorum.voters", Kind.LIST, (), "Members of the quorum."),
    unused("early.start.listeners", Kind.LIST, None, "Listeners that open before the broker is ready."),
    unused("metadata.log.dir", Kind.STRING, None, "Directory of the metadata log."),
    unused(
        "metadata.log.max.record.bytes.between.snapshots",
        Kind.LONG,
        20971520,
        "Bytes of records after which a snapshot is written.",
        at_least(1),
    ),
    unused(
        "metadata.log.max.snapshot.interval.ms", Kind.LONG, 3600000, "Longest time between two snapshots.", at_least(0)
    ),
    unused(
        "metadata.log.segment.bytes",
        Kind.INT,
        1073741824,
        "Size at which a segment of the metadata log is closed.",
        at_least(8388608),
    ),
    unused("metadata.log.segment.ms", Kind.LONG, 604800000, "Age at which a segment of the metadata log is closed."),
    unused(
        "metadata.max.idle.interval.ms",
        Kind.INT,
        500,
        "Interval between empty records of an idle controller.",
        at_least(0),
    ),
    unused(
        "metadata.max.retention.bytes",
        Kind.LONG,
        104857600,
        "Size above which old metadata snapshots and segments are deleted.",
    ),
    unused(
        "metadata.max.retention.ms",
        Kind.LONG,
        604800000,
        "Age at which old metadata snapshots and segments are deleted.",
    ),
    unused("process.roles", Kind.LIST, None, "Roles of a KRaft node.", one_of("broker", "controller")),
)
