"""A server or a bridge whose webhooks may go to this machine, and what tests ask of it over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kwire.bridge.process import Bridge
from tests.support.engines import Engine
from tests.support.http import Answer, Http
from tests.support.webhook_receiver import Receiver

WAIT_S = 20.0
LOOK_S = 0.01
# Attempts follow each other at once.
FAST = ("kwire.webhooks.allow.private=true", "kwire.webhooks.retry.schedule.ms=10,10,10")
SCHEMA = {"eventType": "made", "type": "object"}
OTHER_SCHEMA = {"eventType": "changed", "type": "object"}


class Hooks:
    """Topics, events and webhooks of one server or bridge. A bridge publishes to rooms instead of the event store."""

    def __init__(self, http: Http) -> None:
        self.http = http
        self.is_bridge = isinstance(http.server, Bridge)

    async def create_topic(self, *names: str) -> None:
        for name in names:
            if self.is_bridge:
                answer = await self.http.put(f"/rooms/{name}", {})
                assert answer.status == 201, answer
                continue
            answer = await self.http.post("/topics", {"name": name, "schemas": [SCHEMA, OTHER_SCHEMA]})
            assert answer.status == 201, answer

    async def publish(self, topic: str, *payloads: dict[str, Any], type: str = "made") -> list[str]:
        if self.is_bridge:
            room_events = [{"event_type": type, "data": payload} for payload in payloads]
            answer = await self.http.post(f"/rooms/{topic}/events", room_events)
            assert answer.status == 201, answer
            first = answer.json["offset"] + 1
            return [f"{topic}-{first + number}" for number in range(len(payloads))]
        events = [{"topic": topic, "type": type, "payload": payload} for payload in payloads]
        answer = await self.http.post("/events", events)
        assert answer.status in (200, 201), answer
        ids: list[str] = answer.json["eventIds"]
        return ids

    async def register(self, receiver: Receiver, **topics: str | None) -> dict[str, Any]:
        """The short way."""
        answer = await self.http.post("/consumers/register", {"callback": receiver.url, "topics": topics})
        assert answer.status == 201, answer
        made: dict[str, Any] = answer.json
        return made

    async def create(self, receiver: Receiver, *topics: str, **fields: object) -> dict[str, Any]:
        body = {"url": receiver.url, "topics": dict.fromkeys(topics or ("orders",)), **fields}
        answer = await self.http.post("/webhooks", body)
        assert answer.status == 201, answer
        made: dict[str, Any] = answer.json
        return made

    async def get(self, webhook: dict[str, Any]) -> dict[str, Any]:
        answer = await self.http.get(f"/webhooks/{webhook['id']}")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json
        return found

    async def post(self, webhook: dict[str, Any], verb: str, body: object = None) -> Answer:
        return await self.http.post(f"/webhooks/{webhook['id']}/{verb}", body)

    async def attempts(self, webhook: dict[str, Any], query: str = "") -> list[dict[str, Any]]:
        answer = await self.http.get(f"/webhooks/{webhook['id']}/deliveries{query}")
        assert answer.status == 200, answer
        found: list[dict[str, Any]] = answer.json["attempts"]
        return found

    async def dead(self, webhook: dict[str, Any]) -> list[dict[str, Any]]:
        answer = await self.http.get(f"/webhooks/{webhook['id']}/dead-letters")
        assert answer.status == 200, answer
        found: list[dict[str, Any]] = answer.json["deadLetters"]
        return found

    async def until(self, webhook: dict[str, Any], is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The webhook, once it is as it should be."""
        async with asyncio.timeout(WAIT_S):
            while not is_so(found := await self.get(webhook)):
                await asyncio.sleep(LOOK_S)
            return found

    async def until_gone(self, webhook: dict[str, Any]) -> None:
        async with asyncio.timeout(WAIT_S):
            while (await self.http.get(f"/webhooks/{webhook['id']}")).status != 404:
                await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def hooks_node(where: Path | Engine, *settings: str) -> AsyncIterator[Hooks]:
    """A server in a directory, or what an engine starts."""
    engine = where if isinstance(where, Engine) else Engine(where, None)
    async with engine.http(*(settings or FAST)) as http:
        yield Hooks(http)
