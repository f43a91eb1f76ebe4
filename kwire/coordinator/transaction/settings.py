"""The settings of the transaction coordinator, with Kafka's defaults."""

from typing import Self

from msgspec import Struct

from kwire.config.transactions import TransactionsConfig


class TransactionSettings(Struct, frozen=True, kw_only=True):
    # transactional.id.expiration.ms, and the time between two scans that remove expired ids.
    transactional_id_expiration_ms: int = 604_800_000
    remove_expired_interval_ms: int = 3_600_000
    # transaction.max.timeout.ms: limits the time for which a producer can delay consumers that read only committed
    # records.
    max_timeout_ms: int = 900_000
    # transaction.abort.timed.out.transaction.cleanup.interval.ms
    abort_timed_out_interval_ms: int = 10_000
    # transaction.state.log.num.partitions
    state_log_num_partitions: int = 50
    # Kafka does not have this setting. A command that is received while the markers of the previous transaction are
    # being written waits for up to this time. After this time, the command is answered with CONCURRENT_TRANSACTIONS.
    # The wait is usually much shorter than the 20 to 100 ms after which a client would retry.
    completion_wait_ms: int = 100

    @classmethod
    def of(cls, config: TransactionsConfig, stored_partition_count: int | None) -> Self:
        """Return the configured settings.

        The partition of a transactional id is its hash modulo the partition count. The existing topic's count applies,
        even if another count is configured.
        """
        return cls(
            transactional_id_expiration_ms=config.id_expiration_ms,
            remove_expired_interval_ms=config.expire_interval_ms,
            max_timeout_ms=config.timeout_ms_max,
            abort_timed_out_interval_ms=config.abort_interval_ms,
            state_log_num_partitions=stored_partition_count or config.partition_count,
        )
