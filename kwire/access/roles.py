"""Roles: named sets of ACLs, for people who do not want to write ACLs. `docs/security.md` has a table of them.

A role is stored as ordinary ACLs. So it can be changed with every tool for ACLs, and the authorizer knows no roles.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from kwire.access.acl import CLUSTER_NAME, WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from kwire.access.acl_checks import NAME_LENGTH_MAX
from kwire.access.principal import Principal

_O = Operation
_T = ResourceType


class Role(StrEnum):
    ADMIN = "admin"
    OPERATOR = "operator"
    WRITER = "writer"
    READER = "reader"


# The operations that each role allows, by type of resource.
ROLE_OPERATIONS: Mapping[Role, Mapping[ResourceType, tuple[Operation, ...]]] = {
    Role.ADMIN: {
        _T.CLUSTER: (_O.ALL,),
        _T.TOPIC: (_O.ALL,),
        _T.GROUP: (_O.ALL,),
        _T.TRANSACTIONAL_ID: (_O.ALL,),
        _T.DELEGATION_TOKEN: (_O.ALL,),
        _T.USER: (_O.ALL,),
    },
    # Not ALTER on the cluster: with it, operators could add ACLs and users, and so let themselves read records.
    Role.OPERATOR: {
        _T.CLUSTER: (_O.DESCRIBE, _O.CREATE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
        _T.TOPIC: (_O.DESCRIBE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
        _T.GROUP: (_O.DESCRIBE, _O.READ, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
        _T.TRANSACTIONAL_ID: (_O.DESCRIBE,),
    },
    Role.WRITER: {
        _T.CLUSTER: (_O.IDEMPOTENT_WRITE,),
        _T.TOPIC: (_O.WRITE, _O.DESCRIBE, _O.CREATE),
        _T.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
    },
    Role.READER: {
        _T.TOPIC: (_O.READ, _O.DESCRIBE),
        _T.GROUP: (_O.READ, _O.DESCRIBE),
    },
}
# The roles whose ACLs can be restricted to names with a prefix.
PREFIXED_ROLES = frozenset((Role.WRITER, Role.READER))


class RoleGrant(NamedTuple):
    """A role on the resources whose names begin with `prefix`, or on all if it is `*`."""

    role: Role
    prefix: str


class RoleSummary(NamedTuple):
    """What the ACLs of a principal amount to: roles, and the ACLs that belong to none of these roles."""

    grants: tuple[RoleGrant, ...]
    others: tuple[Acl, ...]


def acls_of_role(role: Role, principal: Principal, prefix: str = WILDCARD) -> list[Acl]:
    """Return the ACLs of a role. `prefix` restricts topics, groups and transactional ids to names that begin with it.

    Raises ValueError if the role concerns the whole cluster and a prefix is given.
    """
    if not prefix:
        raise ValueError(f'role "{role}": the prefix must not be empty; use {WILDCARD} for all resources')
    if len(prefix) > NAME_LENGTH_MAX:
        raise ValueError(
            f'role "{role}": the prefix has {len(prefix)} characters, at most {NAME_LENGTH_MAX} are allowed'
        )
    if prefix != WILDCARD and role not in PREFIXED_ROLES:
        raise ValueError(f'role "{role}" is about the whole cluster and cannot be restricted to the prefix "{prefix}"')
    return [
        Acl(resource_type, *_pattern(resource_type, prefix), principal, WILDCARD, operation, Permission.ALLOW)
        for resource_type, operations in ROLE_OPERATIONS[role].items()
        for operation in operations
    ]


def roles_of(acls: Iterable[Acl]) -> RoleSummary:
    """Return the roles whose ACLs are all among the ACLs of one principal, and the ACLs that belong to none of them."""
    given = dict.fromkeys(acls)
    principals = {acl.principal for acl in given}
    if len(principals) > 1:
        raise ValueError(f"expected the ACLs of one principal, got those of {', '.join(sorted(map(str, principals)))}")
    prefixes = sorted({acl.name for acl in given if acl.pattern_type is PatternType.PREFIXED} - {WILDCARD})
    grants, used = [], set[Acl]()
    for principal in principals:
        for role in Role:
            for prefix in (WILDCARD, *(prefixes if role in PREFIXED_ROLES else ())):
                needed = acls_of_role(role, principal, prefix)
                if all(acl in given for acl in needed):
                    grants.append(RoleGrant(role, prefix))
                    used.update(needed)
    return RoleSummary(tuple(grants), tuple(acl for acl in given if acl not in used))


def _pattern(resource_type: ResourceType, prefix: str) -> tuple[str, PatternType]:
    if resource_type is ResourceType.CLUSTER:
        return CLUSTER_NAME, PatternType.LITERAL
    return (WILDCARD, PatternType.LITERAL) if prefix == WILDCARD else (prefix, PatternType.PREFIXED)
