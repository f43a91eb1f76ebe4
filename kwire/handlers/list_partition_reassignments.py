"""ListPartitionReassignments 0: always an empty list, because a single node has no reassignments.

Moves between the data directories of a node are not reassignments. DescribeLogDirs shows these moves. The request needs
DESCRIBE on the cluster.
"""

from kwire.access.acl import Operation
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context
from kwire.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(context: Context, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    is_allowed = context.cluster.permits(Operation.DESCRIBE)
    code = ErrorCode.NONE if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ListPartitionReassignmentsResponse(error_code=code, error_message=None, topics=[])
