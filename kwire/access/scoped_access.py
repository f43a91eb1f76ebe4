"""The access of a client with a scope: everything in its scope, and nothing outside of it."""

from kwire.access.acl import OPERATIONS, Operation, ResourceType, operation_bits
from kwire.access.principal import Principal
from kwire.access.scope import Scope

# The types of resources whose names belong to scopes.
SCOPED_TYPES = frozenset((ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID))
# Operations on the cluster that concern only the client itself.
CLUSTER_OPERATIONS = frozenset((Operation.IDEMPOTENT_WRITE,))


class ScopedAccess:
    """The access of one client that may use the names of one scope. Names that are passed to it are full names."""

    __slots__ = ("host", "principal", "revision", "scope")

    is_unrestricted = False

    def __init__(self, principal: Principal, host: str, scope: Scope, revision: int = 0) -> None:
        self.principal = principal
        self.host = host
        self.scope: Scope | None = scope
        self.revision = revision

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if resource_type in SCOPED_TYPES:
            return self.scope is not None and self.scope.contains(name)
        return resource_type is ResourceType.CLUSTER and operation in CLUSTER_OPERATIONS

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return resource_type in SCOPED_TYPES

    def operations(self, resource_type: ResourceType, name: str) -> int:
        return operation_bits(tuple(one for one in OPERATIONS[resource_type] if self.allows(one, resource_type, name)))
