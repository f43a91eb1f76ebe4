"""The authorizer decides what principals may do, by the ACLs in the metadata store, as Kafka's StandardAuthorizer.

Each ACL is one entry of the metadata store, `acl/<id>`. Changes are durable before they apply. Each change raises
`revision`, so that caches of decisions (templates, fetch sessions, open streams) notice it.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from kwire.access.access import Access, Unrestricted
from kwire.access.acl import (
    OPERATIONS,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    operation_bits,
)
from kwire.access.acl_index import AclIndex
from kwire.access.audit import ACL, NO_AUDIT, Audit
from kwire.access.principal import Principal, parse_principal
from kwire.metastore import Change, MetaStore
from kwire.metastore.interface import ABSENT

KEY_PREFIX = "acl/"
# The maximum number of ACLs that one commit of the metadata store adds or removes.
CHANGES_PER_COMMIT = 100
# The maximum number of decisions in the cache. A full cache is cleared.
DECISIONS_MAX = 20_000


class Authorizer(Protocol):
    """Decides what principals may do."""

    @property
    def is_enabled(self) -> bool: ...

    @property
    def revision(self) -> int:
        """A number that changes whenever a decision may change."""
        ...

    def access(self, principal: Principal, host: str) -> Access:
        """Return the access of a principal that is connected from `host`."""
        ...


class OpenAuthorizer:
    """The authorizer of a server on which no authorizer is configured. It allows everything."""

    is_enabled = False
    revision = 0

    def access(self, principal: Principal, host: str) -> Access:
        return Unrestricted(principal, host)


class AclAuthorizer:
    """The authorizer of a server with ACLs. Decisions read only memory. Changes of ACLs are async and durable."""

    is_enabled = True

    def __init__(
        self,
        metastore: MetaStore,
        super_users: Iterable[Principal] = (),
        *,
        is_default_allowed: bool = False,
        audit: Audit = NO_AUDIT,
    ) -> None:
        self._metastore = metastore
        self._index = AclIndex()
        self._decisions: dict[tuple[Principal, str, Operation, ResourceType, str], bool] = {}
        self._change_lock = asyncio.Lock()
        self._audit = audit
        self.super_users = frozenset(super_users)
        # Whether a resource that no ACL covers is allowed (`allow.everyone.if.no.acl.found`).
        self.is_default_allowed = is_default_allowed
        self.revision = 1
        for _, entry in metastore.entries(KEY_PREFIX):
            self._index.add(_acl_of(entry.value))

    def access(self, principal: Principal, host: str) -> Access:
        return _RestrictedAccess(self, principal, host)

    def acls(self) -> AclIndex:
        """Return all ACLs. The caller must not change them."""
        return self._index

    def is_allowed(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        key = (principal, host, operation, resource_type, name)
        known = self._decisions.get(key)
        if known is None:
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            known = self._decisions[key] = self._decide(principal, host, operation, resource_type, name)
        return known

    def is_any_allowed(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        # No resource has this name, so it is allowed for super users, and by default or by a wildcard ACL.
        if self.is_allowed(principal, host, operation, resource_type, "hardcode"):
            return True
        return self._index.allows_any(principal, host, operation, resource_type)

    async def add(self, acls: Sequence[Acl]) -> None:
        """Add ACLs. Those that exist already are not changed."""
        async with self._change_lock:
            new = [acl for acl in dict.fromkeys(acls) if acl not in self._index]
            for at in range(0, len(new), CHANGES_PER_COMMIT):
                part = new[at : at + CHANGES_PER_COMMIT]
                await self._metastore.commit([Change(_key(acl), _value_of(acl), ABSENT) for acl in part])
                self._apply(self._index.add, part)

    async def remove(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Remove the ACLs that match one of the filters. Returns the removed ACLs for each filter."""
        async with self._change_lock:
            matches = [[acl for acl in self._index if one.matches(acl)] for one in filters]
            old = list(dict.fromkeys(acl for match in matches for acl in match))
            for at in range(0, len(old), CHANGES_PER_COMMIT):
                part = old[at : at + CHANGES_PER_COMMIT]
                entries = [(key, self._metastore.get(key)) for key in map(_key, part)]
                changes = [Change(key, None, entry.revision) for key, entry in entries if entry is not None]
                await self._metastore.commit(changes)
                self._apply(self._index.remove, part)
            return matches

    def _apply(self, change: Callable[[Acl], None], acls: Iterable[Acl]) -> None:
        what = "acl.created" if change == self._index.add else "acl.deleted"
        for acl in acls:
            change(acl)
            self._audit.changed(what, ACL, acl.name, {"acl": _value_of(acl)})
        self._decisions.clear()
        self.revision += 1

    def _decide(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self.super_users:
            return True
        decision = self._index.decision(principal, host, operation, resource_type, name)
        return self.is_default_allowed if decision is None else decision


class _RestrictedAccess:
    """The access of one principal and host under an AclAuthorizer."""

    __slots__ = ("_authorizer", "host", "principal")

    is_unrestricted = False

    def __init__(self, authorizer: AclAuthorizer, principal: Principal, host: str) -> None:
        self._authorizer = authorizer
        self.principal = principal
        self.host = host

    @property
    def revision(self) -> int:
        return self._authorizer.revision

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return self._authorizer.is_allowed(self.principal, self.host, operation, resource_type, name)

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return self._authorizer.is_any_allowed(self.principal, self.host, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        return operation_bits(tuple(one for one in OPERATIONS[resource_type] if self.allows(one, resource_type, name)))


def _key(acl: Acl) -> str:
    """Return the key of an ACL in the metadata store. Equal ACLs have the same key."""
    text = "\0".join(str(int(part)) if isinstance(part, int) else str(part) for part in acl)
    return KEY_PREFIX + hashlib.sha256(text.encode()).hexdigest()[:32]


def _value_of(acl: Acl) -> dict[str, str]:
    return {
        "resource_type": acl.resource_type.name,
        "name": acl.name,
        "pattern_type": acl.pattern_type.name,
        "principal": str(acl.principal),
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def _acl_of(value: Any) -> Acl:
    return Acl(
        ResourceType[value["resource_type"]],
        value["name"],
        PatternType[value["pattern_type"]],
        parse_principal(value["principal"]),
        value["host"],
        Operation[value["operation"]],
        Permission[value["permission"]],
    )
