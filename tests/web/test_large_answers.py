"""Answers larger than one piece: whole and in order over every way to read, also beside other traffic."""

import asyncio
import json
from pathlib import Path
from typing import Any

from kwire.web.answers.large_answers import PART_BYTES, PIECE_BYTES
from kwire.web.requests.memory import HttpMemory, Lease
from tests.support.http import Http, http_node
from tests.support.node import in_uvloop
from tests.support.room_sockets import WAIT_S, raw_connection, raw_socket, room_socket, text

EVENTS = 40
EVENT_BYTES = 30_000
# Several parts, each of several pieces.
assert EVENTS * EVENT_BYTES > 4 * PART_BYTES >= 8 * PIECE_BYTES


async def fill(http: Http, name: str) -> list[str]:
    """Events whose payloads are all different; the payloads."""
    payloads = [f"{number:05}" + "x" * EVENT_BYTES for number in range(EVENTS)]
    for start in range(0, EVENTS, 10):
        events = [{"event_type": "e", "data": payload} for payload in payloads[start : start + 10]]
        assert (await http.post(f"/rooms/{name}/events", events)).status == 201
    return payloads


def memory_of(http: Http) -> HttpMemory:
    assert http.node.http is not None
    return http.node.http.memory


def data_of(events: list[dict[str, Any]]) -> list[Any]:
    return [event["data"] for event in events]


@in_uvloop
async def test_a_large_history_is_whole_in_every_form(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        payloads = await fill(http, "r")
        path = "/rooms/r/events?limit=10000"
        page = await http.get(path)
        assert page.headers["Transfer-Encoding"] == "chunked"
        assert data_of(page.json["events"]) == payloads
        assert (page.json["oldest_offset"], page.json["newest_offset"], page.json["next_offset"]) == (0, 39, 40)
        lines = await http.get(path, Accept="application/x-ndjson")
        assert data_of(lines.lines) == payloads
        assert lines.headers["X-Next-Offset"] == "40"
        few = await http.get("/rooms/r/events?limit=7&from_offset=3", Accept="application/x-ndjson")
        assert (data_of(few.lines), few.headers["X-Next-Offset"]) == (payloads[3:10], "10")
        command = {"command": "stream.history", "payload": {"room": "r", "limit": 10_000}}
        assert data_of((await http.post("/api/v1/command", command)).json["events"]) == payloads
        # The length is known by reading all of it, as for every HEAD.
        head = await http.ask("HEAD", path)
        assert (head.body, int(head.headers["Content-Length"])) == (b"", len(page.body))


@in_uvloop
async def test_an_answer_without_chunks_ends_with_its_connection(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, raw_connection(http.port) as (reader, writer):
        payloads = await fill(http, "r")
        writer.write(b"GET /rooms/r/events HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
        head, _, body = (await asyncio.wait_for(reader.read(-1), WAIT_S)).partition(b"\r\n\r\n")
        assert b"chunked" not in head.lower()
        assert data_of(json.loads(body)["events"]) == payloads


@in_uvloop
async def test_a_page_ends_early_where_memory_is_short_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async with http_node(tmp_path, "kwire.http.memory.wait.ms=10") as http:
        payloads = await fill(http, "r")
        memory = memory_of(http)
        # Only small leases fit: no event of this size may be read ahead, but the first answers the request.
        taken = memory.lease()
        while taken.try_hold(taken.size_bytes + 100_000):
            pass
        seen: list[str] = []
        offset = 0
        while len(seen) < EVENTS:
            page = (await http.get(f"/rooms/r/events?limit=10000&from_offset={offset}")).json
            assert page["next_offset"] > offset
            seen += data_of(page["events"])
            offset = page["next_offset"]
        assert seen == payloads
        # Nothing fits any more: the request waits, and is refused.
        small: list[Lease] = []
        while not small or small[-1].size_bytes:
            small.append(memory.lease())
            small[-1].try_hold(1000)
        answer = await http.get("/rooms/r/events?limit=10000")
        assert (answer.status, answer.code) == (503, "MemoryExhausted")
        assert answer.headers["Retry-After"] == "1"
        for lease in (taken, *small):
            lease.release()
        assert memory.used_bytes == 0
        assert data_of((await http.get("/rooms/r/events")).json["events"]) == payloads
        assert memory.used_bytes == 0


@in_uvloop
async def test_a_large_history_on_a_socket_is_one_message_between_the_others(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, room_socket(http.port) as socket:
        payloads = await fill(http, "r")
        await socket.result("stream.subscribe", room="r")
        asked = asyncio.ensure_future(socket.result("stream.history", room="r", limit=10_000))
        for number in range(20):
            assert (await http.post("/rooms/r/events", {"event_type": "new", "data": number})).status == 201
        found = (await asked)["events"]
        assert data_of(found)[:EVENTS] == payloads
        await socket.result("stream.publish", room="r", event_type="new", data="last")
        events = [one for one in socket.unread if "data" in one]
        while not events or events[-1]["data"] != "last":
            events.append(await socket.receive())
        assert [one["data"] for one in events if "data" in one] == [*range(20), "last"]


@in_uvloop
async def test_frames_of_a_history_wait_for_the_client_and_marks_wait_for_their_end(tmp_path: Path) -> None:
    async with http_node(tmp_path, "kwire.rooms.checkpoint.events=1") as http:
        payloads = await fill(http, "r")
        commands = text("stream.subscribe", 1, room="other") + text("stream.history", 2, room="r", limit=10_000)
        async with raw_socket(http.port, commands) as socket:
            first, answer = await socket.frame()
            assert (first, json.loads(answer)["request_id"]) == (1, 1)
            message = b""
            while not message.startswith(b'{"request_id":2,"result":{"events":['):
                _, message = await socket.frame()
            assert (await http.post("/rooms/other/events", {"event_type": "e", "data": "meanwhile"})).status == 201
            frames = 1
            while not message.endswith(b'"next_offset":40}}'):
                opcode, payload = await socket.frame()
                assert opcode == 0, "a frame of another message came in between"
                message += payload
                frames += 1
            assert frames > 2
            assert data_of(json.loads(message)["result"]["events"]) == payloads
            opcode, payload = await socket.frame()
            assert (opcode, json.loads(payload)["data"]) == (1, "meanwhile")


@in_uvloop
async def test_an_answer_that_is_there_as_a_whole_counts_until_it_is_sent(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        memory = memory_of(http)
        whole = await http.get("/openapi.json")
        assert len(whole.body) > PIECE_BYTES
        assert int(whole.headers["Content-Length"]) == len(whole.body)
        assert memory.freed_bytes == len(whole.body)
        head = await http.ask("HEAD", "/openapi.json")
        assert (head.body, head.headers["Content-Length"]) == (b"", str(len(whole.body)))
        taken = memory.lease()
        while taken.try_hold(taken.size_bytes + 100_000):
            pass
        answer = await http.get("/openapi.json")
        assert (answer.status, answer.code) == (503, "MemoryExhausted")
        taken.release()
        assert (await http.get("/openapi.json")).body == whole.body
        assert memory.used_bytes == 0
