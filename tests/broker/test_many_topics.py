"""What thousands of idle topics cost: nothing that grows with them but some hundred bytes each.

Nothing here looks at a watch: it counts objects, files, timers and bytes, and compares few topics with many.
"""

import asyncio
import gc
import tracemalloc
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kwire import node as node_module
from kwire.broker.topics.topics import NewTopic, Topic
from kwire.metastore import captured_entries
from kwire.wire.messages.metadata import MetadataRequest
from storage.batch.record_batch import check_batch
from storage.disk.files import Files
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop, running_node
from tests.support.partition_log import log_of

FEW, MANY = 20, 1000
# Key, packed value and a place in the table of the store; id and place, and for a name with a dot its look and place.
BYTES_PER_TOPIC_MAX = 700
WITH_FOLDERS = 200


async def create(node: QuietNode, count: int) -> None:
    await node.topics.create([NewTopic(f"tenant.room-{number:05}", 1, {}) for number in range(count)])


def append(topic: Topic) -> None:
    batch = make_batch(timestamp_ms=0)
    topic.partitions[0].append(batch, check_batch(batch))


def watched(files: Files, calls: "Counter[str]") -> Files:
    """The same files, with a count of what is done to them."""

    class Watched:
        def __getattr__(self, name: str) -> Any:
            work = getattr(files, name)

            def counted(*arguments: Any, **named: Any) -> Any:
                calls[name] += 1
                return work(*arguments, **named)

            return counted

    made: Any = Watched()
    return made  # type: ignore[no-any-return]


@dataclass
class Footprint:
    file_calls: "Counter[str]"
    timers: int
    tasks: int
    live_topics: int
    open_logs: int


async def footprint(directory: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> Footprint:
    """What a server does at its start that finds so many topics, all of them with records."""
    with QuietNode(directory) as quiet:
        await create(quiet, count)
        for topic in quiet.topics:
            append(topic)
    calls: Counter[str] = Counter()
    monkeypatch.setattr(node_module, "Files", lambda: watched(Files(), calls))
    async with running_node(directory) as node:
        topics = node._shared.services.topics
        assert len(topics) == count
        loop: Any = asyncio.get_running_loop()
        timers = [timer for timer in loop._scheduled if not timer.cancelled()]
        return Footprint(
            calls.copy(), len(timers), len(asyncio.all_tasks()), topics.live_count, len(topics.open_partitions)
        )


@in_loop
async def test_start_does_not_touch_idle_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = await footprint(tmp_path / "few", FEW, monkeypatch)
    many = await footprint(tmp_path / "many", WITH_FOLDERS, monkeypatch)
    assert many == few
    assert many.live_topics == many.open_logs == 0


@in_loop
async def test_idle_topic_costs_some_hundred_bytes_and_no_object_of_its_own(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await create(node, FEW)
        await asyncio.sleep(0)
        before = objects_and_bytes(node)
        await node.topics.create([NewTopic(f"other.room-{number:05}", 1, {}) for number in range(MANY)])
        await asyncio.sleep(0)  # the loop holds the result of a task until its next turn
        after = objects_and_bytes(node)
        assert len(node.topics) == FEW + MANY
        assert node.topics.live_count == 0
        # Strings and bytes are no business of the garbage collector: only a handful of containers may be new.
        assert after[0] - before[0] < MANY / 10
        assert (after[1] - before[1]) / MANY < BYTES_PER_TOPIC_MAX


def objects_and_bytes(node: QuietNode) -> tuple[int, int]:
    """Objects the collector has to look at, and bytes of Python memory, of a node that has just been started."""
    tracemalloc.start()
    try:
        node.restart()
        gc.collect()
        return len(gc.get_objects()), tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@in_loop
async def test_describing_all_topics_makes_none_of_them_live(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await create(node, MANY)
        node.restart()
        for version in (0, 12):
            answer = await node.ask(MetadataRequest(topics=[] if version == 0 else None), version)
            assert [one.name for one in answer.topics] == node.topics.catalogue.names()
        assert len(node.topics.catalogue.folder_ids()) == MANY
        assert node.topics.live_count == 0


@in_loop
async def test_topic_is_live_as_long_as_somebody_needs_it(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await create(node, FEW)
        node.restart()
        name = node.topics.catalogue.names()[7]
        topic = node.topics.get(name)
        assert topic is not None
        assert node.topics.get(name) is topic
        assert node.topics.get_by_id(topic.topic_id) is topic
        partition = topic.partitions[0]
        topic_id = topic.topic_id
        del topic
        gc.collect()
        # Who holds a partition holds its topic: there is never a second object for the same log.
        again = node.topics.get_by_id(topic_id)
        assert again is not None
        assert again.partitions[0] is partition
        append(again)
        del again, partition
        gc.collect()
        assert node.topics.live_count == len(node.topics.open_partitions) == 1
        (opened,) = node.topics.open_partitions
        sync = log_of(opened).begin_sync()
        if sync is not None:
            sync.run()
            sync.finish()
        assert node.topics.park(opened)
        del opened
        gc.collect()
        assert node.topics.live_count == len(node.topics.open_partitions) == 0
        again = node.topics.get(name)
        assert again is not None
        assert not again.partitions[0].is_open
        assert again.partitions[0].size_bytes > 0
        assert again.partitions[0].log_end_offset == 1


@in_loop
async def test_topics_configured_alike_share_their_settings(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        one, two = await node.create("a", retention_ms="5"), await node.create("b", retention_ms="5")
        other = await node.create("c", retention_ms="6")
        assert one.settings is two.settings
        assert other.settings.retention_ms == 6
        await node.topics.configure(one, {})
        assert two.settings.retention_ms == 5
        assert one.settings.retention_ms != 5


@in_loop
async def test_catalogue_is_rewritten_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured_entries, "ENTRIES_PER_CHUNK", 10)
    with QuietNode(tmp_path) as node:
        await create(node, FEW)
        turns = 0
        live = asyncio.ensure_future(node.metastore.capture().frames())
        while not live.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > FEW // 10
        assert len(live.result()) == FEW + 1
