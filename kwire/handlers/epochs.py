"""The check of a client's leader epoch, shared by the APIs that carry one (KIP-320)."""

from kwire.broker.partition import Partition
from kwire.errors import ErrorCode, KafkaError

UNKNOWN_EPOCH = -1


def check_epoch(partition: Partition, client_epoch: int) -> None:
    """A client with old metadata must refresh it; one that knows more than we do must wait for us."""
    if client_epoch == UNKNOWN_EPOCH or client_epoch == partition.leader_epoch:
        return
    if client_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
