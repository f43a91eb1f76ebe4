"""Checks of passwords against SCRAM credentials, in threads, and a cache of passwords that were found to be right."""

import asyncio
import hmac
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple

from kwire.access.hosts import network_of
from kwire.access.users.saslprep import prepare
from kwire.access.users.scram_credential import (
    ITERATIONS_DEFAULT,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    credential_of_salted,
    salted_password,
)
from kwire.concurrency.fair_slots import FairSlots

# The number of passwords that are hashed at the same time, which leaves a core for requests. Further ones wait, see
# `concurrency/fair_slots.py`.
HASHES_AT_ONCE = min(2, max(1, (os.cpu_count() or 1) - 1))
# The threads have a lower priority than the event loop, so that password guessing delays nothing but other logins.
HASH_NICENESS = 10
# The maximum number of (user, password) pairs in the cache. The oldest pair is removed.
CACHED_PAIRS_MAX = 10_000
PASSWORD_BYTES_MAX = 1_024

Credentials = Mapping[ScramMechanism, ScramCredential]
Args = TypeVarTuple("Args")
Result = TypeVar("Result")


class Passwords:
    """Checks and hashes passwords. It knows no users: the caller passes their credentials."""

    def __init__(self, salt_secret: bytes | None = None) -> None:
        """`salt_secret` determines the credentials of unknown users. Without it, they change with each start."""
        self._threads = ThreadPoolExecutor(HASHES_AT_ONCE, "kwire-passwords", initializer=_lower_priority)
        self._slots = FairSlots(HASHES_AT_ONCE)
        self._cache_secret = secrets.token_bytes()
        self._salt_secret = salt_secret or secrets.token_bytes()
        # Maps a keyed hash of user name and password to the user name, in the order of insertion.
        self._cache: dict[bytes, str] = {}

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def fake_credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return a credential for a user that has none. No password fits it.

        It is always the same, also after a restart if the salt secret is. Otherwise a restart would show which users
        are known: those whose salts stay the same.

        So the server does the same work for unknown users and for known ones, and clients cannot distinguish them.
        """
        salt, stored_key, server_key = (
            hmac.digest(self._salt_secret, f"{part}\0{mechanism.mechanism}\0{name}".encode(), mechanism.hash_name)
            for part in ("salt", "stored key", "server key")
        )
        return ScramCredential(salt[:SALT_BYTES], ITERATIONS_DEFAULT, stored_key, server_key)

    def is_cached(self, name: str, password: str) -> bool:
        """Return whether the password of this user was found to be right since the user was last changed."""
        return self._pair(name, password) in self._cache

    def remember(self, name: str, password: str) -> None:
        if len(self._cache) >= CACHED_PAIRS_MAX:
            del self._cache[next(iter(self._cache))]
        self._cache[self._pair(name, password)] = name

    def forget(self, names: frozenset[str]) -> None:
        """Remove users from the cache."""
        self._cache = {pair: name for pair, name in self._cache.items() if name not in names}

    async def is_right(self, name: str, credentials: Credentials, password: str, host: str) -> bool:
        """Return whether a password fits one of the credentials of a user. All of them are tried.

        `host` is the address of the client. Checks of many clients take turns.
        """
        await self._slots.acquire(network_of(host), name)
        if self.is_cached(name, password):
            # Another client with the same password was checked in the meantime.
            self._slots.release()
            return True
        return await self._run(_is_right, dict(credentials), password)

    async def hash(self, password: str) -> dict[ScramMechanism, ScramCredential]:
        """Return new credentials of a password for all mechanisms. Raises ValueError if it is not a valid password."""
        if not 0 < len(password.encode()) <= PASSWORD_BYTES_MAX:
            raise ValueError(f"a password must have 1 to {PASSWORD_BYTES_MAX} bytes")
        await self._slots.acquire("", "")
        return await self._run(_hash, password)

    async def _run(self, function: Callable[[*Args], Result], *args: *Args) -> Result:
        """Run the function in a thread, with a slot that was acquired.

        The slot is in use until the thread is free, even if the caller is cancelled.
        """
        try:
            running = asyncio.get_running_loop().run_in_executor(self._threads, function, *args)
        except BaseException:
            self._slots.release()
            raise
        running.add_done_callback(self._finish)
        return await asyncio.shield(running)

    def _finish(self, running: "asyncio.Future[Any]") -> None:
        self._slots.release()
        if not running.cancelled():
            # If the caller was cancelled, no code handles an exception. Retrieving it here avoids asyncio's warning.
            running.exception()

    def _pair(self, name: str, password: str) -> bytes:
        return hmac.digest(self._cache_secret, f"pair\0{name}\0{password}".encode(), "sha256")


def _lower_priority() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), HASH_NICENESS)


def _is_right(credentials: Credentials, password: str) -> bool:
    # A password set by Kafka's tools is not prepared.
    spellings = {password.encode()}
    with suppress(ValueError):
        spellings.add(prepare(password).encode())
    results = [
        credential.is_of_password(mechanism, spelling)
        for mechanism, credential in credentials.items()
        for spelling in spellings
    ]
    return any(results)


def _hash(password: str) -> dict[ScramMechanism, ScramCredential]:
    try:
        prepared = prepare(password).encode()
    except ValueError as problem:
        raise ValueError(f"the password is not valid: {problem}") from None
    if not prepared:
        raise ValueError("the password is not valid: it is empty in the normal form of SASLprep (RFC 4013)")
    credentials = {}
    for mechanism in ScramMechanism:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(mechanism, prepared, salt, ITERATIONS_DEFAULT)
        credentials[mechanism] = credential_of_salted(mechanism, salted, salt, ITERATIONS_DEFAULT)
    return credentials
