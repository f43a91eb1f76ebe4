"""A server or a bridge whose HTTP port knows users and ACLs: `async with access_http(engine) as http: …`.

`admin` is a super user. Other users may do what a test allows.
"""

import unicodedata
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp

from kwire.access.acl import WILDCARD, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kwire.access.authorizer import AclAuthorizer
from kwire.access.principal import Principal
from kwire.bridge.process import Bridge
from kwire.node import Node
from tests.support.engines import Engine
from tests.support.http import Http

ACL_SETTINGS = ("kwire.authorizer=acl", "super.users=User:admin")
BASIC_SETTING = "kwire.http.authentication=basic"
SETTINGS = (*ACL_SETTINGS, BASIC_SETTING)

Right = tuple[Operation, ResourceType, str]


class FakeUsers:
    """Users and their passwords, as the HTTP port needs them. `verified` counts the checks of each name."""

    def __init__(self, **passwords: str) -> None:
        self.passwords = passwords
        self.verified: list[str] = []
        self._listeners: list[Callable[[frozenset[str]], None]] = []

    def __contains__(self, name: str) -> bool:
        return name in self.passwords

    async def verify(self, name: str, password: str, host: str = "") -> bool:
        """Other spellings of a name are accepted, as SASLprep says."""
        self.verified.append(name)
        return self.passwords.get(unicodedata.normalize("NFKC", name)) == password

    def listen(self, listener: Callable[[frozenset[str]], None]) -> None:
        self._listeners.append(listener)

    def delete(self, name: str) -> None:
        del self.passwords[name]
        self.changed(name)

    def changed(self, name: str) -> None:
        for listener in self._listeners:
            listener(frozenset((name,)))


def basic(name: str, password: str) -> str:
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode()


ADMIN = basic("admin", "a-secret")
BOB = basic("bob", "b-secret")


class AccessHttp(Http):
    """Requests to a server with users and ACLs."""

    def __init__(self, server: Node | Bridge, session: aiohttp.ClientSession, users: FakeUsers) -> None:
        super().__init__(server, session)
        self.users = users

    @property
    def acls(self) -> AclAuthorizer:
        assert isinstance(self.authorizer, AclAuthorizer)
        return self.authorizer

    async def allow(self, *rights: Right, user: str = "bob", is_denied: bool = False) -> None:
        permission = Permission.DENY if is_denied else Permission.ALLOW
        await self.acls.add(
            [
                Acl(kind, name, PatternType.LITERAL, Principal("User", user), WILDCARD, operation, permission)
                for operation, kind, name in rights
            ]
        )

    async def take_away(self, user: str = "bob") -> None:
        """Remove all ACLs of a user."""
        await self.acls.remove([AclFilter(principal=f"User:{user}")])


@asynccontextmanager
async def access_http(engine: Engine, *settings: str, users: FakeUsers | None = None) -> AsyncIterator[AccessHttp]:
    known = users or FakeUsers(admin="a-secret", bob="b-secret")

    def give_users(server: Node | Bridge) -> None:
        server.http_users = known

    async with (
        engine.server(*(settings or SETTINGS), prepare=give_users) as server,
        aiohttp.ClientSession() as session,
    ):
        yield AccessHttp(server, session, known)


def access_node(directory: Path, *settings: str) -> AbstractAsyncContextManager[AccessHttp]:
    """A server of its own with users and ACLs."""
    return access_http(Engine(directory, None), *settings)
