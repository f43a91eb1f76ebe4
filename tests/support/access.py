"""Rights in tests: short ways to write ACLs, and an access that records which rights a handler asks for.

`QuietNode.restrict` puts an authorizer with ACLs in place; `QuietNode.allow` and `deny` give and take rights. Requests
come from ALICE, unless a test says otherwise.
"""

from kwire.access.access import Access
from kwire.access.acl import Acl, Operation, PatternType, Permission, ResourceType
from kwire.access.principal import Principal
from kwire.handlers.shared.needs import Need

ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")
ADMIN = Principal("User", "admin")

# All operations on a topic and on the cluster as Kafka's bit fields. The numbers are Kafka's.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


def acl(
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    pattern_type: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
    principal: Principal = ALICE,
    host: str = "*",
) -> Acl:
    return Acl(resource_type, name, pattern_type, principal, host, operation, permission)


class RecordingAccess:
    """An access that notes every question. Bit fields of authorized operations are not questions."""

    is_unrestricted = False

    def __init__(self, access: Access) -> None:
        self._access = access
        self.principal = access.principal
        self.host = access.host
        self.scope = access.scope
        self.needs: set[Need] = set()
        # Names are noted too, as handlers must ask for the resource of the request and for no other.
        self.names: set[str] = set()

    @property
    def revision(self) -> int:
        return self._access.revision

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.needs.add(Need(operation, resource_type))
        self.names.add(name)
        return self._access.allows(operation, resource_type, name)

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        self.needs.add(Need(operation, resource_type))
        return self._access.allows_any(operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        return self._access.operations(resource_type, name)
