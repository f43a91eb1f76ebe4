"""The ACLs in memory, indexed by resource. `decision` is Kafka's rule: deny first, then allow, else the default."""

from collections.abc import Iterator

from kwire.access.acl import WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from kwire.access.principal import Principal


class AclIndex:
    """All ACLs, indexed by resource type and name. A lookup reads only the ACLs whose pattern covers the resource."""

    def __init__(self) -> None:
        self._literals: dict[tuple[ResourceType, str], dict[Acl, None]] = {}
        self._prefixes: dict[tuple[ResourceType, str], dict[Acl, None]] = {}
        # How many prefixes of each length exist, by resource type.
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {}
        self._all: dict[Acl, None] = {}

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
        table, key = self._table(acl), (acl.resource_type, acl.name)
        if key not in table:
            table[key] = {}
            if acl.pattern_type is PatternType.PREFIXED:
                lengths = self._prefix_lengths.setdefault(acl.resource_type, {})
                lengths[len(acl.name)] = lengths.get(len(acl.name), 0) + 1
        table[key][acl] = None

    def remove(self, acl: Acl) -> None:
        if acl not in self._all:
            return
        del self._all[acl]
        table, key = self._table(acl), (acl.resource_type, acl.name)
        del table[key][acl]
        if table[key]:
            return
        del table[key]
        if acl.pattern_type is PatternType.PREFIXED:
            lengths = self._prefix_lengths[acl.resource_type]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]

    def covering(self, resource_type: ResourceType, name: str) -> Iterator[Acl]:
        """Yield the ACLs whose pattern covers the resource."""
        yield from self._literals.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literals.get((resource_type, WILDCARD), ())
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield from self._prefixes.get((resource_type, name[:length]), ())

    def decision(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool | None:
        """Return whether the operation is allowed, or None if no ACL covers the resource."""
        allowed: bool | None = None
        for acl in self.covering(resource_type, name):
            if acl.concerns(principal, host, operation):
                if acl.permission is Permission.DENY:
                    return False
                allowed = True
            elif allowed is None:
                allowed = False
        return allowed

    def allows_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether an ACL allows the operation on some resource of the type, and no DENY covers all of those.

        As in Kafka, operations that others imply are not considered.
        """
        concerned = [
            acl
            for acl in self._all
            if acl.resource_type is resource_type
            and acl.operation in (Operation.ALL, operation)
            and acl.concerns(principal, host, operation)
        ]
        denied = [acl for acl in concerned if acl.permission is Permission.DENY]
        return any(
            acl.permission is Permission.ALLOW and not any(_dominates(deny, acl) for deny in denied)
            for acl in concerned
        )

    def _table(self, acl: Acl) -> dict[tuple[ResourceType, str], dict[Acl, None]]:
        return self._prefixes if acl.pattern_type is PatternType.PREFIXED else self._literals


def _dominates(deny: Acl, allow: Acl) -> bool:
    """Return whether every resource of `allow` is also a resource of `deny`."""
    if deny.pattern_type is PatternType.PREFIXED:
        return allow.name.startswith(deny.name) and not _is_wildcard(allow)
    if deny.name == WILDCARD:
        return True
    return allow.pattern_type is PatternType.LITERAL and allow.name == deny.name


def _is_wildcard(acl: Acl) -> bool:
    return acl.pattern_type is PatternType.LITERAL and acl.name == WILDCARD
