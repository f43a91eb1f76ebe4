"""Access control lists in Kafka's model: resources, operations, ACLs, and filters that select ACLs.

The numbers of the enumerations are those of the Kafka protocol. Their members are parts of dictionary keys, so they
have the hash of their number. The hash of an Enum is a function in Python and takes several times as long.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from kwire.access.principal import Principal, parse_principal
from kwire.enum_members import fast_members

WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"


@fast_members
class ResourceType(IntEnum):
    __hash__ = int.__hash__

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    __hash__ = int.__hash__

    UNKNOWN = 0
    ANY = 1
    # In a filter: literal ACLs of the name, wildcard ACLs, and prefixed ACLs whose prefix the name has.
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


@fast_members
class Operation(IntEnum):
    __hash__ = int.__hash__

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    __hash__ = int.__hash__

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = Operation

# The operations that exist on each type of resource, besides ALL.
OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}

# An ACL that allows one of these operations also allows the key. A DENY implies nothing.
IMPLIED_BY: Mapping[Operation, frozenset[Operation]] = {
    _O.DESCRIBE: frozenset((_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER)),
    _O.DESCRIBE_CONFIGS: frozenset((_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)),
}


def operation_bits(operations: "tuple[Operation, ...]") -> int:
    """Return operations as the bit field of Kafka's `authorized_operations`."""
    return sum(1 << operation for operation in operations)


class Acl(NamedTuple):
    """One rule: it allows or denies a principal, from a host, one operation on the resources of a pattern.

    `host` is an IP address or `*`. `name` is `*` for all resources of the type (with the pattern type LITERAL).
    """

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: Principal
    host: str
    operation: Operation
    permission: Permission

    def covers(self, name: str) -> bool:
        """Return whether the pattern includes the resource `name`."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AclFilter(NamedTuple):
    """A filter for DescribeAcls and DeleteAcls. None, or the enumerations' ANY, matches every value."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, str(acl.principal))
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    @property
    def only_match(self) -> Acl | None:
        """The only ACL that the filter can match; None if it can match several."""
        if self.name is None or self.principal is None or self.host is None:
            return None
        if self.resource_type <= ResourceType.ANY or self.pattern_type <= PatternType.MATCH:
            return None
        if self.operation <= Operation.ANY or self.permission <= Permission.ANY:
            return None
        try:
            principal = parse_principal(self.principal)
        except ValueError:
            return None
        return Acl(
            self.resource_type, self.name, self.pattern_type, principal, self.host, self.operation, self.permission
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        return acl.covers(self.name) if self.pattern_type is PatternType.MATCH else acl.name == self.name
