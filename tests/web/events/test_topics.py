"""Topics of the event store over HTTP: POST /topics, their schemas, and what refuses to touch them."""

from typing import Any

import pytest

from tests.support.engines import Engine
from tests.support.event_doors import event, page_of, published, refused
from tests.support.node import in_uvloop

USER_CREATED: dict[str, Any] = {
    "type": "user.created",
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
    "required": ["id", "name"],
}
VERIFIED = {"eventType": "user.verified", "type": "object", "required": ["verified"]}
ALICE = {"id": "123", "name": "Alice"}


@pytest.mark.proves("S2-1", "S2-2", "S2-6", "S2-12", "S2-14", "S2-15", "S2-29", "S2-31", "C-3", "C-46")
@in_uvloop
async def test_a_topic_takes_what_its_schemas_take_also_after_a_restart(engine: Engine) -> None:
    async with engine.http() as http:
        assert await refused(http, "POST", "/events", event("user-events", ALICE)) == (404, "TopicNotFound")
        answer = await http.post("/topics", {"name": "user-events", "schemas": [USER_CREATED]})
        assert answer.status == 201
        assert answer.json == {"name": "user-events", "sequence": 0, "schemas": [USER_CREATED]}
        created = event("user-events", ALICE, type="user.created")
        assert await published(http, created) == ["user-events-1"]
        for bad in (
            event("user-events", {"id": 5, "name": "A"}, type="user.created"),
            event("user-events", {"id": "5"}, type="user.created"),
            event("user-events", ALICE, type="user.verified"),
            event("user-events", None, type=""),
        ):
            answer = await http.post("/events", [created, bad])
            assert answer.status == 400
        answer = await http.post(
            "/events", [created, event("user-events", {"id": 5, "name": "A"}, type="user.created")]
        )
        assert answer.json["error"] == {
            "code": "SchemaViolation",
            "message": "'user.created': $.id: 5 is not of type \"string\"",
            "type": "user.created",
            "path": "$.id",
            "index": 1,
        }
    async with engine.http() as http:
        assert await refused(http, "POST", "/events", event("user-events", {}, type="user.created")) == (
            400,
            "SchemaViolation",
        )
        assert await published(http, created) == ["user-events-2"]
        assert await page_of(http, "user-events") == ([ALICE, ALICE], None)
        told = (await http.get("/topics/user-events")).json
        assert (told["name"], told["sequence"], told["schemas"]) == ("user-events", 2, [USER_CREATED])
        assert len(told["partitions"]) == 1
        assert told["configs"]["retention.ms"] == "-1"
        shown = (await http.get("/topics/user-events/schemas")).json
        assert shown == {"name": "user-events", "sequence": 2, "schemas": [USER_CREATED]}


@pytest.mark.proves("S2-29")
@in_uvloop
async def test_what_cannot_be_a_topic_is_refused(engine: Engine) -> None:
    async with engine.http() as http:
        assert (await http.post("/topics/plain")).status == 201
        for body, expected in [
            (b"{", (400, "InvalidJson")),
            ([], (400, "BadRequest")),
            ({"name": "a"}, (400, "BadRequest")),
            ({"name": "a", "schemas": {}}, (400, "BadRequest")),
            ({"name": "a", "schemas": [1]}, (400, "BadRequest")),
            ({"name": "a", "schemas": [VERIFIED], "more": 1}, (400, "BadRequest")),
            ({"name": "a", "schemas": []}, (400, "InvalidSchema")),
            ({"name": "a", "schemas": [{}]}, (400, "InvalidSchema")),
            ({"name": "a", "schemas": [VERIFIED, VERIFIED]}, (400, "InvalidSchema")),
            ({"name": "a", "schemas": [{**VERIFIED, "$ref": "http://127.0.0.1:1/x"}]}, (400, "InvalidSchema")),
            ({"name": "a", "schemas": [{**VERIFIED, "pattern": "(?=a)"}]}, (400, "InvalidSchema")),
            ({"name": "a", "schemas": [VERIFIED], "configs": {"cleanup.policy": "compact"}}, (400, "INVALID_CONFIG")),
            ({"name": "a", "schemas": [VERIFIED], "configs": {"kwire.events": "false"}}, (400, "INVALID_CONFIG")),
            ({"name": "__a", "schemas": [VERIFIED]}, (400, "InvalidName")),
            ({"name": "", "schemas": [VERIFIED]}, (400, "INVALID_TOPIC_EXCEPTION")),
            ({"name": "a b", "schemas": [VERIFIED]}, (400, "INVALID_TOPIC_EXCEPTION")),
            ({"name": "plain", "schemas": [VERIFIED]}, (409, "TOPIC_ALREADY_EXISTS")),
        ]:
            assert await refused(http, "POST", "/topics", body) == expected, body
        answer = await http.post(
            "/topics", {"name": "a", "schemas": [{**VERIFIED, "properties": {"b": {"type": "text"}}}]}
        )
        assert answer.json["error"]["path"] == "$[0].properties.b.type"
        assert "'text' is not a type of JSON Schema" in answer.json["error"]["message"]
        assert (await http.get("/topics")).json == ["plain"]


