"""The comparison of a client's last fetched epoch with the leader epochs of the log (KIP-595)."""

from kwire.broker.fetch.sessions import RequestedPartition
from kwire.broker.partition import Partition
from kwire.wire.messages.fetch import EpochEndOffset
from storage.errors import OffsetOutOfRange
from storage.log.leader_epochs import UNDEFINED


def diverging_epoch(partition: Partition, asked: RequestedPartition) -> EpochEndOffset | None:
    """Return the point where the client's log diverges from this log, or None.

    The point is the largest epoch of this log that is not above the client's last fetched epoch, and its end offset.
    """
    epoch, end_offset = partition.epoch_end(asked.last_fetched_epoch)
    if epoch == UNDEFINED or end_offset == UNDEFINED or asked.fetch_offset < partition.log_start_offset:
        raise OffsetOutOfRange(asked.fetch_offset, partition.log_start_offset, partition.log_end_offset)
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None
