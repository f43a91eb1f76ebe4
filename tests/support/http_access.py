"""A node whose HTTP port knows users and ACLs: `async with access_node(directory) as http: …`.

`admin` is a super user. Other users may do what a test allows.
"""

import unicodedata
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from kwire.access.acl import WILDCARD, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kwire.access.authorizer import AclAuthorizer
from kwire.access.principal import Principal
from kwire.node import Node
from tests.support.http import Http
from tests.support.node import running_node

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
    """Requests to a node with users and ACLs."""

    def __init__(self, node: Node, session: aiohttp.ClientSession, users: FakeUsers) -> None:
        super().__init__(node, session)
        self.users = users

    @property
    def authorizer(self) -> AclAuthorizer:
        found = self.node._shared.services.authorizer
        assert isinstance(found, AclAuthorizer)
        return found

    async def allow(self, *rights: Right, user: str = "bob", is_denied: bool = False) -> None:
        permission = Permission.DENY if is_denied else Permission.ALLOW
        await self.authorizer.add(
            [
                Acl(kind, name, PatternType.LITERAL, Principal("User", user), WILDCARD, operation, permission)
                for operation, kind, name in rights
            ]
        )

    async def take_away(self, user: str = "bob") -> None:
        """Remove all ACLs of a user."""
        await self.authorizer.remove([AclFilter(principal=f"User:{user}")])


@asynccontextmanager
async def access_node(directory: Path, *settings: str) -> AsyncIterator[AccessHttp]:
    users = FakeUsers(admin="a-secret", bob="b-secret")

    def give_users(node: Node) -> None:
        node.http_users = users

    async with (
        running_node(directory, *(settings or SETTINGS), prepare=give_users) as node,
        aiohttp.ClientSession() as session,
    ):
        yield AccessHttp(node, session, users)
