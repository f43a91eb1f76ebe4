"""GET /topics/{topic}/partitions/{partition}/segments describes the files in the folder of the partition."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.admin import segments
from storage.log.quarantine import Quarantine
from tests.support.http import Http, http_node
from tests.support.kafka_request_cases import NEW_TOPIC
from tests.support.node import in_uvloop

PATH = "/topics/logs/partitions/0/segments"
EVENT = {"event_type": "made", "data": "x" * 500}


async def with_segments(http: Http, count: int) -> None:
    """Create a topic whose partition has this many segments, and wait until the closed ones have their seals."""
    created = await http.post("/kafka/CreateTopics", {"topics": [{**NEW_TOPIC, "name": "logs"}]})
    assert created.json["topics"][0]["error_code"] == 0, created
    topic = http.node._shared.services.topics.get("logs")
    assert topic is not None
    for number in range(count):
        if number:
            topic.partitions[0].maintenance().roll(number)
        assert (await http.post("/topics/logs/publish", [EVENT, EVENT])).status == 200
    async with asyncio.timeout(20):
        while any(one.is_seal_pending for one in topic.partitions[0].maintenance().segments()):
            await asyncio.sleep(0.01)


def file_of(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / "logs-0" / f"{base_offset:020}.{suffix}"


async def segments_of(http: Http, query: str = "") -> Any:
    answer = await http.get(PATH + query)
    assert answer.status == 200, answer
    return answer.json


@in_uvloop
async def test_segments_are_those_on_disk(tmp_path: Path) -> None:
    before_ms = 1_600_000_000_000
    async with http_node(tmp_path) as http:
        await with_segments(http, 3)
        found = await segments_of(http)
        assert (found["topic"], found["partition"], found["segment_count"], found["next"]) == ("logs", 0, 3, None)
        names = sorted(int(path.stem) for path in (tmp_path / "logs-0").glob("*.log"))
        listed = found["segments"]
        assert [one["base_offset"] for one in listed] == names
        assert [one["next_offset"] for one in listed[:-1]] == names[1:]
        assert [one["state"] for one in listed] == ["sealed", "sealed", "active"]
        for one in listed:
            assert before_ms < one["first_timestamp_ms"] <= one["max_timestamp_ms"]
            assert one["quarantined"] == []
        for one in listed[:-1]:
            assert one["size_bytes"] == file_of(tmp_path, one["base_offset"], "log").stat().st_size
            assert one["index_bytes"] == file_of(tmp_path, one["base_offset"], "index").stat().st_size > 0
            assert one["transaction_index_bytes"] == 0
        times = [one["max_timestamp_ms"] for one in listed]
        assert times == sorted(times)


@in_uvloop
async def test_an_empty_partition_has_no_segments(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        await http.post("/kafka/CreateTopics", {"topics": [{**NEW_TOPIC, "name": "logs"}]})
        found = await segments_of(http)
        assert found["segment_count"] == len(found["segments"]) <= 1
        for one in found["segments"]:
            assert (one["size_bytes"], one["first_timestamp_ms"], one["max_timestamp_ms"]) == (0, None, None)


@in_uvloop
async def test_segments_have_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENTS_PER_JOB", 2)
    async with http_node(tmp_path) as http:
        await with_segments(http, 4)
        whole = (await segments_of(http))["segments"]
        first = await segments_of(http, "?limit=3")
        assert first["segments"] == whole[:3]
        assert first["next"] == whole[2]["base_offset"]
        rest = await segments_of(http, f"?limit=3&after={first['next']}")
        assert (rest["segments"], rest["next"]) == (whole[3:], None)
        for wrong in ("limit=0", "limit=1001", "after=-2", "colour=red"):
            assert (await http.get(f"{PATH}?{wrong}")).status == 400


@in_uvloop
async def test_quarantined_ranges_are_listed_with_their_segment(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        await with_segments(http, 2)
        topic = http.node._shared.services.topics.get("logs")
        assert topic is not None
        end = (await segments_of(http))["segments"][0]["next_offset"]
        topic.partitions[0].maintenance().quarantine(Quarantine(0, 0, 600, 0, 1, "the CRC does not match"))
        first, second = (await segments_of(http))["segments"]
        assert first["quarantined"] == [
            {"position": 0, "size_bytes": 600, "start_offset": 0, "end_offset": 1, "reason": "the CRC does not match"}
        ]
        assert (second["quarantined"], second["base_offset"]) == ([], end)


@in_uvloop
async def test_a_segment_that_was_removed_meanwhile_is_left_out(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        await with_segments(http, 3)
        removed = (await segments_of(http))["segments"][0]["base_offset"]
        os.unlink(file_of(tmp_path, removed, "log"))
        found = (await segments_of(http))["segments"]
        assert removed not in [one["base_offset"] for one in found]
        assert len(found) == 2


@in_uvloop
async def test_what_does_not_exist_or_is_internal_is_refused(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        assert (await http.get(PATH)).status == 404
        await http.post("/topics/logs", {"num_partitions": 1})
        assert (await http.get(PATH)).status == 200
        assert (await http.get("/topics/logs/partitions/1/segments")).status == 404
        assert (await http.get("/topics/logs/partitions/x/segments")).status == 404
        assert (await http.get("/topics/__consumer_offsets/partitions/0/segments")).status == 400
