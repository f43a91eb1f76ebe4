"""Reads of remote logs: quotas of the cluster, tiered storage, compaction, brokers that do not answer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kwire.access.quotas.entities import entity_of
from kwire.access.quotas.quotas import Alteration
from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.admin import Admin
from kwire.streams.remote.leader_requests import EARLIEST_LOCAL, BrokerSlots
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote.partition_queue import State
from kwire.streams.remote.reads import READS_MAX
from kwire.wire.messages.fetch import FETCH, FetchRequest, FetchResponse
from kwire.wire.messages.list_offsets import LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse
from tests.support.edited_responses import edit_responses
from tests.support.node import in_uvloop, running_node
from tests.support.remote_worlds import remote_logs, until
from tests.support.stream_worlds import NOW_MS, Appends, read_once, read_values

KIB = 1024
# A short window, so that a quota is over soon.
QUOTA_WINDOW = ("quota.window.num=2", "quota.window.size.seconds=1")
LARGE = [bytes([number]) * 20 * KIB for number in range(2)]


@asynccontextmanager
async def upstream(directory: Path) -> AsyncIterator[RemoteLogs]:
    async with running_node(directory) as node:
        with remote_logs(node.kafka_listeners[0].address) as logs:
            yield logs
            await logs.close()


async def append_all(log: RemoteLog, values: Sequence[bytes]) -> None:
    """Append one batch after the other."""
    appends = Appends()
    for count, value in enumerate(values, 1):
        appends.send(log, value, at_ms=NOW_MS)
        await until(lambda: log.queue.state is State.IDLE)
        assert len(appends) == count


async def written(logs: RemoteLogs, name: str, *values: bytes) -> RemoteLog:
    await Admin(logs.cluster).create_topic(name, 1, {"retention.ms": "-1"})
    log = await logs.open(name)
    await log.ready()
    await append_all(log, values)
    await log.ask_bounds()
    assert log.committed_end == len(values)
    return log


@asynccontextmanager
async def upstream_with_quota(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator["Quota"]:
    async with running_node(directory, *QUOTA_WINDOW) as node:
        with remote_logs(node.kafka_listeners[0].address) as logs:
            limit = Alteration(entity_of([("user", "ANONYMOUS")]), {"consumer_byte_rate": 15.0 * KIB})
            await node._shared.services.quotas.alter([limit])
            quota = Quota(logs)
            edit_responses(monkeypatch, {FETCH: quota.note})
            yield quota
            await logs.close()


class Quota:
    """What a cluster with a quota answers."""

    def __init__(self, logs: RemoteLogs) -> None:
        self.logs = logs
        self.throttled = 0

    def note(self, _: FetchRequest, response: FetchResponse) -> FetchResponse:
        if response.throttle_time_ms:
            assert not response.responses
            self.throttled += 1
        return response


@in_uvloop
async def test_a_read_above_a_quota_of_the_cluster_waits_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream_with_quota(tmp_path, monkeypatch) as quota:
        log = await written(quota.logs, "orders", *LARGE)
        assert await read_values(log) == list(enumerate(LARGE))
        assert quota.throttled


@in_uvloop
async def test_a_followed_log_above_a_quota_of_the_cluster_stays_in_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream_with_quota(tmp_path, monkeypatch) as quota:
        followers = quota.logs.followers
        log = await written(quota.logs, "orders")
        log.watch(lambda _: None)
        await until(lambda: followers.is_fetching(log))
        [fetcher] = followers._fetchers.values()
        await until(lambda: fetcher._session._id)
        session_id = fetcher._session._id
        await append_all(log, LARGE)
        await until(lambda: log.position == len(LARGE))
        assert await read_values(log) == list(enumerate(LARGE))
        assert 1 <= quota.throttled <= len(LARGE), "the pauses are waited for"
        assert fetcher._session._id == session_id
        assert followers.is_fetching(log)


@in_uvloop
async def test_a_throttle_time_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(tmp_path) as logs:
        log = await written(logs, "orders", b"first")
        loop = asyncio.get_running_loop()
        asked_at: list[float] = []

        def throttle(_: FetchRequest, response: FetchResponse) -> FetchResponse:
            asked_at.append(loop.time())
            return FetchResponse(throttle_time_ms=400, responses=[]) if len(asked_at) == 1 else response

        edit_responses(monkeypatch, {FETCH: throttle})
        assert await read_values(log) == [(0, b"first")]
        assert asked_at[1] - asked_at[0] >= 0.4


@in_uvloop
async def test_a_throttle_time_that_is_too_long_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(tmp_path) as logs:
        log = await written(logs, "orders", b"first")
        edit_responses(monkeypatch, {FETCH: lambda *_: FetchResponse(throttle_time_ms=3_600_000, responses=[])})
        with pytest.raises(KafkaError) as refused:
            await read_once(log, 0)
        assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED


@in_uvloop
async def test_readers_are_told_about_an_unexpected_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(tmp_path) as logs:
        log = await written(logs, "orders", b"first")

        def without_partitions(_: FetchRequest, response: FetchResponse) -> FetchResponse:
            response.responses[0].partitions.clear()
            return response

        edit_responses(monkeypatch, {FETCH: without_partitions})
        with pytest.raises(KafkaError) as failed:
            await asyncio.wait_for(read_once(log, 0), timeout=10)
        assert failed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


class SlowTier:
    """The leader has the records from `local_start` on. Older ones arrive with the third request for them."""

    def __init__(self, local_start: int) -> None:
        self.local_start = local_start
        self.fetches = 0

    def fetch(self, request: FetchRequest, response: FetchResponse) -> FetchResponse:
        [asked] = request.topics[0].partitions
        if asked.fetch_offset < self.local_start:
            assert request.max_wait_ms > 0
            self.fetches += 1
            if self.fetches < 3:
                response.responses[0].partitions[0].records = b""
        return response

    def list_offsets(self, request: ListOffsetsRequest, response: ListOffsetsResponse) -> ListOffsetsResponse:
        if request.topics[0].partitions[0].timestamp == EARLIEST_LOCAL:
            response.topics[0].partitions[0].offset = self.local_start
        return response


@in_uvloop
async def test_records_in_slow_tiered_storage_are_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(tmp_path) as logs:
        log = await written(logs, "orders", b"old", b"older", b"new")
        tier = SlowTier(local_start=2)
        edit_responses(monkeypatch, {FETCH: tier.fetch, LIST_OFFSETS: tier.list_offsets})
        assert await read_values(log) == [(0, b"old"), (1, b"older"), (2, b"new")]
        assert tier.fetches == 3


@in_uvloop
async def test_a_gap_in_the_log_of_the_leader_ends_at_the_last_stable_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream(tmp_path) as logs:
        log = await written(logs, "orders", b"a", b"b")

        def compacted(_: FetchRequest, response: FetchResponse) -> FetchResponse:
            response.responses[0].partitions[0].records = b""
            return response

        edit_responses(monkeypatch, {FETCH: compacted})
        read = await read_once(log, 0)
        assert (bytes(read.records), read.next_offset) == (b"", 2)


@in_uvloop
async def test_reads_that_are_repeated_do_not_hold_up_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(tmp_path) as logs:
        others = [await written(logs, f"slow{number}", b"x") for number in range(READS_MAX)]
        log = await written(logs, "orders", b"first")
        refused: list[Any] = []

        def refuse(_: FetchRequest, response: FetchResponse) -> FetchResponse:
            if response.responses[0].topic_id != log.topic_id:
                refused.append(response)
                response.responses[0].partitions[0].error_code = ErrorCode.OFFSET_NOT_AVAILABLE
            return response

        edit_responses(monkeypatch, {FETCH: refuse})
        waiting = [asyncio.create_task(read_once(one, 0)) for one in others]
        await until(lambda: len(refused) >= READS_MAX)
        assert await asyncio.wait_for(read_values(log), timeout=10) == [(0, b"first")]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@in_uvloop
async def test_the_slots_of_a_broker_are_its_own() -> None:
    slots = BrokerSlots(2)
    async with slots.of(1), slots.of(1):
        async with slots.of(2):
            pass
        third = asyncio.create_task(slots.of(1).__aenter__())
        await asyncio.sleep(0)
        assert not third.done()
    await third
