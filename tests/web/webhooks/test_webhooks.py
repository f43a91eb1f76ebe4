"""The doors of webhooks: what they take, what they refuse, and that nothing is a 5xx."""

import json
from typing import Any

import pytest

from kwire.streams.webhooks.delivery.signing import new_secret
from tests.support.engines import Engine
from tests.support.node import in_loop
from tests.support.webhook_node import Hooks, hooks_node

URL = "https://hooks.example/in"
NOWHERE = "00000000-0000-0000-0000-000000000000"


async def made(hooks: Hooks, **fields: object) -> dict[str, Any]:
    """A webhook that gets nothing: there are no new events."""
    answer = await hooks.http.post("/webhooks", {"url": URL, "topics": {"orders": "latest"}, **fields})
    assert answer.status == 201, answer
    found: dict[str, Any] = answer.json
    return found


@in_loop
async def test_a_webhook_is_made_shown_changed_and_deleted(engine: Engine) -> None:
    async with hooks_node(engine) as hooks:
        await hooks.create_topic("orders", "others")
        await hooks.publish("orders", {"n": 1})
        secret = new_secret()
        webhook = await made(
            hooks,
            secret=secret,
            types=["made"],
            filter='type == "made"',
            mode="parallel",
            parallel=3,
            ratePerSecond=2.5,
            headers={"X-Token": "hidden"},
            body="binary",
            description="Größe",
        )
        assert webhook.pop("secret") == secret
        assert webhook["headers"] == {"x-token": "…"}
        assert webhook["topics"] == {"orders": {"lastEventId": "orders-1", "pending": 0, "retrying": 0}}
        assert (webhook["mode"], webhook["parallel"], webhook["ratePerSecond"]) == ("parallel", 3, 2.5)
        assert (webhook["policy"], webhook["state"], webhook["body"]) == ("retry", "active", "binary")
        assert webhook["description"] == "Größe"
        assert await hooks.get(webhook) == webhook
        path = f"/webhooks/{webhook['id']}"
        change = {"topics": {"orders": None, "others": "latest"}, "filter": None, "headers": None, "mode": "ordered"}
        changed = await hooks.http.ask("PATCH", path, change)
        assert changed.status == 200
        assert changed.json["filter"] is None
        assert changed.json["headers"] == {}
        assert (changed.json["mode"], changed.json["parallel"]) == ("ordered", 1)
        assert changed.json["types"] == ["made"]
        assert changed.json["topics"]["orders"]["lastEventId"] == "orders-1", "a topic that stays keeps its place"
        assert changed.json["topics"]["others"]["lastEventId"] is None
        assert (await hooks.http.ask("PATCH", path, {})).json == changed.json
        assert (await hooks.http.delete(path)).json == {"success": True, "id": webhook["id"]}
        for method in ("GET", "DELETE"):
            assert (await hooks.http.ask(method, path)).code == "WebhookNotFound"


@in_loop
async def test_lists_come_in_pages(engine: Engine) -> None:
    async with hooks_node(engine) as hooks:
        await hooks.create_topic("orders", "others")
        ids = sorted([(await made(hooks))["id"] for _ in range(5)])
        await hooks.http.post("/webhooks", {"url": URL, "topics": {"others": None}})
        for path, field in (("/webhooks", "webhooks"), ("/consumers", "consumers")):
            found: list[str] = []
            after: str | None = ""
            while after is not None:
                page = (await hooks.http.get(f"{path}?limit=2&topic=orders&after={after}")).json
                found += [one["id"] for one in page[field]]
                after = page["next"]
            assert found == ids


@in_loop
@pytest.mark.proves("S2-16", "S2-22", "S2-33")
async def test_a_consumer_has_an_id_a_callback_and_topics(engine: Engine) -> None:
    async with hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        await hooks.publish("orders", {"n": 1}, {"n": 2})
        asked = {"callback": URL, "topics": {"orders": "orders-2"}}
        answer = await hooks.http.post("/consumers/register", asked)
        assert answer.status == 201
        consumer = answer.json
        assert len(consumer["id"]) == 36
        assert consumer.pop("secret").startswith("whsec_")
        assert {name: consumer[name] for name in asked} == asked
        assert (consumer["policy"], consumer["state"]) == ("remove", "active")
        assert (await hooks.http.get(f"/consumers/{consumer['id']}")).json == consumer
        assert (await hooks.http.get("/consumers")).json == {"consumers": [consumer], "next": None}
        assert (await hooks.http.delete(f"/consumers/{consumer['id']}")).status == 200
        assert (await hooks.http.get("/consumers")).json == {"consumers": [], "next": None}
        refused = await hooks.http.get("/consumers/register")
        assert (refused.status, refused.headers["Allow"]) == (405, "POST")


