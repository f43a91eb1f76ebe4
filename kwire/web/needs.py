"""What routes need: the operations that their callers must be allowed to do. Each entry of `ROUTES` declares its needs.

Rooms are topics: a need on a room is a need on its topic. A need whose name is in the path is checked before the
handler runs. Other needs are `in_handler`: the handler reads the names from the body, or filters a list, and checks
them through `request[ACCESS]` (`requests/access.py`).
"""

from typing import Final, Literal, NamedTuple

from kwire.access.acl import Operation, ResourceType


class Need(NamedTuple):
    """An operation on a resource. `parameter` is the path parameter with the name of the resource.

    The cluster has no name. If `is_in_handler`, the handler checks the need, possibly only under some conditions.
    """

    operation: Operation
    resource_type: ResourceType
    parameter: str | None = None
    is_in_handler: bool = False

    def __str__(self) -> str:
        return f"{self.operation.name} {self.resource_type.name}"


# The needs of a route that anybody may call, also without credentials: it shows no data.
PUBLIC: Final = "public"
# The needs of a route that anybody may call, but that treats clients with credentials as who they are. Credentials that
# are not valid are refused; the cookie of a session that has ended is ignored.
OPTIONAL: Final = "optional"
# The needs of a route that every authenticated client may call.
AUTHENTICATED: tuple[Need, ...] = ()

Needs = tuple[Need, ...] | Literal["public", "optional"]

# The path parameter that is the name of a room, not of a topic.
ROOM_PARAMETER = "room"


def in_handler(need: Need) -> Need:
    return need._replace(parameter=None, is_in_handler=True)


READ_ROOM = Need(Operation.READ, ResourceType.TOPIC, ROOM_PARAMETER)
WRITE_ROOM = Need(Operation.WRITE, ResourceType.TOPIC, ROOM_PARAMETER)
DESCRIBE_ROOM = Need(Operation.DESCRIBE, ResourceType.TOPIC, ROOM_PARAMETER)
DELETE_ROOM = Need(Operation.DELETE, ResourceType.TOPIC, ROOM_PARAMETER)

READ_TOPIC = Need(Operation.READ, ResourceType.TOPIC, "topic")
WRITE_TOPIC = Need(Operation.WRITE, ResourceType.TOPIC, "topic")
ALTER_TOPIC = Need(Operation.ALTER, ResourceType.TOPIC, "topic")
DESCRIBE_TOPIC = Need(Operation.DESCRIBE, ResourceType.TOPIC, "topic")
DELETE_TOPIC = Need(Operation.DELETE, ResourceType.TOPIC, "topic")

READ_TOPICS = in_handler(READ_TOPIC)
WRITE_TOPICS = in_handler(WRITE_TOPIC)
DESCRIBE_TOPICS = in_handler(DESCRIBE_TOPIC)
CREATE_TOPICS = Need(Operation.CREATE, ResourceType.TOPIC, is_in_handler=True)
ALTER_CONFIGS_OF_TOPICS = Need(Operation.ALTER_CONFIGS, ResourceType.TOPIC, is_in_handler=True)

READ_GROUP = Need(Operation.READ, ResourceType.GROUP, "group")
DESCRIBE_GROUP = Need(Operation.DESCRIBE, ResourceType.GROUP, "group")
DELETE_GROUP = Need(Operation.DELETE, ResourceType.GROUP, "group")
DESCRIBE_GROUPS = in_handler(DESCRIBE_GROUP)

DESCRIBE_CLUSTER = Need(Operation.DESCRIBE, ResourceType.CLUSTER)
ALTER_CLUSTER = Need(Operation.ALTER, ResourceType.CLUSTER)
# Not needed for one's own webhooks.
ALTER_CLUSTER_FOR_OTHERS = Need(Operation.ALTER, ResourceType.CLUSTER, is_in_handler=True)
