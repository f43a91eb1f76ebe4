"""The cluster behind a bridge: DescribeCluster, DescribeQuorum and ListPartitionReassignments. Nothing is changed."""

from kwire.access.acl import Operation
from kwire.bridge.kafka_requests.context import RequestContext
from kwire.bridge.kafka_requests.topics import NO_OPERATIONS
from kwire.bridge.kafka_requests.upstream import WAIT_MS_MAX
from kwire.errors import ErrorCode
from kwire.wire.messages.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse
from kwire.wire.messages.describe_quorum import DESCRIBE_QUORUM, DescribeQuorumRequest, DescribeQuorumResponse
from kwire.wire.messages.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def describe_cluster(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Every client may describe the brokers, as on a server. The authorized operations are those of the client."""
    with_operations = request.include_cluster_authorized_operations
    request.include_cluster_authorized_operations = False
    response: DescribeClusterResponse = await context.upstream.ask_any(DESCRIBE_CLUSTER, context.api_version, request)
    response.cluster_authorized_operations = context.cluster.operations if with_operations else NO_OPERATIONS
    return response


async def describe_quorum(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not context.cluster.permits(Operation.DESCRIBE):
        return DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[])
    response: DescribeQuorumResponse = await context.upstream.ask_any(DESCRIBE_QUORUM, context.api_version, request)
    return response


async def list_partition_reassignments(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not context.cluster.permits(Operation.DESCRIBE):
        return ListPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, topics=[]
        )
    request.timeout_ms = wait_ms = min(max(request.timeout_ms, 0), WAIT_MS_MAX)
    response: ListPartitionReassignmentsResponse = await context.upstream.ask_controller(
        LIST_PARTITION_REASSIGNMENTS, context.api_version, request, wait_ms=wait_ms
    )
    return response
