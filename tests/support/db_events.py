"""A server or a bridge that takes keys, and clients of its event API: `async with db_http(engine) as db: …`."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from kwire.access.keys.key import IssuedKey, KeyLimits, NewKey
from kwire.access.usage.key_usage import KeyUsage
from kwire.web.db_events.event_sessions import EventSessions
from tests.support.engines import Engine
from tests.support.http import Answer, Http

EVENTS = "/db/api/v1/events"
SUBSCRIBE = "/db/api/v1/events/subscribe"
REQUEST_SLOT = "/db/internal/v1/subscriptions/request_slot"
RELEASE_SLOT = "/db/internal/v1/subscriptions/release_slot"
SECONDS = 15.0


def bearer(key: IssuedKey) -> str:
    return f"Bearer {key.credentials.token}"


class DbHttp(Http):
    """Requests with keys."""

    @property
    def usage(self) -> KeyUsage:
        return self.server._key_usage

    @property
    def sessions(self) -> EventSessions:
        return self.server.db_sessions

    async def key(
        self,
        scope: str | None = "acme",
        *,
        max_events: int | None = None,
        max_subscriptions: int | None = None,
        publish_rate: int | None = None,
        is_root: bool = False,
        alias_of: str | None = None,
    ) -> IssuedKey:
        limits = KeyLimits(max_events, max_subscriptions, publish_rate)
        return await self.usage.keys.create(NewKey(scope, limits, is_root, alias_of))

    async def publish(self, key: IssuedKey, topic: str, data: object) -> Answer:
        return await self.post(EVENTS, {"topic": topic, "data": data}, Authorization=bearer(key))

    @asynccontextmanager
    async def socket(self, key: IssuedKey, topic: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        async with self.session.ws_connect(
            f"{self.url}{SUBSCRIBE}", params={"topic": topic}, headers={"Authorization": bearer(key)}, autoping=True
        ) as one:
            yield one

    async def refused_socket(self, key: IssuedKey, topic: str = "t") -> Answer:
        """The answer to a handshake that is refused."""
        headers = {
            "Authorization": bearer(key),
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        async with self.session.get(f"{self.url}{SUBSCRIBE}", params={"topic": topic}, headers=headers) as answer:
            return Answer(answer.status, dict(answer.headers), await answer.read())

    async def metric(self, root: IssuedKey, name: str) -> float:
        text = (await self.get("/metrics", Authorization=bearer(root))).body.decode()
        return float(next(line for line in text.splitlines() if line.startswith(name + " ")).split()[-1])


async def next_event(socket: aiohttp.ClientWebSocketResponse) -> Mapping[str, Any]:
    async with asyncio.timeout(SECONDS):
        event: Mapping[str, Any] = json.loads(await socket.receive_str())
        return event


async def until(condition: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def db_http(engine: Engine, *settings: str) -> AsyncIterator[DbHttp]:
    async with (
        engine.server("kwire.http.authentication=key", *settings) as server,
        aiohttp.ClientSession() as session,
    ):
        yield DbHttp(server, session)
