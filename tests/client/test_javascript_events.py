"""The JavaScript module's `client.events` in Node against a node in this process, through connections that are cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.frames import HOST
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.event_doors import event, make_topics, page_of, published
from tests.support.http import Http, http_node
from tests.support.javascript import JavaScriptClient, JavaScriptError, javascript_client
from tests.support.node import in_loop
from tests.support.partition_log import log_of

pytestmark = pytest.mark.needs_node


@asynccontextmanager
async def connected(directory: Path, **options: int) -> AsyncIterator[tuple[Http, CuttingProxy, JavaScriptClient]]:
    """A node with topics `a` and `b`, a way to it that can be cut, and a client that takes it."""
    async with http_node(directory) as http:
        await make_topics(http.node, "a", "b")
        async with cutting_proxy(HOST, http.port) as proxy, javascript_client(proxy.url, "lines", **options) as client:
            yield http, proxy, client


async def refused(client: JavaScriptClient, call: str, **arguments: Any) -> JavaScriptError:
    with pytest.raises(JavaScriptError) as found:
        await client.call(call, **arguments)
    return found.value


@in_loop
async def test_what_is_published_is_read_back_in_every_way(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, _, client):
        assert await client.call("lastEvent", topic="a") is None
        first = event("a", {"x": 1}, metadata={"trace": "7"}, key="k", expectedVersion=-1)
        assert await client.call("storeEvents", events=[first, event("b", 1), event("a", 2)]) == ["a-1", "b-1", "a-2"]
        assert await client.call("storeEvents", events=[]) == []
        shown = await client.call("storedEvent", eventId="a-1")
        assert shown.pop("timestamp").endswith("Z")
        assert shown == {
            "kind": "event",
            "id": "a-1",
            "topic": "a",
            "version": 0,
            "type": "made",
            "payload": {"x": 1},
            "metadata": {"trace": "7"},
            "key": "k",
        }
        page = await client.call("readEvents", topic="a", options={"limit": 1})
        assert ([one["id"] for one in page["events"]], page["next"]) == (["a-1"], "a-1")
        page = await client.call("readEvents", topic="a", options={"isBackwards": True, "before": "a-2"})
        assert ([one["id"] for one in page["events"]], page.get("next")) == (["a-1"], None)
        await client.call("storeEvents", events=[event("a", number) for number in range(2_500)])
        everything = await client.call("readAllEvents", topic="a", options={"since": "a-2"})
        assert [one["payload"] for one in everything] == list(range(2_500))
        assert (await client.call("lastEvent", topic="a"))["version"] == 2_501


@in_loop
async def test_a_refusal_has_its_code_and_details(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, _, client):
        wrong = await refused(client, "storeEvents", events=[event("a", expectedVersion=4)])
        assert (wrong.code, wrong.details["expected"], wrong.details["actual"]) == ("WrongExpectedVersion", 4, -1)
        violation = await refused(client, "storeEvents", events=[event("a"), {**event("a"), "type": "unknown"}])
        assert (violation.code, violation.details["index"]) == ("SchemaViolation", 1)
        assert (await refused(client, "subscribeStream", topic="nowhere")).code == "TopicNotFound"
        assert (await refused(client, "storedEvent", eventId="a-7")).code == "EventNotFound"
        key = {"idempotencyKey": "mine"}
        assert await client.call("storeEvents", events=[event("a", 1)], options=key) == ["a-1"]
        assert await client.call("storeEvents", events=[event("a", 1)], options=key) == ["a-1"]
        assert (await refused(client, "storeEvents", events=[event("a", 2)], options=key)).code == "IdempotencyConflict"


@in_loop
async def test_an_answer_that_is_lost_is_asked_for_again_and_nothing_is_stored_twice(tmp_path: Path) -> None:
    async with connected(tmp_path) as (http, proxy, client):
        for number in range(10):
            publishing = asyncio.ensure_future(client.call("storeEvents", events=[event("a", number)]))
            # Cut at some other stage of its way each time.
            connects = proxy.connects
            while proxy.connects == connects and not publishing.done():
                await asyncio.sleep(0)
            for _ in range(number * 5):
                await asyncio.sleep(0)
            proxy.cut()
            assert await publishing == [f"a-{number + 1}"]
        assert await page_of(http, "a") == (list(range(10)), None)


@in_loop
async def test_a_server_that_cannot_be_reached_is_told_when_the_time_is_over(tmp_path: Path) -> None:
    async with connected(tmp_path, timeoutMs=300) as (_, proxy, client):
        proxy.is_down = True
        proxy.cut()
        # Which of the two depends on what the last try was doing when the time was over.
        assert (await refused(client, "storeEvents", events=[event("a")])).code in ("PublishUncertain", "AnswerTimeout")
        assert (await refused(client, "subscribeAll")).code == "Unreachable"


@pytest.mark.proves("S3-6", "S3-7")
@in_loop
async def test_a_follower_whose_connections_are_cut_misses_and_repeats_nothing(tmp_path: Path) -> None:
    async with connected(tmp_path) as (http, proxy, client):
        await client.call("subscribeAll", options={"fromPosition": 0})
        await client.call("subscribeStream", subscription="one", topic="a", options={"fromVersion": "oldest"})
        connects = proxy.connects
        for number in range(0, 200, 10):
            topic = "a" if number % 20 else "b"
            await published(http, *[event(topic, more) for more in range(number, number + 10)])
            if number % 30 == 0:
                proxy.cut()
        found = await client.call("events", count=200)
        assert [(one["position"], one["payload"]) for one in found] == [(number, number) for number in range(200)]
        one = await client.call("events", subscription="one", count=100)
        assert [each["version"] for each in one] == list(range(100))
        assert proxy.connects > connects


@in_loop
async def test_a_position_resumes_behind_the_last_event_and_what_is_gone_is_a_gap(tmp_path: Path) -> None:
    async with connected(tmp_path) as (http, _, client):
        await published(http, *[event("a", number) for number in range(10)])
        await client.call("subscribeStream", topic="a", options={"fromVersion": 0})
        assert [one["version"] for one in await client.call("events", count=2)] == [0, 1]
        place = await client.call("position")
        assert place["nextOffset"] == 2
        await client.call("closeSubscription")
        partition = http.node._shared.services.topics.get("a").partitions[0]  # type: ignore[union-attr]
        log_of(partition).advance_log_start_offset(7)
        assert (await refused(client, "subscribeStream", topic="a", options={"fromVersion": 0})).code == (
            "OffsetOutOfRange"
        )
        await client.call("subscribeStream", topic="a", options={"resume": place})
        gap = {"kind": "gap", "room": "a", "fromOffset": 2, "toOffset": 6, "reason": "retention"}
        assert (await client.call("next", count=1)) == [gap]
        items = await client.call("next", count=4)
        assert [one["version"] for one in items[:3]] == [7, 8, 9]
        assert items[3] == {"kind": "caught_up", "room": "a", "offset": 9}


@in_loop
async def test_a_topic_that_is_deleted_ends_its_subscription(tmp_path: Path) -> None:
    async with connected(tmp_path) as (http, _, client):
        await published(http, event("a"))
        await client.call("subscribeStream", topic="a", options={"fromVersion": 0})
        await client.call("next", count=2)
        assert (await http.delete("/topics/a")).status == 200
        assert (await refused(client, "next", count=1)).code == "TopicNotFound"


@in_loop
async def test_a_slow_reader_queues_a_bounded_number_and_misses_nothing(tmp_path: Path) -> None:
    async with connected(tmp_path, queueItemsMax=10) as (http, _, client):
        await client.call("subscribeAll", options={"fromPosition": 0, "types": ["made"]})
        for number in range(0, 3_000, 500):
            await published(http, *[event("a", [more, "x" * 1_000]) for more in range(number, number + 500)])
        found: list[int] = []
        for _ in range(30):
            found += [one["payload"][0] for one in await client.call("events", count=100)]
        assert found == list(range(3_000))
