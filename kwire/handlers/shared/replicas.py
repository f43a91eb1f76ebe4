"""Checks of requested replicas. Each partition has exactly one replica, on this node."""

from collections.abc import Iterable, Sequence

from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context

DEFAULT = -1


def check_replication_factor(factor: int) -> None:
    """Check that the value is a valid replication factor."""
    if factor < DEFAULT or factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"A replication factor must be at least 1, or -1 for the default: {factor}",
        )


def check_replica_count(factor: int) -> None:
    """Check that there are enough brokers."""
    if factor > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"There is 1 broker, so a partition cannot have {factor} replicas.",
        )


def check_assignments(context: Context, assignments: Iterable[Sequence[int]]) -> None:
    """Check that each assignment consists of this node only."""
    here = context.services.node.node_id
    for brokers in assignments:
        unknown = next((broker for broker in brokers if broker != here), None)
        if unknown is not None:
            problem = f"Broker {unknown} is not registered; only {here} is."
        elif len(brokers) != 1:
            problem = f"Broker {here} is named more than once." if brokers else "An assignment names no broker."
        else:
            continue
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
