"""DescribeGroups, key 15: state and members of classic groups.

Version 1 adds the throttle time. Version 3 adds authorized operations. Version 4 adds static members. In version 6 an
unknown group is an error with a message (KIP-1043).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, Bytes, ErrorText, GroupId, Int16, Int32, String


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: Array[GroupId] = field("0+")
    include_authorized_operations: Bool = field("3+", default=False)


@struct()
class DescribedGroupMember:
    member_id: String = field("0+")
    group_instance_id: String | None = field("4+", default=None)
    client_id: String = field("0+")
    client_host: String = field("0+")
    member_metadata: Bytes = field("0+")
    member_assignment: Bytes = field("0+")


@struct()
class DescribedGroup:
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("6+", default=None)
    group_id: GroupId = field("0+")
    group_state: String = field("0+")
    protocol_type: String = field("0+")
    protocol_data: String = field("0+")
    members: Array[DescribedGroupMember] = field("0+")
    authorized_operations: Int32 = field("3+", default=-2147483648)


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    groups: Array[DescribedGroup] = field("0+")


DESCRIBE_GROUPS = Api(DescribeGroupsRequest, DescribeGroupsResponse)
