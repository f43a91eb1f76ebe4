"""The operations that requests may need, for the declarations in `HANDLERS`."""

from typing import NamedTuple

from kwire.access.acl import Operation, ResourceType


class Need(NamedTuple):
    """An operation on a type of resource that a request may need."""

    operation: Operation
    resource_type: ResourceType


READ_TOPIC = Need(Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC = Need(Operation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC = Need(Operation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC = Need(Operation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC = Need(Operation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC = Need(Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS = Need(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC_CONFIGS = Need(Operation.ALTER_CONFIGS, ResourceType.TOPIC)

READ_GROUP = Need(Operation.READ, ResourceType.GROUP)
DELETE_GROUP = Need(Operation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP = Need(Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS = Need(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_GROUP_CONFIGS = Need(Operation.ALTER_CONFIGS, ResourceType.GROUP)

WRITE_TRANSACTIONAL_ID = Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID = Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)

CREATE_CLUSTER = Need(Operation.CREATE, ResourceType.CLUSTER)
DELETE_CLUSTER = Need(Operation.DELETE, ResourceType.CLUSTER)
ALTER_CLUSTER = Need(Operation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER = Need(Operation.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION = Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = Need(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS = Need(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
IDEMPOTENT_WRITE = Need(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
