"""Changes while a delivery is in flight: its webhook is paused, replayed or deleted, its topic is created again."""

import asyncio

import pytest

from kwire.streams.subscriptions.start import FROM_OLDEST
from kwire.streams.webhooks.definition import Definition, parse_webhook
from kwire.streams.webhooks.delivery import delivery
from kwire.streams.webhooks.delivery.sender import Request, Response
from tests.support.event_store import draft
from tests.support.hooked_node import Hooked, event_id_of, hooked, until
from tests.support.node import QuietNode, in_loop


async def publish(node: QuietNode, count: int) -> None:
    await node.event_store.publish([draft("orders", {"n": number}) for number in range(count)])


async def prepare(node: QuietNode) -> None:
    await node.event_store.open()
    await node.create_event_topic("orders")


async def made_again(node: QuietNode) -> None:
    topic = node.topics.get("orders")
    assert topic is not None
    await node.topics.delete(topic)
    await node.create_event_topic("orders")


async def held(one: Hooked, node: QuietNode, count: int, **fields: object) -> str:
    """A webhook that has delivered all but the last of `count` events; the request with that one hangs."""
    consumer = await one.register(**fields)
    await publish(node, count - 1)
    await until(lambda: consumer.delivered_count == count - 1)
    one.receiver.gate.clear()
    await publish(node, 1)
    await one.receiver.has(count)
    return consumer.webhook_id


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("mode", ["ordered", "parallel"])
@in_loop
async def test_an_attempt_for_a_deleted_topic_moves_no_place_in_the_one_made_again(
    node: QuietNode, status: int, mode: str
) -> None:
    await prepare(node)
    async with hooked(node, retry_schedule_ms=(5000,)) as one:
        webhook_id = await held(one, node, 6, mode=mode)
        consumer = one.webhooks.get(webhook_id)
        before = consumer.cursors["orders"]
        await made_again(node)
        await until(lambda: consumer.cursors["orders"] is not before)
        one.receiver.requests.clear()
        one.receiver.reply = lambda request: Response(status)
        one.receiver.gate.set()
        await until(lambda: consumer.delivered_count + consumer.failed_count == 6)
        one.receiver.reply = lambda request: Response(200)
        await publish(node, 8)
        await until(lambda: consumer.cursors["orders"].position == 8)
        came = one.receiver.ids if mode == "ordered" else sorted(one.receiver.ids)
        assert came == [f"orders-{number}" for number in range(1, 9)]
        assert consumer.cursors["orders"].in_flight_count == 0
        # More than its share would show: the old attempt does not count for the new position.
        assert one.receiver.under_way_max <= max(consumer.definition.parallel, 1)


@in_loop
async def test_an_attempt_for_a_topic_that_was_taken_out_and_added_again_moves_no_place(node: QuietNode) -> None:
    await prepare(node)
    await node.create_event_topic("users")
    async with hooked(node, retry_schedule_ms=(5000,)) as one:
        webhook_id = await held(one, node, 4)
        for topics in ({"users": None}, {"orders": None}):
            await one.webhooks.change(webhook_id, parse_webhook({"topics": topics}, is_new=False))
        # The fourth event hangs and fails; its delivery in the new generation does not.
        answers = iter([Response(500)])
        one.receiver.reply = lambda request: (
            next(answers, Response(200)) if event_id_of(request) == "orders-4" else Response(200)
        )
        one.receiver.gate.set()
        consumer = one.webhooks.get(webhook_id)
        await until(lambda: consumer.cursors["orders"].position == 4)
        assert one.receiver.ids[4:] == [f"orders-{number}" for number in range(1, 5)]
        assert consumer.failed_count == 1


