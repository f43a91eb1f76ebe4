"""A server or a bridge that is killed again and again while it delivers: no event is lost, and none comes early."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from tests.support.bridge_process import BridgeProcess
from tests.support.effort import repetitions
from tests.support.engines import CLIENT_ENGINES, delete_all_topics, upstream_of
from tests.support.http_json import ask
from tests.support.node import in_loop
from tests.support.server import KwireProcess
from tests.support.webhook_receiver import Got, Receiver, Reply, receiving

KILLS = repetitions(quick=2, full=4)
EVENTS_PER_LIFE = 60
Start = Callable[[Mapping[str, str]], KwireProcess]
SETTINGS = {
    "kwire.webhooks.allow.private": "true",
    "kwire.webhooks.retry.schedule.ms": ",".join(["10"] * 40),
}


class Client:
    """The doors of one server or bridge, from a test in an event loop. A bridge publishes to rooms."""

    def __init__(self, server: KwireProcess) -> None:
        self._server = server
        self._is_bridge = isinstance(server, BridgeProcess)

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = await asyncio.to_thread(ask, self._server.http_url + path, method, body)
        assert answer.status < 300, answer
        return answer.body

    async def create_topic(self) -> None:
        if self._is_bridge:
            await self.ask("PUT", "/rooms/orders", {})
            return
        await self.ask("POST", "/topics", {"name": "orders", "schemas": [{"eventType": "made", "type": "object"}]})

    async def create(self, receiver: Receiver, **fields: object) -> dict[str, Any]:
        body = {"url": receiver.url, "topics": {"orders": None}, **fields}
        made: dict[str, Any] = await self.ask("POST", "/webhooks", body)
        return made

    async def until_dead(self, webhook_id: str, *event_ids: str) -> None:
        """Wait until these are its dead letters, and no others."""
        async with asyncio.timeout(60):
            while True:
                found = await self.ask("GET", f"/webhooks/{webhook_id}/dead-letters")
                if [one["eventId"] for one in found["deadLetters"]] == list(event_ids):
                    return
                await asyncio.sleep(0.02)

    async def audited(self, what: str) -> list[dict[str, Any]]:
        found = await self.ask("GET", "/rooms/kwire-audit/events")
        return [one["data"] for one in found["events"] if one["type"] == what]

    async def publish(self, count: int) -> list[str]:
        if self._is_bridge:
            room_events = [{"event_type": "made", "data": {"n": n}} for n in range(count)]
            first = (await self.ask("POST", "/rooms/orders/events", room_events))["offset"] + 1
            return [f"orders-{first + n}" for n in range(count)]
        events = [{"topic": "orders", "type": "made", "payload": {"n": n}} for n in range(count)]
        answer = await self.ask("POST", "/events", events)
        ids: list[str] = answer["eventIds"]
        return ids


def first_occurrences(receiver: Receiver) -> list[str]:
    return list(dict.fromkeys(got.headers["webhook-id"] for got in receiver.requests))


@pytest.fixture
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Make a process that serves HTTP clients, with these settings. What it stores on a cluster is deleted."""
    upstream = upstream_of(request.param, request)

    def process(settings: Mapping[str, str]) -> KwireProcess:
        directory = tmp_path / "node"
        if upstream is None:
            return KwireProcess(directory, settings=settings)
        return BridgeProcess(directory, upstream, settings=settings)

    yield process
    if upstream is not None:
        asyncio.run(delete_all_topics(upstream))


@pytest.mark.parametrize("start", CLIENT_ENGINES, indirect=True)
@in_loop
@pytest.mark.timeout(100 + 10 * KILLS)
async def test_a_killed_server_goes_on_delivering_without_a_gap(start: Start) -> None:
    server = start(SETTINGS)
    client = Client(server)
    async with receiving() as ordered, receiving() as parallel:
        failing = iter(range(10_000))

        def now_and_then(got: Got) -> Reply:
            """Every seventh request fails."""
            return Reply(500 if next(failing) % 7 == 3 else 200)

        ordered.reply = parallel.reply = now_and_then
        try:
            await asyncio.to_thread(server.restart)
            await client.create_topic()
            await client.create(ordered)
            await client.create(parallel, mode="parallel", parallel=4)
            published: list[str] = []
            for life in range(KILLS):
                published += await client.publish(EVENTS_PER_LIFE)
                # Sooner than all are delivered, so that the kill meets deliveries under way.
                await ordered.received(len(ordered.requests) + 5 + 7 * (life % 4))
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.restart)
            published += await client.publish(EVENTS_PER_LIFE)
            async with asyncio.timeout(60):
                while len(first_occurrences(ordered)) < len(published) or len(first_occurrences(parallel)) < len(
                    published
                ):
                    await asyncio.sleep(0.05)
            assert first_occurrences(ordered) == published
            assert sorted(first_occurrences(parallel)) == sorted(published)
            for receiver in (ordered, parallel):
                print(f"{len(published)} events, {len(receiver.requests)} requests")
        finally:
            await asyncio.to_thread(server.kill)


