"""ListPartitionReassignments 0: always an empty list, because a single node has no reassignments.

Moves between the data directories of a node are not reassignments. DescribeLogDirs shows these moves.
"""

from kwire.handlers.shared.context import Context
from kwire.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(context: Context, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=[])
