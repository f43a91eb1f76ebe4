"""Stored state and requests in flight are bounded, however many webhooks and deliveries there are."""

import asyncio

import pytest

from kwire.broker.topics.catalogue import WEBHOOKS_TOPIC
from kwire.streams.webhooks import consumer as consumer_module
from kwire.streams.webhooks.delivery.sender import Request, Response
from kwire.streams.webhooks.webhooks import ATTEMPTS_KEPT
from storage.log.settings import LogSettings
from tests.broker.test_log_cleaner import cleaning
from tests.support.event_store import draft
from tests.support.hooked_node import event_id_of, hooked, until
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

WEBHOOKS = 1000
HANGING = 10
SEGMENT_BYTES = 16 * 1024


async def prepare(node: QuietNode) -> None:
    await node.event_store.open()
    await node.create_event_topic("orders")


async def publish(node: QuietNode, count: int) -> None:
    await node.event_store.publish([draft("orders", {"n": number}) for number in range(count)])


@in_loop
@pytest.mark.timeout(180)
async def test_a_thousand_webhooks_of_one_topic_share_few_connections_and_ten_that_hang_hold_up_nobody(
    node: QuietNode,
) -> None:
    await prepare(node)
    async with hooked(node, connections_max=16, connections_per_host_max=8) as one:
        hanging = asyncio.Event()

        async def send(request: Request) -> Response:
            if "hanging" in request.url:
                one.receiver.under_way += 1
                await hanging.wait()
                one.receiver.under_way -= 1
                return Response(200)
            return await one.receiver.send(request)

        one.webhooks._workers._send = send
        made = [
            await one.register(url=f"https://{'hanging' if number < HANGING else 'well'}.example/{number}")
            for number in range(WEBHOOKS)
        ]
        await publish(node, 3)
        await until(lambda: all(consumer.delivered_count == 3 for consumer in made[HANGING:]))
        assert all(consumer.delivered_count == 0 for consumer in made[:HANGING])
        assert one.receiver.under_way_max <= 16
        by_webhook: dict[str, list[str]] = {}
        for request in one.receiver.requests:
            by_webhook.setdefault(request.url, []).append(event_id_of(request))
        assert set(map(tuple, by_webhook.values())) == {("orders-1", "orders-2", "orders-3")}
        hanging.set()
        await until(lambda: all(consumer.delivered_count == 3 for consumer in made))


@in_loop
async def test_what_is_written_down_is_compacted_and_says_the_same_afterwards(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node, retry_schedule_ms=()) as one:
        webhook = await one.register()
        topic = node.topics.get(WEBHOOKS_TOPIC)
        assert topic is not None
        log = log_of(topic.partitions[0])
        log.settings = LogSettings(segment_bytes=SEGMENT_BYTES, index_interval_bytes=300)
        one.receiver.reply = lambda request: Response(500 if event_id_of(request) == "orders-7" else 200)
        for number in range(1, 13):
            await publish(node, ATTEMPTS_KEPT // 2)
            await until(lambda: webhook.cursors["orders"].position == number * ATTEMPTS_KEPT // 2)  # noqa: B023
            await one.webhooks._flush_state(webhook)
        # The delivery log is a ring.
        assert len(one.webhooks.attempts(webhook.webhook_id)) == ATTEMPTS_KEPT
        before, size_bytes = await one.webhooks._state.open(), log.size_bytes
        async with cleaning(node) as cleaner:
            assert await cleaner.clean_one()
            assert log.size_bytes < size_bytes / 2
            assert await one.webhooks._state.open() == before
    records = before[webhook.webhook_id]
    assert len(records) == ATTEMPTS_KEPT + 3, "the ring, one place, one dead letter and the counts"
    assert ("d", "orders", 6) in records


@in_loop
async def test_the_dead_letter_that_disables_the_webhook_is_counted(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "DEAD_LETTERS_MAX", 2)
    await prepare(node)
    async with hooked(node, retry_schedule_ms=()) as one:
        one.receiver.reply = lambda request: Response(500)
        consumer = await one.register()
        await publish(node, 3)
        await until(lambda: consumer.definition.state == "disabled")
        assert len(consumer.dead) == one.webhooks.statistics().died == 2
