"""The doors of the event store with a real server: published by HTTP, read by everybody, followed through kills."""

import asyncio
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import aiohttp
import pytest
from confluent_kafka import Consumer

from kwire.client import (
    AsyncClient,
    CaughtUp,
    Client,
    EventToStore,
    PublishUncertain,
    StoredEvent,
    Unreachable,
    WrongExpectedVersion,
)
from tests.support.bridge_process import BridgeProcess
from tests.support.engines import CLIENT_ENGINES, delete_all_topics, process_of
from tests.support.http_json import ask
from tests.support.node import in_loop
from tests.support.room_sockets import room_socket
from tests.support.server import KwireProcess

WAIT_S = 60.0
KILLED_JOURNAL = "__kwire_killed_journal"
ANY = [{"eventType": "made"}]
USER_CREATED = {
    "type": "user.created",
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
    "required": ["id", "name"],
}


@pytest.fixture(scope="module", params=CLIENT_ENGINES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    """A server, or a bridge over a cluster."""
    process = process_of(request.param, request, tmp_path_factory.mktemp("events"))
    process.start()
    process.ready()
    yield process
    process.kill()
    if isinstance(process, BridgeProcess):
        asyncio.run(delete_all_topics(process.upstream))


@pytest.fixture(params=CLIENT_ENGINES)
def killed_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KwireProcess]:
    """One for a single test. A bridge has a journal of its own, because `server` may use the same cluster."""
    process = process_of(request.param, request, tmp_path)
    process.settings["kwire.bridge.events.topic"] = KILLED_JOURNAL
    process.start()
    process.ready()
    yield process
    process.kill()
    if isinstance(process, BridgeProcess):
        asyncio.run(delete_all_topics(process.upstream, ("killed-a", "killed-b", KILLED_JOURNAL)))


def client_of(url: str) -> AsyncClient:
    return AsyncClient(url, timeout_s=WAIT_S, retry_delay_s_min=0.02, retry_delay_s_max=0.2)


def make_topics(server: KwireProcess, *names: str, schemas: object = ANY) -> None:
    for name in names:
        answer = ask(f"{server.http_url}/topics", "POST", {"name": name, "schemas": schemas})
        assert answer.status == 201, answer.body


@pytest.mark.proves("S2-5", "S2-6", "S2-30", "S2-31", "S2-32", "S2-40")
def test_the_example_of_the_text_is_published_and_read_by_http_and_by_kafka(server: KwireProcess) -> None:
    make_topics(server, "user-events", schemas=[USER_CREATED])
    make_topics(server, "audit-events", schemas=[{"eventType": "user.verified", "required": ["verified"]}])
    url = f"{server.http_url}/events"
    created = {"topic": "user-events", "type": "user.created", "payload": {"id": "123", "name": "Alice"}}
    verified = {"topic": "audit-events", "type": "user.verified", "payload": {"id": "123", "verified": True}}
    answer = ask(url, "POST", [created, verified])
    assert (answer.status, answer.body) == (201, {"eventIds": ["user-events-1", "audit-events-1"]})
    refused = ask(url, "POST", [verified, {**created, "payload": {"id": "124"}}])
    assert (refused.status, refused.body["error"]["code"], refused.body["error"]["index"]) == (
        400,
        "SchemaViolation",
        1,
    )
    page = ask(f"{server.http_url}/topics/audit-events/events?sinceEventId=audit-events-1")
    assert page.body == {"events": [], "next": None}
    one = ask(f"{server.http_url}/events/user-events-1").body
    assert {name: one[name] for name in ("id", "type", "payload")} == {
        "id": "user-events-1",
        "type": "user.created",
        "payload": {"id": "123", "name": "Alice"},
    }
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "audit", "auto.offset.reset": "earliest"},
    )
    try:
        consumer.subscribe(["user-events"])
        record = consumer.poll(WAIT_S)
        assert record is not None
        assert record.error() is None
        assert (record.offset(), record.value()) == (0, b'{"id":"123","name":"Alice"}')
        headers = dict(record.headers() or [])
        assert headers["ce_type"] == b"user.created"
    finally:
        consumer.close()


