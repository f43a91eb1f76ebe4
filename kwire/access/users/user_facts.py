"""What lists show of a user: its mechanisms, its roles, and the number of its other ACLs."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kwire.access.acl import Acl, AclFilter
from kwire.access.principal import USER, Principal
from kwire.access.roles import RoleGrant, roles_of


class UserFacts(NamedTuple):
    """`other_acls` is the number of ACLs that belong to none of the roles."""

    name: str
    mechanisms: Sequence[str]
    roles: Sequence[RoleGrant]
    other_acls: int


def acls_by_user(acls: Iterable[Acl]) -> dict[str, list[Acl]]:
    """Return the ACLs of each user, by its name."""
    found: dict[str, list[Acl]] = {}
    for acl in acls:
        if acl.principal.type == USER:
            found.setdefault(acl.principal.name, []).append(acl)
    return found


def facts_of_user(name: str, mechanisms: Sequence[str], acls: Iterable[Acl]) -> UserFacts:
    """Return the facts about a user. `acls` are the ACLs of this user."""
    summary = roles_of(acls)
    return UserFacts(name, mechanisms, summary.grants, len(summary.others))


def all_acls_of(name: str) -> AclFilter:
    """Return the filter for all ACLs of a user."""
    return AclFilter(principal=str(Principal(USER, name)))


def exactly(acl: Acl) -> AclFilter:
    """Return the filter that matches only this ACL."""
    return AclFilter(*acl[:3], str(acl.principal), *acl[4:])
