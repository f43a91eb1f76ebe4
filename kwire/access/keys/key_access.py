"""The access of clients that log in with a key."""

from kwire.access.access import Access, Unrestricted
from kwire.access.acl import Operation, ResourceType
from kwire.access.keys.keys import Keys
from kwire.access.principal import Principal
from kwire.access.scope import Scope
from kwire.access.scoped_access import ScopedAccess


class NoAccess:
    """The access of a key that was revoked or has expired. It allows nothing."""

    __slots__ = ("host", "principal")

    is_unrestricted = False
    revision = 0
    scope: Scope | None = None

    def __init__(self, principal: Principal, host: str) -> None:
        self.principal = principal
        self.host = host

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return False

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return False

    def operations(self, resource_type: ResourceType, name: str) -> int:
        return 0


def key_access(keys: Keys, principal: Principal, host: str) -> Access:
    """Return the access of a principal of the type KEY. ACLs do not apply to it."""
    key = keys.valid(principal.name)
    if key is not None and key.is_root:
        return Unrestricted(principal, host)
    if key is None or key.scope is None:
        return NoAccess(principal, host)
    return ScopedAccess(principal, host, key.scope)
