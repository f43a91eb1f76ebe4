"""Webhooks from end to end: a whole node, its HTTP doors, and a receiver on a real port that behaves badly."""

import asyncio
import json
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from kwire.web.webhooks.deliveries import TESTS_MAX
from tests.support.engines import Engine, for_each_engine
from tests.support.event_doors import make_topics
from tests.support.node import in_loop
from tests.support.webhook_node import FAST, Hooks, hooks_node
from tests.support.webhook_receiver import Got, Reply, receiving


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for_each_engine(metafunc, (), "most of it is the same code; the suite of the HTTP port runs over a bridge")


# One attempt, and no other before the test is over.
ONE_ATTEMPT = ("kwire.webhooks.allow.private=true", "kwire.webhooks.retry.schedule.ms=3600000")
# Long enough for a receiver of a busy machine that does answer.
SHORT_TIMEOUT = (*FAST, "kwire.webhooks.timeout.ms=500")


def ids_of(requests: list[Got]) -> list[str]:
    return [got.headers["webhook-id"] for got in requests]


async def audited(hooks: Hooks, event_type: str) -> list[dict[str, Any]]:
    """Events of the audit topic, of one type."""
    answer = await hooks.http.get("/rooms/kwire-audit/events")
    if answer.status != 200:
        return []
    return [one for one in answer.json["events"] if one["type"] == event_type]


# --- as in the text: published, dispatched, called back, removed


