"""DescribeCluster, key 60: the cluster id, the brokers and the authorized operations.

Version 1 adds the endpoint type. Version 2 adds fenced brokers.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, Int8, Int16, Int32, String


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: Bool = field("0+")
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+", default=False)


@struct()
class DescribeClusterBroker:
    broker_id: Int32 = field("0+")
    host: String = field("0+")
    port: Int32 = field("0+")
    rack: String | None = field("0+", default=None)
    is_fenced: Bool = field("2+", default=False)


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String = field("0+")
    controller_id: Int32 = field("0+", default=-1)
    brokers: Array[DescribeClusterBroker] = field("0+")
    cluster_authorized_operations: Int32 = field("0+", default=-2147483648)


DESCRIBE_CLUSTER = Api(DescribeClusterRequest, DescribeClusterResponse)