@pytest.mark.proves("S2-21")
@in_loop
async def test_a_callback_that_fails_removes_its_consumer_though_the_topic_is_another_by_then(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        webhook_id = await held(one, node, 2, policy="remove")
        consumer = one.webhooks.get(webhook_id)
        before = consumer.cursors["orders"]
        await made_again(node)
        await until(lambda: consumer.cursors["orders"] is not before)
        one.receiver.reply = lambda request: Response(500)
        one.receiver.gate.set()
        (noted,) = await one.until_audited("webhook.removed")
        assert noted["webhook"] == webhook_id
        assert len(one.webhooks) == 0


@in_loop
async def test_a_pause_lets_what_is_under_way_end_and_begins_nothing(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        webhook_id = await held(one, node, 2)
        await publish(node, 3)
        await one.webhooks.pause(webhook_id)
        one.receiver.gate.set()
        consumer = one.webhooks.get(webhook_id)
        await until(lambda: consumer.delivered_count == 2)
        assert consumer.cursors["orders"].position == 2
        await one.webhooks.resume(webhook_id)
        await until(lambda: consumer.delivered_count == 5)
        assert one.receiver.ids == [f"orders-{number}" for number in range(1, 6)]


@pytest.mark.parametrize("status", [200, 500])
@in_loop
async def test_a_replay_during_a_delivery_begins_where_it_was_told_to(node: QuietNode, status: int) -> None:
    await prepare(node)
    async with hooked(node) as one:
        webhook_id = await held(one, node, 3)
        await one.webhooks.replay(webhook_id, FROM_OLDEST)
        one.receiver.requests.clear()
        one.receiver.reply = lambda request: Response(200 if one.receiver.requests else status)
        one.receiver.gate.set()
        consumer = one.webhooks.get(webhook_id)
        await until(lambda: consumer.cursors["orders"].position == 3 and len(one.receiver.requests) == 3)
        assert one.receiver.ids == ["orders-1", "orders-2", "orders-3"]


@in_loop
async def test_a_webhook_deleted_during_a_delivery_leaves_nothing(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        webhook_id = await held(one, node, 2)
        await publish(node, 2)
        await one.webhooks.remove(webhook_id)
        one.receiver.gate.set()
        await until(lambda: not one.webhooks._workers._tasks)
        assert len(one.receiver.requests) == 2
        await one.webhooks._state.flush()
        assert await one.webhooks._state.open() == {}


@pytest.mark.proves("S2-36")
@in_loop
async def test_to_wait_for_others_at_a_busy_host_is_no_timeout(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten consumers at a host that takes one request at a time, each taking most of the time that one may take: the
    last one waits for many times that, and none is removed."""
    monkeypatch.setattr(delivery, "TIMEOUT_GRACE_SECONDS", 0.0)
    await prepare(node)
    async with hooked(node, connections_per_host_max=1, timeout_ms=200) as one:

        async def send(request: Request) -> Response:
            one.receiver.requests.append(request)
            await asyncio.sleep(0.05)
            return Response(200)

        one.webhooks._workers._send = send
        consumers = [await one.register(policy="remove") for _ in range(10)]
        await publish(node, 1)
        await until(lambda: all(consumer.delivered_count == 1 for consumer in consumers))
        assert len(one.webhooks) == 10


@in_loop
async def test_what_waits_for_its_turn_is_signed_when_that_comes(node: QuietNode) -> None:
    """Receivers refuse messages that were signed more than five minutes ago."""
    await prepare(node)
    async with hooked(node, connections_per_host_max=1) as one:
        one.receiver.gate.clear()
        consumers = [await one.register() for _ in range(2)]
        await publish(node, 1)
        await one.receiver.has(1)
        node.clock.advance(600_000)
        now_ms = node.clock.now_ms()
        one.receiver.gate.set()
        await until(lambda: all(consumer.delivered_count == 1 for consumer in consumers))
        assert int(one.receiver.requests[1].headers["webhook-timestamp"]) == now_ms // 1000


@in_loop
async def test_a_webhook_that_is_disabled_while_a_change_is_stored_stays_disabled(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepare(node)
    async with hooked(node) as one:
        webhook_id = await held(one, node, 2)
        consumer = one.webhooks.get(webhook_id)
        put = one.webhooks._definitions.put
        is_storing, may_store = asyncio.Event(), asyncio.Event()

        async def put_slowly(definition: Definition) -> None:
            is_storing.set()
            await may_store.wait()
            await put(definition)

        monkeypatch.setattr(one.webhooks._definitions, "put", put_slowly)
        changing = asyncio.ensure_future(
            one.webhooks.change(webhook_id, parse_webhook({"ratePerSecond": 5}, is_new=False))
        )
        await is_storing.wait()
        one.receiver.reply = lambda request: Response(410)
        one.receiver.gate.set()
        await until(lambda: consumer.definition.state == "disabled")
        may_store.set()
        await changing
        assert (consumer.definition.state, consumer.definition.rate_per_second) == ("disabled", 5)
    async with hooked(node) as again:
        stored = again.webhooks.get(webhook_id).definition
        assert (stored.state, stored.rate_per_second) == ("disabled", 5)
