"""Webhooks of bridges that share a cluster: one delivers, and another takes over without a gap."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from kwire.bridge import webhooks as bridge_webhooks
from kwire.bridge.process import Bridge
from kwire.streams.remote.transactions.writer import TransactionalWriter
from kwire.streams.remote_webhooks import state_topic
from tests.support.apache_cluster import ON_APACHE, ApacheCluster
from tests.support.effort import repetitions
from tests.support.engines import delete_all_topics, running_bridge
from tests.support.http import Http
from tests.support.node import in_loop
from tests.support.server import KwireProcess
from tests.support.webhook_node import FAST, WAIT_S, Hooks
from tests.support.webhook_receiver import Got, Receiver, Reply, receiving

TOPIC = "__kwire_webhooks"
TAKEOVERS = repetitions(quick=3, full=12)
StartKwire = Callable[..., KwireProcess]


class Bridges:
    """Bridges over one cluster, each with a data directory of its own, and a key file that they share."""

    def __init__(self, directory: Path, upstream: str) -> None:
        self.upstream = upstream
        self._directory = directory
        self._stack = AsyncExitStack()

    async def close(self) -> None:
        await self._stack.aclose()

    async def start(self, name: str, *settings: str, key: str = "shared.key") -> Hooks:
        given = (*FAST, f"kwire.secrets.key.file={self._directory / key}", *settings)
        bridge = await self._stack.enter_async_context(running_bridge(self._directory / name, self.upstream, *given))
        session = await self._stack.enter_async_context(aiohttp.ClientSession())
        return Hooks(Http(bridge, session))


def bridge_of(hooks: Hooks) -> Bridge:
    assert isinstance(hooks.http.server, Bridge)
    return hooks.http.server


async def until_problem(hooks: Hooks, text: str) -> str:
    """Wait until a bridge does not deliver, for this reason. Returns the whole reason."""
    webhooks = bridge_of(hooks)._webhooks
    async with asyncio.timeout(WAIT_S):
        while text not in webhooks.problem:
            await asyncio.sleep(0.01)
    return webhooks.problem


async def until_delivering(hooks: Hooks) -> None:
    webhooks = bridge_of(hooks)._webhooks
    async with asyncio.timeout(WAIT_S):
        while webhooks.statistics() is None:
            await asyncio.sleep(0.01)


def first_occurrences(receiver: Receiver) -> list[str]:
    return list(dict.fromkeys(got.headers["webhook-id"] for got in receiver.requests))


async def until_received(receiver: Receiver, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(first_occurrences(receiver)) < count:
            await asyncio.sleep(0.01)


@pytest.fixture(params=["kwire", pytest.param("apache", marks=ON_APACHE)])
def cluster(request: pytest.FixtureRequest) -> str:
    if request.param == "apache":
        kafka: ApacheCluster = request.getfixturevalue("apache_kafka")
        return kafka.bootstrap
    kwire: KwireProcess = request.getfixturevalue("upstream_kwire")
    return kwire.bootstrap


@asynccontextmanager
async def bridges_on(cluster: str, directory: Path) -> AsyncIterator[Bridges]:
    bridges = Bridges(directory, cluster)
    try:
        yield bridges
    finally:
        await bridges.close()
        await asyncio.to_thread(asyncio.run, delete_all_topics(cluster))


@in_loop
async def test_a_second_bridge_takes_over_and_the_first_one_stops(
    cluster: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_topic, "CHECK_SECONDS", 0.2)
    async with receiving() as receiver, bridges_on(cluster, tmp_path) as bridges:
        first = await bridges.start("first")
        await first.create_topic("orders")
        receiver.reply = lambda got: Reply(500 if got.json["payload"]["n"] == 1 else 200)
        webhook = await first.create(receiver)
        published = await first.publish("orders", *({"n": n} for n in range(3)))
        await first.until(webhook, lambda one: one["deadLetters"] == 1 and one["delivered"] == 2)
        second = await bridges.start("second")
        problem = await until_problem(first, "has taken over the webhooks in topic")
        assert f"webhooks are not delivered: {problem}" in caplog.text
        # What the first one has not stored by then is delivered again.
        await second.until(webhook, lambda one: one["deadLetters"] == 1 and one["delivered"] == 2)
        for method, path in (("GET", "/webhooks"), ("GET", f"/consumers/{webhook['id']}"), ("POST", "/webhooks")):
            answer = await first.http.ask(method, path, {"url": receiver.url, "topics": {"orders": None}})
            assert (answer.status, answer.code) == (503, "WebhooksUnavailable")
            assert "another bridge" in answer.json["error"]["message"]
        assert "\nkwire_bridge_webhooks_delivering 0.0\n" in (await first.http.get("/metrics")).body.decode()
        assert "\nkwire_bridge_webhooks_delivering 1.0\n" in (await second.http.get("/metrics")).body.decode()
        assert problem in (await first.http.get("/overview")).json["warnings"][0]
        assert (await second.http.get("/overview")).json["warnings"] == []
        # The first one still serves everything else.
        published += await first.publish("orders", {"n": 3}, {"n": 4})
        await second.until(webhook, lambda one: one["delivered"] == 4)
        receiver.reply = lambda got: Reply()
        assert (await second.post(webhook, "dead-letters/resend", {})).json == {"queued": 1}
        await second.until(webhook, lambda one: one["deadLetters"] == 0)
        assert first_occurrences(receiver) == published


@in_loop
async def test_events_are_delivered_without_a_gap_while_bridges_take_over_from_each_other(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_topic, "CHECK_SECONDS", 0.2)
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)

    def reply(got: Got) -> Reply:
        return Reply(500 if chance.random() < 0.1 else 200)

    schedule = "kwire.webhooks.retry.schedule.ms=" + ",".join(["10"] * 40)
    async with receiving() as ordered, receiving() as parallel, bridges_on(cluster, tmp_path) as bridges:
        ordered.reply = parallel.reply = reply
        hooks = await bridges.start("0", schedule)
        await hooks.create_topic("orders")
        made = [await hooks.create(ordered), await hooks.create(parallel, mode="parallel", parallel=4)]
        published: list[str] = []
        for number in range(1, TAKEOVERS + 1):
            published += await hooks.publish("orders", *({"n": n} for n in range(40)))
            await ordered.received(len(ordered.requests) + chance.randrange(30))
            hooks = await bridges.start(str(number), schedule)
        published += await hooks.publish("orders", *({"n": n} for n in range(40)))
        for webhook in made:
            await hooks.until(webhook, lambda one: not one["topics"]["orders"]["pending"])
        await until_received(ordered, len(published))
        await until_received(parallel, len(published))
        assert first_occurrences(ordered) == published
        assert sorted(first_occurrences(parallel)) == sorted(published)
        for receiver in (ordered, parallel):
            print(f"{len(published)} events, {len(receiver.requests)} requests")


@in_loop
async def test_a_bridge_without_the_key_leaves_the_webhooks_to_the_other(cluster: str, tmp_path: Path) -> None:
    async with receiving() as receiver, bridges_on(cluster, tmp_path) as bridges:
        first = await bridges.start("first")
        await first.create_topic("orders")
        webhook = await first.create(receiver)
        second = await bridges.start("second", key="other.key")
        assert "encrypted with another key" in bridge_of(second)._webhooks.problem
        assert (await second.http.get("/webhooks")).status == 503
        assert (await second.http.get("/rooms/orders/events")).status == 200
        published = await first.publish("orders", {"n": 1})
        await first.until(webhook, lambda one: one["delivered"] == 1)
        assert first_occurrences(receiver) == published


@in_loop
async def test_a_bridge_with_another_topic_has_webhooks_of_its_own(cluster: str, tmp_path: Path) -> None:
    async with receiving() as receiver, bridges_on(cluster, tmp_path) as bridges:
        first = await bridges.start("first")
        await first.create_topic("orders")
        webhook = await first.create(receiver)
        second = await bridges.start("second", "kwire.bridge.webhooks.topic=__kwire_other_webhooks")
        assert (await second.http.get("/webhooks")).json["webhooks"] == []
        await second.create(receiver)
        assert len((await first.http.get("/webhooks")).json["webhooks"]) == 1
        await first.publish("orders", {"n": 1})
        assert [got.headers["webhook-id"] for got in await receiver.received(2)] == ["orders-1", "orders-1"]
        await first.until(webhook, lambda one: one["delivered"] == 1)


@in_loop
async def test_a_bridge_that_nobody_has_replaced_takes_its_webhooks_back(
    cluster: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after an outage that was longer than a transaction may take: the cluster has fenced the writer by itself."""
    async with receiving() as receiver, bridges_on(cluster, tmp_path) as bridges:
        hooks = await bridges.start("first")
        await hooks.create_topic("orders")
        webhook = await hooks.create(receiver)
        await hooks.publish("orders", {"n": 1})
        await hooks.until(webhook, lambda one: one["delivered"] == 1)
        webhooks = bridge_of(hooks)._webhooks
        delivery = webhooks._delivery
        writer = TransactionalWriter(bridge_of(hooks)._cluster, f"kwire.webhooks.{TOPIC}")
        await writer.open()
        await hooks.publish("orders", {"n": 2})
        async with asyncio.timeout(WAIT_S):
            while webhooks._delivery in (None, delivery):
                await asyncio.sleep(0.01)
        assert "another process has taken over the writer" in caplog.text
        await writer.close()
        await hooks.publish("orders", {"n": 3})
        found = await hooks.until(webhook, lambda one: not one["topics"]["orders"]["pending"])
        assert found["delivered"] >= 3
        await until_received(receiver, 3)
        assert first_occurrences(receiver) == ["orders-1", "orders-2", "orders-3"]