BAD: dict[str, object] = {
    "no url": {"topics": {"orders": None}},
    "no topics": {"url": URL},
    "no topic": {"url": URL, "topics": {}},
    "a url that is none": {"url": "hooks.example", "topics": {"orders": None}},
    "a url with a password": {"url": "https://a:b@hooks.example/", "topics": {"orders": None}},
    "an event of another topic": {"url": URL, "topics": {"orders": "others-1"}},
    "an event that is not there": {"url": URL, "topics": {"orders": "orders-99"}},
    "no event id": {"url": URL, "topics": {"orders": "newest"}},
    "a number": {"url": URL, "topics": {"orders": 7}},
    "an internal topic": {"url": URL, "topics": {"__events": None}},
    "an unknown field": {"url": URL, "topics": {"orders": None}, "retries": 3},
    "a policy": {"url": URL, "topics": {"orders": None}, "policy": "hope"},
    "a filter": {"url": URL, "topics": {"orders": None}, "filter": "data.("},
    "a body": {"url": URL, "topics": {"orders": None}, "body": "xml"},
    "a rate": {"url": URL, "topics": {"orders": None}, "ratePerSecond": 0},
    "parallel in order": {"url": URL, "topics": {"orders": None}, "mode": "ordered", "parallel": 5},
    "a header that breaks out": {"url": URL, "topics": {"orders": None}, "headers": {"X": "a\r\nHost: b"}},
    "a header that is ours": {"url": URL, "topics": {"orders": None}, "headers": {"Webhook-Id": "1"}},
    "a host": {"url": URL, "topics": {"orders": None}, "headers": {"Host": "internal"}},
    "a weak secret": {"url": URL, "topics": {"orders": None}, "secret": "whsec_AAAA"},
    "a list": [],
}


@in_loop
async def test_what_makes_no_sense_is_refused_and_leaves_nothing(engine: Engine) -> None:
    async with hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        for name, body in BAD.items():
            answer = await hooks.http.post("/webhooks", body)
            assert answer.status == 400, (name, answer)
            assert answer.json["error"]["message"], name
        answer = await hooks.http.post("/webhooks", {"url": URL, "topics": {"missing": None}})
        assert (answer.status, answer.code) == (404, "TopicNotFound")
        answer = await hooks.http.post("/consumers/register", {"callback": URL, "topics": {"missing": None}})
        assert (answer.status, answer.code) == (404, "TopicNotFound")
        for raw in (b"", b"{", b"\xff", b"null", b'{"callback":1}'):
            for path in ("/webhooks", "/consumers/register"):
                assert (await hooks.http.post(path, raw, Content_Type="application/json")).status == 400
        assert (await hooks.http.get("/webhooks")).json["webhooks"] == []


@in_loop
async def test_changes_are_checked_as_new_ones_are(engine: Engine) -> None:
    async with hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        webhook = await made(hooks)
        webhook.pop("secret")
        path = f"/webhooks/{webhook['id']}"
        changes: list[dict[str, object]] = [
            {"url": "x"},
            {"topics": {}},
            {"topics": {"__events": None}},
            {"policy": None},
            {"secret": "s"},
            {"id": "x"},
        ]
        for body in changes:
            assert (await hooks.http.ask("PATCH", path, body)).status == 400, body
        assert (await hooks.http.ask("PATCH", path, {"topics": {"missing": None}})).status == 404
        assert await hooks.get(webhook) == webhook


@in_loop
async def test_a_webhook_that_is_not_there_is_404_everywhere(engine: Engine) -> None:
    async with engine.http() as http:
        requests: list[tuple[str, str, Any]] = [
            ("GET", "", None),
            ("PATCH", "", {"description": "x"}),
            ("DELETE", "", None),
            ("POST", "/pause", None),
            ("POST", "/resume", None),
            ("POST", "/rotate-secret", {}),
            ("GET", "/deliveries", None),
            ("GET", "/dead-letters", None),
            ("DELETE", "/dead-letters/orders-1", None),
            ("POST", "/dead-letters/resend", {}),
            ("POST", "/resend", {"eventIds": ["orders-1"]}),
            ("POST", "/replay", {"fromBeginning": True}),
            ("POST", "/test", None),
        ]
        for method, below, body in requests:
            answer = await http.ask(method, f"/webhooks/{NOWHERE}{below}", body)
            assert (answer.status, answer.code) == (404, "WebhookNotFound"), (method, below)


@in_loop
async def test_a_page_of_dead_letters_begins_after_an_event(engine: Engine) -> None:
    async with hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        path = f"/webhooks/{(await made(hooks))['id']}/dead-letters"
        assert (await hooks.http.get(f"{path}?after=orders-1")).json == {"deadLetters": [], "next": None}
        for after in ("", "orders"):
            assert (await hooks.http.get(f"{path}?after={after}")).status == 400, after


