"""Random requests of two tenants and an administrator on rooms and topics, compared with a naive twin.

The twin is a dictionary of full names. A tenant sees the part of it with its prefix.
"""

import random
from typing import Any
from urllib.parse import quote

from kwire.streams.rooms.names import topic_of_room
from tests.end_to_end.seeds import announced_seed
from tests.support.effort import repetitions
from tests.support.engines import Engine
from tests.support.http_access import ADMIN, AccessHttp
from tests.support.node import in_uvloop
from tests.support.tenants import SCOPES, A, B, tenant_http

STEPS = repetitions(quick=400, full=2000)
# A cluster takes longer, mostly to create and to delete topics.
BRIDGE_STEPS = repetitions(quick=100, full=200)
PREFIXES = {A: SCOPES["a"].prefix, B: SCOPES["b"].prefix, ADMIN: ""}
NAMES = ("r", "rr", "s", "a.b", "a-b", "é", "x/y", "_x41_", "kws-aaaaaaaaaaa.r", "kws-bbbbbbbbbbb.s", "kws-")

TOPICS = ("t", "tt", "kws-aaaaaaaaaaa.t", "kws-bbbbbbbbbbb.tt")


class Twin:
    """The rooms and the topics that are no rooms: the data of their events by full name."""

    def __init__(self) -> None:
        self.rooms: dict[str, list[int]] = {}
        self.topics: dict[str, list[int]] = {}

    def seen(self, prefix: str) -> dict[str, list[int]]:
        """The rooms that a client with this prefix sees, in the order of their topic names."""
        found = {name[len(prefix) :]: data for name, data in self.rooms.items() if name.startswith(prefix)}
        return dict(sorted(found.items(), key=lambda one: topic_of_room(prefix + one[0])))


