"""DescribeAcls, key 29: the ACLs that match a filter.

Version 1 adds prefixed and literal patterns. Version 2 is flexible. Version 3 adds users as a resource.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import AclResourceName, AclResourceNameFilter, Array, ErrorText, Int8, Int16, Int32, String


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: Int8 = field("0+")
    resource_name_filter: AclResourceNameFilter | None = field("0+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: String | None = field("0+")
    host_filter: String | None = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


@struct()
class AclDescription:
    principal: String = field("0+")
    host: String = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


@struct()
class DescribeAclsResource:
    resource_type: Int8 = field("0+")
    resource_name: AclResourceName = field("0+")
    pattern_type: Int8 = field("1+", default=3)
    acls: Array[AclDescription] = field("0+")


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")
    resources: Array[DescribeAclsResource] = field("0+")


DESCRIBE_ACLS = Api(DescribeAclsRequest, DescribeAclsResponse)
