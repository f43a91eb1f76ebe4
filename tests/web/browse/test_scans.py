"""Scans of records over HTTP: their order, their filters, and that pages neither leave out nor repeat records."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from storage.batch.format import GZIP, LZ4, NONE, SNAPPY, ZSTD
from storage.batch.record_batch import Record
from tests.support.clients import unique_name
from tests.support.effort import repetitions
from tests.support.engines import Engine
from tests.support.foreign_clients import ForeignTransactions
from tests.support.http import Http
from tests.support.node import in_uvloop
from tests.web.browse.records_port import START_MS, Browsed, browse, make_topic, put

WAIT_S = 10.0


def numbered(first: int, count: int, *, pad: int = 0) -> list[Record]:
    """Records with ascending timestamps."""
    return [
        Record(b"key-%d" % n, b'{"n": %d, "pad": "%b"}' % (n, b"x" * pad), START_MS + n)
        for n in range(first, first + count)
    ]


def numbers(found: Browsed) -> list[int]:
    return [one["value"]["data"]["n"] for one in found.records]


async def make_numbered(http: Http, count: int = 100, partitions: int = 3, per_batch: int = 4) -> None:
    topic = await make_topic(http, partitions=partitions)
    for number, first in enumerate(range(0, count, per_batch)):
        await put(topic, number % partitions, numbered(first, min(per_batch, count - first)))


@in_uvloop
async def test_the_newest_records_of_all_partitions_come_first(engine: Engine) -> None:
    async with engine.http() as http:
        await make_numbered(http)
        found = await browse(http)
        assert numbers(found) == list(range(99, 49, -1))
        assert found.end["reason"] == "limit"
        assert numbers(await browse(http, f"next={found.next}")) == list(range(49, -1, -1))
        found = await browse(http, "limit=1000")
        assert (numbers(found), found.end["reason"]) == (list(range(99, -1, -1)), "end")
        assert found.progress[-1]["scanned"] == found.progress[-1]["matched"] == 100
        assert (await browse(http, "limit=0")).records == []
        found = await browse(http, "partition=1")
        assert {one["partition"] for one in found.records} == {1}
        assert {one["partition"] for one in (await browse(http, "partition=0,2")).records} == {0, 2}
        assert {one["partition"] for one in (await browse(http, "partition=0&partition=2")).records} == {0, 2}


@in_uvloop
async def test_a_scan_begins_at_an_offset_or_a_time(engine: Engine) -> None:
    async with engine.http() as http:
        await make_numbered(http, partitions=1)
        assert numbers(await browse(http, "from=oldest&limit=3")) == [0, 1, 2]
        assert numbers(await browse(http, "from=42&limit=2")) == [42, 43]
        assert numbers(await browse(http, "from=-2")) == [98, 99]
        assert numbers(await browse(http, "from=-1000&limit=1")) == [0]
        assert numbers(await browse(http, f"from={START_MS + 17}ms&limit=1")) == [17]
        assert numbers(await browse(http, "from=2025-06-15T15:06:40.017Z&limit=1")) == [17]
        assert numbers(await browse(http, "from=2025-06-15T17:06:40.017%2B02:00&limit=1")) == [17]
        assert (await browse(http, "from=100")).end == {"reason": "end", "next": {"0": 100}}
        assert (await browse(http, "from=5000")).records == []
        found = await browse(http, "from=oldest&limit=60")
        assert numbers(await browse(http, f"from=oldest&next={found.next}")) == list(range(60, 100))


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@in_uvloop
async def test_filters_run_in_batches_of_every_codec(engine: Engine, codec: int) -> None:
    async with engine.http() as http:
        topic = await make_topic(http)
        # The second batch is decompressed in a thread.
        await put(topic, 0, numbered(0, 50), codec)
        await put(topic, 0, numbered(50, 600, pad=1000), codec)
        await put(topic, 0, [Record(None, None, START_MS + 700), *numbered(701, 3)], codec)
        for query, expected in (
            ("value=%22n%22:+649,", [649]),
            ("key=key-64&from=oldest", [64, *range(640, 650)]),
            ("key=key-64", [*range(649, 639, -1), 64]),
            ("path=$.n&equals=602", [602]),
            ("path=$.n&contains=02&key=7", [702]),
            ("value=nothing+like+this", []),
            ("path=$.pad&equals=&from=oldest", None),
        ):
            if expected is None:
                assert (await http.get(f"/topics/t/records?{query}")).status == 400
                continue
            found = await browse(http, query)
            assert (numbers(found), found.end["reason"]) == (expected, "end"), query
            assert found.progress[-1]["scanned"] == 654, query


@in_uvloop
async def test_headers_are_shown_and_filtered(engine: Engine) -> None:
    async with engine.http() as http:
        topic = await make_topic(http)
        await put(topic, 0, [Record(None, b"a", START_MS, [("trace", b"abc"), ("bin", b"\xff"), ("none", None)])])
        await put(topic, 0, [Record(None, b"b", START_MS, [("trace", b"def")])])
        found = await browse(http, "header.trace=b")
        assert [one["value"]["data"] for one in found.records] == ["a"]
        assert found.records[0]["headers"] == [
            {"name": "trace", "value": {"encoding": "text", "data": "abc", "size_bytes": 3}},
            {"name": "bin", "value": {"encoding": "base64", "data": "/w==", "size_bytes": 1}},
            {"name": "none", "value": None},
        ]
        assert len((await browse(http, "header.trace=")).records) == 2
        assert len((await browse(http, "header.bin=&header.trace=")).records) == 1
        assert len((await browse(http, "header.Trace=")).records) == 0


@asynccontextmanager
async def transactions_of(engine: Engine, http: Http) -> AsyncIterator[ForeignTransactions]:
    transactions = ForeignTransactions(engine.bootstrap_of(http.server), unique_name("browse"))
    try:
        yield transactions
    finally:
        await transactions.stop()


@in_uvloop
async def test_uncommitted_records_are_shown_on_request(engine: Engine) -> None:
    async with engine.http() as http, transactions_of(engine, http) as transactions:
        topic = await make_topic(http)
        await put(topic, 0, numbered(0, 2))
        await transactions.send("t", 0, [b"aborted", b"aborted"], START_MS)
        await transactions.end(0, is_commit=False)
        async with asyncio.timeout(WAIT_S):
            # Apache Kafka writes the marker after it has answered.
            while (await http.get("/topics/t/partitions/0/offsets")).json["end_offset"] != 5:
                await asyncio.sleep(0.01)
        await put(topic, 0, numbered(5, 1))
        await transactions.send("t", 1, [b"open"], START_MS)
        await put(topic, 0, numbered(7, 1))
        for direction, order in (("newest", -1), ("oldest", 1)):
            committed = await browse(http, f"from={direction}")
            assert [offset for _, offset in committed.places] == [0, 1, 5][::order]
            everything = await browse(http, f"from={direction}&isolation=read_uncommitted")
            assert [offset for _, offset in everything.places] == [0, 1, 2, 3, 5, 6, 7][::order]
        one = "/topics/t/partitions/0/records/"
        assert (await http.get(f"{one}6")).code == "RecordNotFound"
        assert (await http.get(f"{one}6?isolation=read_uncommitted")).status == 200
        assert (await http.get(f"{one}2")).code == "RecordNotFound", "an aborted record"


@in_uvloop
async def test_records_that_retention_has_removed_are_left_out(engine: Engine) -> None:
    async with engine.http() as http:
        topic = await make_topic(http)
        for first in range(0, 100, 10):
            await put(topic, 0, numbered(first, 10))
        start = 35
        await engine.delete_before(http.server, "t", start)
        assert numbers(await browse(http, "from=oldest&limit=1")) == [start]
        assert numbers(await browse(http, "limit=1000")) == list(range(99, start - 1, -1))


@in_uvloop
async def test_pages_of_random_scans_agree_with_a_naive_twin(engine: Engine) -> None:
    """In both directions, with every codec and page size, each record that passes comes once, in order."""
    seed = int(os.environ.get("KWIRE_TEST_SEED") or random.randrange(1 << 32))
    print(f"KWIRE_TEST_SEED={seed}")
    chance = random.Random(seed)
    async with engine.http() as http:
        for number in range(repetitions(quick=4, full=20)):
            await _scan_random_topic(http, f"random-{number}", chance)


async def _scan_random_topic(http: Http, name: str, chance: random.Random) -> None:
    partitions = chance.choice((1, 2, 5))
    topic = await make_topic(http, name, partitions)
    made: list[tuple[int, int, int, bytes]] = []
    ends = [0] * partitions
    now_ms = START_MS
    for _ in range(chance.randrange(1, 40)):
        partition = chance.randrange(partitions)
        records = []
        for _ in range(chance.choice((1, 1, 3, 20, 200))):
            # Equal timestamps have no order between partitions, so timestamps differ.
            now_ms += chance.randrange(1, 5)
            value = b"%d" % chance.randrange(1000) + b"y" * chance.choice((0, 10, 3000))
            records.append(Record(None, value, now_ms))
            made.append((now_ms, partition, ends[partition], value))
            ends[partition] += 1
        await put(topic, partition, records, chance.choice((NONE, NONE, GZIP, SNAPPY, LZ4, ZSTD)))
    for _ in range(4):
        needle = chance.choice(("", "1", "77", "999", "never"))
        expected = [(partition, offset) for _, partition, offset, value in made if needle.encode() in value]
        is_newest = chance.random() < 0.5
        query = f"from={'newest' if is_newest else 'oldest'}&limit={chance.choice((1, 7, 50, 10_000))}"
        query += f"&value={needle}" if needle else ""
        found = await browse(http, query, name)
        places = found.places
        for _ in range(12):
            if found.end["reason"] == "end":
                break
            found = await browse(http, f"{query}&next={found.next}", name)
            places += found.places
        expected = expected[::-1] if is_newest else expected
        if found.end["reason"] != "end":
            expected = expected[: len(places)]
        assert places == expected, (name, query)