class World:
    """Sends a random request, and checks its answer."""

    def __init__(self, http: AccessHttp, seed: int) -> None:
        self.http = http
        self.random = random.Random(seed)
        self.twin = Twin()
        self.number = 0

    async def step(self) -> None:
        client = self.random.choice((A, A, B, B, ADMIN))
        on_rooms = (self.publish, self.publish, self.put, self.read, self.list, self.delete)
        on_topics = (self.make_topic, self.publish_to_topic, self.read_topic, self.delete_topic)
        if self.random.random() < 0.1:
            await self.topics(client)
        elif self.random.random() < 0.6:
            await self.random.choice(on_rooms)(client, self.random.choice(NAMES))
        else:
            await self.random.choice(on_topics)(client, self.random.choice(TOPICS))

    async def publish(self, client: str, name: str) -> None:
        self.number += 1
        answer = await self._ask(client, "POST", self._path(name) + "/events", {"event_type": "t", "data": self.number})
        data = self.twin.rooms.setdefault(PREFIXES[client] + name, [])
        data.append(self.number)
        assert (answer.status, answer.json["offset"]) == (201, len(data) - 1)

    async def put(self, client: str, name: str) -> None:
        full = PREFIXES[client] + name
        answer = await self._ask(client, "PUT", self._path(name), {})
        assert answer.status == (200 if full in self.twin.rooms else 201)
        shown = answer.json
        assert (shown["room"], shown["event_count"]) == (name, len(self.twin.rooms.setdefault(full, [])))
        assert PREFIXES[client] + shown["topic"] == topic_of_room(full)

    async def read(self, client: str, name: str) -> None:
        answer = await self._ask(client, "GET", self._path(name) + "/events", None)
        data = self.twin.rooms.get(PREFIXES[client] + name)
        if data is None:
            assert (answer.status, answer.json["error"]["room"]) == (404, self._in_error(client, name))
        else:
            assert [(one["room"], one["data"]) for one in answer.json["events"]] == [(name, one) for one in data]

    async def delete(self, client: str, name: str) -> None:
        answer = await self._ask(client, "DELETE", self._path(name), None)
        data = self.twin.rooms.pop(PREFIXES[client] + name, None)
        assert answer.status == (404 if data is None else 200)
        assert (self._in_error(client, name) if data is None else name) in str(answer.json)

    async def list(self, client: str, name: str) -> None:
        rooms = list(self.twin.seen(PREFIXES[client]))
        prefix = self.random.choice(("", "", "r", "a", "kws-", name))
        after, limit = self.random.choice(("", name)), self.random.randint(1, 5)
        found = (
            await self._ask(
                client,
                "GET",
                f"/rooms?limit={limit}&prefix={quote(prefix, safe='')}&after={quote(after, safe='')}",
                None,
            )
        ).json
        expected = [one for one in rooms if one.startswith(prefix) and (not after or self._sorts(client, after, one))]
        assert [one["room"] for one in found["rooms"]] == expected[:limit]
        assert (found["next"] is not None) == (len(expected) > limit)
        assert found["room_count"] == (len(self.twin.rooms) if client is ADMIN else None)

    def _sorts(self, client: str, after: str, name: str) -> bool:
        return topic_of_room(PREFIXES[client] + name) > topic_of_room(PREFIXES[client] + after)

    async def topics(self, client: str) -> None:
        prefix = PREFIXES[client]
        found = (await self._ask(client, "GET", "/topics", None)).json
        rooms = [topic_of_room(prefix + one)[len(prefix) :] for one in self.twin.seen(prefix)]
        topics = [one[len(prefix) :] for one in self.twin.topics if one.startswith(prefix)]
        assert [one for one in found if one != "kwire-audit" or client is not ADMIN] == sorted(rooms + topics)

    async def make_topic(self, client: str, name: str) -> None:
        full = PREFIXES[client] + name
        answer = await self._ask(client, "POST", f"/topics/{name}", {"num_partitions": 1})
        if full in self.twin.topics:
            assert (answer.status, answer.code) == (409, "TOPIC_ALREADY_EXISTS")
        else:
            self.twin.topics[full] = []
            assert (answer.status, answer.json["topic"]) == (201, name)

    async def publish_to_topic(self, client: str, name: str) -> None:
        self.number += 1
        answer = await self._ask(client, "POST", f"/topics/{name}/publish", {"event_type": "t", "data": self.number})
        data = self.twin.topics.get(PREFIXES[client] + name)
        if data is None:
            assert answer.status == 404
        else:
            data.append(self.number)
            assert answer.json == {"partition_id": 0, "offset": len(data) - 1, "topic": name}

    async def read_topic(self, client: str, name: str) -> None:
        answer = await self._ask(client, "POST", f"/topics/{name}/partitions/0/consume", {"limit": 10_000})
        stats = await self._ask(client, "GET", f"/topics/{name}/stats", None)
        data = self.twin.topics.get(PREFIXES[client] + name)
        if data is None:
            assert (answer.status, stats.status) == (404, 404)
        else:
            assert [(one["topic"], one["data"]) for one in answer.json["events"]] == [(name, one) for one in data]
            assert (stats.json["topic"], stats.json["partitions"][0]["message_count"]) == (name, len(data))

    async def delete_topic(self, client: str, name: str) -> None:
        answer = await self._ask(client, "DELETE", f"/topics/{name}", None)
        is_there = self.twin.topics.pop(PREFIXES[client] + name, None) is not None
        assert answer.status == (200 if is_there else 404)
        if is_there:
            assert answer.json == {"success": True, "topic": name}

    def _in_error(self, client: str, name: str) -> str:
        """Errors contain the prefix of the client's scope nowhere, not even if the client itself has sent it."""
        return name.replace(PREFIXES[client], "") if PREFIXES[client] else name

    def _path(self, name: str) -> str:
        return f"/rooms/{quote(name, safe='')}"

    async def _ask(self, client: str, method: str, path: str, body: object) -> Any:
        return await self.http.ask(method, path, body, Authorization=client)


@in_uvloop
async def test_two_tenants_and_an_administrator_against_a_twin(engine: Engine) -> None:
    seed = announced_seed()
    async with tenant_http(engine, "kwire.rooms.max=1000") as http:
        world = World(http, seed)
        for _ in range(STEPS if engine.upstream is None else BRIDGE_STEPS):
            await world.step()
