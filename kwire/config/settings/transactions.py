"""Broker settings of transactions."""

from kwire.config.setting import Kind, Setting, at_least

TRANSACTION_SETTINGS = (
    Setting("transaction.state.log.num.partitions", Kind.INT, 50, "Partitions of __transaction_state.", at_least(1)),
    Setting(
        "transaction.state.log.segment.bytes",
        Kind.INT,
        104857600,
        "Segment size of __transaction_state.",
        at_least(1048576),
    ),
    Setting(
        "transaction.max.timeout.ms",
        Kind.INT,
        900000,
        "Maximum transaction timeout that a producer may request. A transaction that is open for longer than its "
        "timeout is aborted.",
        at_least(1),
    ),
    Setting(
        "transaction.partition.verification.enable",
        Kind.BOOLEAN,
        True,
        "Whether the broker asks the transaction coordinator to verify a transaction before it stores the "
        "transaction's first batch in a partition. Without verification, producers that use the first version of the "
        "transaction protocol can leave hanging transactions.",
        is_dynamic=True,
    ),
    Setting(
        "transactional.id.expiration.ms",
        Kind.INT,
        604800000,
        "A transactional id expires after this time without use.",
        at_least(1),
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        10000,
        "Interval between checks for transactions that have exceeded their timeout.",
        at_least(1),
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        3600000,
        "Interval between checks for expired transactional ids.",
        at_least(1),
    ),
)
