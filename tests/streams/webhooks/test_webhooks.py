"""Webhooks on a node: events are published, and a receiver function gets them."""

import asyncio
import json
import uuid

import pytest

from kwire.errors import (
    EventNotFound,
    InvalidWebhook,
    TooManyWebhooks,
    TopicHasPartitions,
    TopicNotFound,
    WebhookConflict,
    WebhookNotFound,
)
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.subscriptions.start import FROM_OLDEST, Start
from kwire.streams.webhooks.definition import parse_webhook
from kwire.streams.webhooks.delivery.sender import Request, Response
from tests.support.event_store import draft
from tests.support.hooked_node import Hooked, event_id_of, hooked, until
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of
from tests.support.subscribing import settled
from tests.support.transactions import TransactionalProducer

HOUR_MS = 3_600_000


async def publish(node: QuietNode, count: int = 1, topic: str = "orders") -> None:
    await node.event_store.publish([draft(topic, {"n": number}) for number in range(count)])


async def prepare(node: QuietNode, *topics: str) -> None:
    await node.event_store.open()
    for name in topics or ("orders",):
        await node.create_event_topic(name)


def failing(*event_ids: str, status: int | None = 500) -> "object":
    return lambda request: Response(status if event_id_of(request) in event_ids else 200)


async def until_at(one: Hooked, webhook_id: str, position: int, topic: str = "orders") -> None:
    await until(lambda: one.webhooks.get(webhook_id).cursors[topic].position == position)


# --- as in the text


@pytest.mark.proves("S2-3", "S2-16", "S2-18", "S2-22", "S2-26", "S2-27")
@in_loop
async def test_every_event_is_posted_to_the_callback_in_order(node: QuietNode) -> None:
    await prepare(node)
    await publish(node, 2)
    async with hooked(node) as one:
        consumer = await one.register(policy="remove")
        await one.receiver.has(2)
        await publish(node)
        await one.receiver.has(3)
        assert one.receiver.ids == ["orders-1", "orders-2", "orders-3"]
        said = json.loads(one.receiver.requests[2].body)
        assert said["id"] == "orders-3"
        assert (said["type"], said["payload"]) == ("made", {"n": 0})
        assert uuid.UUID(consumer.webhook_id)
        await until_at(one, consumer.webhook_id, 3)
        assert one.webhooks.progress(consumer)["orders"].last_event_id == "orders-3"


@pytest.mark.proves("S2-16")
@in_loop
async def test_delivery_begins_behind_the_event_that_is_known(node: QuietNode) -> None:
    await prepare(node, "orders", "users")
    await publish(node, 5)
    await publish(node, 2, "users")
    async with hooked(node) as one:
        await one.webhooks.register(
            parse_webhook({"url": "https://a.example/", "topics": {"orders": "orders-3", "users": "latest"}})
        )
        await one.receiver.has(2)
        await publish(node, 1, "users")
        await one.receiver.has(3)
        assert one.receiver.ids == ["orders-4", "orders-5", "users-3"]


@pytest.mark.proves("S2-19")
@in_loop
async def test_a_published_event_is_delivered_without_waiting_for_the_interval(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node, dispatch_interval_ms=3_600_000) as one:
        await one.register()
        await publish(node)
        await one.receiver.has(1)


@pytest.mark.proves("S2-20", "S2-23", "S2-24", "S2-25", "S2-38")
@in_loop
async def test_each_topic_has_a_dispatcher_of_its_own_that_looks_by_itself(node: QuietNode) -> None:
    await prepare(node, "orders", "users")
    async with hooked(node) as one:
        await one.register("orders")
        await one.register("orders", "users")
        assert set(one.webhooks.dispatchers) == {"orders", "users"}
        dispatcher = one.webhooks.dispatchers["orders"]
        assert dispatcher.latest is None
        # It is not notified: only the interval is left.
        assert dispatcher.log is not None
        dispatcher.log.unwatch(dispatcher._on_rise)
        await publish(node, 3)
        await one.receiver.has(6)
        assert dispatcher.latest == "orders-3"


