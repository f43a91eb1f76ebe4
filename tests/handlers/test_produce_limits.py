"""Produce of clients whose key has limits: records are counted, refused, throttled and uncounted."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.access.keys.key import KeyLimits, NewKey
from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode
from kwire.handlers.produce import handler
from kwire.handlers.shared.context import BlockingContinuation, DropConnection
from kwire.metastore import Change
from kwire.wire.messages.produce import ProduceResponse
from storage.errors import DiskFailure
from tests.handlers.test_produce import ALL, NO_ACKS, batch, request
from tests.support.node import QuietNode, in_loop

VERSION = 12


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path) as made:
        yield made


class Tenant:
    """A client that has logged in with a key. It produces to a topic of its scope."""

    def __init__(self, node: QuietNode, key_id: str, topic: Topic) -> None:
        self.node = node
        self.key_id = key_id
        self.topic = topic

    @classmethod
    async def create(cls, node: QuietNode, limits: KeyLimits) -> "Tenant":
        key = (await node.keys.create(NewKey("acme", limits))).key
        assert key.scope is not None
        node.become(key.principal)
        node.set_access(node.services.authorizer.access(key.principal, "192.0.2.7"))
        return cls(node, key.id, await node.create(key.scope.full_name("t"), 3))

    @property
    def used(self) -> int:
        return self.node.key_usage.events.used(self.key_id)

    async def produce(self, *batches: memoryview, acks: int = ALL) -> ProduceResponse:
        asked = request(self.topic, *batches, acks=acks)
        asked.topic_data[0].name = "t"
        answer: ProduceResponse = await self.node.ask(asked, VERSION)
        return answer

    async def codes(self, *batches: memoryview) -> list[ErrorCode]:
        answer = await self.produce(*batches)
        return [ErrorCode(one.error_code) for one in answer.responses[0].partition_responses]


@in_loop
async def test_records_count_as_events_and_the_limit_refuses_whole_requests(node: QuietNode) -> None:
    tenant = await Tenant.create(node, KeyLimits(max_events=10))
    assert await tenant.codes(batch(3), batch(4)) == [ErrorCode.NONE] * 2
    assert tenant.used == 7
    answer = await tenant.produce(batch(2), batch(2))
    refused = answer.responses[0].partition_responses
    assert [one.error_code for one in refused] == [ErrorCode.POLICY_VIOLATION] * 2
    assert "may publish 10" in (refused[0].error_message or "")
    assert tenant.used == 7
    assert await tenant.codes(batch(3)) == [ErrorCode.NONE]
    assert [one.high_watermark for one in tenant.topic.partitions] == [6, 4, 0]


@in_loop
async def test_batches_that_are_not_appended_or_are_repeated_are_not_counted(node: QuietNode) -> None:
    tenant = await Tenant.create(node, KeyLimits(max_events=100))
    broken = bytearray(batch(5))
    broken[-1] ^= 1
    codes = await tenant.codes(batch(2), memoryview(broken), memoryview(b""))
    assert codes == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD]
    assert tenant.used == 2
    for _ in range(3):
        sent = batch(4, producer_id=7, producer_epoch=0, base_sequence=0)
        assert await tenant.codes(sent) == [ErrorCode.NONE]
    assert tenant.used == 6


@in_loop
async def test_a_request_waits_until_the_count_is_stored(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = await Tenant.create(node, KeyLimits(max_events=100))
    begin, commit = asyncio.Event(), node.metastore.commit

    async def slow_commit(changes: list[Change], *more: object) -> int:
        await begin.wait()
        return await commit(changes, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(node.metastore, "commit", slow_commit)
    asked = request(tenant.topic, batch(2))
    asked.topic_data[0].name = "t"
    held = node.start(asked, VERSION)
    assert isinstance(held, BlockingContinuation)
    rest = asyncio.ensure_future(held.rest)
    await asyncio.sleep(0)
    assert tenant.topic.partitions[0].high_watermark == 0
    begin.set()
    await rest
    assert tenant.topic.partitions[0].high_watermark == 2


@in_loop
async def test_a_request_that_is_abandoned_is_not_counted(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = await Tenant.create(node, KeyLimits(max_events=100))
    is_counted = asyncio.Event()

    async def never() -> None:
        is_counted.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(handler, "yield_to_loop", never)
    asked = request(tenant.topic, batch(2))
    asked.topic_data[0].name = "t"
    held = node.start(asked, VERSION)
    assert isinstance(held, BlockingContinuation)
    rest = asyncio.ensure_future(held.rest)
    await asyncio.wait_for(is_counted.wait(), 10)
    assert tenant.used == 2
    rest.cancel()  # the connection was closed
    with pytest.raises(asyncio.CancelledError):
        await rest
    assert (tenant.used, tenant.topic.partitions[0].high_watermark) == (0, 0)


@in_loop
async def test_a_count_that_cannot_be_stored_refuses_the_request(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = await Tenant.create(node, KeyLimits(max_events=100))

    async def failed_commit(*_: object) -> int:
        raise DiskFailure("no space")

    monkeypatch.setattr(node.metastore, "commit", failed_commit)
    assert await tenant.codes(batch(2)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert (tenant.used, tenant.topic.partitions[0].high_watermark) == (0, 0)


@in_loop
async def test_above_the_rate_the_connection_is_muted_and_the_response_tells_for_how_long(node: QuietNode) -> None:
    tenant = await Tenant.create(node, KeyLimits(publish_rate=10))
    answer = await tenant.produce(batch(10))
    assert (answer.throttle_time_ms, node.peer.muted_s) == (0, 0.0)
    node.clock.advance(1000)
    answer = await tenant.produce(batch(30))
    assert (answer.throttle_time_ms, node.peer.muted_s) == (2000, 2.0)
    assert tenant.topic.partitions[0].high_watermark == 40


@in_loop
async def test_a_throttle_time_is_bounded_and_the_rate_is_kept_afterwards(node: QuietNode) -> None:
    tenant = await Tenant.create(node, KeyLimits(publish_rate=1))
    answer = await tenant.produce(batch(1001))
    assert (answer.throttle_time_ms, node.peer.muted_s) == (30_000, 30.0)
    node.clock.advance(30_000)
    assert await tenant.codes(batch(1)) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    await node.keys.set_limits(tenant.key_id, {"publish_rate": None})
    assert await tenant.codes(batch(1)) == [ErrorCode.NONE]


@in_loop
async def test_a_damaged_batch_does_not_use_up_the_rate(node: QuietNode) -> None:
    tenant = await Tenant.create(node, KeyLimits(publish_rate=10))
    # The numbers of the header are read before the CRC is checked.
    for last_offset_delta in (0, 2**31 - 2):
        broken = bytearray(batch(1))
        broken[23:27], broken[57:61] = last_offset_delta.to_bytes(4), (2**31 - 1).to_bytes(4)
        answer = await tenant.produce(memoryview(broken))
        (refused,) = answer.responses[0].partition_responses
        assert refused.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
        assert (answer.throttle_time_ms, node.peer.muted_s) == (0, 0.0)
    assert await tenant.codes(batch(10)) == [ErrorCode.NONE]


@in_loop
async def test_a_request_that_would_have_to_wait_longer_than_its_timeout_is_refused(node: QuietNode) -> None:
    tenant = await Tenant.create(node, KeyLimits(publish_rate=10))
    await tenant.produce(batch(50))
    # The timeout of the request is a second.
    answer = await tenant.produce(batch(1))
    (refused,) = answer.responses[0].partition_responses
    assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.throttle_time_ms == pytest.approx(4100, abs=1)
    assert tenant.topic.partitions[0].high_watermark == 50


@in_loop
async def test_a_request_waits_for_the_rate_within_its_timeout(node: QuietNode) -> None:
    tenant = await Tenant.create(node, KeyLimits(publish_rate=1000))
    await tenant.produce(batch(1050))
    asked = request(tenant.topic, batch(1))
    asked.topic_data[0].name = "t"
    held = node.start(asked, VERSION)
    assert isinstance(held, BlockingContinuation)
    rest = asyncio.ensure_future(held.rest)
    await asyncio.sleep(0)
    node.clock.advance(1000)
    await rest
    assert tenant.topic.partitions[0].high_watermark == 1051


@in_loop
async def test_without_acks_a_refused_request_closes_the_connection(node: QuietNode) -> None:
    tenant = await Tenant.create(node, KeyLimits(max_events=1))
    with pytest.raises(DropConnection, match="POLICY_VIOLATION"):
        await tenant.produce(batch(2), acks=NO_ACKS)
    assert tenant.used == 0
    assert await tenant.codes(batch(1)) == [ErrorCode.NONE]
