"""Metrics of the transaction coordinator; a part of GET /metrics. They show transactions that are open for a long time
and therefore delay consumers with `read_committed`."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from kwire.clock import Clock
from kwire.coordinator.transaction.coordinator import TransactionCoordinator


def transaction_families(transactions: TransactionCoordinator, clock: Clock) -> Iterator[Metric]:
    shards = list(transactions.shards())
    yield GaugeMetricFamily(
        "kwire_coordinator_transactional_ids",
        "Known transactional ids.",
        value=sum(len(shard.transactions) for shard in shards),
    )
    yield GaugeMetricFamily(
        "kwire_coordinator_open_transactions",
        "Transactions that are neither committed nor aborted.",
        value=sum(shard.open_count for shard in shards),
    )
    starts = [start_ms for shard in shards if (start_ms := shard.oldest_start_ms) is not None]
    age_ms = clock.now_ms() - min(starts) if starts else 0
    yield GaugeMetricFamily(
        "kwire_coordinator_oldest_transaction_seconds",
        "Age of the oldest open transaction; 0 if there is none.",
        value=max(age_ms, 0) / 1000,
    )
