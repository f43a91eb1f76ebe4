"""The transactions that the coordinators know: listed and described."""

from collections.abc import Sequence
from typing import Any

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import TRANSACTION, KafkaClient
from kwire.cli.framework.errors import UsageError
from kwire.cli.values.times import now_ms, time_text
from kwire.wire.messages.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
    TransactionState,
)
from kwire.wire.messages.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest

# The versions that introduced the filters by duration and by a pattern of the id.
DURATION_VERSION, PATTERN_VERSION = 1, 2


def listed_transactions(
    client: KafkaClient,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    longer_than_ms: int | None = None,
    pattern: str | None = None,
) -> list[dict[str, Any]]:
    """Return the transactional ids of all servers, sorted. Raises Refused, or UsageError for an unknown state."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if longer_than_ms is None else longer_than_ms,
        transactional_id_pattern=pattern,
    )
    version = PATTERN_VERSION if pattern is not None else DURATION_VERSION if longer_than_ms is not None else 0
    rows = []
    for node_id, node in client.numbered_nodes():
        found = node.request(LIST_TRANSACTIONS, request, version_min=version)
        check(f"the transactions of {node.address}", found.error_code)
        if found.unknown_state_filters:
            raise UsageError(
                f"{found.unknown_state_filters[0]!r} is not a state of transactions: expected Empty, Ongoing, "
                "PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort or PrepareEpochFence"
            )
        rows += [
            {
                "id": one.transactional_id,
                "state": one.transaction_state,
                "producer_id": one.producer_id,
                "coordinator": node_id,
            }
            for one in found.transaction_states
        ]
    return sorted(rows, key=lambda row: str(row["id"]))


def described_transaction(client: KafkaClient, transactional_id: str) -> TransactionState:
    """Return the state of a transactional id. Raises Refused."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    response = client.ask_coordinator(transactional_id, DESCRIBE_TRANSACTIONS, request, key_type=TRANSACTION)
    found: TransactionState
    (found,) = response.transaction_states
    check(f"transactional id {transactional_id}", found.error_code)
    return found


def transaction_facts(found: TransactionState) -> dict[str, Any]:
    """Return the facts about a transactional id, as they are printed."""
    started_ms = found.transaction_start_time_ms
    return {
        "id": found.transactional_id,
        "state": found.transaction_state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "started": time_text(started_ms),
        "age_ms": None if started_ms < 0 else max(0, now_ms() - started_ms),
        "partitions": [
            f"{topic.topic}-{partition}" for topic in found.topics for partition in sorted(topic.partitions)
        ],
    }
