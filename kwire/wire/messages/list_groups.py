"""ListGroups, key 16: the groups that this node coordinates.

Version 1 adds the throttle time. Version 4 adds a filter by state. Version 5 adds a filter by type (KIP-848).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, GroupId, Int16, Int32, String


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: Array[String] = field("4+", default=list)
    types_filter: Array[String] = field("5+", default=list)


@struct()
class ListedGroup:
    group_id: GroupId = field("0+")
    protocol_type: String = field("0+")
    group_state: String = field("4+", default="")
    group_type: String = field("5+", default="")


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0+")
    groups: Array[ListedGroup] = field("0+")


LIST_GROUPS = Api(ListGroupsRequest, ListGroupsResponse)
