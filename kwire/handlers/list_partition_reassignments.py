"""ListPartitionReassignments 0: none, ever: a replica cannot leave the only node.

Partitions that are named but do not exist are left out, as are all that are not being reassigned. Moves between the
directories of one node are no reassignments; DescribeLogDirs tells of those.
"""

from kwire.handlers.context import Context
from kwire.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(context: Context, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=[])