@in_loop
async def test_a_dispatcher_goes_with_its_last_webhook(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        first, second = await one.register(), await one.register()
        await one.webhooks.remove(first.webhook_id)
        assert one.webhooks.has_any_in("orders")
        await one.webhooks.remove(second.webhook_id)
        assert not one.webhooks.has_any_in("orders")
        with pytest.raises(WebhookNotFound):
            one.webhooks.get(second.webhook_id)


@pytest.mark.proves("S2-21", "S2-35", "S2-36", "S2-37", "S2-47")
@pytest.mark.parametrize(
    "response",
    [Response(500), Response(302), Response(404), Response(199), Response(None, "timed out")],
    ids=lambda response: str(response.status),
)
@in_loop
async def test_a_failure_removes_a_consumer_and_the_audit_topic_says_so(node: QuietNode, response: Response) -> None:
    await prepare(node)
    async with hooked(node) as one:
        other = await one.register()
        consumer = await one.register(policy="remove")
        one.receiver.reply = lambda request: response
        await publish(node, 2)
        (noted,) = await one.until_audited("webhook.removed")
        assert noted["webhook"] == consumer.webhook_id
        assert noted["eventId"] == "orders-1"
        with pytest.raises(WebhookNotFound):
            one.webhooks.get(consumer.webhook_id)
        assert one.webhooks.get(other.webhook_id).is_active
        assert one.receiver.ids.count("orders-1") == 2
        assert "orders-2" not in one.receiver.ids


@pytest.mark.proves("S2-36")
@in_loop
async def test_a_sender_that_raises_or_hangs_is_a_failure(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node, timeout_ms=10) as one:
        consumer = await one.register(policy="remove")
        one.receiver.gate.clear()
        await publish(node)
        (noted,) = await one.until_audited("webhook.removed")
        assert "no answer within 10 ms" in noted["reason"]
        one.receiver.gate.set()

        def fail(request: Request) -> Response:
            raise OSError("no route")

        one.receiver.reply = fail
        consumer = await one.register(policy="remove")
        noted = (await one.until_audited("webhook.removed", 2))[1]
        assert noted["webhook"] == consumer.webhook_id
        assert "no route" in noted["reason"]


# --- requests


@in_loop
async def test_what_cannot_be_delivered_is_refused(node: QuietNode) -> None:
    await prepare(node)
    await node.create("wide", 3)
    async with hooked(node, webhooks_max=1) as one:
        for topics, error in (
            ({"nowhere": None}, TopicNotFound),
            ({"__events": None}, TopicNotFound),
            ({"wide": None}, TopicHasPartitions),
            ({"orders": "orders-1"}, InvalidWebhook),
            ({"orders": "users-1"}, InvalidWebhook),
            ({"orders": "orders-x"}, InvalidWebhook),
        ):
            with pytest.raises(error):
                await one.webhooks.register(parse_webhook({"url": "https://a.example/", "topics": topics}))
        assert len(one.webhooks) == 0
        await one.register()
        with pytest.raises(TooManyWebhooks):
            await one.register()


@in_loop
async def test_a_room_can_be_delivered_too(node: QuietNode) -> None:
    await node.create("lobby", 1, kwire_room="true")
    async with hooked(node) as one:
        await one.register("lobby")
        assert one.webhooks.has_any_in("lobby")


# --- policy retry


@pytest.mark.proves("S2-43")
@in_loop
async def test_a_failed_event_is_tried_again_by_the_schedule_and_holds_up_the_others(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node, retry_schedule_ms=(5000, 300_000)) as one:
        one.receiver.reply = failing("orders-1")  # type: ignore[assignment]
        consumer = await one.register()
        await publish(node, 2)
        await until(lambda: consumer.cursors["orders"].head is not None)
        node.clock.advance(4999)
        assert one.receiver.ids == ["orders-1"]
        node.clock.advance(1)
        await one.receiver.has(2)
        await until(lambda: consumer.failed_count == 2)
        one.receiver.reply = lambda request: Response(200)
        node.clock.advance(300_000)
        await one.receiver.has(4)
        assert one.receiver.ids == ["orders-1"] * 3 + ["orders-2"]
        await until(lambda: consumer.delivered_count == 2)
        attempts = one.webhooks.attempts(consumer.webhook_id)
        assert [(each.attempt, each.status, each.outcome) for each in reversed(attempts)] == [
            (1, 500, "retry"),
            (2, 500, "retry"),
            (3, 200, "delivered"),
            (1, 200, "delivered"),
        ]
        assert len(one.webhooks.attempts(consumer.webhook_id, is_failed_only=True)) == 2
        assert [each.number for each in one.webhooks.attempts(consumer.webhook_id, before=2)] == [1, 0]


@pytest.mark.proves("S2-43")
@in_loop
async def test_an_event_that_never_arrives_is_a_dead_letter_and_can_be_sent_again(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node, retry_schedule_ms=(0, 0)) as one:
        one.receiver.reply = failing("orders-2")  # type: ignore[assignment]
        consumer = await one.register()
        await publish(node, 3)
        await one.receiver.has(5)
        assert one.receiver.ids == ["orders-1", *["orders-2"] * 3, "orders-3"]
        ((event_id, letter),) = one.webhooks.dead_letters(consumer.webhook_id)
        assert (str(event_id), letter.attempts, letter.status) == ("orders-2", 3, 500)
        (noted,) = await one.until_audited("webhook.failed")
        assert noted["eventId"] == "orders-2"
        # It fails again, and is still there.
        assert await one.webhooks.resend_dead(consumer.webhook_id) == 1
        await one.receiver.has(8)
        await until(lambda: not consumer.cursors["orders"].retry_queue)
        assert len(one.webhooks.dead_letters(consumer.webhook_id)) == 1
        one.receiver.reply = lambda request: Response(200)
        assert await one.webhooks.resend_dead(consumer.webhook_id, [event_id]) == 1
        await until(lambda: not consumer.dead)
        with pytest.raises(EventNotFound):
            await one.webhooks.resend_dead(consumer.webhook_id, [event_id])


@in_loop
async def test_dead_letters_can_be_given_up(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node, retry_schedule_ms=()) as one:
        one.receiver.reply = lambda request: Response(500)
        consumer = await one.register()
        await publish(node, 3)
        await until(lambda: len(consumer.dead) == 3)
        ids = [event_id for event_id, _ in one.webhooks.dead_letters(consumer.webhook_id)]
        assert one.webhooks.dead_letters(consumer.webhook_id, after=ids[1])[0][0] == ids[2]
        assert await one.webhooks.drop_dead(consumer.webhook_id, ids[:1]) == 1
        assert await one.webhooks.drop_dead(consumer.webhook_id) == 2
        assert not one.webhooks.dead_letters(consumer.webhook_id)


@in_loop
async def test_parallel_delivery_passes_a_failed_event(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        one.receiver.reply = failing("orders-3")  # type: ignore[assignment]
        one.receiver.gate.clear()
        consumer = await one.register(mode="parallel", parallel=4)
        await publish(node, 10)
        await one.receiver.has(4)
        one.receiver.gate.set()
        await until_at(one, consumer.webhook_id, 10)
        assert one.receiver.under_way_max == 4
        assert sorted(one.receiver.ids) == sorted(f"orders-{number}" for number in range(1, 11))
        assert one.webhooks.progress(consumer)["orders"].retrying == 1
        one.receiver.reply = lambda request: Response(200)
        node.clock.advance(5000)
        await one.receiver.has(11)
        assert one.receiver.ids[-1] == "orders-3"
        await until(lambda: not consumer.cursors["orders"].retry_queue)


@in_loop
async def test_retry_after_holds_back_the_whole_webhook(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node, retry_schedule_ms=(1000,)) as one:
        one.receiver.reply = lambda request: Response(429, retry_after_ms=60_000)
        consumer = await one.register(mode="parallel", parallel=1)
        await publish(node, 2)
        await until(lambda: consumer.failed_count == 1)
        one.receiver.reply = lambda request: Response(200)
        node.clock.advance(59_999)
        (attempt,) = one.webhooks.attempts(consumer.webhook_id)
        # With the random numbers of the test, some jitter after the requested time.
        assert attempt.next_ms == attempt.started_ms + 66_000
        assert len(one.receiver.requests) == 1
        node.clock.advance(1)
        await one.receiver.has(2)
        assert one.receiver.ids[1] == "orders-2"
        node.clock.advance(6000)
        await one.receiver.has(3)
        assert one.receiver.ids[2] == "orders-1"


@in_loop
async def test_410_disables_a_webhook_and_loses_nothing(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        one.receiver.reply = lambda request: Response(410)
        consumer = await one.register()
        await publish(node, 2)
        (noted,) = await one.until_audited("webhook.disabled")
        assert "410" in noted["reason"]
        assert consumer.definition.state == "disabled"
        one.receiver.reply = lambda request: Response(200)
        await one.webhooks.resume(consumer.webhook_id)
        await one.receiver.has(3)
        assert one.receiver.ids == ["orders-1", "orders-1", "orders-2"]


@in_loop
async def test_a_webhook_that_fails_for_days_is_disabled(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node, retry_schedule_ms=(HOUR_MS,) * 30, disable_after_ms=5 * HOUR_MS) as one:
        one.receiver.reply = lambda request: Response(None, "connection refused")
        consumer = await one.register()
        await publish(node)
        for count in range(1, 6):
            await until(lambda count=count: consumer.failed_count == count)  # type: ignore[misc]
            assert consumer.is_active
            node.clock.advance(HOUR_MS)
        await one.until_audited("webhook.disabled")
        assert not consumer.dead
        assert "connection refused" in consumer.definition.reason


@in_loop
async def test_the_rate_is_kept(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        await one.register(ratePerSecond=2, mode="parallel", parallel=10)
        await publish(node, 10)
        await one.receiver.has(2)
        for expected in range(3, 7):
            assert len(one.receiver.requests) == expected - 1
            node.clock.advance(500)
            await one.receiver.has(expected)


# --- which events


@pytest.mark.proves("S2-44")
@in_loop
async def test_only_wanted_types_and_what_satisfies_the_filter_is_sent(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        consumer = await one.register(filter="data.n >= 2 and data.n in [0, 2, 3]")
        nothing = await one.register(types=["something.else"])
        await publish(node, 5)
        await until_at(one, consumer.webhook_id, 5)
        await until_at(one, nothing.webhook_id, 5)
        assert one.receiver.ids == ["orders-3", "orders-4"]
        await one.webhooks.change(consumer.webhook_id, parse_webhook({"filter": None}, is_new=False))
        await publish(node)
        await one.receiver.has(3)
        assert one.receiver.ids[2] == "orders-6"


# --- on request


@in_loop
async def test_a_paused_webhook_waits_and_goes_on_where_it_was(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        consumer = await one.register()
        await one.webhooks.pause(consumer.webhook_id, "maintenance")
        await publish(node, 3)
        await publish(node, 1)
        await asyncio.sleep(0)
        assert not one.receiver.requests
        assert one.webhooks.progress(consumer)["orders"].pending == 4
        await one.webhooks.resume(consumer.webhook_id)
        await one.receiver.has(4)
        assert one.audited("webhook.paused")


@in_loop
async def test_events_are_sent_again_from_a_position_or_a_time_on(node: QuietNode) -> None:
    await prepare(node)
    await publish(node, 2)
    node.clock.advance(HOUR_MS)
    later_ms = node.clock.now_ms()
    await publish(node, 2)
    async with hooked(node) as one:
        consumer = await one.register()
        await until_at(one, consumer.webhook_id, 4)
        one.receiver.requests.clear()
        answer = await one.webhooks.replay(consumer.webhook_id, Start.at_time(later_ms))
        assert answer == {"orders": "orders-2"}
        await one.receiver.has(2)
        assert one.receiver.ids == ["orders-3", "orders-4"]
        assert await one.webhooks.replay(consumer.webhook_id, Start.at(1), "orders") == {"orders": "orders-1"}
        await one.receiver.has(5)
        assert await one.webhooks.replay(consumer.webhook_id, FROM_OLDEST) == {"orders": None}
        await one.receiver.has(9)
        with pytest.raises(InvalidWebhook):
            await one.webhooks.replay(consumer.webhook_id, Start.at(5))
        with pytest.raises(InvalidWebhook):
            await one.webhooks.replay(consumer.webhook_id, FROM_OLDEST, "users")


@in_loop
async def test_single_events_are_sent_again(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        consumer = await one.register()
        await publish(node, 3)
        await until_at(one, consumer.webhook_id, 3)
        assert await one.webhooks.resend(consumer.webhook_id, [EventId("orders", 0), EventId("orders", 2)]) == 2
        await one.receiver.has(5)
        assert sorted(one.receiver.ids[3:]) == ["orders-1", "orders-3"]
        with pytest.raises(WebhookConflict):
            await one.webhooks.resend(consumer.webhook_id, [EventId("orders", 3)])
        with pytest.raises(InvalidWebhook):
            await one.webhooks.resend(consumer.webhook_id, [EventId("users", 0)])


@in_loop
async def test_topics_come_and_go_and_those_that_stay_keep_their_places(node: QuietNode) -> None:
    await prepare(node, "orders", "users")
    await publish(node, 2)
    await publish(node, 2, "users")
    async with hooked(node) as one:
        consumer = await one.register("orders")
        await until_at(one, consumer.webhook_id, 2)
        both = {"topics": {"orders": None, "users": "users-1"}}
        await one.webhooks.change(consumer.webhook_id, parse_webhook(both, is_new=False))
        await one.receiver.has(3)
        assert one.receiver.ids == ["orders-1", "orders-2", "users-2"]
        await one.webhooks.change(consumer.webhook_id, parse_webhook({"topics": {"users": None}}, is_new=False))
        assert not one.webhooks.has_any_in("orders")
        await publish(node)
        await publish(node, 1, "users")
        await one.receiver.has(4)
        assert one.receiver.ids[3] == "users-3"


@in_loop
async def test_a_secret_is_rotated_and_both_sign_for_a_while(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        consumer = await one.register()
        before = consumer.definition.secrets.current
        await one.webhooks.rotate_secret(consumer.webhook_id)
        assert consumer.definition.secrets.current != before
        await publish(node)
        await one.receiver.has(1)
        assert len(one.receiver.requests[0].headers["webhook-signature"].split()) == 2
        with pytest.raises(InvalidWebhook):
            await one.webhooks.rotate_secret(consumer.webhook_id, "whsec_short")


@in_loop
async def test_a_test_delivery_changes_nothing(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        consumer = await one.register(policy="remove")
        one.receiver.reply = lambda request: Response(503)
        assert (await one.webhooks.test(consumer.webhook_id)).status == 503
        assert one.webhooks.get(consumer.webhook_id).failed_count == 0


# --- deleted and recreated topics


@in_loop
async def test_a_topic_made_again_is_delivered_from_its_beginning(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        consumer = await one.register()
        await publish(node, 3)
        await until_at(one, consumer.webhook_id, 3)
        topic = node.topics.get("orders")
        assert topic is not None
        await node.topics.delete(topic)
        await node.create_event_topic("orders")
        await publish(node, 2)
        await one.receiver.has(5)
        assert one.receiver.ids[3:] == ["orders-1", "orders-2"]


@in_loop
async def test_events_that_retention_took_first_are_told_as_a_gap(node: QuietNode) -> None:
    await prepare(node)
    await publish(node, 5)
    topic = node.topics.get("orders")
    assert topic is not None
    async with hooked(node) as one:
        await one.webhooks.register(
            parse_webhook({"url": "https://a.example/", "topics": {"orders": None}, "description": "slow"})
        )
        (consumer,) = one.webhooks.page("", 10)
        await until_at(one, consumer.webhook_id, 5)
        log_of(topic.partitions[0]).advance_log_start_offset(3)
        consumer.seek("orders", 1)
        (noted,) = await one.until_audited("webhook.gap")
        assert (noted["first"], noted["last"]) == ("orders-2", "orders-3")
        (told,) = [each for each in one.webhooks.attempts(consumer.webhook_id) if each.outcome == "gap"]
        assert (told.offset, told.attempt, told.status) == (1, 0, None)
        assert told.problem == "orders-2 to orders-3 could not be delivered: they are no longer stored"
        await one.receiver.has(7)
        assert one.receiver.ids[5:] == ["orders-4", "orders-5"]


@in_loop
async def test_an_event_beside_the_line_that_is_gone_is_a_dead_letter(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        one.receiver.reply = failing("orders-1")  # type: ignore[assignment]
        consumer = await one.register(mode="parallel")
        await publish(node, 3)
        await until(lambda: consumer.cursors["orders"].retry_queue)
        topic = node.topics.get("orders")
        assert topic is not None
        log_of(topic.partitions[0]).advance_log_start_offset(2)
        node.clock.advance(10_000)
        await until(lambda: consumer.dead)
        assert one.receiver.ids.count("orders-1") == 1
        assert consumer.dead["orders", 0].problem == "the event is no longer stored"
        (noted,) = await one.until_audited("webhook.failed")
        assert noted["eventId"] == "orders-1"
        with pytest.raises(EventNotFound):
            await one.webhooks.resend(consumer.webhook_id, [EventId("orders", 0)])


@in_loop
async def test_failures_to_deliver_the_audit_topic_are_not_audited(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node, retry_schedule_ms=()) as one:
        await one.register()
        await one.until_audited("webhook.registered")
        consumer = await one.register("kwire-audit")
        one.receiver.reply = lambda request: Response(500)
        await until(lambda: consumer.dead)
        await one.webhooks.pause(consumer.webhook_id)
        assert not one.audited("webhook.failed")


# --- topics of Kafka's producers


@in_loop
async def test_events_of_a_transaction_are_posted_when_it_is_committed(node: QuietNode) -> None:
    partition = await node.create_partition("orders")
    producer = TransactionalProducer(partition, 7)
    async with hooked(node) as one:
        consumer = await one.register()
        producer.publish("aborted")  # 0
        producer.abort()  # 1
        await until_at(one, consumer.webhook_id, 2)
        producer.publish("a", "b")  # 2, 3
        await settled()
        assert one.webhooks.dispatchers["orders"].latest == "orders-2"
        assert one.webhooks.progress(consumer)["orders"].pending == 0
        assert one.receiver.ids == []
        producer.commit()  # 4
        await one.receiver.has(2)
        assert one.receiver.ids == ["orders-3", "orders-4"]
        await until_at(one, consumer.webhook_id, 5)
