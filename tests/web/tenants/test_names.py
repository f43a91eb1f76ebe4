"""Names of tenants in requests, answers, records, webhooks, idempotency keys and the audit log."""

import json
from urllib.parse import quote

import pytest

from kwire.access.scope import PREFIX_LENGTH, prefix_of
from kwire.broker.topics.catalogue import AUDIT_TOPIC
from kwire.streams.log import NotReady
from kwire.streams.rooms.names import topic_of_room
from tests.support.engines import Engine, if_served, only_embedded, stream_topic
from tests.support.event_store import events_of
from tests.support.hooked_node import until
from tests.support.http_access import ADMIN, AccessHttp
from tests.support.node import in_uvloop
from tests.support.tenants import A2, SCOPES, A, B, tenant_http
from tests.support.webhook_receiver import receiving

SCHEMA = {"eventType": "made", "type": "object", "required": ["number"]}
MESSAGE = {"event_type": "message", "data": 1}
ODD_ROOMS = ("lobby", ".", "..", "a b", "_x41_", "_é", "é/ü", "x_x", "kws-bbbbbbbbbbb.lobby", "kws-aaaaaaaaaaa.lobby")
NAME_LENGTH_MAX = 249 - PREFIX_LENGTH


async def make_orders(http: AccessHttp, *credentials: str) -> None:
    for one in credentials:
        answer = await http.post("/topics", {"name": "orders", "schemas": [SCHEMA]}, Authorization=one)
        assert (answer.status, answer.json["name"]) == (201, "orders")


def order(number: int, **more: object) -> dict[str, object]:
    return {"topic": "orders", "type": "made", "payload": {"number": number}, **more}


async def stored_bytes(http: AccessHttp, name: str) -> bytes:
    log = (await stream_topic(http.server, name)).stream()
    await log.ready()
    found = log.read(0, 100_000)
    while isinstance(found, NotReady):
        await found.wait()
        found = log.read(0, 100_000)
    return bytes(found.records)


