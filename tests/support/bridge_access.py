"""A bridge with users and ACLs: `async with bridge_with_users(directory, upstream) as http: …`.

`admin` is a super user. `bob` may do what a test allows. Both are real users of the bridge.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from kwire.access.acl import Operation, PatternType, Permission, ResourceType
from tests.support.engines import running_bridge
from tests.support.http import Answer, Http
from tests.support.http_access import ADMIN, SETTINGS, Right

PASSWORDS = {"admin": "a-secret", "bob": "b-secret"}
ANY_FILTER = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


class BridgeHttp(Http):
    """Requests to a bridge with users and ACLs."""

    async def allow(self, rights: Iterable[Right], user: str = "bob", *, is_denied: bool = False) -> None:
        creations = [
            {
                "resource_type": kind,
                "resource_name": name,
                "resource_pattern_type": PatternType.LITERAL,
                "principal": f"User:{user}",
                "host": "*",
                "operation": operation,
                "permission_type": Permission.DENY if is_denied else Permission.ALLOW,
            }
            for operation, kind, name in rights
        ]
        await self.as_admin("CreateAcls", {"creations": creations})

    async def take_away(self, user: str = "bob") -> None:
        """Remove all ACLs of a user."""
        await self.as_admin("DeleteAcls", {"filters": [{**ANY_FILTER, "principal_filter": f"User:{user}"}]})

    async def as_admin(self, api: str, body: dict[str, Any]) -> Any:
        answer = await self.kafka(api, body, ADMIN)
        assert answer.status == 200, answer
        return answer.json

    async def kafka(self, api: str, body: dict[str, Any], credentials: str) -> Answer:
        return await self.post(f"/kafka/{api}", body, Authorization=credentials)


@asynccontextmanager
async def bridge_with_users(directory: Path, upstream: str, *settings: str) -> AsyncIterator[BridgeHttp]:
    """The users are created before authentication is switched on."""
    async with aiohttp.ClientSession() as session:
        async with running_bridge(directory, upstream) as bridge:
            http = Http(bridge, session)
            for name, password in PASSWORDS.items():
                assert (await http.post("/users", {"name": name, "password": password})).status == 201
        async with running_bridge(directory, upstream, *SETTINGS, *settings) as bridge:
            yield BridgeHttp(bridge, session)
