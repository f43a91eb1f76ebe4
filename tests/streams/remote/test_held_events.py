"""Events that a Fetch shows before the answer to their Produce: the publisher gets its answer first."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kwire.streams.log import StreamRead
from kwire.streams.remote import log as remote_log
from kwire.streams.remote.batch_cache import BatchCache
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote.partition_queue import PartitionQueue, WaitingBytes
from storage.batch.builder import build_batch_from_bodies, encode_record_body
from tests.support.node import in_loop

TOPIC_ID = bytes(16)


class Followed:
    """A followed log whose batch was sent and not answered. `calls` has what happened, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.called = asyncio.Event()
        followers = SimpleNamespace(is_fetching=lambda log: True, add=lambda log: None, remove=lambda log: None)
        logs = cast(RemoteLogs, SimpleNamespace(followers=followers, cache=BatchCache(1024)))
        self.queue = PartitionQueue("lobby-0", 1024, WaitingBytes())
        self.log = RemoteLog(logs, "lobby", TOPIC_ID, 0, self.queue)
        self.log.is_known, self.log.position = True, 0
        self.log.watch(self._watched)
        self.queue.use_producer(1, 0)
        batch, header = build_batch_from_bodies([encode_record_body(None, b"hello", 0, b"")], 1)
        self.queue.add(memoryview(batch), header, self._appended, 0.0)
        self.queue.take()

    def _appended(self, outcome: Any) -> None:
        self.calls.append(f"answered {outcome}")

    def _watched(self, log: Any) -> None:
        self.calls.append(f"events before {log.committed_end}")
        self.called.set()

    def fetch(self, end: int) -> None:
        self.log.fetched(100, 1, end)
        self.log.follow(0, end, end)


@in_loop
async def test_events_wait_for_the_answer_to_their_publisher() -> None:
    one = Followed()
    one.fetch(2)
    assert (one.calls, one.log.bounds().committed_end) == ([], 0)
    found = one.log.read(0, 1024)
    assert isinstance(found, StreamRead)
    assert (len(found.records), found.next_offset) == (0, 0)
    # As the producer does with an answer. The second event is of another client.
    one.log.stored(0, 1, 100, 1)
    one.queue.stored(0)
    one.log.release()
    assert one.calls == ["answered 0", "events before 2"]
    # Without a batch that waits, nothing is held.
    one.fetch(3)
    assert one.calls[-1] == "events before 3"


@in_loop
async def test_events_of_others_do_not_wait_long_for_a_broker_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_log, "HOLD_SECONDS_MAX", 0.01)
    one = Followed()
    one.fetch(1)
    assert one.calls == []
    async with asyncio.timeout(10):
        await one.called.wait()
    assert one.calls == ["events before 1"]
    # Until the answer arrives, nothing is held again.
    one.fetch(2)
    assert one.calls[-1] == "events before 2"
