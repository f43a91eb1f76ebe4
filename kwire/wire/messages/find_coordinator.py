"""FindCoordinator, key 10: the coordinator of a group or a transactional id.

Version 1 adds the key type and the throttle time. Version 4 adds several keys. Version 6 adds share groups.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, CoordinatorKey, ErrorText, Int8, Int16, Int32, String


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: CoordinatorKey = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: Array[CoordinatorKey] = field("4+", default=list)


@struct()
class Coordinator:
    key: CoordinatorKey = field("4+", default="")
    node_id: Int32 = field("4+", default=0)
    host: String = field("4+", default="")
    port: Int32 = field("4+", default=0)
    error_code: Int16 = field("4+", default=0)
    error_message: ErrorText | None = field("4+", default="")


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0-3", default=0)
    error_message: ErrorText | None = field("1-3", default="")
    node_id: Int32 = field("0-3", default=0)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: Array[Coordinator] = field("4+", default=list)


FIND_COORDINATOR = Api(FindCoordinatorRequest, FindCoordinatorResponse)
