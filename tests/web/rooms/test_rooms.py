"""Rooms, their events and their history over HTTP."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from kwire.errors import (
    BroadcastFailed,
    EventNotFound,
    OffsetOutOfRange,
    RoomNotFound,
    StreamError,
    SubscriptionFailed,
)
from kwire.web.answers.errors import error_answer
from tests.support.engines import Engine, only_embedded
from tests.support.node import in_loop, in_uvloop

EVENT = {"event_type": "message", "data": {"user": "alice", "text": "Hello everyone!"}}
PUBLISH = {"room": "r", **EVENT}


def without(fields: Mapping[str, object], name: str) -> dict[str, object]:
    return {known: value for known, value in fields.items() if known != name}


@pytest.mark.proves("S0-32")
@in_uvloop
async def test_a_room_appears_with_its_first_event(engine: Engine) -> None:
    async with engine.http() as http:
        assert (await http.get("/rooms/chat-room-1")).status == 404
        answer = await http.post("/rooms/chat-room-1/events", EVENT)
        assert answer.status == 201
        assert answer.json["offset"] == 0
        assert answer.json["subscribers_notified"] == 0
        assert answer.json["event_id"].startswith("evt_")
        assert (await http.get("/rooms/chat-room-1")).json["newest_offset"] == 0


@in_loop
async def test_an_event_comes_back_as_it_was_published(engine: Engine) -> None:
    async with engine.http() as http:
        sent = EVENT | {"metadata": {"client_version": "1.0.0", "ü": "ß"}, "key": "k", "event_id": "mine"}
        stored = (await http.post("/rooms/r/events", sent)).json
        assert stored["event_id"] == "mine"
        event = (await http.get("/rooms/r/events/0")).json
        assert list(event) == ["room", "event_id", "offset", "type", "data", "timestamp", "metadata"]
        assert (event["room"], event["event_id"], event["offset"], event["type"]) == ("r", "mine", 0, "message")
        assert event["data"] == EVENT["data"]
        assert event["metadata"] == {"client_version": "1.0.0", "ü": "ß"}
        assert event["timestamp"].endswith("Z")


@in_loop
async def test_numbers_keep_their_digits(engine: Engine) -> None:
    async with engine.http() as http:
        raw = b'{"event_type": "n", "data": [1.10, 12345678901234567890123, 1E300]}'
        assert (await http.post("/rooms/r/events", raw)).status == 201
        assert b'"data":[1.10,12345678901234567890123,1E300]' in (await http.get("/rooms/r/events")).body


@in_loop
async def test_an_array_is_stored_one_behind_the_other(engine: Engine) -> None:
    async with engine.http() as http:
        await http.post("/rooms/r/events", EVENT)
        answer = await http.post("/rooms/r/events", [{"event_type": "n", "data": number} for number in range(100)])
        assert answer.status == 201
        assert (answer.json["offset"], answer.json["count"]) == (1, 100)
        assert len(set(answer.json["event_ids"])) == 100
        events = (await http.get("/rooms/r/events?from_offset=1")).json["events"]
        assert [event["data"] for event in events] == list(range(100))
        assert [event["offset"] for event in events] == list(range(1, 101))
        assert [event["event_id"] for event in events] == answer.json["event_ids"]


@in_loop
async def test_an_array_with_one_bad_event_is_not_stored_at_all(engine: Engine) -> None:
    async with engine.http() as http:
        await http.put("/rooms/r")
        for bad in (3, {"data": 1}, {"event_type": "x"}, EVENT | {"metadata": {"ce_id": "x"}}, EVENT | {"more": 1}):
            answer = await http.post("/rooms/r/events", [EVENT, bad, EVENT])
            assert answer.status == 400, bad
        for size in (0, 1001):
            assert (await http.post("/rooms/r/events", [EVENT] * size)).status == 400
        assert (await http.get("/rooms/r")).json["newest_offset"] == -1


@pytest.mark.proves("S0-15", "S0-16", "S0-17")
@in_loop
async def test_history_has_both_ends_and_defaults(engine: Engine) -> None:
    async with engine.http() as http:
        await http.put("/rooms/r")
        empty = (await http.get("/rooms/r/events")).json
        assert empty == {"events": [], "oldest_offset": 0, "newest_offset": -1, "next_offset": 0}
        await http.post("/rooms/r/events", [{"event_type": "n", "data": number} for number in range(300)])

        async def offsets(query: str) -> list[int]:
            answer = (await http.get(f"/rooms/r/events{query}")).json
            assert (answer["oldest_offset"], answer["newest_offset"]) == (0, 299)
            found = [event["offset"] for event in answer["events"]]
            assert not found or answer["next_offset"] == found[-1] + 1
            return found

        assert await offsets("") == list(range(100))
        assert await offsets("?from_offset=30&to_offset=35") == [30, 31, 32, 33, 34, 35]
        assert await offsets("?from_offset=30&limit=10") == list(range(30, 40))
        assert await offsets("?from_offset=-5") == [295, 296, 297, 298, 299]
        assert await offsets("?from_offset=-5000&limit=2") == [0, 1]
        assert await offsets("?from_offset=0&limit=10000") == list(range(300))
        assert await offsets("?from_offset=299") == [299]
        assert await offsets("?from_offset=300") == []
        assert await offsets("?from_offset=9&to_offset=8") == []


@in_loop
async def test_history_comes_as_lines_too(engine: Engine) -> None:
    async with engine.http() as http:
        await http.post("/rooms/r/events", [{"event_type": "n", "data": "a\nb"}] * 3)
        answer = await http.get("/rooms/r/events", Accept="application/x-ndjson")
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        assert [event["offset"] for event in answer.lines] == [0, 1, 2]


@only_embedded("a bridge deletes events above max_events within seconds")
@pytest.mark.proves("S0-34", "S0-35", "S0-36")
@in_loop
async def test_what_is_not_there_is_told_by_its_own_code(engine: Engine) -> None:
    async with engine.http() as http:
        for ask in (http.get("/rooms/none"), http.get("/rooms/none/events"), http.delete("/rooms/none")):
            answer = await ask
            assert (answer.status, answer.code) == (404, "RoomNotFound")
            assert answer.json["error"]["room"] == "none"
        await http.put("/rooms/r", {"retention_mode": "count", "max_events": 10})
        await http.post("/rooms/r/events", [EVENT] * 30)
        for offset in (5, 30, 2**63 - 1):
            answer = await http.get(f"/rooms/r/events/{offset}")
            assert (answer.status, answer.code) == (404, "EventNotFound")
            assert answer.json["error"]["offset"] == offset
        answer = await http.get("/rooms/r/events?from_offset=5")
        assert (answer.status, answer.code) == (400, "OffsetOutOfRange")
        error = answer.json["error"]
        assert (error["requested"], error["oldest"], error["newest"]) == (5, 20, 29)
        # From the beginning means what there is.
        assert (await http.get("/rooms/r/events?from_offset=0")).json["events"][0]["offset"] == 20


@in_loop
async def test_put_makes_a_room_once_and_changes_what_it_keeps(engine: Engine) -> None:
    async with engine.http() as http:
        made = await http.put("/rooms/r", {"retention_hours": 2})
        assert (made.status, made.json["retention"]) == (201, {"mode": "hybrid", "hours": 2, "max_events": 100_000})
        again = await http.put("/rooms/r")
        assert (again.status, again.json) == (200, made.json)
        changed = await http.put("/rooms/r", {"retention_mode": "count", "max_events": 7})
        assert (changed.status, changed.json["retention"]) == (200, {"mode": "count", "hours": None, "max_events": 7})
        assert changed.json["epoch"] == made.json["epoch"]
        assert (await http.delete("/rooms/r")).json == {"success": True, "room": "r"}
        assert (await http.put("/rooms/r")).json["epoch"] != made.json["epoch"]


@in_loop
async def test_rooms_are_listed_in_pages(engine: Engine) -> None:
    async with engine.http() as http:
        names = [f"room-{number:02}" for number in range(25)]
        for name in [*names, "other"]:
            await http.put(f"/rooms/{name}")
        found: list[str] = []
        after = ""
        while True:
            page = (await http.get(f"/rooms?prefix=room&limit=10&after={after}")).json
            assert page["room_count"] == 26
            found += [room["room"] for room in page["rooms"]]
            assert all(room["subscribers"] == 0 and room["created_at"] for room in page["rooms"])
            if page["next"] is None:
                break
            after = page["next"]
        assert found == names


@in_loop
async def test_a_room_may_be_called_anything(engine: Engine) -> None:
    async with engine.http() as http:
        for path, name in (("caf%C3%A9", "café"), ("a%2Fb", "a/b"), ("a%20b%3F", "a b?"), ("%F0%9F%8E%88", "🎈")):
            assert (await http.post(f"/rooms/{path}/events", EVENT)).status == 201
            assert (await http.get(f"/rooms/{path}/events")).json["events"][0]["room"] == name
        assert {room["room"] for room in (await http.get("/rooms")).json["rooms"]} == {"café", "a/b", "a b?", "🎈"}


@in_loop
async def test_a_topic_of_several_partitions_is_no_room(engine: Engine) -> None:
    async with engine.http() as http:
        await engine.create_topic(http.server, "wide", 3)
        await engine.create_topic(http.server, "plain", 1)
        answer = await http.post("/rooms/wide/events", EVENT)
        assert (answer.status, answer.code) == (409, "TopicHasPartitions")
        # One of a single partition is used, but not deleted, as a room.
        assert (await http.post("/rooms/plain/events", EVENT)).status == 201
        answer = await http.delete("/rooms/plain")
        assert (answer.status, answer.code) == (409, "NotARoom")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "InvalidJson"),
        (b"{", "InvalidJson"),
        (b"\xff", "InvalidJson"),
        (b'{"event_type":"x","data":"\xff"}', "InvalidEvent"),
        (b'{"event_type":"x","data":"\\ud800"}', "InvalidJson"),
        (b'{"event_type":"x","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "InvalidJson"),
        (b'{"event_type":"x"}', "BadRequest"),
        (b'{"event_type":7,"data":1}', "BadRequest"),
        (b'{"event_type":"","data":1}', "BadRequest"),
        (b'{"event_type":"x","data":1,"metadata":{"a":1}}', "BadRequest"),
        (b'{"event_type":"x","data":1,"metadata":[]}', "BadRequest"),
        (b'{"event_type":"x","data":1} {}', "InvalidJson"),
        (b"null", "BadRequest"),
        (b'"text"', "BadRequest"),
        ('{"event_type":"' + "ü" * 200 + '","data":1}', "InvalidEvent"),
    ],
    ids=str,
)
def test_bad_bodies_are_refused_and_nothing_is_stored(engine: Engine, body: bytes | str, code: str) -> None:
    @in_loop
    async def check() -> None:
        async with engine.http() as http:
            raw = body if isinstance(body, bytes) else body.encode()
            answer = await http.post("/rooms/r/events", raw, Content_Type="application/json")
            assert (answer.status, answer.code) == (400, code)
            assert (await http.get("/rooms")).json["room_count"] <= 1

    check()


@pytest.mark.parametrize(
    "path",
    [
        "/rooms/r/events?limit=0",
        "/rooms/r/events?limit=10001",
        "/rooms/r/events?limit=ten",
        "/rooms/r/events?limit=1&limit=2",
        "/rooms/r/events?from_offset=9223372036854775808",
        "/rooms/r/events?to_offset=-2",
        "/rooms/r/events?unknown=1",
        "/rooms/r/events/-1",
        "/rooms/r/events/x",
        "/rooms/r/events/99999999999999999999",
        "/rooms?limit=-1",
    ],
)
def test_bad_queries_are_refused(engine: Engine, path: str) -> None:
    @in_loop
    async def check() -> None:
        async with engine.http() as http:
            await http.put("/rooms/r")
            assert (await http.get(path)).status == 400

    check()


@in_loop
async def test_too_much_is_told_as_that(engine: Engine) -> None:
    async with engine.http("kwire.http.max.body.bytes=100000", "message.max.bytes=20000") as http:
        large = {"event_type": "x", "data": "x" * 50_000}
        answer = await http.post("/rooms/r/events", large)
        assert (answer.status, answer.code) == (413, "EventTooLarge")
        answer = await http.post("/rooms/r/events", [large] * 3)
        assert (answer.status, answer.code) == (413, "BodyTooLarge")
        assert answer.json["error"]["limit"] == 100_000


@in_loop
async def test_what_cannot_become_a_batch_is_refused_before_it_is_decoded(engine: Engine) -> None:
    """A body of a million metadata entries would hold the loop for a third of a second."""
    async with engine.http("message.max.bytes=20000", "kwire.websocket.max.message.bytes=30000") as http:
        blank = b" " * 50_000
        answer = await http.post("/rooms/r/events", b'{"event_type": "x", "data": 1}' + blank)
        assert (answer.status, answer.code) == (413, "EventTooLarge")
        assert answer.json["error"]["limit"] == 20_000
        command = b'{"command": "stream.publish", "payload": {"room": "r", "event_type": "x", "data": 1}}' + blank
        answer = await http.post("/api/v1/command", command)
        assert (answer.status, answer.code) == (413, "BodyTooLarge")
        assert (await http.get("/rooms/r")).status == 404


@in_loop
async def test_a_large_history_ends_early_and_says_where_to_go_on(engine: Engine) -> None:
    async with engine.http() as http:
        large = [{"event_type": "x", "data": "x" * 100_000}] * 8
        for _ in range(13):
            assert (await http.post("/rooms/r/events", large)).status == 201
        answer = (await http.get("/rooms/r/events?limit=10000")).json
        assert 80 <= len(answer["events"]) < 104
        assert answer["next_offset"] == len(answer["events"])


@pytest.mark.proves("S0-9", "S0-10", "S0-11", "S0-15", "S0-16")
@in_loop
async def test_commands_answer_over_http(engine: Engine) -> None:
    async with engine.http() as http:

        async def run(command: str, **payload: object) -> tuple[int, Any]:
            answer = await http.post("/api/v1/command", {"command": command, "payload": payload})
            return answer.status, answer.json

        status, result = await run("stream.publish", room="chat-room-1", **EVENT, metadata={"client_version": "1"})
        assert status == 200
        assert set(result) == {"event_id", "offset", "subscribers_notified"}
        status, result = await run("stream.history", room="chat-room-1")
        assert (status, result["oldest_offset"], result["newest_offset"]) == (200, 0, 0)
        (event,) = result["events"]
        assert (event["offset"], event["type"], event["data"]) == (0, "message", EVENT["data"])
        for room, wanted in (("none", "RoomNotFound"), ("__consumer_offsets", None)):
            status, result = await run("stream.history", room=room)
            assert status == (404 if wanted else 400)
            assert wanted is None or result["error"]["code"] == wanted


@pytest.mark.proves("S0-34", "S0-35", "S0-36", "S0-37", "S0-38")
@pytest.mark.parametrize(
    ("error", "status", "details"),
    [
        (RoomNotFound("r"), 404, {"room": "r"}),
        (EventNotFound(7), 404, {"offset": 7}),
        (OffsetOutOfRange(1, 2, 3), 400, {"requested": 1, "oldest": 2, "newest": 3}),
        (SubscriptionFailed("no"), 400, {"reason": "no"}),
        (BroadcastFailed("slow"), 503, {"reason": "slow"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_of_rooms_are_told_with_their_facts(
    error: StreamError, status: int, details: Mapping[str, object]
) -> None:
    answer = error_answer(error)
    assert isinstance(answer.body, bytes)
    told = json.loads(answer.body)["error"]
    assert (answer.status, told.pop("code")) == (status, type(error).__name__)
    assert told.pop("message")
    assert told == details


@pytest.mark.proves("S0-48")
@in_uvloop
async def test_many_subscribers_see_what_many_publish(engine: Engine) -> None:
    """Some read from the beginning, some what is new, while others publish one by one, in arrays and as lines."""
    async with engine.http() as http:
        await http.post("/rooms/r/events", [{"event_type": "old", "data": number} for number in range(20)])

        async def read_to(last_offset: int, query: str, joined: asyncio.Event) -> list[tuple[int, str]]:
            found: list[tuple[int, str]] = []
            async with http.session.get(f"{http.url}/rooms/r/subscribe{query}") as answer:
                while not found or found[-1][0] < last_offset:
                    event = json.loads(await answer.content.readline() or b"null")
                    if event.get("control") == "subscribed":
                        joined.set()
                    elif "event_id" in event:
                        found.append((event["offset"], event["event_id"]))
            return found

        queries = ["?from_offset=0", "", "?from_offset=-5", "?from_offset=10"] * 5
        joined = [asyncio.Event() for _ in queries]
        last_offset = 20 + 30 + 30 + 30 - 1
        readers = [
            asyncio.create_task(read_to(last_offset, query, one)) for query, one in zip(queries, joined, strict=True)
        ]
        await asyncio.gather(*(one.wait() for one in joined))
        assert (await http.get("/rooms/r")).json["subscribers"] == len(queries)

        async def publish_lines() -> None:
            body = b"".join(json.dumps(EVENT).encode() + b"\n" for _ in range(30))
            assert len((await http.post("/rooms/r/events", body, Content_Type="application/x-ndjson")).lines) == 30

        await asyncio.gather(
            publish_lines(),
            *(http.post("/rooms/r/events", EVENT) for _ in range(30)),
            *(http.post("/rooms/r/events", [EVENT] * 10) for _ in range(3)),
        )
        seen = await asyncio.gather(*readers)
        stored = [
            (one["offset"], one["event_id"]) for one in (await http.get("/rooms/r/events?limit=1000")).json["events"]
        ]
        assert [offset for offset, _ in stored] == list(range(last_offset + 1))
        for query, found in zip(queries, seen, strict=True):
            start = {"?from_offset=0": 0, "": 20, "?from_offset=-5": 15, "?from_offset=10": 10}[query]
            assert found == stored[start:], query


@pytest.mark.proves("S0-12", "S0-37")
@in_loop
async def test_subscribe_needs_a_socket(engine: Engine) -> None:
    async with engine.http() as http:
        answer = await http.post("/api/v1/command", {"command": "stream.subscribe", "payload": {"room": "r"}})
        assert (answer.status, answer.code) == (400, "SubscriptionFailed")
        assert "WebSocket" in answer.json["error"]["reason"]


@pytest.mark.proves("S0-9", "S0-10", "S0-15")
@in_loop
async def test_bad_commands_are_refused(engine: Engine) -> None:
    async with engine.http() as http:
        for body, code in (
            ({"command": "stream.nothing", "payload": {}}, "UnknownCommand"),
            ({"command": "stream.publish"}, "InvalidCommand"),
            ({"command": "stream.publish", "payload": {"room": 7}}, "InvalidCommand"),
            *(({"command": "stream.publish", "payload": without(PUBLISH, name)}, "InvalidCommand") for name in PUBLISH),
            ({"command": "stream.publish", "payload": {**PUBLISH, "metadata": []}}, "InvalidCommand"),
            ({"command": "stream.history", "payload": {}}, "InvalidCommand"),
            ({"payload": PUBLISH}, "InvalidCommand"),
            ([], "InvalidCommand"),
            (b"{", "InvalidJson"),
        ):
            answer = await http.post("/api/v1/command", body, Content_Type="application/json")
            assert (answer.status, answer.code) == (400, code), body


@only_embedded("reads the log of the node")
@in_loop
async def test_a_kafka_record_and_an_event_are_the_same_thing(engine: Engine) -> None:
    """What is published over HTTP lies in the log as a CloudEvents record."""
    async with engine.http() as http:
        await http.post("/rooms/r/events", EVENT | {"metadata": {"a": "b"}, "key": "k"})
        topic = http.node._shared.services.topics.get("r")
        assert topic is not None
        view = bytes(topic.partitions[0].read(0, 10_000).view)
        assert json.dumps(EVENT["data"], separators=(",", ":")).encode() in view
        for text in (b"ce_type", b"message", b"ce_source", b"/rooms/r", b"ce_id", b"content-type", b"application/json"):
            assert text in view
