"""Browsing as a stream: live records, progress, the end of a scan, and its bounds."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from kwire.access.acl import Operation, ResourceType
from kwire.web.browse.browse import SCAN_BYTES
from kwire.web.browse.scan_slots import SCANS_PER_CLIENT_MAX
from storage.batch.record_batch import Record
from tests.support.effort import repetitions
from tests.support.engines import Engine, begin_append
from tests.support.http import Http, http_node
from tests.support.http_access import ADMIN, BOB, access_node
from tests.support.node import in_uvloop
from tests.web.browse.records_port import START_MS, Browsed, browse, browsed, make_topic, put

WAIT_SECONDS = 10.0
END_SECONDS = 5.0
CLOSE_SECONDS = 1.0
# The longest time that a scan may block the server. The probe counts stalls from 50 ms on.
STALL_SECONDS_MAX = 0.05


class Lines:
    """The lines of an open stream."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self, *kinds: str) -> dict[str, Any]:
        """The next line of one of the kinds."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                raw = await self._answer.content.readline()
                assert raw, "the stream has ended"
                line: dict[str, Any] = msgspec.json.decode(raw)
                if not kinds or any(kind in line for kind in kinds):
                    return line

    async def value(self) -> str:
        data: str = (await self.next("record"))["record"]["value"]["data"]
        return data


@asynccontextmanager
async def stream(http: Http, query: str, **headers: str) -> AsyncIterator[Lines]:
    async with http.session.get(f"{http.url}/topics/t/records?{query}", headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        yield Lines(answer)


def scan_bytes(http: Http) -> int:
    """The memory that the scans of the node use."""
    assert http.server.http is not None
    return http.server.http.memory.used_bytes


async def wait_for_no_scan(http: Http, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while scan_bytes(http):
            await asyncio.sleep(0.01)


def texts(*values: str, at_ms: int = START_MS) -> list[Record]:
    return [Record(None, value.encode(), at_ms + number) for number, value in enumerate(values)]


@in_uvloop
async def test_a_live_stream_continues_with_new_records(engine: Engine) -> None:
    async with engine.http() as http:
        topic = await make_topic(http, partitions=2)
        await put(topic, 0, texts("a", "b"))
        await put(topic, 1, texts("c", at_ms=START_MS + 10))
        async with stream(http, "live=true&limit=2") as lines, stream(http, "live=true&limit=0&value=e") as filtered:
            assert [await lines.value(), await lines.value()] == ["b", "c"]
            await filtered.next("progress")
            await put(topic, 0, texts("d"))
            await put(topic, 1, texts("e", "f"))
            assert {await lines.value() for _ in range(3)} == {"d", "e", "f"}
            assert await filtered.value() == "e"
        async with stream(http, "live=true&from=oldest&partition=1") as lines:
            assert [await lines.value() for _ in range(3)] == ["c", "e", "f"]
            await put(topic, 1, texts("g"))
            assert await lines.value() == "g"
            await http.delete("/topics/t")
            assert (await lines.next("end"))["end"]["reason"] == "deleted"
        await wait_for_no_scan(http, CLOSE_SECONDS)


@in_uvloop
async def test_server_sent_events_have_the_kind_of_the_line_as_their_name(engine: Engine) -> None:
    async with engine.http() as http:
        await put(await make_topic(http), 0, texts("a\nb"))
        answer = await http.get("/topics/t/records", Accept="text/event-stream")
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        events = [event.split("\n") for event in answer.body.decode().split("\n\n") if event]
        assert [event[0] for event in events] == ["event: record", "event: progress", "event: end"]
        assert all(len(event) == 2 and event[1].startswith("data: {") for event in events)


@in_uvloop
async def test_a_closed_connection_ends_the_scan(engine: Engine) -> None:
    async with engine.http() as http:
        await fill(http, 100_000)
        for query in ("live=true&limit=0", "from=oldest&path=$.id&equals=-1", "path=$.id&equals=-1"):
            async with stream(http, query):
                assert scan_bytes(http) == SCAN_BYTES
            await wait_for_no_scan(http, CLOSE_SECONDS)


@in_uvloop
async def test_a_client_that_loses_its_right_or_its_user_loses_the_stream(tmp_path: Path) -> None:
    async with access_node(tmp_path) as http:
        answer = await http.post("/topics/t", {"num_partitions": 1}, Authorization=ADMIN)
        assert answer.status == 201
        refused = await http.get("/topics/t/records", Authorization=BOB)
        missing = await http.get("/topics/missing/records", Authorization=BOB)
        assert refused.status == missing.status == 403
        assert refused.body.replace(b"topic t", b"topic missing").replace(b'"t"', b'"missing"') == missing.body
        await http.allow((Operation.READ, ResourceType.TOPIC, "t"))
        for lose, code in ((http.take_away, "TOPIC_AUTHORIZATION_FAILED"), (None, "Unauthorized")):
            await http.allow((Operation.READ, ResourceType.TOPIC, "t"))
            async with stream(http, "live=true", Authorization=BOB) as lines:
                if lose is None:
                    http.users.delete("bob")
                else:
                    await lose()
                async with asyncio.timeout(END_SECONDS):
                    end = (await lines.next("end"))["end"]
                assert (end["reason"], end["error"]["code"]) == ("forbidden", code)


@in_uvloop
async def test_a_client_has_a_bounded_number_of_scans(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topic(http)
        async with asyncio.TaskGroup() as tasks:
            opened = asyncio.Event()
            done = asyncio.Event()
            ready: list[int] = []

            async def hold() -> None:
                async with stream(http, "live=true"):
                    ready.append(1)
                    if len(ready) == SCANS_PER_CLIENT_MAX:
                        opened.set()
                    await done.wait()

            for _ in range(SCANS_PER_CLIENT_MAX):
                tasks.create_task(hold())
            async with asyncio.timeout(WAIT_SECONDS):
                await opened.wait()
            answer = await http.get("/topics/t/records")
            assert (answer.status, answer.code) == (429, "TooManyScans")
            done.set()
        await wait_for_no_scan(http, CLOSE_SECONDS)
        assert (await http.get("/topics/t/records")).status == 200


@in_uvloop
async def test_a_server_that_stops_ends_the_stream(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topic(http)
        async with stream(http, "live=true") as lines:
            await lines.next("progress")
            assert http.server.http is not None
            closing = asyncio.ensure_future(http.server.http.close())
            assert (await lines.next("end"))["end"]["reason"] == "stopped"
        await closing


BAD_QUERIES = (
    ("from=yesterday", "from must be newest"),
    ("from=99999999999999999999", "from must be newest"),
    ("from=12345678901234567890ms", "from must be newest"),
    ("limit=-1", "limit"),
    ("limit=10001", "limit"),
    ("live=maybe", "live"),
    ("isolation=dirty", "isolation"),
    ("partition=1", "partition must be numbers from 0 to 0"),
    ("partition=x", "partition must be numbers"),
    ("partition=", "partition must be numbers"),
    ("next=0", "next must be pairs"),
    ("next=0:1,7:2", "next names partition 7"),
    ("key=", "key"),
    ("value=" + "x" * 1001, "value"),
    ("value=a&value=b", "more than once"),
    ("header.=a", "header.NAME"),
    ("equals=1", "need a path"),
    ("path=$.a&equals=1&contains=2", "exclude each other"),
    ("path=$..a", "expressions are not supported"),
    ("regex=.*", "regex"),
    ("&".join(f"header.h{number}=x" for number in range(11)), "at most 10 filters"),
)


@in_uvloop
async def test_bad_parameters_are_refused_with_a_reason(engine: Engine) -> None:
    async with engine.http() as http:
        await make_topic(http)
        for query, message in BAD_QUERIES:
            answer = await http.get(f"/topics/t/records?{query}")
            assert answer.status == 400, (query, answer)
            assert message in answer.json["error"]["message"], (query, answer)
        assert (await http.ask("GET", "/topics/t/records", b"body")).status == 400


@in_uvloop
async def test_internal_and_unknown_topics_are_refused(engine: Engine) -> None:
    async with engine.http() as http:
        assert (await http.get("/topics/__consumer_offsets/records")).status == 400
        assert (await http.get("/topics/missing/records")).code == "UNKNOWN_TOPIC_OR_PARTITION"


@in_uvloop
async def test_damaged_records_are_reported_and_passed_over(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        topic = await make_topic(http)
        for number in range(3):
            await put(topic, 0, texts(f"first {number}", f"second {number}"))
        (path,) = tmp_path.rglob("t-0/*.log")
        data = bytearray(path.read_bytes())
        damaged_at = data.index(b"first 1")
        with path.open("r+b") as file:
            file.seek(damaged_at)
            file.write(b"FIRST")
        for query in ("from=oldest", "from=newest", "from=oldest&value=first", "from=newest&value=second"):
            found = await browse(http, query)
            assert [(one["partition"], one["from_offset"], one["to_offset"]) for one in found.unreadable] == [(0, 2, 4)]
            assert all(offset not in (2, 3) for _, offset in found.places)
            assert found.end["reason"] == "end"
        assert (await http.get("/topics/t/partitions/0/records/2")).code == "CORRUPT_MESSAGE"


# --- large topics


async def fill(http: Http, count: int, partitions: int = 4) -> None:
    """Make a topic of records with 200 bytes each."""
    topic = await make_topic(http, partitions=partitions)
    per_batch = 80
    for number, first in enumerate(range(0, count, per_batch)):
        records = [
            Record(b"%09d" % n, (b'{"id": %d, "text": "' % n).ljust(180, b"x") + b'"}', START_MS + n)
            for n in range(first, min(count, first + per_batch))
        ]
        appended = begin_append(topic.stream(number % partitions), records)
        if not number % 50:
            await appended
    await appended


class Timed:
    """A scan, and how long it took."""

    def __init__(self, found: Browsed, seconds: float, gap_seconds: float) -> None:
        self.found = found
        self.seconds = seconds
        # The longest time between two lines.
        self.gap_seconds = gap_seconds


async def timed_scan(http: Http, query: str) -> Timed:
    began = last = time.perf_counter()
    lines, gap = [], 0.0
    async with http.session.get(f"{http.url}/topics/t/records?{query}") as answer:
        async for raw in answer.content:
            lines.append(msgspec.json.decode(raw))
            now = time.perf_counter()
            gap, last = max(gap, now - last), now
    return Timed(browsed(lines), time.perf_counter() - began, gap)


@in_uvloop
async def test_a_scan_does_not_block_the_server_and_two_share_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with http_node(tmp_path) as http:
        count = repetitions(quick=100_000, full=1_000_000)
        await fill(http, count)
        metrics = http.node._stalls._metrics
        report = []
        for query, matched in (
            ("value=nothing+like+this", 0),
            ("from=oldest&value=%22id%22:+77777,", 1),
            ("from=oldest&path=$.id&contains=777777777", 0),
            ("limit=50", 50),
        ):
            await asyncio.sleep(0.05)
            metrics.stall_seconds_max = 0.0
            scan = await timed_scan(http, query)
            await asyncio.sleep(0.05)
            progress = scan.found.progress[-1]
            assert progress["matched"] == matched
            assert scan.gap_seconds < 1.0
            rate = progress["scanned"] / scan.seconds
            report.append(
                f"{query}: {progress['scanned']} records in {scan.seconds:.2f} s ({rate:,.0f} records/s), "
                f"longest stall {metrics.stall_seconds_max * 1000:.1f} ms"
            )
            assert metrics.stall_seconds_max < STALL_SECONDS_MAX, report
            if query == "limit=50":
                assert progress["scanned"] < 2_000, "only the ends of the partitions are read"
        query = "from=oldest&path=$.id&contains=777777777"
        first, second = await asyncio.gather(timed_scan(http, query), timed_scan(http, query))
        report.append(f"two scans at once: {first.seconds:.2f} s and {second.seconds:.2f} s")
        assert abs(first.seconds - second.seconds) < 0.5 * max(first.seconds, second.seconds), report
    with capsys.disabled():
        print("\n" + "\n".join(report))
