"""The scopes of this server: which random id stands for which name.

Each scope has two entries in the metadata store, `scope/<name>` and `scope-id/<id>`, which are created together. A
scope is never removed, because topics that belong to it may still exist.
"""

from kwire.access.keys.key import TooManyKeys, check_scope_name
from kwire.access.scope import Scope, new_scope_id
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT

NAME_PREFIX, ID_PREFIX = "scope/", "scope-id/"
SCOPES_MAX = 100_000
# The maximum number of random ids that are tried for a new scope. Each is in use with a probability below 10^-11.
ID_TRIES_MAX = 10


class Scopes:
    """All scopes. Lookups read only memory. Use it only in the event loop's thread."""

    def __init__(self, metastore: MetaStore) -> None:
        self._metastore = metastore
        self._by_name: dict[str, Scope] = {}
        self._by_id: dict[str, Scope] = {}
        for key, entry in metastore.entries(NAME_PREFIX):
            self._add(Scope(key.removeprefix(NAME_PREFIX), entry.value["id"]))

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Scope | None:
        return self._by_name.get(name)

    def with_id(self, scope_id: str) -> Scope | None:
        return self._by_id.get(scope_id)

    async def ensure(self, name: str) -> Scope:
        """Return the scope of this name. It is created, and durable, if it does not exist. Raises ValueError."""
        check_scope_name(name)
        for _ in range(ID_TRIES_MAX):
            known = self._by_name.get(name)
            if known is not None:
                return known
            stored = self._metastore.get(NAME_PREFIX + name)
            if stored is not None:
                # Another server with the same metadata store has created it.
                return self._add(Scope(name, stored.value["id"]))
            if len(self._by_name) >= SCOPES_MAX:
                raise TooManyKeys(f"there may be at most {SCOPES_MAX} scopes")
            scope = Scope(name, new_scope_id())
            try:
                await self._metastore.commit(
                    [
                        Change(NAME_PREFIX + name, {"id": scope.id}, ABSENT),
                        Change(ID_PREFIX + scope.id, {"name": name}, ABSENT),
                    ]
                )
            except Conflict:
                continue
            return self._add(scope)
        raise TooManyKeys(f"no free id was found for the scope {name}: try again")

    def _add(self, scope: Scope) -> Scope:
        known = self._by_name.setdefault(scope.name, scope)
        self._by_id[known.id] = known
        return known