@in_loop
async def test_a_topic_that_cannot_be_used_is_tried_again_while_the_bridge_serves(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_webhooks, "PAUSE_SECONDS", 0.05)
    async with receiving() as receiver, bridges_on(cluster, tmp_path) as bridges:
        other = await bridges.start("other", "kwire.webhooks.enable=false")
        admin = bridge_of(other)._rooms._admin
        await admin.create_topic(TOPIC, 1, {"cleanup.policy": "delete"})
        async with asyncio.timeout(WAIT_S):
            while TOPIC not in bridge_of(other)._cluster.metadata.topics:
                await bridge_of(other)._cluster.refresh([TOPIC])
        hooks = await bridges.start("first")
        await until_problem(hooks, "it has cleanup.policy=delete")
        await hooks.create_topic("orders")
        await admin.change_configs(TOPIC, {"cleanup.policy": "compact", "max.message.bytes": str(16 * 1024 * 1024)})
        await until_delivering(hooks)
        webhook = await hooks.create(receiver)
        await hooks.publish("orders", {"n": 1})
        await hooks.until(webhook, lambda one: one["delivered"] == 1)


@pytest.mark.full("a server has to be killed and started again")
@in_loop
async def test_an_outage_of_the_cluster_loses_no_event(start_kwire: StartKwire, tmp_path: Path) -> None:
    upstream = start_kwire()
    async with receiving() as receiver:
        bridges = Bridges(tmp_path, upstream.bootstrap)
        try:
            hooks = await bridges.start("first")
            await hooks.create_topic("orders")
            webhook = await hooks.create(receiver)
            published = await hooks.publish("orders", *({"n": n} for n in range(20)))
            await receiver.received(5)
            await asyncio.to_thread(upstream.kill)
            await asyncio.to_thread(upstream.restart)
            published += await hooks.publish("orders", *({"n": n} for n in range(20)))
            await hooks.until(webhook, lambda one: one["delivered"] == 40)
            assert first_occurrences(receiver) == published
        finally:
            await bridges.close()
