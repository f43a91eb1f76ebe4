"""The configuration section of the transaction coordinator."""

from typing import NamedTuple

from kwire.config.values import Values


class TransactionsConfig(NamedTuple):
    """Settings of transactions and of the topic that stores their state."""

    partition_count: int
    segment_bytes: int
    timeout_ms_max: int
    id_expiration_ms: int
    abort_interval_ms: int
    expire_interval_ms: int
    is_verified: bool


def transactions_config(values: Values) -> TransactionsConfig:
    return TransactionsConfig(
        partition_count=values.number("transaction.state.log.num.partitions"),
        segment_bytes=values.number("transaction.state.log.segment.bytes"),
        timeout_ms_max=values.number("transaction.max.timeout.ms"),
        id_expiration_ms=values.number("transactional.id.expiration.ms"),
        abort_interval_ms=values.number("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        expire_interval_ms=values.number("transaction.remove.expired.transaction.cleanup.interval.ms"),
        is_verified=values.flag("transaction.partition.verification.enable"),
    )
