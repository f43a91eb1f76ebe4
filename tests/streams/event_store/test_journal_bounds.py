"""The journal and its topics under retention of either and moves between directories."""

import asyncio
from pathlib import Path

import pytest

from kwire.broker.maintenance.retention import Retention
from kwire.broker.topics.topics import Topic
from kwire.errors import OffsetOutOfRange
from kwire.streams.event_store import sync_checkpoint
from tests.broker.test_relocation import begin, idle, place, started
from tests.support.batches import run_now
from tests.support.event_store import all_events, draft, drafts, events_of, journal_of, payloads_of
from tests.support.events import stream_of
from tests.support.node import QuietNode, in_loop

HOUR_MS = 3_600_000
SEGMENT_BYTES = 1024 * 1024
# Three of these fill a segment of the journal.
LARGE = "x" * (SEGMENT_BYTES // 3)
SETTINGS = (f"kwire.events.retention.ms={HOUR_MS}", f"log.segment.bytes={SEGMENT_BYTES}")


async def retain(node: QuietNode) -> None:
    kept = Retention(node.topics, node.clock, run_now, 300_000, node.store, node.files)
    try:
        await kept.round()
    finally:
        kept.close()


def found(node: QuietNode, name: str) -> Topic:
    topic = node.topics.get(name)
    assert topic is not None
    return topic


@in_loop
async def test_retention_takes_old_events_from_the_journal_and_not_from_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with QuietNode(tmp_path, *SETTINGS) as node:
        await node.create_event_topic("a", retention_ms="-1")
        for number in range(10):
            await node.event_store.publish(drafts(("a", [number, LARGE]), ("a", number)))
        node.clock.advance(2 * HOUR_MS)
        # The topic has not been synced: after a power failure only the journal has its events.
        await retain(node)
        assert journal_of(node.topics).log_start_offset == 0
        monkeypatch.setattr(sync_checkpoint.SyncCheckpoint.request_syncs_if_due, "__defaults__", (1000,))
        await node.event_store.publish([draft("a", "new")])
        before = events_of(found(node, "a"))
        mark = node.event_store.pipeline.checkpoint.position
        assert mark > 0
        await retain(node)
        oldest = journal_of(node.topics).log_start_offset
        assert 0 < oldest <= mark
        for _ in range(2):
            assert events_of(found(node, "a")) == before
            in_order = all_events(node.event_store, node.topics)
            assert [event.offset for event in in_order] == list(range(oldest, 21))
            assert [event.data for event in in_order] == [event.data for event in before[oldest:]]
            with pytest.raises(OffsetOutOfRange):
                node.event_store.global_reader(stream_of(journal_of(node.topics)), oldest - 1).read()
            node.restart()
            await node.event_store.open()
        assert (await node.event_store.store([draft("a", "later")])).position == 21


@in_loop
async def test_a_topic_that_retention_has_emptied_goes_on_with_its_numbers(tmp_path: Path) -> None:
    with QuietNode(tmp_path, f"log.segment.bytes={SEGMENT_BYTES}") as node:
        await node.create_event_topic("a", retention_ms=str(HOUR_MS))
        for number in range(5):
            await node.event_store.publish([draft("a", [number, LARGE])])
        node.clock.advance(2 * HOUR_MS)
        await retain(node)
        assert events_of(found(node, "a")) == []
        # Recovery reads the whole journal and adds nothing.
        node.restart()
        await node.event_store.open()
        assert node.event_store.pipeline.checkpoint.position == 0
        assert events_of(found(node, "a")) == []
        (following,) = await node.event_store.publish([draft("a", "next", expected_version=4)])
        assert str(following) == "a-6"
        assert payloads_of(found(node, "a")) == ["next"]
        assert [event.event_id for event in all_events(node.event_store, node.topics)] == [
            f"a-{n}" for n in range(1, 7)
        ]


@in_loop
async def test_topics_and_the_journal_move_between_directories_while_events_come(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        for name in ("a", "b"):
            await node.create_event_topic(name)
        await node.event_store.publish(drafts(("a", -1), ("b", -1)))
        parts = [found(node, "a").partitions[0], journal_of(node.topics)]
        places = [place(one) for one in parts]
        moved, published = asyncio.Event(), 0

        async def publish(writer: int) -> None:
            nonlocal published
            while not moved.is_set():
                await node.event_store.publish(drafts(("a", writer), ("b", writer), ("a", "x" * 3000)))
                published += 1

        writers = [asyncio.ensure_future(publish(writer)) for writer in range(3)]
        for one in parts:
            await begin(node, one)
        await idle(node.relocations)
        moved.set()
        await asyncio.gather(*writers)
        assert published
        assert not set(zip(parts, places, strict=True)) & {(one, place(one)) for one in parts}
        await node.event_store.publish(drafts(("a", "last"), ("b", "last")))
        before = [events_of(found(node, name)) for name in ("a", "b")]
        in_order = all_events(node.event_store, node.topics)
        assert (len(before[0]), len(before[1]), len(in_order)) == (2 * published + 2, published + 2, 3 * published + 4)
        node.restart()
        await node.event_store.open()
        assert [events_of(found(node, name)) for name in ("a", "b")] == before
        assert all_events(node.event_store, node.topics) == in_order