@in_loop
async def test_what_cannot_be_sent_again_is_refused(engine: Engine) -> None:
    async with hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        await hooks.publish("orders", {"n": 1})
        webhook = await made(hooks)
        await hooks.post(webhook, "pause")
        await hooks.publish("orders", {"n": 2})
        resends: list[tuple[dict[str, object], int]] = [
            ({"eventIds": []}, 400),
            ({"eventIds": ["orders"]}, 400),
            ({"eventIds": ["__events-1"]}, 400),
            ({"eventIds": ["others-1"]}, 400),
            ({"eventIds": ["orders-2"]}, 409),
            ({}, 400),
        ]
        for body, status in resends:
            assert (await hooks.post(webhook, "resend", body)).status == status, body
        assert (await hooks.post(webhook, "dead-letters/resend", {"eventIds": ["orders-1"]})).status == 404
        assert (await hooks.post(webhook, "dead-letters/resend")).json == {"queued": 0}
        replays: list[tuple[dict[str, object], int]] = [
            ({}, 400),
            ({"sinceEventId": "orders-1", "fromBeginning": True}, 400),
            ({"sinceEventId": "orders-1", "topic": "others"}, 400),
            ({"sinceEventId": "orders-99"}, 400),
            ({"sinceTime": "yesterday"}, 400),
            ({"topic": "others", "fromBeginning": True}, 400),
            ({"topic": "__events", "fromBeginning": True}, 400),
        ]
        for body, status in replays:
            assert (await hooks.post(webhook, "replay", body)).status == status, body


@in_loop
async def test_secrets_are_checked_when_they_are_replaced(engine: Engine) -> None:
    async with hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        webhook = await made(hooks)
        assert (await hooks.post(webhook, "rotate-secret", {"secret": "weak"})).status == 400
        assert (await hooks.post(webhook, "rotate-secret", {"overlapHours": -1})).status == 400
        for _ in range(3):
            assert (await hooks.post(webhook, "rotate-secret")).status == 200
        assert (await hooks.post(webhook, "rotate-secret")).status == 409
        secret = new_secret()
        told = (await hooks.post(webhook, "rotate-secret", {"secret": secret, "overlapHours": 0})).json
        assert (told["secret"], told["previousSecretCount"]) == (secret, 0)
        assert told["oldSigns"] == told["previousSecretCount"]  # the former name
        everything = [
            (await hooks.http.get(path)).json for path in ("/webhooks", "/consumers", f"/webhooks/{webhook['id']}")
        ]
        assert "whsec_" not in json.dumps(everything)


@in_loop
async def test_the_number_of_webhooks_is_bounded_and_they_can_be_switched_off(engine: Engine) -> None:
    async with hooks_node(engine, "kwire.webhooks.max=1") as hooks:
        await hooks.create_topic("orders")
        await made(hooks)
        answer = await hooks.http.post("/webhooks", {"url": URL, "topics": {"orders": None}})
        assert (answer.status, answer.code) == (429, "TooManyWebhooks")
    async with hooks_node(engine, "kwire.webhooks.enable=false") as hooks:
        for path in ("/webhooks", "/consumers"):
            assert (await hooks.http.get(path)).code == "WebhooksDisabled"


@in_loop
@pytest.mark.proves("S2-17", "S2-42")
async def test_consumers_live_in_memory_only_where_that_is_wanted(engine: Engine) -> None:
    for settings, count in ((("kwire.webhooks.persist=false",), 0), (("kwire.webhooks.persist=true",), 1)):
        async with hooks_node(engine, *settings) as hooks:
            if not count:
                await hooks.create_topic("orders")
            await made(hooks)
        async with hooks_node(engine, *settings) as hooks:
            assert len((await hooks.http.get("/consumers")).json["consumers"]) == count


@in_loop
@pytest.mark.proves("S2-46")
async def test_webhooks_are_counted_for_prometheus(engine: Engine) -> None:
    async with hooks_node(engine) as hooks:
        await hooks.create_topic("orders")
        webhook = await made(hooks)
        await hooks.post(webhook, "pause")
        await hooks.publish("orders", {"n": 1}, {"n": 2})
        told = (await hooks.http.get("/metrics")).body.decode()
        for line in (
            'kwire_webhooks{state="paused"} 1.0',
            'kwire_webhooks{state="active"} 0.0',
            "kwire_webhooks_pending_events 2.0",
            "kwire_webhooks_dead_letters 0.0",
            'kwire_webhooks_attempts_total{outcome="delivered"} 0.0',
        ):
            assert f"\n{line}\n" in told, line
