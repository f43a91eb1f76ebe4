"""What one node can promise about replicas: exactly one, on itself."""

from collections.abc import Iterable, Sequence

from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context

DEFAULT = -1


def check_replication_factor(factor: int) -> None:
    if factor not in (DEFAULT, 1):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): 1 broker is registered."
            if factor > 0
            else "Replication factor must be larger than 0.",
        )


def check_assignments(context: Context, assignments: Iterable[Sequence[int]]) -> None:
    here = [context.services.node.node_id]
    for brokers in assignments:
        if list(brokers) != here:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Replicas {list(brokers)} asked for, only {here} can have them."
            )