@pytest.mark.proves("S3-6", "S3-7", "S3-17")
def test_curl_and_a_websocket_follow_the_same_events(server: KwireProcess) -> None:
    make_topics(server, "curl-a", "curl-b")
    url = f"{server.http_url}/events"
    ask(url, "POST", [{"topic": name, "type": "made", "payload": name} for name in ("curl-a", "curl-b", "curl-a")])
    # It does not end by itself; -m ends it if too little comes.
    command = ["curl", "-sN", "-m", str(WAIT_S), f"{server.http_url}/subscribe/streams/curl-a?from=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as curl:
        assert curl.stdout is not None
        lines = [line.rstrip() for line in islice(curl.stdout, 4)]
        curl.terminate()
    assert [line.split(b",")[0] for line in lines[1:3]] == [b'{"id":"curl-a-1"', b'{"id":"curl-a-2"']
    assert lines[3] == b'{"control":"caught_up","topic":"curl-a","version":1}'

    async def follow() -> list[str]:
        async with room_socket(server.http_port or 0, "/subscribe/all?from=-3") as socket:
            return [one["id"] for one in await socket.events(3)]

    assert asyncio.run(follow()) == ["curl-a-1", "curl-b-1", "curl-a-2"]


@pytest.mark.proves("S2-40")
def test_a_program_without_a_loop_publishes_reads_and_follows(server: KwireProcess) -> None:
    make_topics(server, "plain")
    with Client(server.http_url, timeout_s=WAIT_S) as client:
        store = client.events
        assert store.publish("plain", "made", {"n": 0}, expected_version=-1) == "plain-1"
        assert store.publish_many([EventToStore("plain", "made", {"n": n}) for n in (1, 2)]) == ["plain-2", "plain-3"]
        with pytest.raises(WrongExpectedVersion):
            store.publish("plain", "made", 1, expected_version=0)
        last = store.last("plain")
        assert last is not None
        assert last.version == 2
        assert [one.payload["n"] for one in store.read("plain", is_backwards=True).events] == [2, 1, 0]
        assert [one.payload["n"] for one in store.read_all("plain", since="plain-1")] == [1, 2]
        assert store.event("plain-2").payload == {"n": 1}
        with store.subscribe_stream("plain", from_version=1) as stream:
            assert [stream.next_event(WAIT_S).version for _ in range(2)] == [1, 2]
            assert stream.next_item(WAIT_S) == CaughtUp("plain", 2)
            place = stream.position
        store.publish("plain", "made", "new")
        with store.subscribe_stream("plain", resume=place) as stream:
            assert stream.next_event(WAIT_S).payload == "new"
        with store.subscribe_all(from_position=-1) as everything:
            assert everything.next_event(WAIT_S).id == "plain-4"


@pytest.mark.proves("S2-5", "S3-6", "S3-17")
@in_loop
async def test_followers_of_a_server_that_is_killed_see_every_event_once_and_in_order(
    killed_server: KwireProcess,
) -> None:
    server = killed_server
    acknowledged: dict[str, str] = {}
    make_topics(server, "killed-a", "killed-b")
    async with client_of(server.http_url) as client:
        everything = await client.events.subscribe_all(from_position=0)
        one = await client.events.subscribe_stream("killed-a", from_version=0)
        writing = asyncio.create_task(write(client, acknowledged))
        found: list[StoredEvent] = []
        for _ in range(3):
            found += [await everything.next_event(WAIT_S) for _ in range(60)]
            server.kill()
            await asyncio.to_thread(server.restart)
        found += [await everything.next_event(WAIT_S) for _ in range(60)]
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        # What was asked for last may still be on its way: it comes before this, or behind it.
        last = await client.events.publish_many(
            [EventToStore(name, "made", f"last.{n}") for n, name in enumerate(("killed-a", "killed-b", "killed-a"))]
        )
        while found[-1].id != last[-1]:
            found.append(await everything.next_event(WAIT_S))
        count = len(found)
        assert [event.position for event in found] == list(range(count))
        stored = {event.payload: event.id for event in found}
        assert len(stored) == count, "an event was stored twice"
        assert {payload: stored[payload] for payload in acknowledged} == acknowledged
        own = [event for event in found if event.topic == "killed-a"]
        streamed = [await one.next_event(WAIT_S) for _ in own]
        assert [(event.version, event.payload) for event in streamed] == [(each.version, each.payload) for each in own]
        # Each request is there as a whole: three events with numbers that follow each other.
        requests = [payload.rpartition(".")[0] for payload in stored]
        assert all(requests.count(request) == 3 for request in set(requests))


async def write(client: AsyncClient, acknowledged: dict[str, str]) -> None:
    """Requests of three events over both topics; what became of those that were given up is nobody's business here."""
    number = 0
    while True:
        number += 1
        payloads = [f"{number}.{at}" for at in range(3)]
        events = [
            EventToStore(topic, "made", payload)
            for topic, payload in zip(("killed-a", "killed-b", "killed-a"), payloads, strict=True)
        ]
        try:
            ids = await client.events.publish_many(events)
        except (PublishUncertain, Unreachable, aiohttp.ClientError):
            continue
        acknowledged.update(zip(payloads, ids, strict=True))
