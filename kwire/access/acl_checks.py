"""Checks of ACLs and filters that clients send. Unknown numbers and wrong names are INVALID_REQUEST, as in Kafka.

Kafka closes the connection if a number is 0 (UNKNOWN). kwire answers this with INVALID_REQUEST, too.
"""

from enum import IntEnum
from typing import TypeVar

from kwire.access.acl import CLUSTER_NAME, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kwire.access.hosts import canonical_host
from kwire.access.principal import Principal, parse_principal
from kwire.errors import ErrorCode, KafkaError

E = TypeVar("E", bound=IntEnum)

# The maximum lengths in an ACL, in characters. A longer name of a group or a transactional id can only be covered by a
# prefix or by `*`.
NAME_LENGTH_MAX = 1_024
PRINCIPAL_LENGTH_MAX = 1_024
HOST_LENGTH_MAX = 255


def new_acl(
    resource_type: int, name: str, pattern_type: int, principal: str, host: str, operation: int, permission: int
) -> Acl:
    """Return the ACL with these values. Raises KafkaError INVALID_REQUEST if there cannot be such an ACL."""
    kind = _member(ResourceType, resource_type, "resourceType")
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _invalid("Invalid empty resource name")
    pattern = _member(PatternType, pattern_type, "patternType")
    wanted, effect = _member(Operation, operation, "operation"), _member(Permission, permission, "permissionType")
    if kind is ResourceType.ANY:
        raise _invalid("Invalid resourceType ANY")
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {pattern.name}")
    if wanted is Operation.ANY:
        raise _invalid("Invalid operation ANY")
    if effect is Permission.ANY:
        raise _invalid("Invalid permissionType ANY")
    _check_length("The resource name", name, NAME_LENGTH_MAX)
    _check_length("The principal", principal, PRINCIPAL_LENGTH_MAX)
    _check_length("The host", host, HOST_LENGTH_MAX)
    if not host:
        raise _invalid("The host must be an IP address or *, not empty")
    return Acl(kind, name, pattern, _principal(principal), canonical_host(host), wanted, effect)


def new_filter(
    resource_type: int,
    name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """Return the filter with these values. Raises KafkaError INVALID_REQUEST if a number is unknown."""
    return AclFilter(
        _member(ResourceType, resource_type, "resourceType"),
        name,
        _member(PatternType, pattern_type, "patternType"),
        principal,
        None if host is None else canonical_host(host),
        _member(Operation, operation, "operation"),
        _member(Permission, permission, "permissionType"),
    )


def _member(enumeration: type[E], number: int, what: str) -> E:
    try:
        found = enumeration(number)
    except ValueError:
        found = enumeration(0)
    if not found:
        raise _invalid(f"Unknown {what} {number}")
    return found


def _principal(text: str) -> Principal:
    try:
        return parse_principal(text)
    except ValueError as error:
        raise _invalid(str(error)) from error


def _check_length(what: str, text: str, length_max: int) -> None:
    if len(text) > length_max:
        raise _invalid(f"{what} has {len(text)} characters, at most {length_max} are allowed")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
