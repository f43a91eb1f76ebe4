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
        "Longest time that a producer may ask for: a transaction that is open for longer is aborted.",
        at_least(1),
    ),
    Setting(
        "transaction.partition.verification.enable",
        Kind.BOOLEAN,
        True,
        "Whether the coordinator is asked before the first batch of a transaction is stored in a partition. Without it "
        "producers of the first generation can leave transactions behind that nobody ends.",
        is_dynamic=True,
    ),
    Setting(
        "transactional.id.expiration.ms",
        Kind.INT,
        604800000,
        "A transactional id that was not used for so long is forgotten.",
        at_least(1),
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        10000,
        "Time between two looks for transactions that have been open for too long.",
        at_least(1),
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        3600000,
        "Time between two looks for transactional ids that have expired.",
        at_least(1),
    ),
)
