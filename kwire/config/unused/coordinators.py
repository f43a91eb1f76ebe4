"""Settings of the threads and buffers of Kafka's coordinators, and of share groups.

They have no effect, because kwire runs its coordinators on one event loop and has no share groups yet.
"""

from kwire.config.setting import Kind, at_least, between, one_of
from kwire.config.unused.row import CLUSTER_WIDE, unused

COORDINATORS_SETTINGS = (
    unused(
        "add.partitions.to.txn.retry.backoff.max.ms",
        Kind.INT,
        100,
        "Longest pause before the verification of a transaction is repeated.",
        at_least(0),
    ),
    unused(
        "add.partitions.to.txn.retry.backoff.ms",
        Kind.INT,
        20,
        "First pause before the verification of a transaction is repeated.",
        at_least(1),
    ),
    unused(
        "group.coordinator.append.linger.ms",
        Kind.INT,
        -1,
        "Time for which the group coordinator collects writes; -1 adapts it to the load.",
        at_least(-1),
    ),
    unused(
        "group.coordinator.background.threads",
        Kind.INT,
        2,
        "Threads for slow work of the group coordinator.",
        at_least(1),
    ),
    unused(
        "group.coordinator.cached.buffer.max.bytes",
        Kind.INT,
        1048588,
        "Largest write buffer that the group coordinator keeps.",
        at_least(524288),
        CLUSTER_WIDE,
    ),
    unused(
        "group.coordinator.rebalance.protocols",
        Kind.LIST,
        (
            "classic",
            "consumer",
            "streams",
        ),
        "Group protocols that are served.",
        one_of("consumer", "classic", "share", "streams"),
    ),
    unused("group.coordinator.threads", Kind.INT, 4, "Threads of the group coordinator.", at_least(1)),
    unused("group.share.assignors", Kind.LIST, ("simple",), "Assignors of share groups."),
    unused(
        "group.share.max.share.sessions", Kind.INT, 2000, "Maximum number of share sessions of a broker.", at_least(1)
    ),
    unused(
        "offsets.commit.timeout.ms",
        Kind.INT,
        5000,
        "Longest wait until all replicas have an offset commit.",
        at_least(1),
    ),
    unused("offsets.load.buffer.size", Kind.INT, 5242880, "Bytes read at a time when offsets are loaded.", at_least(1)),
    unused("offsets.topic.compression.codec", Kind.INT, 0, "Codec of __consumer_offsets."),
    unused(
        "share.coordinator.append.linger.ms",
        Kind.INT,
        -1,
        "Time for which the share coordinator collects writes; -1 adapts it to the load.",
        at_least(-1),
    ),
    unused(
        "share.coordinator.cached.buffer.max.bytes",
        Kind.INT,
        1048588,
        "Largest write buffer that the share coordinator keeps.",
        at_least(524288),
        CLUSTER_WIDE,
    ),
    unused(
        "share.coordinator.load.buffer.size",
        Kind.INT,
        5242880,
        "Bytes read at a time when share group state is loaded.",
        at_least(1),
    ),
    unused(
        "share.coordinator.snapshot.update.records.per.snapshot",
        Kind.INT,
        500,
        "Updates between two snapshots of share group state.",
        between(0, 500),
    ),
    unused("share.coordinator.state.topic.compression.codec", Kind.INT, 0, "Codec of __share_group_state."),
    unused(
        "share.coordinator.state.topic.min.isr",
        Kind.SHORT,
        1,
        "Minimum number of in-sync replicas for a write to __share_group_state.",
        at_least(1),
    ),
    unused(
        "share.coordinator.state.topic.num.partitions", Kind.INT, 50, "Partitions of __share_group_state.", at_least(1)
    ),
    unused(
        "share.coordinator.state.topic.replication.factor",
        Kind.SHORT,
        1,
        "Replication factor of __share_group_state.",
        at_least(1),
    ),
    unused(
        "share.coordinator.state.topic.segment.bytes",
        Kind.INT,
        104857600,
        "Segment size of __share_group_state.",
        at_least(1),
    ),
    unused("share.coordinator.threads", Kind.INT, 1, "Threads of the share coordinator.", at_least(1)),
    unused(
        "share.coordinator.write.timeout.ms",
        Kind.INT,
        5000,
        "Longest wait until all replicas have a write of the share coordinator.",
        at_least(1),
    ),
    unused(
        "transaction.state.log.load.buffer.size",
        Kind.INT,
        5242880,
        "Bytes read at a time when transactions are loaded.",
        at_least(1),
    ),
    unused(
        "transaction.state.log.min.isr",
        Kind.INT,
        1,
        "Minimum number of in-sync replicas for a write to __transaction_state.",
        at_least(1),
    ),
    unused(
        "transaction.state.log.replication.factor",
        Kind.SHORT,
        1,
        "Replication factor of __transaction_state.",
        at_least(1),
    ),
    unused(
        "transaction.two.phase.commit.enable",
        Kind.BOOLEAN,
        False,
        "Let transactional ids take part in two-phase commits.",
    ),
)
