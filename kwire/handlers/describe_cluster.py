"""DescribeCluster 0-2: the cluster id and the brokers.

- Every client may describe the brokers. The client's authorized operations on the cluster are returned on request. They
  are 0 without DESCRIBE on the cluster, as in Kafka.
- Version 1 adds the endpoint type. This listener serves brokers (1). A request for controllers (2) is
  MISMATCHED_ENDPOINT_TYPE, and any other type is UNSUPPORTED_ENDPOINT_TYPE.
- Version 2 can include fenced brokers, and returns whether a broker is fenced. This node, the only broker, is never
  fenced.
"""

from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context
from kwire.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    node = context.services.node
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"This listener describes brokers, not endpoints of type {request.endpoint_type}.",
            cluster_id=node.cluster_id,
            brokers=[],
        )
    host, port = context.endpoint
    answer = DescribeClusterResponse(
        error_code=0,
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        brokers=[DescribeClusterBroker(broker_id=node.node_id, host=host, port=port, rack=node.rack)],
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = context.cluster.operations
    return answer