@in_uvloop
async def test_any_room_name_is_its_own_in_each_scope(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        for owner, credentials in (("a", A), ("b", B)):
            for room in ODD_ROOMS:
                command = {"command": "stream.publish", "payload": {"room": room, **MESSAGE}}
                assert (await http.post("/api/v1/command", command, Authorization=credentials)).json["offset"] == 0
                if room not in (".", ".."):  # clients remove these from paths
                    shown = (await http.get(f"/rooms/{quote(room, safe='')}", Authorization=credentials)).json
                    assert (shown["room"], shown["topic"]) == (room, topic_of_room_in(owner, room))
            listed = (await http.get("/rooms", Authorization=credentials)).json
            assert {one["room"] for one in listed["rooms"]} == set(ODD_ROOMS)
            assert (listed["room_count"], listed["next"]) == (None, None)
        full = (await http.get("/rooms?limit=1000", Authorization=ADMIN)).json
        assert {one["room"] for one in full["rooms"]} == {
            SCOPES[owner].full_name(room) for owner in "ab" for room in ODD_ROOMS
        }
        assert full["room_count"] == 2 * len(ODD_ROOMS)


def topic_of_room_in(owner: str, room: str) -> str:
    full = topic_of_room(SCOPES[owner].full_name(room))
    assert prefix_of(full) == SCOPES[owner].prefix
    return full[PREFIX_LENGTH:]


@in_uvloop
async def test_pages_of_rooms_and_topics_have_plain_cursors(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        for credentials, count in ((A, 7), (B, 4), (ADMIN, 3)):
            for number in range(count):
                await http.put(f"/rooms/r{number}", {}, Authorization=credentials)
        for path in ("/rooms", "/topics"):
            found: list[str] = []
            after = ""
            while True:
                answer = await http.get(f"{path}?limit=2&after={after}", Authorization=A)
                assert b"kws-" not in answer.body
                names = answer.json if path == "/topics" else [one["room"] for one in answer.json["rooms"]]
                found += names
                if len(names) < 2:
                    break
                after = names[-1]
            assert found == [f"r{number}" for number in range(7)], path
        assert (await http.get("/topics?prefix=r1", Authorization=B)).json == ["r1"]


@if_served("/consumer-groups/{group}")
@in_uvloop
async def test_the_length_of_names_is_limited_by_the_prefix(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        longest, longer = "r" * NAME_LENGTH_MAX, "r" * (NAME_LENGTH_MAX + 1)
        assert (await http.put(f"/rooms/{longest}", {}, Authorization=A)).json["room"] == longest
        assert (await http.post(f"/topics/t{longest[1:]}", {}, Authorization=A)).status == 201
        answer = await http.post(f"/consumer-groups/{longest}", {"topic": f"t{longest[1:]}"}, Authorization=A)
        assert answer.status == 201
        for method, path, body in (
            ("PUT", f"/rooms/{longer}", {}),
            ("POST", f"/rooms/{longer}/events", MESSAGE),
            ("GET", f"/rooms/{longer}/subscribe", None),
            ("POST", f"/topics/{longer}", {}),
            ("POST", "/topics", {"name": longer, "schemas": [SCHEMA]}),
            ("POST", f"/consumer-groups/{longer}", {"topic": f"t{longest[1:]}"}),
        ):
            answer = await http.ask(method, path, body, Authorization=A)
            assert answer.status == 400, (path, answer)
            assert str(NAME_LENGTH_MAX) in answer.json["error"]["message"]
            assert "kws-" not in answer.body.decode()
        assert (await http.put(f"/rooms/{'r' * 249}", {}, Authorization=ADMIN)).status == 201


@if_served("/events")
@in_uvloop
async def test_internal_names_are_refused_in_a_scope_too(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        for method, path, body in (
            ("PUT", "/rooms/__r", {}),
            ("POST", "/topics/__t", {}),
            ("POST", "/topics", {"name": "__t", "schemas": [SCHEMA]}),
            ("POST", "/events", order(1) | {"topic": "__t"}),
            ("POST", "/webhooks", {"url": "https://hooks.example", "topics": {"__t": None}}),
            ("POST", "/consumer-groups/g", {"topic": "__consumer_offsets"}),
            ("POST", "/api/v1/command", {"command": "stream.history", "payload": {"room": "__r"}}),
        ):
            answer = await http.ask(method, path, body, Authorization=A)
            assert answer.status == 400, (path, answer)


@if_served("/events")
@in_uvloop
async def test_idempotency_keys_belong_to_a_scope(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        await make_orders(http, A, B)
        for credentials, number in ((A, 1), (B, 2)):
            for status in (201, 200):
                answer = await http.post("/events", order(number), Authorization=credentials, Idempotency_Key="k")
                assert (answer.status, answer.json) == (status, {"eventIds": ["orders-1"]})
        # Another client of the same scope shares the key.
        answer = await http.post("/events", order(3), Authorization=A2, Idempotency_Key="k")
        assert (answer.status, answer.json["error"]["key"]) == (409, "k")
        assert b"kws-" not in answer.body
        for credentials, number in ((A, 4), (B, 5)):
            event = order(number, eventId="chosen")
            assert (await http.post("/events", event, Authorization=credentials)).status == 201
            assert (await http.post("/events", event, Authorization=credentials)).status == 200
        longest = "k" * 256
        assert (await http.post("/events", order(6), Authorization=A, Idempotency_Key=longest)).status == 201
        answer = await http.post("/events", order(7), Authorization=A, Idempotency_Key=longest + "k")
        assert (answer.status, "1 to 256 bytes, got 257" in answer.body.decode()) == (400, True)
        # A client without a scope cannot ask which keys a tenant has used.
        key = SCOPES["a"].prefix + "k"
        event = order(1) | {"topic": SCOPES["a"].full_name("orders")}
        answer = await http.post("/events", event, Authorization=ADMIN, Idempotency_Key=key)
        assert (answer.status, answer.code) == (400, "BadRequest")


@if_served("/events")
@in_uvloop
async def test_a_commit_to_several_topics_stays_in_the_scope(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        await make_orders(http, A, B)
        await http.post("/topics", {"name": "bills", "schemas": [SCHEMA]}, Authorization=B)
        answer = await http.post("/events", [order(1), order(2) | {"topic": "bills"}], Authorization=A)
        assert (answer.status, answer.code) == (404, "TopicNotFound")
        assert (answer.json["error"]["topic"], answer.json["error"]["index"]) == ("bills", 1)
        answer = await http.post("/events", [order(1), order(2) | {"topic": "bills"}], Authorization=B)
        assert answer.json == {"eventIds": ["orders-1", "bills-1"]}
        answer = await http.post("/events", order(1, expectedVersion=0), Authorization=A)
        assert (answer.status, answer.code) == (409, "WrongExpectedVersion")
        assert b"kws-" not in answer.body
        assert (await http.post("/events", order(1, expectedVersion=-1), Authorization=A)).status == 201
        page = (await http.get("/topics/orders/events?limit=1", Authorization=B)).json
        assert [one["id"] for one in page["events"]] == ["orders-1"]
        assert (await http.get("/events/orders-1", Authorization=A)).json["id"] == "orders-1"
        for number in range(2, 6):
            await http.post("/events", order(number), Authorization=A)
        page = (await http.get("/topics/orders/events?limit=2", Authorization=A)).json
        assert page["next"] == "orders-2"
        page = (await http.get("/topics/orders/events?limit=2&sinceEventId=orders-2", Authorization=A)).json
        assert [one["payload"]["number"] for one in page["events"]] == [3, 4]
        answer = await http.get("/topics/orders/events?sinceEventId=bills-1", Authorization=A)
        assert answer.json["error"]["message"] == "event bills-1 belongs to topic bills, not to orders"


@in_uvloop
async def test_records_contain_plain_names(engine: Engine) -> None:
    """Kafka clients of the tenant read the headers of the records."""
    async with tenant_http(engine) as http:
        names = {"lobby": "/rooms/lobby", "jobs": "/topics/jobs"}
        if engine.serves("/events"):
            names["orders"] = "/topics/orders"
            await make_orders(http, A)
            await http.post("/events", order(1), Authorization=A)
        await http.post("/rooms/lobby/events", MESSAGE, Authorization=A)
        await http.post(f"/rooms/{SCOPES['a'].full_name('lobby')}/events", MESSAGE, Authorization=ADMIN)
        await http.post("/topics/jobs", {"num_partitions": 1}, Authorization=A)
        await http.post("/topics/jobs/publish", MESSAGE, Authorization=A)
        for name, source in names.items():
            stored = await stored_bytes(http, SCOPES["a"].full_name(name))
            assert source.encode() in stored
            assert b"kws-" not in stored


@if_served("/events")
@pytest.mark.parametrize("form", ["event", "binary", "structured"])
@in_uvloop
async def test_webhooks_send_plain_names(engine: Engine, form: str) -> None:
    async with tenant_http(engine, "kwire.webhooks.allow.private=true") as http, receiving() as receiver:
        await make_orders(http, A, B)
        for credentials in (A, B):
            hook = {
                "url": f"{receiver.url}/{'a' if credentials is A else 'b'}",
                "topics": {"orders": None},
                "body": form,
                "filter": 'topic == "orders" and id startswith "orders-"',
            }
            answer = await http.post("/webhooks", hook, Authorization=credentials)
            assert answer.status == 201, answer
            assert set(answer.json["topics"]) == {"orders"}
        for number, credentials in ((1, A), (2, B)):
            await http.post("/events", order(number), Authorization=credentials)
        for got in await receiver.received(2):
            assert "kws-" not in json.dumps(dict(got.headers)) + got.body.decode()
            assert got.headers["webhook-id"] == "orders-1"
            assert (b'"number":1' in got.body) == got.path.endswith("/a")
            assert (b'"number":2' in got.body) == got.path.endswith("/b")


@if_served("/events")
@in_uvloop
async def test_webhooks_belong_to_a_scope(engine: Engine) -> None:
    async with tenant_http(engine, "kwire.webhooks.allow.private=true") as http, receiving() as receiver:
        await make_orders(http, A, B)
        await http.post("/events", order(1), Authorization=A)
        receiver.answer(*[500] * 1000)
        hook = {"url": receiver.url, "topics": {"orders": None}}
        made = (await http.post("/webhooks", hook, Authorization=A)).json
        await http.post("/webhooks", hook, Authorization=B)
        full_hook = hook | {"topics": {SCOPES["a"].full_name("orders"): None}}
        of_admin = (await http.post("/webhooks", full_hook, Authorization=ADMIN)).json
        path = f"/webhooks/{made['id']}"
        for credentials in (A, A2):
            listed = await http.get("/webhooks", Authorization=credentials)
            assert [one["id"] for one in listed.json["webhooks"]] == [made["id"]]
            assert b"kws-" not in listed.body
            assert len((await http.get("/webhooks?topic=orders", Authorization=credentials)).json["webhooks"]) == 1
            assert len((await http.get("/consumers", Authorization=credentials)).json["consumers"]) == 1
        for webhook, credentials in ((made, B), (of_admin, A), ({"id": "unknown"}, A)):
            answer = await http.get(f"/webhooks/{webhook['id']}", Authorization=credentials)
            assert (answer.status, answer.code) == (404, "WebhookNotFound")
        assert len((await http.get("/webhooks", Authorization=ADMIN)).json["webhooks"]) == 3
        await receiver.received(2)

        async def attempts() -> list[dict[str, object]]:
            answer = await http.get(f"{path}/deliveries", Authorization=A)
            assert b"kws-" not in answer.body
            found: list[dict[str, object]] = answer.json["attempts"]
            return found

        found: list[dict[str, object]] = []
        while not found:
            found = await attempts()
        assert found[-1]["eventId"] == "orders-1"
        answer = await http.post(f"{path}/replay", {"sinceEventId": "orders-1"}, Authorization=A2)
        assert answer.json == {"topics": {"orders": "orders-1"}}
        answer = await http.post(f"{path}/resend", {"eventIds": ["orders-1"]}, Authorization=A)
        assert answer.json == {"queued": 1}
    # The webhook still belongs to the scope after a restart.
    async with tenant_http(engine, "kwire.webhooks.allow.private=true") as http:
        assert set((await http.get(path, Authorization=A2)).json["topics"]) == {"orders"}
        assert (await http.get(path, Authorization=B)).status == 404
        # An administrator takes the webhook over: it no longer belongs to the tenant.
        answer = await http.ask("PATCH", path, {"takeOver": True}, Authorization=ADMIN)
        assert (answer.status, set(answer.json["topics"])) == (200, {SCOPES["a"].full_name("orders")})
        assert (await http.get(path, Authorization=A)).status == 404


@only_embedded("a bridge has no audit topic")
@in_uvloop
async def test_the_audit_log_has_full_names_and_tenants_do_not_see_it(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        await http.put("/rooms/lobby", {}, Authorization=A)
        assert (await http.get("/metrics", Authorization=A)).status == 403
        topics = http.node._shared.services.topics

        def entries() -> list[str]:
            topic = topics.get(AUDIT_TOPIC)
            return [] if topic is None else [event.data.decode() for event in events_of(topic)]

        await until(lambda: any('"Key:a"' in one and SCOPES["a"].full_name("lobby") in one for one in entries()))
        await until(lambda: any('"Key:a"' in one and "CLUSTER" in one for one in entries()))
        for path in (f"/topics/{AUDIT_TOPIC}", f"/topics/{AUDIT_TOPIC}/stats", f"/rooms/{AUDIT_TOPIC}"):
            assert (await http.get(path, Authorization=A)).status == 404
        assert (await http.get("/topics", Authorization=A)).json == ["lobby"]
        assert (await http.get(f"/topics/{AUDIT_TOPIC}", Authorization=ADMIN)).status == 200
        # The name is free in a scope.
        assert (await http.put(f"/rooms/{AUDIT_TOPIC}", {}, Authorization=A)).status == 201


@if_served("/events")
@in_uvloop
async def test_lines_and_records_are_refused_with_plain_names(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        await http.post("/topics", {"name": "orders", "schemas": [SCHEMA]}, Authorization=A)
        headers = {"Content_Type": "application/vnd.kafka.json.v2+json"}
        answer = await http.post("/topics/orders", {"records": [{"value": 1}]}, Authorization=A, **headers)
        assert answer.json["offsets"][0]["error_code"] == 50002
        assert b"kws-" not in answer.body
        lines = b'{"event_type": "message"}\n{"event_type": "message", "data": 1}\n'
        answer = await http.post("/rooms/lobby/events", lines, Authorization=A, Content_Type="application/x-ndjson")
        assert [sorted(one) for one in answer.lines] == [["error", "line"], ["event_id", "offset"]]
        answer = await http.post("/rooms/orders/events", lines, Authorization=A, Content_Type="application/x-ndjson")
        assert all("error" in one for one in answer.lines)
        assert b"kws-" not in answer.body
        answer = await http.post("/topics/orders/publish", [MESSAGE, MESSAGE], Authorization=A)
        assert answer.status >= 400
        assert b"kws-" not in answer.body
