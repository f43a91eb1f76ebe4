"""The keys of this server. Each key is one entry of the metadata store, `key/<id>`, with hashes of its secrets only.

Changes are durable before they apply and are recorded in the audit log. Logins that a change ends are ended first;
then the listeners are called.
"""

import asyncio
import logging
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from hmac import compare_digest
from secrets import token_bytes
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from msgspec.structs import replace

from kwire.access.audit.entries import KEY as AUDIT_KEY
from kwire.access.audit.entries import NO_AUDIT, Audit
from kwire.access.keys.deadlines import Deadlines
from kwire.access.keys.key import (
    IsAlias,
    IssuedKey,
    Key,
    KeyLimits,
    KeyNotFound,
    NewKey,
    TooManyKeys,
    check_limits,
    check_new_key,
)
from kwire.access.keys.key_format import Credentials, hash_of, is_secret, new_key_id, new_secret
from kwire.access.keys.key_login import KeyLogin
from kwire.access.keys.scopes import Scopes
from kwire.access.keys.stored_key import KEY_PREFIX, key_of, value_of
from kwire.clock import Clock
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from storage.errors import StorageError

log = logging.getLogger("kwire.access")

T = TypeVar("T")

# The maximum number of keys, with aliases. The limit protects the memory of the metadata store.
KEYS_MAX = 100_000
# The maximum number of aliases of one key. A key and its aliases are revoked with one commit.
ALIASES_MAX = 40
OVERLAP_SECONDS_DEFAULT = 24 * 3600
OVERLAP_SECONDS_MAX = 30 * 24 * 3600
# How often deadlines are compared with the clock. Open connections are closed this long after a deadline, or earlier.
TICK_SECONDS = 1.0
# Keys whose deadlines have passed that are handled at once, in some milliseconds. Others follow after a short time.
DUE_PER_TICK = 1_000
NEXT_DUE_SECONDS = 0.05
# How often the times of the last use are stored.
USES_STORED_SECONDS = 3600.0
USES_PER_COMMIT = 50
# The maximum number of keys whose last use is stored when the server stops, so that stopping does not take long.
USES_STORED_AT_STOP = 10_000

