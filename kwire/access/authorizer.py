"""The authorizer decides what principals may do, by the ACLs in the metadata store, as Kafka's StandardAuthorizer.

Each ACL is one entry of the metadata store, `acl/<id>`. Changes are durable before they apply. Each change raises
`revision`, so that caches of decisions (templates, fetch sessions, open streams) notice it.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

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
from kwire.access.audit.entries import ACL, NO_AUDIT, Audit
from kwire.access.hosts import canonical_host
from kwire.access.keys.key_access import key_access
from kwire.access.keys.keys import Keys
from kwire.access.principal import KEY, Principal, parse_principal
from kwire.access.scope import Scope
from kwire.concurrency.chunking import spread, yield_to_loop
from kwire.config.access import AccessConfig
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from storage.errors import StorageError

log = logging.getLogger("kwire.access")

T = TypeVar("T")

KEY_PREFIX = "acl/"
# The maximum number of ACLs. Each takes about 700 bytes of memory.
ACLS_MAX = 50_000
# The maximum number of ACLs that one commit of the metadata store adds or removes. They take less than a millisecond.
CHANGES_PER_COMMIT = 50
# The maximum number of ACLs that one call removes, as in Kafka.
REMOVED_MAX = 10_000
# The maximum number of filters of one call that are compared with every ACL.
SCANS_MAX = 100
# ACLs that are compared with a filter between two yields to the event loop. A comparison takes about a microsecond.
ACLS_PER_CHUNK = 500
# The maximum number of decisions in the cache. A full cache is cleared.
DECISIONS_MAX = 20_000
# Decisions about longer names are not cached, so that clients cannot fill the memory with names. Names of topics are
# shorter.
CACHED_NAME_LENGTH_MAX = 256

# A question to the authorizer: principal, host, operation, resource type, name. The name None stands for any resource.
_Question = tuple[Principal, str, Operation, ResourceType, str | None]


class Authorizer(Protocol):
    """Decides what principals may do."""

    @property
    def is_enabled(self) -> bool:
        """Whether clients without a key may be restricted."""
        ...

    @property
    def can_change(self) -> bool:
        """Whether `revision` may change."""
        ...

    @property
    def revision(self) -> int:
        """A number that changes whenever a decision may change."""
        ...

    def access(self, principal: Principal, host: str) -> Access:
        """Return the access of a principal that is connected from `host`."""
        ...


class OpenAuthorizer:
    """The authorizer of a server on which no authorizer is configured. It restricts only clients with keys."""

    is_enabled = False

    def __init__(self, keys: Keys | None = None) -> None:
        self._keys = keys
        self.can_change = keys is not None
        self.revision = 0
        if keys is not None:
            keys.listen(self._note_changed_keys)

    def access(self, principal: Principal, host: str) -> Access:
        if principal.type == KEY and self._keys is not None:
            return key_access(self._keys, principal, host)
        return Unrestricted(principal, host)

    def _note_changed_keys(self, ids: frozenset[str]) -> None:
        self.revision += 1


class AclAuthorizer:
    """The authorizer of a server with ACLs. Decisions read only memory. Changes of ACLs are async and durable.

    ACLs do not apply to clients with keys.
    """

    is_enabled = can_change = True

    def __init__(
        self,
        metastore: MetaStore,
        super_users: Iterable[Principal] = (),
        *,
        is_default_allowed: bool = False,
        audit: Audit = NO_AUDIT,
        keys: Keys | None = None,
    ) -> None:
        """Load the ACLs. Raises ValueError if one cannot be read, because it may be one that denies something."""
        self._metastore = metastore
        self._index = AclIndex()
        self._decisions: dict[_Question, bool] = {}
        self._change_lock = asyncio.Lock()
        self._audit = audit
        self._keys = keys
        self.super_users = frozenset(super_users)
        # Whether a resource that no ACL covers is allowed (`allow.everyone.if.no.acl.found`).
        self.is_default_allowed = is_default_allowed
        self.revision = 1
        for key, entry in metastore.entries(KEY_PREFIX):
            self._index.add(_acl_of(key, entry.value))
        if keys is not None:
            keys.listen(self._note_changed_keys)

    def access(self, principal: Principal, host: str) -> Access:
        if principal.type == KEY and self._keys is not None:
            return key_access(self._keys, principal, host)
        if principal in self.super_users:
            # The super users are fixed while the server runs.
            return Unrestricted(principal, host)
        return _RestrictedAccess(self, self._decisions, principal, host)

    def acls(self) -> AclIndex:
        """Return all ACLs. The caller must not change them."""
        return self._index

    def is_allowed(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        question = (principal, host, operation, resource_type, name)
        known = self._decisions.get(question)
        if known is None:
            known = principal in self.super_users
            if not known:
                decision = self._index.decision(principal, host, operation, resource_type, name)
                known = self.is_default_allowed if decision is None else decision
            if len(name) <= CACHED_NAME_LENGTH_MAX:
                self._remember(question, known)
        return known

    def is_any_allowed(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        question = (principal, host, operation, resource_type, None)
        known = self._decisions.get(question)
        if known is None:
            # As in Kafka: this name stands for any name, so it is allowed for super users, and by default or by a
            # wildcard ACL.
            known = self.is_allowed(principal, host, operation, resource_type, "hardcode") or self._index.allows_any(
                principal, host, operation, resource_type
            )
            self._remember(question, known)
        return known

    async def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the ACLs that match a filter. Of many ACLs, the event loop runs other work between chunks."""
        only = wanted.only_match
        if only is not None:
            return [only] if only in self._index else []
        found: list[Acl] = []
        acls = list(self._index)
        for at in range(0, len(acls), ACLS_PER_CHUNK):
            if at:
                await yield_to_loop()
            found += [acl for acl in acls[at : at + ACLS_PER_CHUNK] if wanted.matches(acl)]
        return found

    async def add(self, acls: Sequence[Acl]) -> None:
        """Add ACLs. Those that exist already are not changed.

        Up to CHANGES_PER_COMMIT ACLs are added together or not at all. Of more, earlier ones stay if a later commit
        fails. Raises KafkaError: POLICY_VIOLATION if there would be more than ACLS_MAX, or the error of the commit.
        """
        await _complete(self._add(acls))

    async def remove(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Remove the ACLs that match one of the filters. Returns the removed ACLs for each filter.

        Raises KafkaError: POLICY_VIOLATION if the filters match more than REMOVED_MAX or need more than SCANS_MAX
        scans, and then nothing is removed; or the error of a commit, and then the ACLs of earlier commits are removed.
        """
        return await _complete(self._remove(filters))

    async def _add(self, acls: Sequence[Acl]) -> None:
        async with self._change_lock:
            new = [acl for acl in dict.fromkeys(acls) if acl not in self._index]
            if len(self._index) + len(new) > ACLS_MAX:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"There are {len(self._index)} ACLs, and at most {ACLS_MAX} are allowed. Remove some, or use "
                    "prefixed ACLs.",
                )
            for at in range(0, len(new), CHANGES_PER_COMMIT):
                part = new[at : at + CHANGES_PER_COMMIT]
                await self._commit([Change(_key(acl), _value_of(acl), ABSENT) for acl in part])
                self._apply(self._index.add, part)

    async def _remove(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        async with self._change_lock:
            scan_count = 0
            async for wanted in spread(filters):
                scan_count += wanted.only_match is None
            if scan_count > SCANS_MAX:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"A request may have at most {SCANS_MAX} filters that can match more than one ACL.",
                )
            matches, old, match_count = [], dict[Acl, None](), 0
            async for wanted in spread(filters):
                matches.append(await self.find(wanted))
                match_count += len(matches[-1])
                if match_count > REMOVED_MAX:
                    raise KafkaError(
                        ErrorCode.POLICY_VIOLATION,
                        f"The filters match more than {REMOVED_MAX} ACLs. Remove them with several requests.",
                    )
                async for acl in spread(matches[-1], ACLS_PER_CHUNK):
                    old[acl] = None
            acls = list(old)
            for at in range(0, len(acls), CHANGES_PER_COMMIT):
                part = acls[at : at + CHANGES_PER_COMMIT]
                entries = [(key, self._metastore.get(key)) for key in map(_key, part)]
                await self._commit([Change(key, None, entry.revision) for key, entry in entries if entry is not None])
                self._apply(self._index.remove, part)
            return matches

    async def _commit(self, changes: list[Change]) -> None:
        try:
            await self._metastore.commit(changes)
        except Conflict as conflict:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "The ACLs were changed at the same time, try again."
            ) from conflict
        except StorageError as error:
            log.exception("a change of ACLs could not be written")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The change of ACLs could not be stored.") from error

    def _apply(self, change: Callable[[Acl], None], acls: Iterable[Acl]) -> None:
        what = "acl.created" if change == self._index.add else "acl.deleted"
        for acl in acls:
            change(acl)
            self._audit.changed(what, ACL, acl.name, {"acl": _value_of(acl)})
        self._decisions.clear()
        self.revision += 1

    def _note_changed_keys(self, ids: frozenset[str]) -> None:
        self.revision += 1

    def _remember(self, question: "_Question", known: bool) -> None:
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[question] = known


def authorizer_of(
    config: AccessConfig, metastore: MetaStore, audit: Audit = NO_AUDIT, keys: Keys | None = None
) -> Authorizer:
    """Return the authorizer that is configured. Raises ValueError if a stored ACL cannot be read."""
    if not config.has_acls:
        return OpenAuthorizer(keys)
    super_users = map(parse_principal, config.super_users)
    return AclAuthorizer(metastore, super_users, is_default_allowed=config.is_default_allowed, audit=audit, keys=keys)


async def _complete(change: Coroutine[Any, Any, T]) -> T:
    """Run a change to its end, even if the caller is cancelled. Else it would be durable, but not in memory."""
    changing = asyncio.ensure_future(change)
    # If the caller was cancelled, no code handles an exception of the change. Retrieving it here avoids asyncio's
    # warning.
    changing.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(changing)


class _RestrictedAccess:
    """The access of one principal and host under an AclAuthorizer."""

    __slots__ = ("_authorizer", "_decisions", "host", "principal")

    is_unrestricted = False
    scope: Scope | None = None

    def __init__(
        self, authorizer: AclAuthorizer, decisions: "dict[_Question, bool]", principal: Principal, host: str
    ) -> None:
        self._authorizer = authorizer
        self._decisions = decisions
        self.principal = principal
        self.host = canonical_host(host)

    @property
    def revision(self) -> int:
        return self._authorizer.revision

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        # The cache is read here, too, because a call takes as long as the lookup.
        known = self._decisions.get((self.principal, self.host, operation, resource_type, name))
        if known is None:
            return self._authorizer.is_allowed(self.principal, self.host, operation, resource_type, name)
        return known

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return self._authorizer.is_any_allowed(self.principal, self.host, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        return operation_bits(tuple(one for one in OPERATIONS[resource_type] if self.allows(one, resource_type, name)))


def _key(acl: Acl) -> str:
    """Return the key of an ACL in the metadata store. Equal ACLs have the same key, and others have other keys."""
    text = json.dumps(
        [*map(int, acl[:1]), acl.name, int(acl.pattern_type), *acl.principal, acl.host, *map(int, acl[5:])]
    )
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


def _acl_of(key: str, value: Any) -> Acl:
    try:
        return Acl(
            ResourceType[value["resource_type"]],
            value["name"],
            PatternType[value["pattern_type"]],
            parse_principal(value["principal"]),
            value["host"],
            Operation[value["operation"]],
            Permission[value["permission"]],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the ACL {key} in the metadata store cannot be read: {error!r} in {value!r}") from error
