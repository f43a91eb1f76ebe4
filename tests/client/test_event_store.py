"""`client.events` against a node in this process: publishing once, reading, and following across lost connections."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kwire.client import (
    AsyncClient,
    CaughtUp,
    ClientClosed,
    EventNotFound,
    EventStream,
    EventToStore,
    Gap,
    GapFound,
    IdempotencyConflict,
    OffsetOutOfRange,
    Position,
    PublishUncertain,
    SchemaViolation,
    StoredEvent,
    StoredItem,
    TopicNotFound,
    Unreachable,
    WrongExpectedVersion,
    store_subscription,
)
from tests.server.frames import HOST
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.event_doors import make_topics
from tests.support.http import Http, http_node
from tests.support.node import in_loop
from tests.support.partition_log import log_of

WAIT_S = 10.0


def client_of(url: str, timeout_s: float = WAIT_S) -> AsyncClient:
    return AsyncClient(url, timeout_s=timeout_s, retry_delay_s_min=0.01, retry_delay_s_max=0.05)


@asynccontextmanager
async def connected(directory: Path) -> AsyncIterator[tuple[Http, CuttingProxy, AsyncClient]]:
    """A node with topics `a` and `b`, a way to it that can be cut, and a client that takes it."""
    async with http_node(directory) as http:
        await make_topics(http.node, "a", "b")
        async with cutting_proxy(HOST, http.port) as proxy, client_of(proxy.url) as client:
            yield http, proxy, client


def made(topic: str, *payloads: object) -> list[EventToStore]:
    return [EventToStore(topic, "made", payload) for payload in payloads]


async def take(stream: EventStream, count: int) -> list[StoredItem]:
    return [await stream.next_item(WAIT_S) for _ in range(count)]


async def events(stream: EventStream, count: int) -> list[StoredEvent]:
    return [await stream.next_event(WAIT_S) for _ in range(count)]


@in_loop
async def test_what_is_published_is_read_back_in_every_way(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, _, client):
        store = client.events
        assert await store.last("a") is None
        assert (
            await store.publish("a", "made", {"x": 1}, metadata={"trace": "7"}, key="k", expected_version=-1) == "a-1"
        )
        assert await store.publish_many([*made("b", 1), *made("a", 2, 3)]) == ["b-1", "a-2", "a-3"]
        assert await store.publish_many([]) == ()
        first = await store.event("a-1")
        assert (first.id, first.topic, first.version, first.payload) == ("a-1", "a", 0, {"x": 1})
        assert (first.metadata, first.key, first.position) == ({"trace": "7"}, "k", None)
        assert first.time.tzinfo is not None
        page = await store.read("a", limit=2)
        assert ([one.version for one in page.events], page.next) == ([0, 1], "a-2")
        assert [one.id for one in (await store.read("a", since=page.next)).events] == ["a-3"]
        backwards = await store.read("a", before="a-3", is_backwards=True)
        assert [one.id for one in backwards.events] == ["a-2", "a-1"]
        assert [one.id async for one in store.read_all("a", date=first.timestamp[:10])] == ["a-1", "a-2", "a-3"]
        last = await store.last("a")
        assert last is not None
        assert last.id == "a-3"


@in_loop
async def test_a_refusal_has_a_type_of_its_own(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, _, client):
        store = client.events
        with pytest.raises(WrongExpectedVersion) as wrong:
            await store.publish("a", "made", 1, expected_version=4)
        assert (wrong.value.expected, wrong.value.actual) == (4, -1)
        with pytest.raises(SchemaViolation) as violation:
            await store.publish_many([*made("a", 1), EventToStore("a", "unknown", 1)])
        assert violation.value.details["index"] == 1
        await store.publish("a", "made", 1, idempotency_key="k")
        with pytest.raises(IdempotencyConflict):
            await store.publish("a", "made", 2, idempotency_key="k")
        with pytest.raises(TopicNotFound):
            await store.publish("nowhere", "made", 1)
        with pytest.raises(TopicNotFound):
            await store.subscribe_stream("nowhere")
        with pytest.raises(EventNotFound):
            await store.event("a-7")
        with pytest.raises(TopicNotFound):
            await store.read("nowhere")


@in_loop
async def test_an_answer_that_is_lost_is_asked_for_again_and_nothing_is_stored_twice(tmp_path: Path) -> None:
    async with connected(tmp_path) as (http, proxy, client):
        for number in range(10):
            publishing = asyncio.ensure_future(client.events.publish("a", "made", number))
            # Cut at some other stage of its way each time.
            for _ in range(number * 5):
                await asyncio.sleep(0)
            proxy.cut()
            assert await publishing == f"a-{number + 1}"
        proxy.is_down = True
        proxy.cut()
        connects = proxy.connects
        publishing = asyncio.ensure_future(client.events.publish("a", "made", 10))
        while proxy.connects < connects + 2:
            await asyncio.sleep(0)
        proxy.is_down = False
        assert await publishing == "a-11"
        async with client_of(http.url) as direct:
            assert [one.payload async for one in direct.events.read_all("a")] == list(range(11))


@in_loop
async def test_a_server_that_cannot_be_reached_is_told_when_the_time_is_over(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, proxy, _), client_of(proxy.url, timeout_s=0.2) as hasty:
        proxy.is_down = True
        with pytest.raises(PublishUncertain):
            await hasty.events.publish("a", "made", 1)
        with pytest.raises(Unreachable):
            await hasty.events.subscribe_all()
    # After the first try the delay is longer than the time-out, so that no try is under way when the time is over.
    async with AsyncClient("http://127.0.0.1:1", timeout_s=2, retry_delay_s_min=60, retry_delay_s_max=60) as nowhere:
        with pytest.raises(Unreachable):
            await nowhere.events.publish("a", "made", 1)


@in_loop
async def test_a_publish_that_may_have_arrived_is_never_called_unsent() -> None:
    """A server that takes the request and says nothing: nobody knows whether it is stored."""
    heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        heard.set_result(None)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(swallow, HOST, 0)
    url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    async with server, client_of(url, timeout_s=0.5) as client:
        with pytest.raises(PublishUncertain):
            await client.events.publish("a", "made", 1)
        assert heard.done()


@in_loop
async def test_everything_is_followed_by_position_and_one_topic_by_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, _, client):
        store = client.events
        await store.publish_many([*made("a", 0), *made("b", 1), *made("a", 2)])
        async with (
            store.subscribe_all(from_position=1) as everything,
            store.subscribe_stream("a", from_version=0) as one,
            store.subscribe_all() as new,
        ):
            assert [(event.position, event.id) for event in await events(everything, 2)] == [(1, "b-1"), (2, "a-2")]
            assert await everything.next_item(WAIT_S) == CaughtUp("all", 2)
            assert [(event.version, event.position) for event in await events(one, 2)] == [(0, None), (1, None)]
            await store.publish("a", "made", 3)
            for stream in (everything, one, new):
                assert (await stream.next_event(WAIT_S)).payload == 3
            with pytest.raises(TimeoutError):
                await new.next_item(0.05)
            await store.publish("b", "made", 4)
            assert (await new.next_event(WAIT_S)).position == 4


@in_loop
async def test_a_follower_whose_connections_are_cut_misses_and_repeats_nothing(tmp_path: Path) -> None:
    async with connected(tmp_path) as (http, proxy, client), client_of(http.url) as writer:
        everything = await client.events.subscribe_all(from_position=0)
        one = await client.events.subscribe_stream("a", from_version=0)
        for number in range(0, 200, 10):
            await writer.events.publish_many(made("a" if number % 20 else "b", *range(number, number + 10)))
            if number % 30 == 0:
                proxy.cut()
        found = await events(everything, 200)
        assert [(event.position, event.payload) for event in found] == [(number, number) for number in range(200)]
        assert [event.version for event in await events(one, 100)] == list(range(100))
        assert proxy.connects > 3


@in_loop
async def test_a_position_is_where_another_process_goes_on(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, _, client):
        await client.events.publish_many(made("a", *range(10)))
        first = await client.events.subscribe_all(from_position="oldest")
        assert first.position is not None
        await events(first, 4)
        place = first.position
        assert place.next_offset == 4
        await first.close()
        with pytest.raises(ClientClosed):
            await first.next_item()
        again = await client.events.subscribe_all(resume=Position(*place))
        assert [event.payload for event in await events(again, 6)] == [4, 5, 6, 7, 8, 9]


@in_loop
async def test_what_retention_took_meanwhile_is_a_gap(tmp_path: Path) -> None:
    async with connected(tmp_path) as (http, _, client):
        await client.events.publish_many(made("a", *range(10)))
        stream = await client.events.subscribe_stream("a", from_version=0)
        await events(stream, 2)
        place = stream.position
        await stream.close()
        partition = http.node._shared.services.topics.get("a").partitions[0]  # type: ignore[union-attr]
        log_of(partition).advance_log_start_offset(7)
        with pytest.raises(OffsetOutOfRange) as refused:
            await client.events.subscribe_stream("a", from_version=0)
        assert refused.value.oldest == 7
        again = await client.events.subscribe_stream("a", resume=place)
        with pytest.raises(GapFound) as found:
            await again.next_event(WAIT_S)
        assert found.value.gap == Gap("a", 2, 6, "retention")
        assert [event.version for event in await events(again, 3)] == [7, 8, 9]


@in_loop
async def test_a_topic_that_is_deleted_ends_its_stream(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kwire.client")
    async with connected(tmp_path) as (http, _, client):
        await client.events.publish_many(made("a", 1))
        stream = await client.events.subscribe_stream("a", from_version=0)
        assert len(await take(stream, 2)) == 2
        assert (await http.delete("/topics/a")).status == 200
        with pytest.raises(TopicNotFound):
            await stream.next_item(WAIT_S)
        assert "reconnecting" not in caplog.text


@in_loop
async def test_a_topic_made_anew_is_told_as_a_gap(tmp_path: Path) -> None:
    async with connected(tmp_path) as (http, proxy, client), client_of(http.url) as writer:
        await writer.events.publish_many(made("a", 1, 2))
        stream = await client.events.subscribe_stream("a", from_version=0)
        await events(stream, 2)
        proxy.is_down = True
        proxy.cut()
        await http.delete("/topics/a")
        await make_topics(http.node, "a")
        await writer.events.publish_many(made("a", "new"))
        proxy.is_down = False
        with pytest.raises(GapFound) as found:
            await stream.next_event(WAIT_S)
        assert found.value.gap == Gap("a", 2, None, "room_recreated")
        assert (await stream.next_event(WAIT_S)).payload == "new"


@in_loop
async def test_a_reader_who_stops_waiting_loses_nothing(tmp_path: Path) -> None:
    async with connected(tmp_path) as (http, _, client), client_of(http.url) as writer:
        stream = await client.events.subscribe_all()
        found: list[object] = []
        publishing = asyncio.ensure_future(writer.events.publish_many(made("a", *range(50))))
        while len(found) < 50:
            try:
                found.append((await stream.next_event(0.001)).payload)
            except TimeoutError:
                continue
        await publishing
        assert found == list(range(50))


@in_loop
async def test_a_connection_that_fell_silent_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_subscription, "SILENCE_S", 0.2)
    async with connected(tmp_path) as (http, proxy, client), client_of(http.url) as writer:
        stream = await client.events.subscribe_all()
        proxy.silence()
        await writer.events.publish("a", "made", 1)
        assert (await stream.next_event(WAIT_S)).payload == 1
        assert proxy.connects >= 2


@in_loop
async def test_only_some_types_and_the_place_moves_on(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, _, client):
        await client.events.publish_many([EventToStore("a", "odd" if n % 2 else "even", n) for n in range(6)])
        stream = await client.events.subscribe_all(from_position=0, types=["odd"])
        assert [event.payload for event in await events(stream, 3)] == [1, 3, 5]
        async with client.events.subscribe_all(from_position=0, types=["even"]) as even:
            batch = await even.next_batch(10, WAIT_S)
            while len(batch) < 4:
                batch += await even.next_batch(10, WAIT_S)
            assert [position.next_offset for _, position in batch] == [1, 3, 5, 6]
