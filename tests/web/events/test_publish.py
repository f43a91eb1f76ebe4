"""POST /events: ids in order, all or nothing, expected versions, and requests that are sent again."""

import asyncio

import pytest

from kwire.node import Node
from kwire.streams.event_store.drafts import EVENTS_MAX
from tests.support.engines import Engine
from tests.support.event_doors import event, make_topics, page_of, published, refused
from tests.support.node import in_uvloop

NO_EVENTS = [
    (b"", "InvalidJson"),
    (b"[]", "BadRequest"),
    (b"[1]", "BadRequest"),
    (b'{"topic":"a","type":"t"}', "BadRequest"),
    (b'{"topic":"a","type":"","payload":1}', "BadRequest"),
    (b'{"topic":"","type":"t","payload":1}', "BadRequest"),
    (b'{"topic":"a","type":"t","payload":1,"more":2}', "BadRequest"),
    (b'{"topic":"a","type":"t","payload":1,"expectedVersion":-2}', "BadRequest"),
    (b'{"topic":"a","type":"made","payload":1,"metadata":{"ce_id":"x"}}', "InvalidEvent"),
    (b'{"topic":"a","type":"t","payload":1}', "SchemaViolation"),
    (b'{"topic":"a","type":"t","payload":"\xff"}', "InvalidEvent"),
    (b'{"topic":"a","type":"\\ud800","payload":1}', "InvalidJson"),
    (b'{"topic":"a","type":"t","payload":' + b"[" * 5000 + b"]" * 5000 + b"}", "InvalidJson"),
]


@pytest.mark.proves("S2-5", "S2-10", "S2-11", "S2-30", "S2-32")
@in_uvloop
async def test_events_of_several_topics_get_ids_in_the_order_of_the_request(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "user-events", "audit-events")
        answer = await http.post(
            "/events",
            [
                {"topic": "user-events", "type": "user.created", "payload": {"id": "123", "name": "Alice"}},
                {"topic": "audit-events", "type": "user.verified", "payload": {"id": "123", "verified": True}},
                {"topic": "user-events", "type": "user.created", "payload": {"id": "124", "name": "Bob"}},
            ],
        )
        assert answer.status == 201
        assert answer.json == {"eventIds": ["user-events-1", "audit-events-1", "user-events-2"]}
        assert await published(http, event("audit-events"), event("user-events")) == ["audit-events-2", "user-events-3"]


