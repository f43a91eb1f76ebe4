"""Every HTTP endpoint that stores JSON refuses what a reader could not read, and names the field.

Readers of values that came in another way get past them.
"""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.http import Answer, Http, http_node
from tests.support.node import in_loop
from tests.support.room_sockets import room_socket

# Python reads integers of up to 4,300 digits.
NUMBER = b"7" * 5000
UNREADABLE = [NUMBER, b'{"deep":{"n":1e400}}', b"[" * 600 + b"]" * 600]
NDJSON = "application/x-ndjson"
PROXY = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"

Send = Callable[[Http, bytes], Awaitable[Answer]]


async def room_event(http: Http, raw: bytes) -> Answer:
    return await http.post("/rooms/r/events", b'{"event_type":"e","data":%b}' % raw)


async def room_array(http: Http, raw: bytes) -> Answer:
    body = b'[{"event_type":"e","data":1},{"event_type":"e","data":%b}]' % raw
    return await http.post("/rooms/r/events", body)


async def command(http: Http, raw: bytes) -> Answer:
    body = b'{"command":"stream.publish","payload":{"room":"r","event_type":"e","data":%b}}' % raw
    return await http.post("/api/v1/command", body)


async def topic_event(http: Http, raw: bytes) -> Answer:
    return await http.post("/topics/t/publish", b'{"event_type":"e","data":%b}' % raw)


async def topic_array(http: Http, raw: bytes) -> Answer:
    return await http.post("/topics/t/publish", b'[{"event_type":"e","data":1},{"event_type":"e","data":%b}]' % raw)


async def stored_event(http: Http, raw: bytes) -> Answer:
    return await http.post("/events", b'{"topic":"s","type":"e","payload":%b}' % raw)


async def proxy_value(http: Http, raw: bytes) -> Answer:
    return await http.post("/topics/t", b'{"records":[{"value":1},{"value":%b}]}' % raw, Content_Type=PROXY)


async def proxy_key(http: Http, raw: bytes) -> Answer:
    return await http.post("/topics/t", b'{"records":[{"key":%b,"value":1}]}' % raw, Content_Type=PROXY)


ENDPOINTS: dict[Send, str] = {
    room_event: "data",
    room_array: "events[1]: data",
    command: "data",
    topic_event: "data",
    topic_array: "events[1]: data",
    stored_event: "payload",
    proxy_value: "records[1].value",
    proxy_key: "records[0].key",
}


@asynccontextmanager
async def node_with_topics(directory: Path, *settings: str) -> AsyncIterator[Http]:
    async with http_node(directory, *settings) as http:
        assert (await http.put("/rooms/r")).status in (200, 201)
        assert (await http.post("/topics/t", {"num_partitions": 1})).status == 201
        created = await http.post("/topics", {"name": "s", "schemas": [{"type": "e"}]})
        assert created.status == 201, created
        yield http


async def event_count(http: Http, topic: str) -> int:
    consumed = await http.post(f"/topics/{topic}/partitions/0/consume", {"from_offset": 0})
    assert consumed.status == 200, consumed
    count: int = consumed.json["count"]
    return count


@pytest.mark.parametrize("raw", UNREADABLE, ids=["digits", "exponent", "depth"])
@in_loop
async def test_every_endpoint_refuses_it_and_stores_nothing(tmp_path: Path, raw: bytes) -> None:
    async with node_with_topics(tmp_path) as http:
        for send, field in ENDPOINTS.items():
            answer = await send(http, raw)
            # The REST Proxy answers 422 to records that it cannot read.
            assert answer.status in (400, 422), (send.__name__, answer.body)
            told = answer.json
            message = told["message"] if "message" in told else told["error"]["message"]
            assert message.startswith(field), (send.__name__, message)
            assert "send it as a string" in message or "nested" in message
        for topic in ("r", "t", "s"):
            assert await event_count(http, topic) == 0, topic


@pytest.mark.parametrize("raw", UNREADABLE, ids=["digits", "exponent", "depth"])
@in_loop
async def test_lines_and_sockets_refuse_it_and_go_on(tmp_path: Path, raw: bytes) -> None:
    async with node_with_topics(tmp_path) as http:
        lines = b'{"event_type":"e","data":1}\n{"event_type":"e","data":%b}\n{"event_type":"e","data":2}\n' % raw
        answer = await http.post("/rooms/r/events", lines, Content_Type=NDJSON)
        first, refused, last = answer.lines
        assert (first["offset"], last["offset"], refused["line"]) == (0, 1, 2)
        assert refused["error"]["code"] == "InvalidEvent"
        assert refused["error"]["message"].startswith("data")
        async with room_socket(http.port) as socket:
            body = (
                b'{"command":"stream.publish","request_id":1,"payload":{"room":"r","event_type":"e","data":%b}}' % raw
            )
            await socket.connection.send(body.decode())
            told = await socket.receive()
            assert told["error"]["code"] == "InvalidEvent"
            assert told["error"]["message"].startswith("data")
            assert (await socket.result("stream.publish", room="r", event_type="e", data=3))["offset"] == 2


@in_loop
async def test_readers_get_past_values_that_came_in_as_bytes(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as http:
        values = [b"1", *UNREADABLE, b"NaN", b'"\\ud800"', b"\xff\xfe", b'{"a":1,"a":2}', b"2"]
        records = [{"value": base64.b64encode(one).decode()} for one in values]
        for topic in ("r", "t"):
            produced = await http.post(f"/topics/{topic}", {"records": records}, Content_Type=BINARY)
            assert [one["error_code"] for one in produced.json["offsets"]] == [None] * len(values)
        shown = [1, *(one.decode() for one in UNREADABLE), "NaN", '"\\ud800"', {"base64": "//4="}, {"a": 2}, 2]
        history = await http.get("/rooms/r/events")
        assert [one["data"] for one in json.loads(history.body)["events"]] == shown
        as_lines = await http.get("/rooms/r/events", Accept=NDJSON)
        assert [json.loads(line)["data"] for line in as_lines.body.splitlines()] == shown
        consumed = await http.post("/topics/t/partitions/0/consume", {"from_offset": 0})
        assert [one["data"] for one in json.loads(consumed.body)["events"]] == shown
        for offset, data in enumerate(shown):
            assert json.loads((await http.get(f"/rooms/r/events/{offset}")).body)["data"] == data
        async with room_socket(http.port) as socket:
            await socket.result("stream.subscribe", room="r", from_offset=0)
            assert [one["data"] for one in await socket.events(len(shown))] == shown


@in_loop
async def test_a_value_that_is_too_large_anyway_is_refused_for_its_size(tmp_path: Path) -> None:
    """To look for a number that is too large would take long, and the log refuses the value in any case."""
    async with node_with_topics(tmp_path, "message.max.bytes=100000") as http:
        raw = b"[" + b"1e100," * 20_000 + b"1e400]"
        answer = await topic_event(http, raw)
        assert (answer.status, answer.code) == (413, "EventTooLarge")
        # Its schema is looked at before its size.
        assert (await stored_event(http, raw)).code == "SchemaViolation"
        produced = await proxy_value(http, raw)
        assert [one["error_code"] for one in produced.json["offsets"]] == [None, 50002]
        # Its spaces do not count.
        spaced = b"[" + b"1e100, " * 15_000 + b"1e400]"
        assert len(spaced) > 100_000
        assert (await topic_event(http, spaced)).code == "InvalidEvent"