@in_loop
@pytest.mark.proves("S2-3", "S2-6", "S2-27", "S2-33", "S2-39")
async def test_an_event_is_published_dispatched_called_back_and_an_error_removes_the_consumer(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("user-events", "audit-events")
        await hooks.publish("audit-events", *({"n": n} for n in range(4)))
        consumer = await hooks.register(receiver, **{"user-events": None, "audit-events": "audit-events-3"})
        assert consumer["callback"] == receiver.url
        assert consumer["topics"] == {"user-events": None, "audit-events": "audit-events-3"}
        (got,) = await receiver.received(1)
        assert got.json["id"] == "audit-events-4"
        await hooks.publish("user-events", {"name": "Alice"})
        _, got = await receiver.received(2)
        assert got.json["id"] == "user-events-1"
        assert (got.json["type"], got.json["payload"]) == ("made", {"name": "Alice"})
        assert set(got.json) == {"id", "topic", "timestamp", "type", "payload"}
        Webhook(consumer["secret"]).verify(got.body, dict(got.headers))
        listed = (await hooks.http.get("/consumers")).json["consumers"]
        assert [one["id"] for one in listed] == [consumer["id"]]
        receiver.answer(500)
        await hooks.publish("user-events", {"name": "Bob"})
        await hooks.until_gone(consumer)
        assert (await hooks.http.get("/consumers")).json["consumers"] == []
        assert (await hooks.http.get(f"/consumers/{consumer['id']}")).status == 404
        await hooks.publish("user-events", {"name": "Carol"})
        assert len(receiver.requests) == 3


@in_loop
async def test_the_trace_of_a_publisher_of_the_event_store_reaches_the_receiver(engine: Engine) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    event = {"topic": "orders", "type": "made", "payload": {}}
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await make_topics(hooks.http.server, "orders")
        await hooks.register(receiver, orders=None)
        await hooks.http.post("/events", event, traceparent=trace)
        await hooks.http.post("/events", event)
        first, second = await receiver.received(2)
        assert [one.json["id"] for one in (first, second)] == ["orders-1", "orders-2"]
        assert first.headers["traceparent"] == trace
        assert "traceparent" not in second.headers


@in_loop
@pytest.mark.proves("S2-21", "S2-35", "S2-36", "S2-37", "S2-47")
@pytest.mark.parametrize(
    "reply",
    [Reply(300), Reply(302, {"Location": "/other"}), Reply(404), Reply(503), Reply(is_cut=True), Reply(is_silent=True)],
    ids=["300", "302", "404", "503", "cut", "silent"],
)  # fmt: skip
async def test_any_failure_removes_a_consumer_and_the_audit_topic_tells(engine: Engine, reply: Reply) -> None:
    async with receiving() as receiver, hooks_node(engine, *SHORT_TIMEOUT) as hooks:
        await hooks.create_topic("orders")
        consumer = await hooks.register(receiver, orders=None)
        receiver.answer(reply)
        await hooks.publish("orders", {"n": 1}, {"n": 2})
        await hooks.until_gone(consumer)
        assert ids_of(receiver.requests) == ["orders-1"]
        if hooks.is_bridge:
            return  # it has no audit topic
        async with asyncio.timeout(10):
            while not (told := await audited(hooks, "webhook.removed")):
                await asyncio.sleep(0.01)
        assert told[0]["data"]["webhook"] == consumer["id"]


@in_loop
@pytest.mark.proves("S2-36")
async def test_nobody_at_the_callback_removes_a_consumer(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        await receiver.stop()
        consumer = await hooks.register(receiver, orders=None)
        await hooks.publish("orders", {"n": 1})
        await hooks.until_gone(consumer)


@in_loop
@pytest.mark.proves("S2-36")
async def test_consumers_that_wait_for_a_busy_host_are_not_removed(engine: Engine) -> None:
    """One connection, and receivers that need most of the time they have: the last waits many times as long."""
    settings = (FAST[0], "kwire.webhooks.timeout.ms=800", "kwire.webhooks.max.connections.per.host=1")
    async with receiving() as receiver, hooks_node(engine, *settings) as hooks:
        await hooks.create_topic("orders")
        consumers = [await hooks.register(receiver, orders=None) for _ in range(16)]

        def slowly(got: Got) -> Reply:
            late = asyncio.Event()
            asyncio.get_running_loop().call_later(0.15, late.set)
            return Reply(wait=late)

        receiver.reply = slowly
        await hooks.publish("orders", {"n": 1})
        await receiver.received(16)
        assert receiver.connection_count == 1
        for consumer in consumers:
            await hooks.until(consumer, lambda one: one["delivered"] == 1)


# --- receivers that fail, and nothing is lost


@in_loop
@pytest.mark.proves("S2-43")
async def test_a_receiver_that_fails_gets_every_event_in_order(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        failures = iter([Reply(500), Reply(is_cut=True), Reply(302, {"Location": "/x"})] * 20)
        tried: dict[str, int] = {}

        def reply(got: Got) -> Reply:
            """The second attempt of each event is taken."""
            event_id = got.headers["webhook-id"]
            tried[event_id] = tried.get(event_id, 0) + 1
            return Reply() if tried[event_id] == 2 else next(failures)

        receiver.reply = reply
        webhook = await hooks.create(receiver)
        ids = await hooks.publish("orders", *({"n": n} for n in range(20)))
        await hooks.until(webhook, lambda one: one["delivered"] == 20)
        assert ids_of(receiver.requests) == [event_id for event_id in ids for _ in range(2)]
        assert await hooks.dead(webhook) == []
        # A kept connection that ends as it is used is no attempt that failed: the request is repeated at once.
        outcomes = [one["outcome"] for one in await hooks.attempts(webhook)]
        assert outcomes.count("delivered") == 20
        assert 12 <= outcomes.count("retry") == len(outcomes) - 20 <= 20


@in_loop
async def test_a_receiver_that_hangs_or_is_slow_gets_every_event_in_order(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine, *SHORT_TIMEOUT) as hooks:
        await hooks.create_topic("orders")
        gate = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, gate.set)
        receiver.answer(Reply(is_silent=True), 200, Reply(wait=gate), Reply(is_silent=True), 200)
        webhook = await hooks.create(receiver)
        await hooks.publish("orders", {"n": 1}, {"n": 2}, {"n": 3})
        await hooks.until(webhook, lambda one: one["delivered"] == 3)
        assert ids_of(receiver.requests) == ["orders-1", "orders-1", "orders-2", "orders-3", "orders-3"]


@in_loop
async def test_a_receiver_that_restarts_misses_nothing(engine: Engine) -> None:
    settings = (FAST[0], "kwire.webhooks.retry.schedule.ms=" + ",".join(["20"] * 50))
    async with receiving() as receiver, hooks_node(engine, *settings) as hooks:
        await hooks.create_topic("orders")
        webhook = await hooks.create(receiver)
        await hooks.publish("orders", *({"n": n} for n in range(5)))
        await receiver.received(5)
        await receiver.stop()
        await hooks.publish("orders", *({"n": n} for n in range(5)))
        await hooks.until(webhook, lambda one: one["failed"] >= 2)
        await receiver.start()
        await hooks.until(webhook, lambda one: one["delivered"] == 10)
        assert list(dict.fromkeys(ids_of(receiver.requests))) == [f"orders-{n}" for n in range(1, 11)]


@in_loop
async def test_a_restart_of_the_server_loses_neither_webhooks_nor_events(engine: Engine) -> None:
    async with receiving() as receiver:
        async with hooks_node(engine, *ONE_ATTEMPT) as hooks:
            await hooks.create_topic("orders", "quiet")
            webhook = await hooks.create(receiver, "orders", mode="parallel")
            consumer = await hooks.register(receiver, quiet=None)
            receiver.reply = lambda got: Reply(500 if got.json["payload"]["n"] == 1 else 200)
            await hooks.publish("orders", *({"n": n} for n in range(3)))
            await hooks.until(webhook, lambda one: (one["delivered"], one["failed"]) == (2, 1))
        receiver.requests.clear()
        receiver.reply = lambda got: Reply()
        async with hooks_node(engine, *ONE_ATTEMPT) as hooks:
            found = await hooks.get(webhook)
            assert (found["delivered"], found["failed"]) == (2, 1)
            assert found["topics"]["orders"]["retrying"] == 1
            assert (await hooks.http.get(f"/consumers/{consumer['id']}")).status == 200
            await hooks.publish("orders", {"n": 3})
            await receiver.received(1)
            assert ids_of(receiver.requests) == ["orders-4"]


# --- dead letters


@in_loop
async def test_dead_letters_are_listed_and_can_be_sent_again(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        receiver.reply = lambda got: Reply(500, body=b"broken") if got.json["payload"]["bad"] else Reply()
        webhook = await hooks.create(receiver)
        await hooks.publish("orders", {"bad": False}, {"bad": True}, {"bad": True}, {"bad": False})
        found = await hooks.until(webhook, lambda one: one["deadLetters"] == 2 and one["delivered"] == 2)
        assert found["state"] == "active"
        letters = await hooks.dead(webhook)
        assert [(one["eventId"], one["attempts"], one["status"]) for one in letters] == [
            ("orders-2", 4, 500),
            ("orders-3", 4, 500),
        ]
        failed = await hooks.attempts(webhook, "?failed=true")
        assert len(failed) == 8
        assert failed[0]["answer"] == "broken"
        receiver.reply = lambda got: Reply()
        answer = await hooks.post(webhook, "resend", {"eventIds": ["orders-3"]})
        assert (answer.status, answer.json) == (200, {"queued": 1})
        await hooks.until(webhook, lambda one: one["deadLetters"] == 1)
        assert (await hooks.post(webhook, "dead-letters/resend", {})).json == {"queued": 1}
        await hooks.until(webhook, lambda one: one["deadLetters"] == 0)
        assert ids_of(receiver.requests)[-2:] == ["orders-3", "orders-2"]
        assert (await hooks.post(webhook, "dead-letters/resend", {})).json == {"queued": 0}


@in_loop
async def test_a_dead_letter_can_be_given_up(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        receiver.reply = lambda got: Reply(400)
        webhook = await hooks.create(receiver)
        await hooks.publish("orders", {"n": 1})
        await hooks.until(webhook, lambda one: one["deadLetters"] == 1)
        path = f"/webhooks/{webhook['id']}/dead-letters"
        assert (await hooks.http.delete(f"{path}/orders-1")).status == 200
        assert (await hooks.http.delete(f"{path}/orders-1")).status == 404
        assert await hooks.dead(webhook) == []


# --- what is sent, and what is not


@in_loop
@pytest.mark.proves("S2-44")
async def test_only_wanted_events_are_sent_in_the_wanted_form(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        webhook = await hooks.create(
            receiver, types=["made"], filter="data.total >= 100", body="structured", headers={"X-Token": "t"}
        )
        await hooks.publish("orders", {"total": 5}, {"total": 100}, {"total": 300})
        await hooks.publish("orders", {"total": 500}, type="changed")
        await hooks.publish("orders", {"total": 600})
        requests = await receiver.received(3)
        assert ids_of(requests) == ["orders-2", "orders-3", "orders-5"]
        for got in requests:
            Webhook(webhook["secret"]).verify(got.body, dict(got.headers))
            assert got.headers["content-type"].startswith("application/cloudevents+json")
            assert got.headers["x-token"] == "t"
        assert requests[0].json["data"] == {"total": 100}
        assert requests[0].json["source"] == "/topics/orders"


@in_loop
async def test_a_paused_webhook_sends_nothing_and_goes_on_where_it_was(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        webhook = await hooks.create(receiver)
        await hooks.publish("orders", {"n": 1})
        await receiver.received(1)
        assert (await hooks.post(webhook, "pause")).json["state"] == "paused"
        await hooks.publish("orders", {"n": 2}, {"n": 3})
        assert (await hooks.get(webhook))["topics"]["orders"]["pending"] == 2
        assert len(receiver.requests) == 1
        assert (await hooks.post(webhook, "resume")).json["state"] == "active"
        assert ids_of(await receiver.received(3)) == ["orders-1", "orders-2", "orders-3"]


@in_loop
async def test_a_receiver_that_is_gone_disables_the_webhook_until_it_is_resumed(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        receiver.answer(410)
        webhook = await hooks.create(receiver)
        await hooks.publish("orders", {"n": 1})
        found = await hooks.until(webhook, lambda one: one["state"] == "disabled")
        assert "410" in found["reason"]
        await hooks.post(webhook, "resume")
        assert ids_of(await receiver.received(2)) == ["orders-1", "orders-1"]


@in_loop
async def test_secrets_are_rotated_without_a_gap(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        webhook = await hooks.create(receiver)
        rotated = (await hooks.post(webhook, "rotate-secret", {"overlapHours": 1})).json
        assert rotated["previousSecretCount"] == 1
        await hooks.publish("orders", {"n": 1})
        (got,) = await receiver.received(1)
        for secret in (webhook["secret"], rotated["secret"]):
            Webhook(secret).verify(got.body, dict(got.headers))
        assert (await hooks.post(webhook, "rotate-secret", {"overlapHours": 0})).json["previousSecretCount"] == 0
        shown = json.dumps((await hooks.http.get("/webhooks")).json)
        assert "whsec_" not in shown


@in_loop
async def test_events_are_replayed_from_a_place_a_time_and_the_beginning(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("orders", "others")
        webhook = await hooks.create(receiver, "orders", "others")
        await hooks.publish("orders", *({"n": n} for n in range(4)))
        await hooks.publish("others", {"n": 1})
        await receiver.received(5)
        receiver.requests.clear()
        answer = await hooks.post(webhook, "replay", {"sinceEventId": "orders-2"})
        assert (answer.status, answer.json) == (200, {"topics": {"orders": "orders-2"}})
        assert ids_of(await receiver.received(2)) == ["orders-3", "orders-4"]
        receiver.requests.clear()
        answer = await hooks.post(webhook, "replay", {"topic": "orders", "sinceTime": "2020-01-01T00:00:00Z"})
        assert answer.json == {"topics": {"orders": None}}
        assert ids_of(await receiver.received(4)) == [f"orders-{n}" for n in range(1, 5)]
        receiver.requests.clear()
        answer = await hooks.post(webhook, "replay", {"fromBeginning": True})
        assert answer.json == {"topics": {"orders": None, "others": None}}
        assert sorted(ids_of(await receiver.received(5))) == [*(f"orders-{n}" for n in range(1, 5)), "others-1"]
        answer = await hooks.post(webhook, "replay", {"topic": "orders", "sinceTime": "2199-01-01T00:00:00"})
        assert answer.json == {"topics": {"orders": "orders-4"}}


@in_loop
async def test_a_test_delivery_tells_what_came_of_it(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        webhook = await hooks.create(receiver)
        receiver.answer(Reply(200, body=b"hello"), 500)
        told = (await hooks.post(webhook, "test")).json
        assert (told["success"], told["status"], told["answer"]) == (True, 200, "hello")
        (got,) = receiver.requests
        Webhook(webhook["secret"]).verify(got.body, dict(got.headers))
        assert got.json["type"] == "webhook.test"
        told = (await hooks.post(webhook, "test")).json
        assert (told["success"], told["status"]) == (False, 500)
        assert (await hooks.get(webhook))["failed"] == 0


@in_loop
async def test_retry_after_is_honoured(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        receiver.answer(Reply(503, {"Retry-After": "1"}))
        webhook = await hooks.create(receiver)
        begun = asyncio.get_running_loop().time()
        await hooks.publish("orders", {"n": 1})
        await hooks.until(webhook, lambda one: one["delivered"] == 1)
        assert asyncio.get_running_loop().time() - begun >= 1.0
        assert len(receiver.requests) == 2


# --- the guard at the doors


@in_loop
async def test_webhooks_stay_away_from_the_own_network_by_default(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine, "kwire.webhooks.allow.http=true") as hooks:
        await hooks.create_topic("orders")
        for url in (
            receiver.url,
            "https://localhost/",
            "https://169.254.169.254/",
            "https://[::1]/",
            "ftp://x.example/",
        ):
            for path, body in (
                ("/webhooks", {"url": url, "topics": {"orders": None}}),
                ("/consumers/register", {"callback": url, "topics": {"orders": None}}),
            ):
                answer = await hooks.http.post(path, body)
                assert (answer.status, answer.code) == (400, "InvalidWebhook"), url
        answer = await hooks.http.post("/webhooks", {"url": "https://hooks.example/", "topics": {"orders": "latest"}})
        assert answer.status == 201
        changed = await hooks.http.ask("PATCH", f"/webhooks/{answer.json['id']}", {"url": receiver.url})
        assert (changed.status, changed.code) == (400, "InvalidWebhook")
        assert receiver.connection_count == 0


@in_loop
async def test_a_webhook_that_was_allowed_once_is_not_sent_to_when_it_no_longer_is(engine: Engine) -> None:
    async with receiving() as receiver:
        async with hooks_node(engine) as hooks:
            await hooks.create_topic("orders")
            webhook = await hooks.create(receiver)
        async with hooks_node(engine, "kwire.webhooks.retry.schedule.ms=10") as hooks:
            await hooks.publish("orders", {"n": 1})
            await hooks.until(webhook, lambda one: one["deadLetters"] == 1)
            (letter,) = await hooks.dead(webhook)
            assert letter["problem"].startswith("not sent:")
            told = (await hooks.post(webhook, "test")).json
            assert told["problem"].startswith("not sent:")
        assert receiver.connection_count == 0


@in_loop
async def test_test_deliveries_to_a_receiver_that_hangs_are_bounded(engine: Engine) -> None:
    async with receiving() as receiver, hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        webhook = await hooks.create(receiver)
        gate = asyncio.Event()
        receiver.reply = lambda got: Reply(wait=gate)
        under_way = [asyncio.ensure_future(hooks.post(webhook, "test")) for _ in range(TESTS_MAX)]
        await receiver.received(TESTS_MAX)
        answer = await hooks.post(webhook, "test")
        assert (answer.status, answer.code) == (429, "TooManyTests")
        gate.set()
        assert all(one.json["success"] for one in await asyncio.gather(*under_way))
        assert (await hooks.post(webhook, "test")).json["success"]
