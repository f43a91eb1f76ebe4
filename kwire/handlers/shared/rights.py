"""The rights of one client on resources of one type, for code that looks up nothing.

The views of a server (`views.py`) add the lookups.
"""

from kwire.access.access import Access
from kwire.access.acl import CLUSTER_NAME, Operation, ResourceType
from kwire.access.audit.entries import Audit
from kwire.errors import ErrorCode, KafkaError

# The weight of the bit field of authorized operations: up to eight decisions of some microseconds each.
OPERATIONS_WEIGHT = 8


class ResourceRights:
    """Whether the client may do an operation on a resource of one type. `port` is the port that it uses."""

    __slots__ = ("_audit", "_is_restricted", "_port", "access")

    resource_type: ResourceType
    refusal: ErrorCode

    def __init__(self, audit: Audit, access: Access, port: str) -> None:
        self._audit = audit
        self._is_restricted = not access.is_unrestricted
        self._port = port
        self.access = access

    def allows(self, operation: Operation, name: str) -> bool:
        """Return whether the client may do the operation. Use it to filter; nothing is recorded."""
        return not self._is_restricted or self.access.allows(operation, self.resource_type, name)

    def permits(self, operation: Operation, name: str) -> bool:
        """As `allows`, for a client that is refused if it may not. A refusal is recorded in the audit log."""
        is_allowed = self.allows(operation, name)
        if not is_allowed:
            self._refused(operation, name)
        return is_allowed

    def authorize(self, operation: Operation, name: str) -> None:
        """Raise KafkaError if the client may not do the operation."""
        if self._is_restricted and not self.access.allows(operation, self.resource_type, name):
            raise self._refused(operation, name)

    def _refused(self, operation: Operation, name: str) -> KafkaError:
        """Record a refusal in the audit log, and return its error."""
        self._audit.refused(self.access, self._port, operation, self.resource_type, name)
        return KafkaError(self.refusal)

    @property
    def operations_weight(self) -> int:
        """The weight of one call of `operations`, as in `broker/chunked_answers.py`."""
        return OPERATIONS_WEIGHT if self._is_restricted else 0

    def operations(self, name: str) -> int:
        """Return the allowed operations as the bit field of Kafka's `authorized_operations`."""
        return self.access.operations(self.resource_type, name)


class TopicRights(ResourceRights):
    """The rights on topics."""

    __slots__ = ()

    resource_type = ResourceType.TOPIC
    refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def may_create(self, name: str) -> bool:
        """Return whether the client may create a topic: with CREATE on the cluster or on the topic."""
        if not self._is_restricted:
            return True
        if self.access.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            return True
        return self.access.allows(Operation.CREATE, ResourceType.TOPIC, name)


class GroupRights(ResourceRights):
    """The rights on consumer groups."""

    __slots__ = ()

    resource_type = ResourceType.GROUP
    refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED


class TransactionRights(ResourceRights):
    """The rights on transactional ids."""

    __slots__ = ()

    resource_type = ResourceType.TRANSACTIONAL_ID
    refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class ClusterRights:
    """The rights on the cluster: operations that concern no single topic, group or transactional id."""

    __slots__ = ("_audit", "_is_restricted", "_port", "access")

    def __init__(self, audit: Audit, access: Access, port: str) -> None:
        self._audit = audit
        self._is_restricted = not access.is_unrestricted
        self._port = port
        self.access = access

    def allows(self, operation: Operation) -> bool:
        return not self._is_restricted or self.access.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def permits(self, operation: Operation) -> bool:
        """As `allows`, for a client that is refused if it may not. A refusal is recorded in the audit log."""
        is_allowed = self.allows(operation)
        if not is_allowed:
            self._audit.refused(self.access, self._port, operation, ResourceType.CLUSTER, CLUSTER_NAME)
        return is_allowed

    def authorize(self, operation: Operation) -> None:
        """Raise KafkaError CLUSTER_AUTHORIZATION_FAILED if the client may not do the operation."""
        if not self.permits(operation):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    @property
    def operations(self) -> int:
        """The allowed operations as the bit field of `authorized_operations`. As in Kafka, 0 without DESCRIBE."""
        if not self.allows(Operation.DESCRIBE):
            return 0
        return self.access.operations(ResourceType.CLUSTER, CLUSTER_NAME)
