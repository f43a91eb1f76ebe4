"""GET /topics/{topic}/events and GET /events/{event}: pages from either end, days, the last event, retention."""

from typing import Any

import pytest

from kwire.broker.topics.topics import Topic
from kwire.web.events import read as reading
from storage.batch.record_batch import Record, build_batch, check_batch
from tests.support.engines import Engine, only_embedded
from tests.support.event_doors import event, make_topics, page_of, published, refused
from tests.support.http import Http
from tests.support.node import in_uvloop

DAY_MS = 86_400_000
# 2025-07-06T00:00:00Z
SOME_DAY_MS = 1_751_760_000_000

REFUSALS = [
    ("/topics/nowhere/events", 404, "TopicNotFound"),
    ("/topics/__events/events", 400, "InvalidName"),
    ("/topics/room/events", 400, "NotAnEventTopic"),
    ("/topics/a/events?limit=0", 400, "BadRequest"),
    ("/topics/a/events?limit=1001", 400, "BadRequest"),
    ("/topics/a/events?limit=x", 400, "BadRequest"),
    ("/topics/a/events?what=1", 400, "BadRequest"),
    ("/topics/a/events?order=up", 400, "BadRequest"),
    ("/topics/a/events?date=20250706", 400, "BadRequest"),
    ("/topics/a/events?date=2025-02-30", 400, "BadRequest"),
    ("/topics/a/events?sinceEventId=a-0", 400, "InvalidEvent"),
    ("/topics/a/events?sinceEventId=aaa", 400, "InvalidEvent"),
    ("/topics/a/events?sinceEventId=1", 400, "InvalidEvent"),
    ("/topics/a/events?sinceEventId=null", 400, "InvalidEvent"),
    ("/topics/a/events?beforeEventId=NULL", 400, "InvalidEvent"),
    ("/topics/a/events?date=null", 400, "BadRequest"),
    ("/topics/a/events?sinceEventId=b-1", 400, "BadRequest"),
    ("/topics/a/events?sinceEventId=a-99999999999999999999", 400, "InvalidEvent"),
    ("/events/a-1", 404, "EventNotFound"),
    ("/events/a-9999999999999999999", 404, "EventNotFound"),
    ("/events/nowhere-1", 404, "TopicNotFound"),
    ("/events/__events-1", 404, "TopicNotFound"),
    ("/events/what", 400, "InvalidEvent"),
]


async def filled(http: Http, count: int, name: str = "orders") -> Any:
    (topic,) = await make_topics(http.server, name)
    await published(http, *[event(name, number) for number in range(count)])
    return topic


async def walk(http: Http, topic: str, query: str, by: str) -> list[Any]:
    """All pages, one after the other."""
    found, place = await page_of(http, topic, query)
    while place is not None:
        more, place = await page_of(http, topic, f"{query}&{by}={place}")
        found += more
    return found


def write_at(topic: Topic, *times_ms: int) -> None:
    """Events of these times, each with its number as the payload; as a producer may send them, behind the journal."""
    partition = topic.partitions[0]
    records = [
        Record(None, b"%d" % number, time, [("ce_type", b"made")])
        for number, time in enumerate(times_ms, start=partition.log_end_offset)
    ]
    batch = memoryview(build_batch(records))
    partition.append_journaled(batch, check_batch(batch), 0)
    partition.commit_all()


@pytest.mark.proves("S2-28", "S2-34")
@in_uvloop
async def test_an_event_has_an_id_a_time_a_type_and_its_payload(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "user-events")
        payload = {"id": "123", "name": "Älice", "n": 1.50, "nothing": None}
        await published(http, {"topic": "user-events", "type": "user.created", "payload": payload})
        answer = await http.get("/topics/user-events/events")
        (shown,) = answer.json["events"]
        assert list(shown) == ["id", "topic", "version", "timestamp", "type", "payload"]
        assert (shown["id"], shown["version"]) == ("user-events-1", 0)
        assert (shown["type"], shown["payload"]) == ("user.created", payload)
        assert shown["timestamp"].endswith("Z")
        assert (await http.get("/events/user-events-1")).json == shown


@pytest.mark.proves("S2-34", "S2-40")
@in_uvloop
async def test_a_topic_is_replayed_page_by_page_behind_the_last_id(engine: Engine) -> None:
    async with engine.http() as http:
        await filled(http, 1250)
        payloads, place = await page_of(http, "orders")
        assert (payloads, place) == (list(range(100)), "orders-100")
        payloads, place = await page_of(http, "orders", "sinceEventId=orders-1200&limit=1000")
        assert (payloads, place) == (list(range(1200, 1250)), None)
        assert await walk(http, "orders", "limit=333", "sinceEventId") == list(range(1250))
        assert await page_of(http, "orders", "sinceEventId=orders-1250") == ([], None)
        assert await page_of(http, "orders", "sinceEventId=orders-99999") == ([], None)
        assert await page_of(http, "orders", "sinceEventId=orders-3&beforeEventId=orders-6") == ([3, 4], None)


