"""What an operator can set about transactions; defaults are Kafka's."""

from msgspec import Struct


class TransactionSettings(Struct, frozen=True, kw_only=True):
    # transactional.id.expiration.ms, and how often it is looked which ids these are.
    transactional_id_expiration_ms: int = 604_800_000
    remove_expired_interval_ms: int = 3_600_000
    # transaction.max.timeout.ms: no producer may keep readers waiting for longer.
    max_timeout_ms: int = 900_000
    # transaction.abort.timed.out.transaction.cleanup.interval.ms
    abort_timed_out_interval_ms: int = 10_000
    # transaction.state.log.num.partitions
    state_log_num_partitions: int = 50
    # Ours: who comes while the markers of the transaction before are being written waits so long before it is told
    # CONCURRENT_TRANSACTIONS. Clients come back after 20 to 100 ms; the markers are there much sooner.
    completion_wait_ms: int = 100
