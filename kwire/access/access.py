"""The rights of one client. An `Access` is bound to a principal and a host, and says which operations are allowed.

Without an authorizer every client has an `Unrestricted` access, which allows everything.
"""

from typing import Protocol

from kwire.access.acl import OPERATIONS, Operation, ResourceType, operation_bits
from kwire.access.principal import ANONYMOUS, Principal
from kwire.access.scope import Scope


class Access(Protocol):
    """The rights of one principal that is connected from one host."""

    @property
    def principal(self) -> Principal: ...

    @property
    def host(self) -> str: ...

    @property
    def scope(self) -> Scope | None:
        """The scope whose plain names the client uses; None for a client that uses full names."""
        ...

    @property
    def is_unrestricted(self) -> bool:
        """Whether every operation is allowed and will stay allowed. Then the other methods need not be called."""
        ...

    @property
    def revision(self) -> int:
        """A number that changes whenever the result of one of the methods may change."""
        ...

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool: ...

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the operation is allowed on at least one possible resource of the type."""
        ...

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the allowed operations as the bit field of Kafka's `authorized_operations`."""
        ...


_ALL_OPERATIONS = {resource_type: operation_bits(operations) for resource_type, operations in OPERATIONS.items()}


class Unrestricted:
    """The access of every client if no authorizer is configured."""

    __slots__ = ("host", "principal")

    is_unrestricted = True
    revision = 0
    scope: Scope | None = None

    def __init__(self, principal: Principal = ANONYMOUS, host: str = "") -> None:
        self.principal = principal
        self.host = host

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return True

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return True

    def operations(self, resource_type: ResourceType, name: str) -> int:
        return _ALL_OPERATIONS[resource_type]
