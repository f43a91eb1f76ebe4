"""A whole node and an HTTP client for it: `async with http_node(directory) as http: await http.get("/rooms")`."""

import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
from yarl import URL

from kwire.access.authorizer import Authorizer
from kwire.access.keys.keys import Keys
from kwire.access.quotas.quotas import Quotas
from kwire.access.users.users import Users
from kwire.bridge.process import Bridge
from kwire.node import Node
from tests.server.frames import HOST
from tests.support.node import running_node

# A larger body is sent in parts.
AT_ONCE_BYTES = 512 * 1024


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.body.splitlines() if line]

    @property
    def code(self) -> str:
        """The stable code of a refusal."""
        code: str = self.json["error"]["code"]
        return code


class Http:
    """Requests to one node, and their whole answers."""

    def __init__(self, server: Node | Bridge, session: aiohttp.ClientSession) -> None:
        assert server.http is not None
        self.server = server
        self.port = server.http.port
        self.session = session

    @property
    def node(self) -> Node:
        assert isinstance(self.server, Node)
        return self.server

    # --- parts of the server

    @property
    def authorizer(self) -> Authorizer:
        server = self.server
        return server._shared.services.authorizer if isinstance(server, Node) else server._authorizer

    @property
    def known_users(self) -> Users:
        return self.server._shared.services.users if isinstance(self.server, Node) else self.server._users

    @property
    def keys(self) -> Keys:
        return self.server._shared.services.keys if isinstance(self.server, Node) else self.server._keys

    @property
    def quotas(self) -> Quotas:
        return self.server._shared.services.quotas if isinstance(self.server, Node) else self.server._quotas

    # --- requests

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """`body` is sent as JSON unless it is bytes; underscores in names of headers are dashes."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            body = msgspec.json.encode(body)
            sent.setdefault("Content-Type", "application/json")
        data = io.BytesIO(body) if isinstance(body, bytes) and len(body) > AT_ONCE_BYTES else body
        # A path is sent as it is given, escapes included.
        url = URL(self.url + path, encoded=True)
        async with self.session.request(
            method, url, data=data, headers=sent, skip_auto_headers=("Content-Type",), allow_redirects=False
        ) as answer:
            return Answer(answer.status, dict(answer.headers), await answer.read())

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, **headers)

    async def post(self, path: str, body: object = None, **headers: str) -> Answer:
        return await self.ask("POST", path, body, **headers)

    async def put(self, path: str, body: object = None, **headers: str) -> Answer:
        return await self.ask("PUT", path, body, **headers)

    async def delete(self, path: str, **headers: str) -> Answer:
        return await self.ask("DELETE", path, **headers)


@asynccontextmanager
async def http_node(directory: Path, *settings: str) -> AsyncIterator[Http]:
    async with running_node(directory, *settings) as node, aiohttp.ClientSession() as session:
        yield Http(node, session)