@pytest.mark.proves("S2-6", "S2-30")
@in_uvloop
async def test_one_event_may_come_without_an_array(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a1-2")
        answer = await http.post("/events", event("a1-2", {"x": 1}))
        assert (answer.status, answer.json) == (201, {"eventIds": ["a1-2-1"]})


@pytest.mark.proves("S2-31")
@in_uvloop
async def test_one_bad_event_refuses_all_of_them_and_is_named(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a", "b")
        await http.put("/rooms/room")
        for bad, status, code in [
            (event("nowhere"), 404, "TopicNotFound"),
            (event("__events"), 400, "InvalidName"),
            (event("room"), 400, "NotAnEventTopic"),
            ({"topic": "b", "type": "unknown", "payload": 1}, 400, "SchemaViolation"),
        ]:
            answer = await http.post("/events", [event("a"), event("b"), bad, event("a")])
            assert (answer.status, answer.code) == (status, code), answer.body
            assert answer.json["error"]["index"] == 2
        assert await page_of(http, "a") == ([], None)
        assert await page_of(http, "b") == ([], None)


@in_uvloop
async def test_what_is_no_event_is_refused_with_400(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a")
        for body, code in NO_EVENTS:
            answer = await http.post("/events", body, Content_Type="application/json")
            assert (answer.status, answer.code) == (400, code), (body[:100], answer.body)
        assert await page_of(http, "a") == ([], None)


@in_uvloop
async def test_too_much_at_once_is_refused(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a", max_message_bytes="2000")
        assert await refused(http, "POST", "/events", event("a", "x" * 3000)) == (413, "EventTooLarge")
        assert await refused(http, "POST", "/events", [event("a")] * (EVENTS_MAX + 1)) == (400, "BadRequest")
        plain = await http.post("/events", b"{}", Content_Type="text/plain")
        assert plain.status == 415
    async with engine.http("kwire.http.max.body.bytes=2000") as http:
        assert await refused(http, "POST", "/events", event("a", "x" * 3000)) == (413, "BodyTooLarge")


@in_uvloop
async def test_an_expected_version_that_is_not_met_stores_nothing(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a", "b")
        assert await published(http, event("a", 1, expectedVersion=-1)) == ["a-1"]
        answer = await http.post("/events", [event("b"), event("a", 2, expectedVersion=-1)])
        assert (answer.status, answer.code) == (409, "WrongExpectedVersion")
        assert {name: answer.json["error"][name] for name in ("topic", "expected", "actual")} == {
            "topic": "a",
            "expected": -1,
            "actual": 0,
        }
        assert await page_of(http, "b") == ([], None)
        # In a batch, the version before each event counts.
        ids = await published(http, event("a", expectedVersion=0), event("b"), event("a", expectedVersion=1))
        assert ids == ["a-2", "b-1", "a-3"]


@in_uvloop
async def test_of_writers_who_expect_the_same_version_one_wins(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a")
        answers = await asyncio.gather(*(http.post("/events", event("a", n, expectedVersion=-1)) for n in range(20)))
        assert sorted(answer.status for answer in answers) == [201] + [409] * 19
        assert len((await page_of(http, "a"))[0]) == 1


@in_uvloop
async def test_a_request_with_a_key_is_stored_once_however_often_it_is_sent(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a", "b")
        body = [event("b", 1), event("a", 2, expectedVersion=-1)]
        answers = [await http.post("/events", body, Idempotency_Key=key) for key in ("k-1", '"k-1"', "k-1")]
        assert [answer.status for answer in answers] == [201, 200, 200]
        assert {answer.body for answer in answers} == {b'{"eventIds":["b-1","a-1"]}'}
        other = await http.post("/events", [event("b", 2)], Idempotency_Key="k-1")
        assert (other.status, other.code) == (409, "IdempotencyConflict")
        assert await page_of(http, "b") == ([1], None)
        for no_key in ("", "x" * 300):
            answer = await http.post("/events", body, Idempotency_Key=no_key)
            assert (answer.status, answer.code) == (400, "InvalidEvent"), no_key


@in_uvloop
async def test_events_with_ids_of_their_own_can_be_sent_again(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a", "b")
        body = [event("a", 1, eventId="x"), event("b", 2, eventId="x")]
        assert await published(http, *body) == ["a-1", "b-1"]
        assert await published(http, *body) == ["a-1", "b-1"]
        changed = await http.post("/events", [event("a", 7, eventId="x"), event("b", 2, eventId="x")])
        assert (changed.status, changed.code) == (409, "IdempotencyConflict")
        assert await published(http, event("a", 1, eventId="x")) == ["a-2"], "it is another request"
        # Where one has none, nothing says that the request is the same.
        for _ in range(2):
            await published(http, event("a", 3, eventId="y"), event("a", 4))
        assert (await page_of(http, "a"))[0] == [1, 1, 3, 4, 3, 4]


@in_uvloop
async def test_a_request_whose_answer_was_lost_at_a_stop_is_known_after_it(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a")
        await published(http, event("a", 1), Idempotency_Key="k")
    async with engine.http() as http:
        assert await published(http, event("a", 1), Idempotency_Key="k") == ["a-1"]
        assert await page_of(http, "a") == ([1], None)


@in_uvloop
async def test_a_stored_event_is_a_cloud_event_for_kafka_clients(engine: Engine) -> None:
    async with engine.http() as http:
        (topic,) = await make_topics(http.server, "a")
        await published(http, event("a", {"x": 1}, eventId="mine", key="k", metadata={"trace": "7"}))
        answer = await http.get("/events/a-1")
        assert answer.json["metadata"] == {"trace": "7"}
        assert answer.json["key"] == "k"
        consumed = await http.post("/topics/a/partitions/0/consume", {})
        (record,) = consumed.json["events"]
        assert (record["id"], record["event_type"], record["key"]) == ("mine", "made", "k")
        if isinstance(http.server, Node):
            assert topic.partitions[0].high_watermark == 1