class Moody:
    """A receiver that fails in every way, by chance; what it has taken is what it answered with 200."""

    def __init__(self, receiver: Receiver, seed: int) -> None:
        self.receiver = receiver
        self.taken: list[str] = []
        self._chance = Random(seed)
        self.is_well = False
        receiver.reply = self.reply

    def reply(self, got: Got) -> Reply:
        mood = "well" if self.is_well else self._chance.choice(["well"] * 12 + ["fail", "cut", "hang", "move", "slow"])
        match mood:
            case "fail":
                return Reply(500)
            case "cut":
                return Reply(is_cut=True)
            case "hang":
                return Reply(is_silent=True)
            case "move":
                return Reply(307, {"Location": "/moved"})
        self.taken.append(got.json["id"])
        if mood == "slow":
            late = asyncio.Event()
            asyncio.get_running_loop().call_later(0.05, late.set)
            return Reply(wait=late)
        return Reply()

    @property
    def first_taken(self) -> list[str]:
        return list(dict.fromkeys(self.taken))

    def check_requests(self, secret: str) -> None:
        """Signed each time, under one id with one content, and never where a redirect has pointed to."""
        bodies: dict[str, bytes] = {}
        for got in self.receiver.requests:
            Webhook(secret).verify(got.body, dict(got.headers))
            assert got.headers["webhook-id"] == got.json["id"]
            assert bodies.setdefault(got.json["id"], got.body) == got.body
            assert got.path == "/hook"


@pytest.mark.parametrize("start", CLIENT_ENGINES, indirect=True)
@in_loop
@pytest.mark.timeout(140 + 10 * KILLS)
@pytest.mark.proves("S2-42", "S2-43")
async def test_receivers_that_fail_in_every_way_and_a_server_that_is_killed_lose_nothing(start: Start) -> None:
    server = start({**SETTINGS, "kwire.webhooks.timeout.ms": "300"})
    client = Client(server)
    async with receiving() as first, receiving() as second:
        ordered, parallel = Moody(first, 1), Moody(second, 2)
        try:
            await asyncio.to_thread(server.restart)
            await client.create_topic()
            made = await client.create(first), await client.create(second, mode="parallel", parallel=4)
            published: list[str] = []
            for life in range(KILLS):
                published += await client.publish(EVENTS_PER_LIFE)
                await first.received(len(first.requests) + 20)
                receiver = (first, second)[life % 2]
                await receiver.stop()
                await receiver.start()
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.restart)
            ordered.is_well = parallel.is_well = True
            async with asyncio.timeout(60):
                while min(len(ordered.first_taken), len(parallel.first_taken)) < len(published):
                    await asyncio.sleep(0.05)
            assert ordered.first_taken == published
            assert sorted(parallel.first_taken) == sorted(published)
            for moody, webhook in zip((ordered, parallel), made, strict=True):
                moody.check_requests(webhook["secret"])
                await client.until_dead(webhook["id"])
        finally:
            await asyncio.to_thread(server.kill)


@in_loop
@pytest.mark.timeout(120)
@pytest.mark.proves("S2-21", "S2-37", "S2-47")
async def test_dead_letters_and_removals_survive_a_kill_and_dead_letters_can_be_sent_again(tmp_path: Path) -> None:
    settings = {**SETTINGS, "kwire.webhooks.retry.schedule.ms": "10,10"}
    server = KwireProcess(tmp_path / "node", settings=settings)
    client = Client(server)
    async with receiving() as receiver, receiving() as broken:
        receiver.reply = lambda got: Reply(500 if got.json["payload"]["n"] == 1 else 200)
        broken.reply = lambda got: Reply(500)
        try:
            await asyncio.to_thread(server.restart)
            await client.create_topic()
            webhook = await client.create(receiver)
            consumer = await client.ask(
                "POST", "/consumers/register", {"callback": broken.url, "topics": {"orders": None}}
            )
            await client.publish(3)
            await client.until_dead(webhook["id"], "orders-2")
            async with asyncio.timeout(20):
                while not await client.audited("webhook.removed") or not await client.audited("webhook.failed"):
                    await asyncio.sleep(0.02)
            # What was asked for is durable once it is answered; the dead letter is written down behind it.
            await client.ask("POST", f"/webhooks/{webhook['id']}/replay", {"sinceEventId": "orders-3"})
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
            await client.until_dead(webhook["id"], "orders-2")
            assert (await client.ask("GET", "/consumers"))["consumers"][0]["id"] == webhook["id"]
            (removed,) = await client.audited("webhook.removed")
            assert (removed["webhook"], removed["eventId"]) == (consumer["id"], "orders-1")
            assert len(broken.requests) == 1
            receiver.reply = lambda got: Reply()
            receiver.requests.clear()
            assert await client.ask("POST", f"/webhooks/{webhook['id']}/dead-letters/resend", {}) == {"queued": 1}
            (got,) = await receiver.received(1)
            Webhook(webhook["secret"]).verify(got.body, dict(got.headers))
            assert got.headers["webhook-id"] == "orders-2"
            await client.until_dead(webhook["id"])
        finally:
            await asyncio.to_thread(server.kill)
