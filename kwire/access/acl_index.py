"""The ACLs in memory, indexed by principal and host. The rule is Kafka's: deny first, then allow, else the default.

The ACLs of one principal and host are bit masks: one number for each pattern, with a bit for each operation that is
allowed and another for each that is denied. So a decision costs a few lookups, however many ACLs exist: those of the
principal and of `User:*`, each from the client's host and from `*`.
"""

from collections.abc import Iterable, Iterator

from kwire.access.acl import IMPLIED_BY, WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from kwire.access.principal import ANY_USER, Principal

_DENY_SHIFT = 16


def _bits(operations: Iterable[Operation]) -> int:
    """Return the bits of the operations and of ALL."""
    bits = 1 << Operation.ALL
    for operation in operations:
        bits |= 1 << operation
    return bits


# The bits of ACLs that name an operation, or ALL. `_ALLOWED_BY` adds the operations that imply it.
_NAMED_BY = {operation: _bits((operation,)) for operation in Operation}
_DENIED_BY = {operation: bits << _DENY_SHIFT for operation, bits in _NAMED_BY.items()}
_ALLOWED_BY = {operation: bits | _bits(IMPLIED_BY.get(operation, ())) for operation, bits in _NAMED_BY.items()}


class AclIndex:
    """All ACLs. A decision reads only the ACLs about the client whose pattern covers the resource."""

    def __init__(self) -> None:
        self._all: dict[Acl, None] = {}
        self._rules: dict[tuple[Principal, str], _Patterns] = {}
        # The number of ACLs of each pattern, of all principals.
        self._counts = _Patterns()

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._all

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._all)

    def add(self, acl: Acl) -> None:
        if acl in self._all:
            return
        self._all[acl] = None
        rules = self._rules.get((acl.principal, acl.host))
        if rules is None:
            rules = self._rules[acl.principal, acl.host] = _Patterns()
        rules.set(acl, rules.get(acl) | _bit(acl))
        self._counts.set(acl, self._counts.get(acl) + 1)

    def remove(self, acl: Acl) -> None:
        if acl not in self._all:
            return
        del self._all[acl]
        rules = self._rules[acl.principal, acl.host]
        rules.set(acl, rules.get(acl) & ~_bit(acl))
        if rules.is_empty:
            del self._rules[acl.principal, acl.host]
        self._counts.set(acl, self._counts.get(acl) - 1)

    def decision(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool | None:
        """Return whether the operation is allowed, or None if no ACL covers the resource."""
        bits = 0
        for rules in self._rules_of(principal, host):
            for number in rules.covering(resource_type, name):
                bits |= number
        if bits & _DENIED_BY[operation]:
            return False
        if bits & _ALLOWED_BY[operation]:
            return True
        return None if next(self._counts.covering(resource_type, name), None) is None else False

    def allows_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether an ACL allows the operation on some resource of the type, and no DENY covers all of those.

        As in Kafka, operations that others imply are not considered, and neither is the default. Several DENY ACLs that
        cover the resources of an ALLOW only together do not count.

        The ACLs of the principal are read until one is found that allows the operation.
        """
        all_rules, allow, deny = self._rules_of(principal, host), _NAMED_BY[operation], _DENIED_BY[operation]
        if any(rules.literals_of(resource_type).get(WILDCARD, 0) & deny for rules in all_rules):
            return False
        for rules in all_rules:
            for name, bits in rules.literals_of(resource_type).items():
                if bits & allow and (name == WILDCARD or not _is_denied(all_rules, resource_type, name, deny)):
                    return True
            for name, bits in rules.prefixes_of(resource_type).items():
                if bits & allow and not any(one.has_prefix(resource_type, name, deny) for one in all_rules):
                    return True
        return False

    def _rules_of(self, principal: Principal, host: str) -> "list[_Patterns]":
        """Return the rules about a client."""
        get = self._rules.get
        found = (
            get((principal, host)),
            get((principal, WILDCARD)),
            get((ANY_USER, host)),
            get((ANY_USER, WILDCARD)),
        )
        return [rules for rules in found if rules is not None]


def _is_denied(all_rules: "list[_Patterns]", resource_type: ResourceType, name: str, deny: int) -> bool:
    """Return whether a literal or prefixed pattern that covers `name` has one of the bits of `deny`."""
    return any(
        rules.literals_of(resource_type).get(name, 0) & deny or rules.has_prefix(resource_type, name, deny)
        for rules in all_rules
    )


def _bit(acl: Acl) -> int:
    bit = 1 << acl.operation
    return bit << _DENY_SHIFT if acl.permission is Permission.DENY else bit


class _Patterns:
    """Patterns of resources, and a number above 0 for each of them."""

    __slots__ = ("_lengths", "_literals", "_prefixes")

    def __init__(self) -> None:
        self._literals: dict[ResourceType, dict[str, int]] = {}
        self._prefixes: dict[ResourceType, dict[str, int]] = {}
        # How many prefixes of each length exist. Names are looked up by these lengths only.
        self._lengths: dict[ResourceType, dict[int, int]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._literals and not self._prefixes

    def literals_of(self, resource_type: ResourceType) -> dict[str, int]:
        return self._literals.get(resource_type, _NOTHING)

    def prefixes_of(self, resource_type: ResourceType) -> dict[str, int]:
        return self._prefixes.get(resource_type, _NOTHING)

    def get(self, acl: Acl) -> int:
        """Return the number of the pattern of the ACL; 0 if it has none."""
        return self._table(acl).get(acl.resource_type, _NOTHING).get(acl.name, 0)

    def set(self, acl: Acl, number: int) -> None:
        """Set the number of the pattern of the ACL. 0 removes the pattern."""
        table = self._table(acl)
        by_name = table.setdefault(acl.resource_type, {})
        is_new = acl.name not in by_name
        if number:
            by_name[acl.name] = number
            if is_new and table is self._prefixes:
                self._count_length(acl, 1)
            return
        if not is_new:
            del by_name[acl.name]
            if table is self._prefixes:
                self._count_length(acl, -1)
        if not by_name:
            del table[acl.resource_type]

    def covering(self, resource_type: ResourceType, name: str) -> Iterator[int]:
        """Yield the numbers of the patterns that cover the resource."""
        literals = self._literals.get(resource_type)
        if literals is not None:
            if name in literals:
                yield literals[name]
            if WILDCARD in literals and name != WILDCARD:
                yield literals[WILDCARD]
        prefixes = self._prefixes.get(resource_type)
        if prefixes is not None:
            for length in self._lengths[resource_type]:
                if length <= len(name) and (number := prefixes.get(name[:length])) is not None:
                    yield number

    def has_prefix(self, resource_type: ResourceType, name: str, bits: int) -> bool:
        """Return whether a prefixed pattern that covers `name` has one of the bits."""
        prefixes = self.prefixes_of(resource_type)
        return any(
            prefixes.get(name[:length], 0) & bits
            for length in self._lengths.get(resource_type, ())
            if length <= len(name)
        )

    def _table(self, acl: Acl) -> dict[ResourceType, dict[str, int]]:
        return self._prefixes if acl.pattern_type is PatternType.PREFIXED else self._literals

    def _count_length(self, acl: Acl, change: int) -> None:
        lengths = self._lengths.setdefault(acl.resource_type, {})
        length = len(acl.name)
        lengths[length] = lengths.get(length, 0) + change
        if not lengths[length]:
            del lengths[length]


_NOTHING: dict[str, int] = {}
