"""GET /subscribe/all and /subscribe/streams/{topic}: stored events, then new ones, in three ways; places, refusals."""

import asyncio
import json
from typing import Any

import pytest

from kwire.broker.topics.topics import EVENTS_TOPIC
from kwire.node import Node
from tests.support.engines import Engine, only_embedded
from tests.support.event_doors import event, make_topics, published
from tests.support.http import Http
from tests.support.node import in_uvloop
from tests.support.partition_log import log_of
from tests.support.room_sockets import (
    HttpStream,
    client_frame,
    http_request,
    http_stream,
    raw_socket,
    room_socket,
    status_of,
    until,
    upgrade_request,
)

WAIT_S = 15.0
SSE = "text/event-stream"
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


async def fill(http: Http, *topics: str) -> None:
    """One commit: an event for each name, its place in the list as the payload."""
    await published(http, *[event(topic, number) for number, topic in enumerate(topics)])


async def until_caught_up(stream: HttpStream) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while True:
        message = await stream.message()
        if message.get("control") == "caught_up":
            return events, message
        if "control" not in message:
            events.append(message)


@pytest.mark.proves("S3-6", "S3-17")
@in_uvloop
async def test_everything_comes_in_global_order_with_contiguous_positions(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a", "b-2")
        await fill(http, "a", "b-2", "a", "a", "b-2")
        await fill(http, "b-2")
        async with http_stream(http.port, "/subscribe/all?from=0") as stream:
            assert b"application/x-ndjson" in stream.head
            first = await stream.message()
            assert list(first) == [
                "control",
                "subscription_id",
                "epoch",
                "oldest_position",
                "newest_position",
                "next_position",
                "recovered",
            ]
            assert (first["oldest_position"], first["newest_position"], first["next_position"]) == (0, 5, 0)
            events, mark = await until_caught_up(stream)
            assert mark == {"control": "caught_up", "position": 5}
            assert [one["position"] for one in events] == [0, 1, 2, 3, 4, 5]
            assert [one["id"] for one in events] == ["a-1", "b-2-1", "a-2", "a-3", "b-2-2", "b-2-3"]
            assert [(one["topic"], one["version"]) for one in events[:3]] == [("a", 0), ("b-2", 0), ("a", 1)]
            assert list(events[0]) == ["position", "id", "topic", "version", "timestamp", "type", "payload"]
            await fill(http, "b-2", "a")
            live = [await stream.message() for _ in range(2)]
            assert [(one["position"], one["id"]) for one in live] == [(6, "b-2-4"), (7, "a-4")]


@pytest.mark.proves("S3-7", "S3-17")
@in_uvloop
async def test_one_topic_comes_from_a_version_on_and_nothing_of_others(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a", "b")
        await fill(http, "a", "b", "a", "b", "a")
        async with http_stream(http.port, "/subscribe/streams/a?from=1") as stream:
            first = await stream.message()
            assert (first["topic"], first["next_version"], first["newest_version"]) == ("a", 1, 2)
            events, mark = await until_caught_up(stream)
            assert [(one["version"], one["id"], one["payload"]) for one in events] == [(1, "a-2", 2), (2, "a-3", 4)]
            assert mark == {"control": "caught_up", "topic": "a", "version": 2}
            await fill(http, "b", "a", "b")
            assert (await stream.message())["version"] == 3


@pytest.mark.proves("S3-6", "S3-7", "S3-24")
@in_uvloop
async def test_an_empty_store_is_caught_up_at_once_and_events_arrive_live(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a")
        async with (
            http_stream(http.port, "/subscribe/all?from=0") as everything,
            http_stream(http.port, "/subscribe/streams/a?from=0") as one,
        ):
            assert await until_caught_up(everything) == ([], {"control": "caught_up", "position": -1})
            assert await until_caught_up(one) == ([], {"control": "caught_up", "topic": "a", "version": -1})
            await fill(http, *"aaaaa")
            assert [(await everything.message())["position"] for _ in range(5)] == [0, 1, 2, 3, 4]
            assert [(await one.message())["version"] for _ in range(5)] == [0, 1, 2, 3, 4]


@pytest.mark.proves("S3-6", "S3-7")
@in_uvloop
async def test_sent_events_have_places_as_ids_and_a_browser_goes_on_behind_them(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a", "b")
        await fill(http, *"abab")
        async with http_stream(http.port, "/subscribe/all?from=0", Accept=SSE) as stream:
            assert (await stream.sent_event())["event"] == "subscribed"
            sent = await stream.sent_event()
            assert (sent["id"], json.loads(sent["data"])["id"]) == ("0", "a-1")
        path = "/subscribe/all?from=0"
        async with http_stream(http.port, path, Accept=SSE, Last_Event_ID="1") as stream:
            assert json.loads((await stream.sent_event())["data"])["recovered"] is True
            assert [(await stream.sent_event())["id"] for _ in range(2)] == ["2", "3"]
            mark = await stream.sent_event()
            assert (mark["event"], mark["id"]) == ("caught_up", "3")
        async with http_stream(http.port, "/subscribe/streams/b", Accept=SSE, Last_Event_ID="0") as stream:
            await stream.sent_event()
            assert (await stream.sent_event())["id"] == "1"


@in_uvloop
async def test_a_browser_whose_place_is_gone_is_told_the_gap(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a")
        await fill(http, *"aaaaaa")
        await engine.delete_events(http.server, "a", 4)
        async with http_stream(http.port, "/subscribe/streams/a", Accept=SSE, Last_Event_ID="1") as stream:
            assert json.loads((await stream.sent_event())["data"])["recovered"] is False
            told = json.loads((await stream.sent_event())["data"])
            assert (told["control"], told["from_version"], told["to_version"]) == ("gap", 2, 3)
            assert [(await stream.sent_event())["id"] for _ in range(2)] == ["4", "5"]
        async with http_stream(http.port, "/subscribe/streams/a", Accept=SSE, Last_Event_ID="500") as stream:
            assert json.loads((await stream.sent_event())["data"])["recovered"] is False
            assert (await stream.sent_event())["id"] == "4"


@pytest.mark.proves("S3-6", "S3-7")
@in_uvloop
async def test_as_a_websocket_it_sends_the_same_messages(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a", "b")
        await fill(http, "a", "b")
        async with room_socket(http.port, "/subscribe/all?from=1") as socket:
            assert (await socket.next())["control"] == "subscribed"
            assert (await socket.next())["id"] == "b-1"
            assert await socket.next() == {"control": "caught_up", "position": 1}
            await fill(http, "a")
            assert ((await socket.next())["position"]) == 2
        async with room_socket(http.port, "/subscribe/streams/a?from=oldest") as socket:
            assert (await socket.next())["next_version"] == 0
            assert [one["version"] for one in await socket.events(2)] == [0, 1]


@in_uvloop
async def test_a_websocket_answers_pings_and_closes_and_takes_no_messages(engine: Engine) -> None:
    async with engine.http() as http:
        async with raw_socket(http.port, path="/subscribe/all") as socket:
            assert [(await socket.frame())[0] for _ in range(2)] == [TEXT, TEXT]
            socket.writer.write(b"".join(client_frame(PING, b"%d" % number) for number in range(1000)))
            payload = b""
            while payload != b"999":
                opcode, payload = await socket.frame()
                assert opcode == PONG
            socket.writer.write(client_frame(CLOSE, (1000).to_bytes(2, "big")))
            assert await socket.close_code() == 1000
        async with raw_socket(http.port, client_frame(TEXT, b"hello"), path="/subscribe/all") as socket:
            assert await socket.close_code() == 1003
        async with raw_socket(http.port, b"\x00\x00", path="/subscribe/all") as socket:
            assert await socket.close_code() == 1002
        async with asyncio.timeout(WAIT_S):
            while len(http.server._subscriptions):
                await asyncio.sleep(0.01)


@in_uvloop
async def test_who_pings_and_takes_nothing_is_not_read_from_any_more(engine: Engine) -> None:
    """Pings are answered: who never reads its pongs must not be able to make the server keep them."""
    async with engine.http("kwire.send.timeout.ms=1000") as http:
        await make_topics(http.server, "a")
        for _ in range(40):
            await published(http, event("a", "x" * 200_000))
        metrics = http.server.http._stream_connections.metrics  # type: ignore[union-attr]
        pings = client_frame(PING, b"x" * 125) * 1000
        async with raw_socket(http.port, path="/subscribe/all?from=0") as greedy:
            greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]
            before = metrics.received_bytes
            greedy.writer.write(pings * 200)
            await until(lambda: metrics.closed_stuck == 1)
            assert metrics.received_bytes - before < len(pings) * 100
        await until(lambda: len(http.server._subscriptions) == 0)


@in_uvloop
async def test_only_some_types_are_sent_and_places_move_on(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a")
        await published(http, *[event("a", number, type="odd" if number % 2 else "even") for number in range(6)])
        async with http_stream(http.port, "/subscribe/all?from=0&types=odd,other") as stream:
            events, mark = await until_caught_up(stream)
            assert [one["payload"] for one in events] == [1, 3, 5]
            assert mark["position"] == 5
        async with http_stream(http.port, "/subscribe/all?from=-2") as stream:
            events, _ = await until_caught_up(stream)
            assert [one["position"] for one in events] == [4, 5]


@only_embedded("the oldest position of a journal on a cluster is that of a commit")
@pytest.mark.proves("S3-6")
@in_uvloop
async def test_places_below_the_oldest_are_refused_and_those_beyond_the_head_are_waited_for(engine: Engine) -> None:
    async with engine.http() as http:
        (topic,) = await make_topics(http.server, "a")
        await fill(http, *"aaaa")
        log_of(topic.partitions[0]).advance_log_start_offset(2)
        journal = await http.node._shared.services.topics.events_topic()
        log_of(journal.partitions[0]).advance_log_start_offset(3)
        for path, oldest in (("/subscribe/all?from=0", 3), ("/subscribe/streams/a?from=0", 2)):
            answer = await http.get(path)
            assert (answer.status, answer.code, answer.json["error"]["oldest"]) == (400, "OffsetOutOfRange", oldest)
        async with http_stream(http.port, "/subscribe/all?from=oldest") as stream:
            assert [one["position"] for one in (await until_caught_up(stream))[0]] == [3]
        async with http_stream(http.port, "/subscribe/all?from=6") as stream:
            assert await until_caught_up(stream) == ([], {"control": "caught_up", "position": 5})
            await fill(http, *"aaa")
            assert (await stream.message())["position"] == 6


@pytest.mark.proves("S3-6", "S3-7")
@in_uvloop
async def test_events_of_a_deleted_topic_are_gone_and_its_subscribers_are_told(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a", "b")
        await fill(http, "a", "b", "a")
        async with http_stream(http.port, "/subscribe/streams/a?from=0") as stream:
            await until_caught_up(stream)
            assert (await http.delete("/topics/a")).status == 200
            closed = await stream.message()
            assert (closed["control"], closed["code"], closed["version"]) == ("closed", "TopicNotFound", 1)
            assert await stream.line() is None
        await make_topics(http.server, "a")
        await fill(http, "a")
        async with http_stream(http.port, "/subscribe/all?from=0") as stream:
            events, mark = await until_caught_up(stream)
            assert [(one["position"], one["id"]) for one in events] == [(1, "b-1"), (3, "a-1")]
            assert mark["position"] == 3


@in_uvloop
async def test_an_epoch_of_before_says_that_a_topic_is_another_one(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a")
        await fill(http, "a", "a")
        async with http_stream(http.port, "/subscribe/streams/a") as stream:
            epoch = (await stream.message())["epoch"]
        async with http_stream(http.port, f"/subscribe/streams/a?from=2&epoch={epoch}") as stream:
            assert (await stream.message())["recovered"] is True
        async with http_stream(http.port, "/subscribe/streams/a?from=2&epoch=other") as stream:
            first = await stream.message()
            assert (first["recovered"], first["next_version"]) == (False, 0)


@in_uvloop
async def test_what_cannot_be_subscribed_to_is_refused_by_name(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a")
        await http.put("/rooms/room")
        for path, status, code in (
            ("/subscribe/streams/nowhere", 404, "TopicNotFound"),
            ("/subscribe/streams/room", 400, "NotAnEventTopic"),
            ("/subscribe/streams/__events", 400, "InvalidName"),
            ("/subscribe/streams/a?from=x", 400, "BadRequest"),
            ("/subscribe/all?from=99999999999999999999", 400, "BadRequest"),
            ("/subscribe/all?from=1&from_time=2", 400, "SubscriptionFailed"),
            ("/subscribe/all?from_time=never", 400, "SubscriptionFailed"),
            ("/subscribe/all?queue=0", 400, "SubscriptionFailed"),
            ("/subscribe/all?position=0", 400, "BadRequest"),
            ("/subscribe/all?on_lag=cry", 400, "BadRequest"),
        ):
            answer = await http.get(path)
            assert (answer.status, answer.code) == (status, code), path
        bad_id = await http.get("/subscribe/all", Accept=SSE, Last_Event_ID="x")
        assert (bad_id.status, bad_id.code) == (400, "BadRequest")
        assert (await status_of(http.port, http_request("/subscribe/all", version="1.0")))[0] == 400
        assert (await status_of(http.port, upgrade_request("/subscribe/all", Sec_WebSocket_Version="8")))[0] == 426
        assert (await status_of(http.port, upgrade_request("/subscribe/all", Sec_WebSocket_Key="x")))[0] == 400
        assert len(http.server._subscriptions) == 0


@in_uvloop
async def test_the_end_of_the_node_is_told_with_the_place(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a")
        await fill(http, "a", "a")
        async with (
            http_stream(http.port, "/subscribe/all?from=0") as stream,
            room_socket(http.port, "/subscribe/all?from=0") as socket,
        ):
            await until_caught_up(stream)
            await socket.until("caught_up")
            stopping = asyncio.ensure_future(http.server.stop())
            closed = await stream.message()
            assert (closed["control"], closed["code"], closed["position"]) == ("closed", "ServerStopping", 1)
            assert (await socket.next())["code"] == "ServerStopping"
            await socket.connection.close()
            await asyncio.wait_for(stopping, WAIT_S)


@only_embedded("it counts the subscribers of the internal topic")
@in_uvloop
async def test_many_subscribers_share_one_tail_of_the_journal(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a")
        streams = [http_stream(http.port, "/subscribe/all") for _ in range(5)]
        opened = [await one.__aenter__() for one in streams]
        try:
            for one in opened:
                await until_caught_up(one)
            assert http.node._subscriptions.feed_count == 1
            assert subscribers(http.node) == 5
            await fill(http, *"aaa")
            for one in opened:
                assert [(await one.message())["position"] for _ in range(3)] == [0, 1, 2]
        finally:
            for stream in streams:
                await stream.__aexit__(None, None, None)


def subscribers(node: Node) -> int:
    journal = node._shared.services.topics.get(EVENTS_TOPIC)
    assert journal is not None
    return node._subscriptions.count_of(journal.stream())
