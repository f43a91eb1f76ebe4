"""The ids of requests, and the trace context of published events, through every API that publishes."""

import base64
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.web.requests.request_ids import REQUEST_ID, REQUEST_ID_LENGTH_MAX
from tests.support.http import Http, http_node
from tests.support.node import in_loop

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"
SCHEMA = {"eventType": "x", "type": "object", "properties": {}}
EVENT = {"event_type": "x", "data": 1}
GENERATED = re.compile(r"[0-9a-f]{24}")


@in_loop
async def test_every_answer_has_an_id_and_no_two_requests_share_one(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        answers = [
            await http.post("/rooms/r/events", EVENT),
            await http.get("/rooms/r/events"),
            await http.get("/nothing"),
            await http.post("/rooms/r/events", b"not JSON", Content_Type="application/json"),
            await http.get("/rooms/r/events", Origin="http://evil.example"),
            await http.post("/rooms/r/events", b'{"event_type":"x","data":1}\n', Content_Type="application/x-ndjson"),
        ]
        ids = [one.headers[REQUEST_ID] for one in answers]
        assert [one.status for one in answers] == [201, 200, 404, 400, 403, 200]
        assert all(GENERATED.fullmatch(one) for one in ids)
        assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("given", ["a", "7f2c:1/2+3=@_.-", "x" * REQUEST_ID_LENGTH_MAX])
@in_loop
async def test_a_sane_id_of_the_client_is_kept(tmp_path: Path, given: str) -> None:
    async with http_node(tmp_path) as http:
        assert (await http.get("/healthz", X_Request_ID=given)).headers[REQUEST_ID] == given


@pytest.mark.parametrize("given", ["", "a b", "x" * (REQUEST_ID_LENGTH_MAX + 1), 'quo"te', "ü", "a;b"])
@in_loop
async def test_another_id_is_replaced(tmp_path: Path, given: str) -> None:
    async with http_node(tmp_path) as http:
        assert GENERATED.fullmatch((await http.get("/healthz", X_Request_ID=given)).headers[REQUEST_ID])


@in_loop
async def test_streams_and_sockets_have_an_id_too(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        await http.put("/rooms/r")
        for accept in ("text/event-stream", "application/x-ndjson"):
            headers = {"Accept": accept, REQUEST_ID: "mine"}
            async with http.session.get(f"{http.url}/rooms/r/subscribe", headers=headers) as answer:
                assert answer.headers[REQUEST_ID] == "mine"
        async with http.session.ws_connect(f"{http.url}/ws", headers={REQUEST_ID: "mine"}) as socket:
            assert socket._response.headers[REQUEST_ID] == "mine"


@in_loop
async def test_a_failed_request_is_logged_with_its_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kwire.logs.line_formats import TextFormat
    from kwire.streams.events.publishing import Publisher

    lines: list[str] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(TextFormat(has_colour=False).format(record))

    def fail(*given: object) -> None:
        raise RuntimeError("planted")

    collecting = Collecting()
    logging.getLogger("kwire.web").addHandler(collecting)
    try:
        async with http_node(tmp_path) as http:
            monkeypatch.setattr(Publisher, "publish", fail)
            answer = await http.post("/rooms/r/events?answers=all", EVENT, X_Request_ID="lost-1")
    finally:
        logging.getLogger("kwire.web").removeHandler(collecting)
    assert (answer.status, answer.headers[REQUEST_ID]) == (500, "lost-1")
    (line,) = lines
    assert "a request failed (request_id=lost-1, method=POST, path=/rooms/r/events)\n" in line
    caplog.clear()


# --- the trace context


async def room(http: Http, **headers: str) -> Any:
    await http.post("/rooms/r/events", {**EVENT, "metadata": {"a": "b"}}, **headers)
    return (await http.get("/rooms/r/events?from_offset=-1")).json["events"][0]["metadata"]


async def array(http: Http, **headers: str) -> Any:
    await http.post("/rooms/r/events", [EVENT, {**EVENT, "metadata": {"a": "b"}}], **headers)
    return (await http.get("/rooms/r/events?from_offset=-1")).json["events"][0]["metadata"]


async def lines(http: Http, **headers: str) -> Any:
    body = b'{"event_type":"x","data":1,"metadata":{"a":"b"}}\n'
    await http.post("/rooms/r/events", body, Content_Type="application/x-ndjson", **headers)
    return (await http.get("/rooms/r/events?from_offset=-1")).json["events"][0]["metadata"]


async def command(http: Http, **headers: str) -> Any:
    payload = {**EVENT, "room": "r", "metadata": {"a": "b"}}
    await http.post("/api/v1/command", {"command": "stream.publish", "payload": payload}, **headers)
    return (await http.get("/rooms/r/events?from_offset=-1")).json["events"][0]["metadata"]


async def topic(http: Http, **headers: str) -> Any:
    await http.post("/topics/t", {"num_partitions": 1})
    event = {**EVENT, "metadata": {"a": "b"}}
    assert (await http.post("/topics/t/publish", [event, event], **headers)).status == 200
    found = await http.post("/topics/t/partitions/0/consume", {"from_offset": -1})
    return found.json["events"][0]["metadata"]


async def event_store(http: Http, **headers: str) -> Any:
    await http.post("/topics", {"name": "s", "schemas": [SCHEMA]})
    event = {"topic": "s", "type": "x", "payload": {}, "metadata": {"a": "b"}}
    answer = await http.post("/events", event, **headers)
    assert answer.status == 201, answer.body
    return (await http.get("/topics/s/events?order=backwards&limit=1")).json["events"][0]["metadata"]


async def proxy(http: Http, **headers: str) -> Any:
    await http.post("/topics/p", {"num_partitions": 1})
    header = {"key": "a", "value": base64.b64encode(b"b").decode()}
    body = b'{"records":[{"value":1,"headers":[{"key":"a","value":"%b"}]}]}' % header["value"].encode()
    answer = await http.post("/topics/p", body, Content_Type="application/vnd.kafka.json.v2+json", **headers)
    assert answer.status == 200, answer.body
    found = await http.post("/topics/p/partitions/0/consume", {"from_offset": -1})
    return found.json["events"][0]["metadata"]


PUBLISHERS: dict[str, Callable[..., Awaitable[Any]]] = {
    one.__name__: one for one in (room, array, lines, command, topic, event_store, proxy)
}


@pytest.mark.parametrize("name", PUBLISHERS)
@in_loop
async def test_a_valid_traceparent_becomes_a_header_of_the_record(tmp_path: Path, name: str) -> None:
    publish = PUBLISHERS[name]
    async with http_node(tmp_path) as http:
        assert await publish(http) == {"a": "b"}
        assert await publish(http, traceparent=TRACE) == {"a": "b", "traceparent": TRACE}
        assert await publish(http, traceparent="nonsense") == {"a": "b"}


@in_loop
async def test_a_repeated_request_with_another_trace_is_the_same_request(tmp_path: Path) -> None:
    event = {"topic": "s", "type": "x", "payload": {}}
    async with http_node(tmp_path) as http:
        await http.post("/topics", {"name": "s", "schemas": [SCHEMA]})
        first = await http.post("/events", event, Idempotency_Key="k", traceparent=TRACE)
        again = await http.post("/events", event, Idempotency_Key="k", traceparent=OTHER_TRACE)
        bare = await http.post("/events", event, Idempotency_Key="k")
        assert [one.status for one in (first, again, bare)] == [201, 200, 200]
        assert first.json == again.json == bare.json
        other = await http.post("/events", {**event, "metadata": {"a": "b"}}, Idempotency_Key="k", traceparent=TRACE)
        assert other.status == 409


@in_loop
async def test_a_page_of_a_listed_origin_may_send_and_read_both_headers(tmp_path: Path) -> None:
    async with http_node(tmp_path, "kwire.http.origins=http://page.example") as http:
        origin = {"Origin": "http://page.example", "Access-Control-Request-Method": "POST"}
        async with http.session.options(f"{http.url}/rooms/r/events", headers=origin) as answer:
            allowed = answer.headers["Access-Control-Allow-Headers"].split(", ")
        assert {"traceparent", REQUEST_ID} <= set(allowed)
        read = await http.get("/rooms", Origin="http://page.example")
        assert REQUEST_ID in read.headers["Access-Control-Expose-Headers"].split(", ")