Listener = Callable[[frozenset[str]], None]
CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class Keys:
    """All keys. Lookups and logins read only memory. Use it only in the event loop's thread."""

    def __init__(self, metastore: MetaStore, clock: Clock, audit: Audit = NO_AUDIT) -> None:
        """Load the keys. Raises ValueError if one cannot be read."""
        self._metastore = metastore
        self._clock = clock
        self._audit = audit
        self.scopes = Scopes(metastore)
        self._keys: dict[str, Key] = {}
        # The ids of all keys, sorted.
        self._ids: list[str] = []
        # The ids of the aliases of each key that has some.
        self._aliases: dict[str, set[str]] = {}
        self._deadlines = Deadlines()
        # The logins in use, by key id and number of the secret.
        self._logins: WeakValueDictionary[tuple[str, int], KeyLogin] = WeakValueDictionary()
        self._listeners: list[Listener] = []
        self._change_lock = asyncio.Lock()
        # The time of the last use of keys, if it is later than the stored one.
        self._uses: dict[str, int] = {}
        self._uses_due_at = clock.monotonic() + USES_STORED_SECONDS
        self._storing_uses: asyncio.Task[None] | None = None
        self._call_later: CallLater | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Compared with the secret of an unknown key, so that it takes the same time.
        self._no_hash = token_bytes(32)
        self._load()

    # --- lookups

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Key]:
        """Iterate over all keys, also those that have expired. Do not wait within the iteration."""
        return iter(self._keys.values())

    def get(self, key_id: str) -> Key | None:
        """Return a key that was not revoked. It may have expired."""
        return self._keys.get(key_id)

    def valid(self, key_id: str) -> Key | None:
        """Return a key that was not revoked and has not expired."""
        key = self._keys.get(key_id)
        return key if key is not None and self._is_valid(key, self._clock.now_ms()) else None

    def aliases(self, key_id: str) -> frozenset[str]:
        """Return the ids of the aliases of a key."""
        return frozenset(self._aliases.get(key_id, ()))

    def last_used_ms(self, key: Key) -> int:
        """Return when a client last logged in with the key or sent a request with it; 0 if never."""
        return self._uses.get(key.id, key.used_ms)

    def page(self, after: str, count: int) -> list[Key]:
        """Return up to `count` keys whose ids sort after `after`."""
        first = bisect_right(self._ids, after)
        return [self._keys[one] for one in self._ids[first : first + count]]

    def log_in(self, credentials: Credentials) -> KeyLogin | None:
        """Return the login of a client with these credentials; None if they are not valid.

        It does the same work for unknown keys as for known ones, and takes a few microseconds.
        """
        if not is_secret(credentials.secret):
            return None
        now_ms = self._clock.now_ms()
        digest = hash_of(credentials.secret)
        key = self._keys.get(credentials.id)
        is_current = compare_digest(digest, self._no_hash if key is None else key.secret_hash)
        is_previous = compare_digest(digest, (key.previous_hash if key is not None else b"") or self._no_hash)
        if key is None or not (is_current or (is_previous and key.has_previous_secret(now_ms))):
            return None
        if not self._is_valid(key, now_ms):
            return None
        self._uses[key.id] = now_ms
        if key.expires_ms or key.previous_until_ms:
            # The clock may have been set back after a deadline.
            self._set_deadline(key, now_ms)
        number = key.secret_number if is_current else key.secret_number - 1
        login = self._logins.get((key.id, number))
        if login is None:
            login = self._logins[key.id, number] = KeyLogin(key.id, number)
        return login

    def listen(self, listener: Listener) -> None:
        """Call `listener` with the ids of keys that were changed or revoked, or of which something has expired.

        Their logins that are no longer valid (`KeyLogin.is_valid`) have been ended before the call, so the connections
        of these logins must be closed. `get` returns None for the keys that were revoked.
        """
        self._listeners.append(listener)

    # --- changes

    async def create(self, new: NewKey) -> IssuedKey:
        """Create a key. Raises ValueError, KeyNotFound or IsAlias (for an alias), or TooManyKeys."""
        check_new_key(new, self._clock.now_ms())
        return await self._complete(self._create(new))

    async def rotate(self, key_id: str, overlap_seconds: float = OVERLAP_SECONDS_DEFAULT) -> IssuedKey:
        """Replace the secret of a key. The old secret stays valid for `overlap_seconds`. Raises KeyNotFound.

        At most two secrets are valid: a secret that was replaced by an earlier rotation ends now.
        """
        if not 0 <= overlap_seconds <= OVERLAP_SECONDS_MAX:
            raise ValueError(f"the overlap must be 0 to {OVERLAP_SECONDS_MAX} seconds, got {overlap_seconds:g}")
        return await self._complete(self._rotate(key_id, overlap_seconds))

    async def set_limits(self, key_id: str, limits: Mapping[str, int | None]) -> Key:
        """Change some limits (names of fields of KeyLimits) of a key and its aliases.

        Raises KeyNotFound, IsAlias, or ValueError if a limit is not valid.
        """
        check_limits(KeyLimits(**limits))
        return await self._complete(self._set_limits(key_id, limits))

    async def revoke(self, key_id: str) -> frozenset[str]:
        """Revoke a key with its aliases, or one alias, and return the revoked ids. Raises KeyNotFound."""
        return await self._complete(self._revoke(key_id))

    # --- time

    def start(self, call_later: CallLater) -> None:
        """Begin to end logins at their deadlines, and to store the times of the last use."""
        self._call_later = call_later
        self._schedule_tick()

    async def close(self) -> None:
        """End the timer, and store the times of the last use."""
        if self._timer is not None:
            self._timer.cancel()
        self._call_later = self._timer = None
        if self._storing_uses is not None:
            await self._storing_uses
        await self._complete(self._store_uses(USES_STORED_AT_STOP))

    # --- private

    def _load(self) -> None:
        entries = [(key.removeprefix(KEY_PREFIX), one.value) for key, one in self._metastore.entries(KEY_PREFIX)]
        now_ms = self._clock.now_ms()
        aliases = []
        for key_id, value in entries:
            if "alias_of" in value:
                aliases.append((key_id, value))
            else:
                self._put(key_of(key_id, value, self.scopes.with_id, None), now_ms)
        for key_id, value in aliases:
            main = self._keys.get(value["alias_of"])
            if main is None:
                raise ValueError(f"the key {key_id} in the metadata store is an alias of a key that does not exist")
            self._put(key_of(key_id, value, self.scopes.with_id, main), now_ms)
        self._ids = sorted(self._keys)

    def _put(self, key: Key, now_ms: int) -> None:
        self._keys[key.id] = key
        if key.alias_of is not None:
            self._aliases.setdefault(key.alias_of, set()).add(key.id)
        self._set_deadline(key, now_ms)

    def _set_deadline(self, key: Key, now_ms: int) -> None:
        later = [one for one in (key.expires_ms, key.previous_until_ms) if one > now_ms]
        self._deadlines.set(key.id, min(later, default=None))

    def _is_valid(self, key: Key, now_ms: int) -> bool:
        if key.is_expired(now_ms):
            return False
        return key.alias_of is None or not self._keys[key.alias_of].is_expired(now_ms)

    def _found(self, key_id: str) -> Key:
        key = self._keys.get(key_id)
        if key is None:
            raise KeyNotFound(f"the key {key_id} does not exist")
        return key

    async def _create(self, new: NewKey) -> IssuedKey:
        async with self._change_lock:
            main = None if new.alias_of is None else self._found(new.alias_of)
            if main is not None and main.alias_of is not None:
                raise IsAlias(f"the key {main.id} is an alias itself: create an alias of {main.alias_of}")
            if main is not None and len(self._aliases.get(main.id, ())) >= ALIASES_MAX:
                raise TooManyKeys(f"the key {main.id} has {ALIASES_MAX} aliases, and cannot have more")
            if len(self._keys) >= KEYS_MAX:
                raise TooManyKeys(f"there may be at most {KEYS_MAX} keys: revoke some")
            if main is not None:
                scope, is_root, limits = main.scope, main.is_root, main.limits
            else:
                scope = None if new.scope is None else await self.scopes.ensure(new.scope)
                is_root, limits = new.is_root, new.limits
            credentials = Credentials(new_key_id(), new_secret())
            now_ms = self._clock.now_ms()
            key = Key(
                id=credentials.id,
                scope=scope,
                is_root=is_root,
                limits=limits,
                alias_of=new.alias_of,
                description=new.description,
                secret_hash=hash_of(credentials.secret),
                secret_number=1,
                previous_hash=b"",
                previous_until_ms=0,
                created_ms=now_ms,
                expires_ms=new.expires_ms or 0,
                used_ms=0,
            )
            await self._metastore.commit([Change(KEY_PREFIX + key.id, value_of(key), ABSENT)])
            self._put(key, now_ms)
            insort(self._ids, key.id)
            self._audit.changed("key.created", AUDIT_KEY, key.id, _facts(key))
            self._schedule_tick()
            return IssuedKey(key, credentials)

    async def _rotate(self, key_id: str, overlap_seconds: float) -> IssuedKey:
        async with self._change_lock:
            old = self._found(key_id)
            credentials = Credentials(key_id, new_secret())
            now_ms = self._clock.now_ms()
            until_ms = now_ms + round(overlap_seconds * 1000)
            key = replace(
                old,
                secret_hash=hash_of(credentials.secret),
                secret_number=old.secret_number + 1,
                previous_hash=old.secret_hash if overlap_seconds else b"",
                previous_until_ms=until_ms if overlap_seconds else 0,
            )
            await self._store([key])
            self._audit.changed("key.rotated", AUDIT_KEY, key_id, {"overlap_seconds": overlap_seconds})
            self._end_logins(key_id, old.secret_number if overlap_seconds else key.secret_number, old)
            self._notify([key_id])
            return IssuedKey(key, credentials)

    async def _set_limits(self, key_id: str, changed: Mapping[str, int | None]) -> Key:
        async with self._change_lock:
            old = self._found(key_id)
            if old.alias_of is not None:
                raise IsAlias(f"the key {key_id} has the limits of {old.alias_of}: change those")
            limits = old.limits._replace(**changed)
            key = replace(old, limits=limits)
            await self._store([key])
            for alias in self.aliases(key_id):
                self._keys[alias] = replace(self._keys[alias], limits=limits)
            self._audit.changed("key.changed", AUDIT_KEY, key_id, _facts(key))
            self._notify([key_id, *self.aliases(key_id)])
            return key

    async def _revoke(self, key_id: str) -> frozenset[str]:
        async with self._change_lock:
            self._found(key_id)
            ids = [key_id, *self.aliases(key_id)]
            await self._metastore.commit([Change(KEY_PREFIX + one, None, self._revision_of(one)) for one in ids])
            for one in ids:
                key = self._keys.pop(one)
                del self._ids[bisect_left(self._ids, one)]
                self._uses.pop(one, None)
                self._deadlines.set(one, None)
                if key.alias_of is not None:
                    self._aliases[key.alias_of].discard(one)
                self._end_logins(one, key.secret_number + 1, key)
                self._audit.changed("key.revoked", AUDIT_KEY, one, _facts(key))
            self._aliases.pop(key_id, None)
            self._notify(ids)
            return frozenset(ids)

    async def _store(self, keys: list[Key]) -> None:
        """Replace keys, in the metadata store and then in memory."""
        await self._metastore.commit(
            [Change(KEY_PREFIX + one.id, value_of(one), self._revision_of(one.id)) for one in keys]
        )
        now_ms = self._clock.now_ms()
        for one in keys:
            self._put(one, now_ms)

    def _revision_of(self, key_id: str) -> int:
        entry = self._metastore.get(KEY_PREFIX + key_id)
        return ABSENT if entry is None else entry.revision

    def _end_logins(self, key_id: str, first_valid_number: int, key: Key) -> None:
        """End the logins with secrets before `first_valid_number`. `key` is the key before the change."""
        for number in (key.secret_number - 1, key.secret_number):
            if number < first_valid_number:
                login = self._logins.pop((key_id, number), None)
                if login is not None:
                    login.end()

    def _notify(self, ids: Iterable[str]) -> None:
        changed = frozenset(ids)
        for listener in self._listeners:
            listener(changed)

    def _schedule_tick(self, seconds: float = TICK_SECONDS) -> None:
        if self._timer is None and self._call_later is not None and self._keys:
            self._timer = self._call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        due_count = self.end_expired()
        if self._uses and self._storing_uses is None and self._clock.monotonic() >= self._uses_due_at:
            self._storing_uses = asyncio.create_task(self._store_uses_later())
        self._schedule_tick(TICK_SECONDS if due_count < DUE_PER_TICK else NEXT_DUE_SECONDS)

    def end_expired(self) -> int:
        """End the logins of up to DUE_PER_TICK keys that, or a secret of which, have expired. Then call the listeners.

        Returns the number of these keys. The timer calls this.
        """
        now_ms = self._clock.now_ms()
        due = self._deadlines.pop_due(now_ms, DUE_PER_TICK)
        if not due:
            return 0
        ids = {alias for one in due for alias in (one, *self._aliases.get(one, ()))}
        for key_id in ids:
            key = self._keys[key_id]
            if not self._is_valid(key, now_ms):
                self._end_logins(key_id, key.secret_number + 1, key)
            elif not key.has_previous_secret(now_ms):
                self._end_logins(key_id, key.secret_number, key)
            self._set_deadline(key, now_ms)
        self._notify(ids)
        return len(due)

    async def _store_uses_later(self) -> None:
        try:
            await self._store_uses(KEYS_MAX)
        finally:
            self._uses_due_at = self._clock.monotonic() + USES_STORED_SECONDS
            self._storing_uses = None

    async def _store_uses(self, count_max: int) -> None:
        ids = list(self._uses)[:count_max]
        for at in range(0, len(ids), USES_PER_COMMIT):
            async with self._change_lock:
                used = [
                    replace(self._keys[one], used_ms=self._uses[one])
                    for one in ids[at : at + USES_PER_COMMIT]
                    if one in self._uses
                ]
                try:
                    await self._store(used)
                except (Conflict, StorageError) as error:
                    log.warning("the times of the last use of keys could not be stored: %s", error)
                    return
                for key in used:
                    if self._uses.get(key.id) == key.used_ms:
                        del self._uses[key.id]

    async def _complete(self, change: Coroutine[Any, Any, T]) -> T:
        """Run a change to its end, even if the caller is cancelled. Else it would be durable, but not in memory."""
        changing = asyncio.ensure_future(change)
        # If the caller was cancelled, no code handles an exception of the change. Retrieving it here avoids asyncio's
        # warning.
        changing.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(changing)


def _facts(key: Key) -> dict[str, object]:
    """Return what the audit log records of a key."""
    facts: dict[str, object] = {"scope": None if key.scope is None else key.scope.name}
    if key.is_root:
        facts["root"] = True
    if key.alias_of is not None:
        facts["alias_of"] = key.alias_of
    facts.update((name, limit) for name, limit in key.limits._asdict().items() if limit is not None)
    if key.expires_ms:
        facts["expires_ms"] = key.expires_ms
    return facts