@pytest.mark.proves("S2-15", "S2-31")
@in_uvloop
async def test_hostile_payloads_are_refused_and_never_a_fault_of_the_server(engine: Engine) -> None:
    choice = {
        "eventType": "made",
        "anyOf": [{"type": "object", "properties": {"a": {"$ref": "#"}}}, {"type": "string"}],
    }
    async with engine.http() as http:
        assert (await http.post("/topics", {"name": "deep", "schemas": [choice]})).status == 201
        for depth in (5, 100, 254, 300, 400):
            payload = b'{"a":' * depth + b"1" + b"}" * depth
            body = b'{"topic":"deep","type":"made","payload":%s}' % payload
            assert await refused(http, "POST", "/events", body) == (400, "SchemaViolation"), depth
        twice = b'{"topic":"deep","type":"made","payload":{"a":"x","a":"y"}}'
        assert await refused(http, "POST", "/events", twice) == (400, "SchemaViolation")
        assert await page_of(http, "deep") == ([], None)


@in_uvloop
async def test_event_topics_can_be_listed_by_themselves(engine: Engine) -> None:
    async with engine.http() as http:
        await http.post("/topics/plain")
        for name in ("b", "a", "ab"):
            assert (await http.post("/topics", {"name": name, "schemas": [VERIFIED]})).status == 201
        assert (await http.get("/topics")).json == ["a", "ab", "b", "plain"]
        assert (await http.get("/topics?events=true")).json == ["a", "ab", "b"]
        assert (await http.get("/topics?events=true&prefix=a&after=a&limit=1")).json == ["ab"]
        assert "schemas" not in (await http.get("/topics/plain")).json
        assert await refused(http, "GET", "/topics/plain/schemas") == (400, "NotAnEventTopic")
        assert await refused(http, "GET", "/topics/nowhere/schemas") == (404, "TopicNotFound")


@in_uvloop
async def test_schemas_grow_over_http_and_never_shrink(engine: Engine) -> None:
    async with engine.http() as http:
        await http.post("/topics", {"name": "users", "schemas": [USER_CREATED]})
        path = "/topics/users/schemas"
        assert await refused(http, "PUT", path, {"schemas": [VERIFIED]}) == (409, "IncompatibleSchema")
        answer = await http.ask("PATCH", path, {"schemas": [VERIFIED]})
        assert answer.status == 200
        assert answer.json["schemas"] == [USER_CREATED, VERIFIED]
        wider = {**USER_CREATED, "properties": {**USER_CREATED["properties"], "mail": {"type": "string"}}}
        assert (await http.put(path, {"schemas": [VERIFIED, wider]})).json["schemas"] == [VERIFIED, wider]
        assert await refused(http, "PATCH", path, {"schemas": [USER_CREATED]}) == (409, "IncompatibleSchema")
        narrower = {**wider, "required": ["id", "name", "mail"]}
        answer = await http.ask("PATCH", path, {"schemas": [narrower]})
        assert (answer.status, answer.json["error"]["path"]) == (409, "$.required")
        assert await refused(http, "PATCH", path, {"schemas": []}) == (400, "InvalidSchema")
        await published(http, event("users", {**ALICE, "mail": "a@b"}, type="user.created"))
        assert await refused(http, "POST", "/events", event("users", {**ALICE, "mail": 1}, type="user.created")) == (
            400,
            "SchemaViolation",
        )


@pytest.mark.proves("S2-2", "S2-12")
@in_uvloop
async def test_a_topic_that_is_deleted_and_made_again_begins_anew(engine: Engine) -> None:
    async with engine.http("kwire.streams.enable=false") as http:
        await http.post("/topics", {"name": "users", "schemas": [USER_CREATED]})
        await published(http, event("users", ALICE, type="user.created"))
        assert (await http.delete("/topics/users")).status == 200
        assert await refused(http, "POST", "/events", event("users", ALICE, type="user.created")) == (
            404,
            "TopicNotFound",
        )
        answer = await http.post("/topics", {"name": "users", "schemas": [VERIFIED]})
        assert answer.json == {"name": "users", "sequence": 0, "schemas": [VERIFIED]}
        assert await refused(http, "POST", "/events", event("users", ALICE, type="user.created")) == (
            400,
            "SchemaViolation",
        )


@pytest.mark.proves("S2-1", "S2-15")
@in_uvloop
async def test_no_other_door_lets_anything_in(engine: Engine) -> None:
    async with engine.http() as http:
        await http.post("/topics", {"name": "users", "schemas": [USER_CREATED]})
        publish = {"event_type": "user.created", "data": {}}
        assert (await http.post("/topics/users/publish", publish)).status == 400
        assert (await http.post("/rooms/users/events", {"event_type": "user.created", "data": {}})).status == 400
        records: dict[str, object] = {"records": [{"value": {}}]}
        answer = await http.post("/topics/users", records, Content_Type="application/vnd.kafka.json.v2+json")
        assert answer.status == 200
        assert answer.json["offsets"][0]["offset"] is None
        assert await refused(http, "PUT", "/topics/users/partitions", {"num_partitions": 2}) == (
            400,
            "INVALID_PARTITIONS",
        )
        assert await page_of(http, "users") == ([], None)
