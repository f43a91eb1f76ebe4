"""The API keys of a server: a stopped one (`--data-dir`), or a running one over its HTTP port (`--http`)."""

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

from kwire.access.keys.key import IsAlias, IssuedKey, KeyLimits, KeyNotFound, NewKey, TooManyKeys
from kwire.access.keys.keys import Keys
from kwire.access.keys.shown_key import facts_of
from kwire.cli.connection.http_client import HttpClient
from kwire.cli.connection.options import http_client_of
from kwire.cli.framework.errors import UsageError
from kwire.clock import SystemClock
from kwire.metastore import EmbeddedMetaStore

KEYS_PER_PAGE = 1_000


class KeyToCreate(NamedTuple):
    """The options of `kwire key create`."""

    scope: str | None
    root: bool
    alias_of: str | None
    max_events: int | None
    max_subscriptions: int | None
    publish_rate: int | None
    expires_in_secs: int | None
    description: str


class KeyAdmin(Protocol):
    """The keys of one server. If a change cannot be made, the methods raise ValueError with the reason.

    Keys are dictionaries with the fields of `ShownKey`; those of `create` and `rotate` have `secret` and `token`, too.
    """

    def create(self, wanted: KeyToCreate) -> dict[str, Any]: ...

    def keys(self) -> Sequence[dict[str, Any]]: ...

    def rotate(self, key_id: str, overlap_seconds: int) -> dict[str, Any]: ...

    def set_limits(self, key_id: str, limits: Mapping[str, int | None]) -> dict[str, Any]:
        """Change some limits of a key and its aliases; None removes a limit."""
        ...

    def revoke(self, key_id: str) -> Sequence[str]:
        """Revoke a key and its aliases, and return their ids."""
        ...


@contextmanager
def opened_keys(options: argparse.Namespace, *, creates_data_dir: bool) -> Iterator[KeyAdmin]:
    """Open the keys that `--data-dir` or `--http` names."""
    if options.data_dir is not None:
        # Imported here, because commands for a running server do not need it.
        from kwire.cli.access.of_stopped import opened_metastore

        named = (options.http, options.user, options.cacert, options.profile, options.command_config)
        if any(option is not None for option in named):
            raise UsageError("--data-dir is for a stopped server: it cannot be used with options of a running one")
        with (
            opened_metastore(
                options.data_dir, creates_data_dir=creates_data_dir, option_of_running="--http"
            ) as metastore,
            asyncio.Runner() as runner,
        ):
            yield KeysOfStopped(metastore, runner)
        return
    with closing(http_client_of(options)) as client:
        yield KeysOfRunning(client)


class KeysOfStopped:
    """The keys in the metadata store of a stopped server."""

    def __init__(self, metastore: EmbeddedMetaStore, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._clock = SystemClock()
        self._keys = Keys(metastore, self._clock)

    def create(self, wanted: KeyToCreate) -> dict[str, Any]:
        lifetime = wanted.expires_in_secs
        new = NewKey(
            scope=wanted.scope,
            limits=KeyLimits(wanted.max_events, wanted.max_subscriptions, wanted.publish_rate),
            is_root=wanted.root,
            alias_of=wanted.alias_of,
            expires_ms=None if lifetime is None else self._clock.now_ms() + lifetime * 1000,
            description=wanted.description,
        )
        with _as_problem():
            return self._issued(self._runner.run(self._keys.create(new)))

    def keys(self) -> Sequence[dict[str, Any]]:
        return [facts_of(self._keys, key, self._clock.now_ms()) for key in self._keys.page("", len(self._keys))]

    def rotate(self, key_id: str, overlap_seconds: int) -> dict[str, Any]:
        with _as_problem():
            return self._issued(self._runner.run(self._keys.rotate(key_id, overlap_seconds)))

    def set_limits(self, key_id: str, limits: Mapping[str, int | None]) -> dict[str, Any]:
        with _as_problem():
            return facts_of(self._keys, self._runner.run(self._keys.set_limits(key_id, limits)), self._clock.now_ms())

    def revoke(self, key_id: str) -> Sequence[str]:
        with _as_problem():
            return sorted(self._runner.run(self._keys.revoke(key_id)))

    def _issued(self, issued: IssuedKey) -> dict[str, Any]:
        facts = facts_of(self._keys, issued.key, self._clock.now_ms())
        return {**facts, "secret": issued.credentials.secret, "token": issued.credentials.token}


class KeysOfRunning:
    """The keys of a running server, over its HTTP port."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def create(self, wanted: KeyToCreate) -> dict[str, Any]:
        given = {name: value for name, value in wanted._asdict().items() if value not in (None, False)}
        main = given.pop("alias_of", None)
        path = "/keys" if main is None else f"/keys/{_quoted(main)}/aliases"
        issued: dict[str, Any] = self._client.request("POST", path, given)
        return issued

    def keys(self) -> Sequence[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            query = urlencode({"limit": KEYS_PER_PAGE, **({"after": after} if after else {})})
            page = self._client.request("GET", f"/keys?{query}")
            found += page["keys"]
            after = page["next"]
            if not after:
                return found

    def rotate(self, key_id: str, overlap_seconds: int) -> dict[str, Any]:
        body = {"overlap_secs": overlap_seconds}
        issued: dict[str, Any] = self._client.request("POST", f"/keys/{_quoted(key_id)}/rotate", body)
        return issued

    def set_limits(self, key_id: str, limits: Mapping[str, int | None]) -> dict[str, Any]:
        changed: dict[str, Any] = self._client.request("PATCH", f"/keys/{_quoted(key_id)}", dict(limits))
        return changed

    def revoke(self, key_id: str) -> Sequence[str]:
        revoked: list[str] = self._client.request("DELETE", f"/keys/{_quoted(key_id)}")["revoked"]
        return revoked


def _quoted(key_id: str) -> str:
    return quote(key_id, safe="")


@contextmanager
def _as_problem() -> Iterator[None]:
    try:
        yield
    except (IsAlias, KeyNotFound, TooManyKeys) as error:
        raise ValueError(str(error)) from None
