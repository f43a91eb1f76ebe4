"""What the coordinator of transactions tells Prometheus: one that is open for long holds up readers."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from kwire.web.services import WebServices


def transaction_families(services: WebServices) -> Iterator[Metric]:
    shards = list(services.transactions.shards())
    yield GaugeMetricFamily(
        "kwire_coordinator_transactional_ids",
        "Transactional ids that are known.",
        value=sum(len(shard.transactions) for shard in shards),
    )
    yield GaugeMetricFamily(
        "kwire_coordinator_open_transactions",
        "Transactions that are neither committed nor aborted.",
        value=sum(shard.open_count for shard in shards),
    )
    starts = [start_ms for shard in shards if (start_ms := shard.oldest_start_ms) is not None]
    age_ms = services.clock.now_ms() - min(starts) if starts else 0
    yield GaugeMetricFamily(
        "kwire_coordinator_oldest_transaction_seconds",
        "How long the transaction has been open that was begun first; 0 if none is.",
        value=max(age_ms, 0) / 1000,
    )
