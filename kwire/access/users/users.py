"""The users and their SCRAM credentials. Each user is one entry of the metadata store, `user/<name>`.

Passwords are not stored, only SCRAM credentials of them. A user that was created from a password has a credential for
each mechanism, so the password serves SCRAM-SHA-256, SCRAM-SHA-512, PLAIN and HTTP Basic. Kafka's tools set the
credential of one mechanism. PLAIN and Basic accept the password of every credential of the user.

Changes are durable before they apply. Each change raises `revision`, notifies the listeners and is recorded in the
audit log.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kwire.access.audit.entries import NO_AUDIT, USER, Audit
from kwire.access.keys.key_format import is_key_id
from kwire.access.principal import ANONYMOUS, ANY_USER
from kwire.access.users.passwords import PASSWORD_BYTES_MAX, Passwords
from kwire.access.users.saslprep import prepare
from kwire.access.users.scram_credential import ScramCredential, ScramMechanism
from kwire.metastore import Change, MetaStore, batches
from kwire.metastore.interface import ABSENT

KEY_PREFIX = "user/"
# In ACLs, `User:*` is every user, and `User:ANONYMOUS` is a client that has not authenticated.
RESERVED_NAMES = frozenset((ANY_USER.name, ANONYMOUS.name))
# RFC 4616 requires at least this many bytes to be accepted.
NAME_BYTES_MAX = 255
# The maximum number of users. The limit protects the memory of the metadata store.
USERS_MAX = 100_000


class UserExists(Exception):
    """A user to be created exists already."""


class UserNotFound(Exception):
    """The user does not exist."""


class CredentialChange(NamedTuple):
    """A change of one credential of a user. It is removed if `credential` is None."""

    name: str
    mechanism: ScramMechanism
    credential: ScramCredential | None


Credentials = dict[ScramMechanism, ScramCredential]
Listener = Callable[[frozenset[str]], None]


class Users:
    """All users. Lookups read only memory. Use it only in the event loop's thread."""

    def __init__(self, metastore: MetaStore, audit: Audit = NO_AUDIT, salt_secret: bytes | None = None) -> None:
        """`salt_secret` determines the salts that clients see for unknown users. Without it they are random."""
        self._metastore = metastore
        self._audit = audit
        self._passwords = Passwords(salt_secret)
        self._change_lock = asyncio.Lock()
        self._listeners: list[Listener] = []
        self.revision = 1
        self._users: dict[str, Credentials] = {
            key.removeprefix(KEY_PREFIX): _credentials_of(entry.value) for key, entry in metastore.entries(KEY_PREFIX)
        }

    def close(self) -> None:
        self._passwords.close()

    def __len__(self) -> int:
        return len(self._users)

    def __contains__(self, name: str) -> bool:
        return name in self._users

    def names(self) -> Sequence[str]:
        """Return the names of all users, sorted."""
        return sorted(self._users)

    def describe(self, name: str) -> Mapping[ScramMechanism, int] | None:
        """Return the iteration count of each credential of a user, or None if the user does not exist."""
        credentials = self._users.get(name)
        return None if credentials is None else {one: credentials[one].iterations for one in credentials}

    def credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self._users.get(name, {}).get(mechanism)

    def login_credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return the credential of a user, or one that no password fits if there is none."""
        return self.credential(name, mechanism) or self._passwords.fake_credential(name, mechanism)

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each change with the names of the users that were changed or deleted.

        Logins of these users are no longer valid, so their connections must be closed.
        """
        self._listeners.append(listener)

    def is_proven(self, name: str, password: str) -> bool:
        """Return whether this password of the user was found to be right before. `verify` then returns immediately."""
        return self._passwords.is_cached(name, password)

    async def verify(self, name: str, password: str, host: str = "") -> bool:
        """Return whether this is a user and its password. It takes the same time for unknown users.

        `host` is the address of the client. When many passwords wait to be checked, the addresses take turns.
        """
        try:
            name = prepare(name, NAME_BYTES_MAX)
            encoded = password.encode()
        except ValueError:
            return False
        if len(name.encode()) > NAME_BYTES_MAX or not 0 < len(encoded) <= PASSWORD_BYTES_MAX:
            return False
        if self._passwords.is_cached(name, password):
            return True
        credentials = {one: self.login_credential(name, one) for one in ScramMechanism}
        is_right = await self._passwords.is_right(name, credentials, password, host)
        # The user may have been changed in the meantime.
        if not is_right or credentials != {one: self.login_credential(name, one) for one in ScramMechanism}:
            return False
        self._passwords.remember(name, password)
        return True

    async def create(self, name: str, password: str) -> None:
        """Add a user. Raises UserExists, or ValueError if the name or the password is not valid."""
        check_name(name)
        credentials = await self._passwords.hash(password)

        def change() -> dict[str, Credentials]:
            if name in self._users:
                raise UserExists(name)
            return {name: credentials}

        await self._apply(change)

    async def set_password(self, name: str, password: str) -> None:
        """Replace all credentials of a user. Raises UserNotFound, or ValueError if the password is not valid."""
        credentials = await self._passwords.hash(password)
        await self._replace(name, credentials)

    async def delete(self, name: str) -> None:
        """Delete a user with all its credentials. Raises UserNotFound."""
        await self._replace(name, {})

    async def alter(self, changes: Iterable[CredentialChange]) -> None:
        """Change credentials. A user without credentials is deleted.

        Many users take several commits. If one fails, earlier ones stay. Raises ValueError if a name is not valid or
        there are too many users.
        """

        def change() -> dict[str, Credentials]:
            new: dict[str, Credentials] = {}
            for name, mechanism, credential in changes:
                credentials = new.setdefault(name, dict(self._users.get(name, {})))
                if credential is None:
                    credentials.pop(mechanism, None)
                else:
                    check_name(name)
                    credentials[mechanism] = credential
            return {name: one for name, one in new.items() if one or name in self._users}

        await self._apply(change)

    async def _replace(self, name: str, credentials: Credentials) -> None:
        def change() -> dict[str, Credentials]:
            if name not in self._users:
                raise UserNotFound(name)
            return {name: credentials}

        await self._apply(change)

    async def _apply(self, change: Callable[[], dict[str, Credentials]]) -> None:
        """Store the users that `change` returns. A user without credentials is deleted."""
        # If the caller is cancelled, the change is still completed. Otherwise the metadata store could have it, and
        # this object not.
        storing = asyncio.ensure_future(self._store(change))
        storing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(storing)

    async def _store(self, change: Callable[[], dict[str, Credentials]]) -> None:
        async with self._change_lock:
            await self._commit(change())

    async def _commit(self, users: dict[str, Credentials]) -> None:
        if not users:
            return
        if len(self._users) + sum(1 for name, one in users.items() if one and name not in self._users) > USERS_MAX:
            raise ValueError(f"there may be at most {USERS_MAX} users")
        for batch in batches([self._change(name, credentials)] for name, credentials in users.items()):
            await self._metastore.commit(batch)
            names = [change.key.removeprefix(KEY_PREFIX) for change in batch]
            self._apply_stored({name: users[name] for name in names})

    def _apply_stored(self, users: dict[str, Credentials]) -> None:
        for name, credentials in users.items():
            is_new = name not in self._users
            if credentials:
                self._users[name] = credentials
            else:
                self._users.pop(name, None)
            self._record(name, credentials, is_new=is_new)
        self.revision += 1
        names = frozenset(users)
        self._passwords.forget(names)
        for listener in self._listeners:
            listener(names)

    def _record(self, name: str, credentials: Credentials, *, is_new: bool) -> None:
        what = "user.deleted" if not credentials else "user.created" if is_new else "user.changed"
        self._audit.changed(what, USER, name, {"mechanisms": [one.mechanism for one in credentials]})

    def _change(self, name: str, credentials: Credentials) -> Change:
        key = KEY_PREFIX + name
        entry = self._metastore.get(key)
        return Change(key, _value_of(credentials) if credentials else None, entry.revision if entry else ABSENT)


