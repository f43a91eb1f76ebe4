"""Classic groups in `__consumer_offsets`, type 2: generation, leader and members of a group.

Version 1 of the value adds the rebalance timeout. Version 2 adds the time of the last state change. Version 3 adds
static members. Version 4 is flexible.
"""

from kwire.wire.schema import field, message, struct
from kwire.wire.types import Array, Bytes, Int32, Int64, String


@message(versions="0", flexible="none")
class GroupMetadataKey:
    group: String = field("0")


@struct()
class MemberMetadata:
    member_id: String = field("0+")
    group_instance_id: String | None = field("3+", default=None)
    client_id: String = field("0+")
    client_host: String = field("0+")
    rebalance_timeout: Int32 = field("1+", default=-1)
    session_timeout: Int32 = field("0+")
    subscription: Bytes = field("0+")
    assignment: Bytes = field("0+")


@message(versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: String = field("0+")
    generation: Int32 = field("0+")
    protocol: String | None = field("0+")
    leader: String | None = field("0+")
    current_state_timestamp: Int64 = field("2+", default=-1)
    members: Array[MemberMetadata] = field("0+")
