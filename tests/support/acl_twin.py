"""Kafka's rule for ACLs, written out in the plainest way, and random ACLs whose names and prefixes overlap."""

import itertools
import random
from collections.abc import Iterable

from kwire.access.acl import Acl, Operation, PatternType, Permission, ResourceType
from kwire.access.principal import Principal

IMPLIES = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}

PRINCIPALS = [Principal("User", "a"), Principal("User", "b"), Principal("User", "*"), Principal("Group", "*")]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]
RESOURCE_TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
OPERATIONS = [one for one in Operation if one > Operation.ANY]
# Names of ACLs have these letters only, so a name with a `z` at its end is one that no literal ACL has.
ACL_NAMES = ["*", *("".join(letters) for size in (1, 2, 3) for letters in itertools.product("ab*", repeat=size))]
ASKED_NAMES = [*ACL_NAMES, "z", *(f"{name}z" for name in ACL_NAMES)]


def random_acl(chance: random.Random) -> Acl:
    return Acl(
        chance.choice(RESOURCE_TYPES),
        # Short names and the wildcard are more likely, so that many ACLs cover the same resource.
        chance.choice(ACL_NAMES[: chance.choice((1, 4, 13, len(ACL_NAMES)))]),
        chance.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        chance.choice(PRINCIPALS),
        chance.choice(HOSTS),
        chance.choice(OPERATIONS),
        chance.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


def covers(acl: Acl, resource_type: ResourceType, name: str) -> bool:
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name == name or acl.name == "*"


def is_about(acl: Acl, principal: Principal, host: str) -> bool:
    if str(acl.principal) != str(principal) and str(acl.principal) != "User:*":
        return False
    return acl.host == "*" or acl.host == host


def decide(
    acls: Iterable[Acl],
    principal: Principal,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    with_implied: bool = True,
) -> bool | None:
    """Whether the operation is allowed; None if the default decides."""
    covering = [acl for acl in acls if covers(acl, resource_type, name)]
    if not covering:
        return None
    concerned = [acl for acl in covering if is_about(acl, principal, host)]
    for acl in concerned:
        if acl.permission == Permission.DENY and acl.operation in (Operation.ALL, operation):
            return False
    allowing = {Operation.ALL, operation} | (IMPLIES.get(operation, set()) if with_implied else set())
    return any(acl.permission == Permission.ALLOW and acl.operation in allowing for acl in concerned)


def allows_any(
    acls: Iterable[Acl],
    principal: Principal,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
) -> bool:
    """Try every name: is there one on which an ACL allows the operation? Others that imply it do not count."""
    acls = list(acls)
    return any(
        decide(acls, principal, host, operation, resource_type, name, with_implied=False) for name in ASKED_NAMES
    )