def check_name(name: str) -> None:
    """Raise ValueError if a user cannot have this name."""
    if not name:
        raise ValueError("the user name must not be empty")
    if name in RESERVED_NAMES:
        raise ValueError(f"the user name must not be {name}: ACLs of this name apply to other clients")
    if is_key_id(name):
        raise ValueError("the user name must not have the form of the id of a key")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"the user name must have at most {NAME_BYTES_MAX} bytes")
    try:
        prepared = prepare(name)
    except ValueError as problem:
        raise ValueError(f"the user name is not valid: {problem}") from None
    if prepared != name:
        raise ValueError("the user name is not valid: it is not in the normal form of SASLprep (RFC 4013)")


def check_password_length(password: str, length_min: int) -> None:
    """Raise ValueError if a new password is shorter than `length_min` characters."""
    if not password:
        raise ValueError("the password must not be empty")
    if len(password) < length_min:
        raise ValueError(f"the password must have at least {length_min} characters")


def _value_of(credentials: Credentials) -> dict[str, Any]:
    return {"credentials": {mechanism.mechanism: one.as_json() for mechanism, one in credentials.items()}}


def _credentials_of(value: Any) -> Credentials:
    stored = value["credentials"]
    return {one: ScramCredential.from_json(stored[one.mechanism]) for one in ScramMechanism if one.mechanism in stored}
