"""Parts of Fetch responses: aborted transactions, and whether a partition of a session belongs in a response."""

from collections.abc import Sequence

from kwire.broker.fetch.sessions import CachedPartition
from kwire.wire.messages.fetch import AbortedTransaction, PartitionData
from storage.log.leader_epochs import UNDEFINED
from storage.log.transactions import AbortedTransaction as AbortedInLog

# This list is shared by most read_committed responses and must not be modified.
NO_ABORTED_TRANSACTIONS: list[AbortedTransaction] = []


def aborted_in_response(aborted: Sequence[AbortedInLog]) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in aborted]


def has_changed(cached: CachedPartition, data: PartitionData) -> bool:
    """Whether a partition without records belongs in the response: it has an error, or its offsets changed."""
    return bool(
        data.error_code
        or data.diverging_epoch.epoch != UNDEFINED
        or not cached.is_unchanged(data.high_watermark, data.last_stable_offset, data.log_start_offset)
    )
