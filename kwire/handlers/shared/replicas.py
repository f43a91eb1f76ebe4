"""What one node can promise about replicas: exactly one, on itself."""

from collections.abc import Iterable, Sequence

from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context

DEFAULT = -1


def check_replication_factor(factor: int) -> None:
    """Whether it can be one at all."""
    if factor < DEFAULT or factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"A replication factor is at least 1, or -1 for the default: {factor}"
        )


def check_replica_count(factor: int) -> None:
    """Whether there are so many brokers."""
    if factor > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"There is 1 broker, so a partition cannot have {factor} replicas.",
        )


def check_assignments(context: Context, assignments: Iterable[Sequence[int]]) -> None:
    """Each must name this node, once, and nobody else."""
    here = context.services.node.node_id
    for brokers in assignments:
        stranger = next((broker for broker in brokers if broker != here), None)
        if stranger is not None:
            problem = f"Broker {stranger} is not registered; only {here} is."
        elif len(brokers) != 1:
            problem = f"Broker {here} is named more than once." if brokers else "An assignment names no broker."
        else:
            continue
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