@in_uvloop
async def test_it_is_read_backwards_and_the_last_event_alone(engine: Engine) -> None:
    async with engine.http() as http:
        await filled(http, 1250)
        assert await page_of(http, "orders", "order=backwards&limit=3") == ([1249, 1248, 1247], "orders-1248")
        assert await walk(http, "orders", "order=backwards&limit=333", "beforeEventId") == list(range(1249, -1, -1))
        query = "order=backwards&sinceEventId=orders-2&beforeEventId=orders-5"
        assert await page_of(http, "orders", query) == ([3, 2], None)
        assert await page_of(http, "orders", "last=true") == ([1249], None)
        await make_topics(http.server, "empty")
        assert await page_of(http, "empty", "last=true") == ([], None)
        assert await page_of(http, "empty", "order=backwards") == ([], None)


@in_uvloop
async def test_large_events_end_a_page_early_and_nothing_is_left_out(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.web.answers.large_answers.PART_BYTES", 10_000)
    monkeypatch.setattr(reading, "PAGE_BYTES_MAX", 30_000)
    async with engine.http() as http:
        await make_topics(http.server, "a")
        for number in range(40):
            await published(http, event("a", [number, "x" * 3000]))
        _, place = await page_of(http, "a")
        assert place is not None
        forwards = [one[0] for one in await walk(http, "a", "limit=1000", "sinceEventId")]
        backwards = [one[0] for one in await walk(http, "a", "limit=1000&order=backwards", "beforeEventId")]
        assert forwards == backwards[::-1] == list(range(40))


@only_embedded("it writes events with times of its own into the log")
@pytest.mark.proves("S2-34")
@in_uvloop
async def test_a_date_is_a_day_in_utc_whatever_the_order_of_times(engine: Engine) -> None:
    async with engine.http() as http:
        (topic,) = await make_topics(http.server, "a")
        write_at(topic, SOME_DAY_MS - 1, SOME_DAY_MS, SOME_DAY_MS + DAY_MS - 1, SOME_DAY_MS + DAY_MS)
        # Somebody sends what was left over from the day.
        write_at(topic, SOME_DAY_MS + 5 * DAY_MS, SOME_DAY_MS + 7, SOME_DAY_MS - 7)
        assert await page_of(http, "a", "date=2025-07-06") == ([1, 2, 5], None)
        assert await page_of(http, "a", "date=2025-07-06&order=backwards") == ([5, 2, 1], None)
        assert await page_of(http, "a", "date=2025-07-06&last=true") == ([5], None)
        assert await page_of(http, "a", "date=2025-07-05") == ([0, 6], None)
        assert await page_of(http, "a", "date=2025-07-07") == ([3], None)
        assert await page_of(http, "a", "date=2025-07-06&sinceEventId=a-2&limit=1") == ([2], "a-3")
        for empty in ("2024-01-01", "0001-01-01", "9999-12-31"):
            assert await page_of(http, "a", f"date={empty}") == ([], None), empty


@only_embedded("it writes events with times of its own into the log")
@in_uvloop
async def test_to_find_a_day_takes_several_requests_in_a_large_topic(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SCANNED_EVENTS_MAX", 1000)
    async with engine.http() as http:
        (topic,) = await make_topics(http.server, "a")
        for _ in range(3):
            write_at(topic, SOME_DAY_MS, *[SOME_DAY_MS + DAY_MS] * 999)
        payloads, place = await page_of(http, "a", "date=2025-07-06&limit=10")
        assert (payloads, place is not None) == ([0], True)
        assert await walk(http, "a", "date=2025-07-06", "sinceEventId") == [0, 1000, 2000]
        assert await walk(http, "a", "date=2025-07-06&order=backwards", "beforeEventId") == [2000, 1000, 0]


@in_uvloop
async def test_what_retention_took_is_told_and_not_passed_over(engine: Engine) -> None:
    async with engine.http() as http:
        await filled(http, 10)
        await engine.delete_events(http.server, "orders", 6)
        assert await page_of(http, "orders") == ([6, 7, 8, 9], None)
        assert await page_of(http, "orders", "order=backwards&limit=9") == ([9, 8, 7, 6], None)
        answer = await http.get("/topics/orders/events?sinceEventId=orders-3")
        assert (answer.status, answer.code, answer.json["error"]["oldest"]) == (400, "OffsetOutOfRange", 6)
        assert (await page_of(http, "orders", "sinceEventId=orders-6"))[0] == [6, 7, 8, 9]
        assert await refused(http, "GET", "/events/orders-3") == (404, "EventNotFound")


@in_uvloop
async def test_what_cannot_be_read_is_refused_by_name(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topics(http.server, "a", "b")
        await http.put("/rooms/room")
        for path, status, code in REFUSALS:
            assert await refused(http, "GET", path) == (status, code), path
