"""Connections of clients with a scope: templates, large requests, waiting responses, and defects of handlers."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kwire.access.access import Access, Unrestricted
from kwire.access.authorizer import OpenAuthorizer
from kwire.access.principal import KEY, Principal
from kwire.access.scoped_access import ScopedAccess
from kwire.handlers import HANDLERS
from kwire.handlers.shared.context import Context, Handler
from kwire.server.kafka.routes import ELEMENTS_AT_ONCE_MAX
from kwire.wire.apis import METADATA
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kwire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kwire.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kwire.wire.schema import message_of
from storage.batch.record_batch import Record, build_batch
from tests.server.fakes import FakeClient, shared_of
from tests.server.frames import frame, parse, split
from tests.support.node import QuietNode, in_loop
from tests.support.scopes import A, B, Client

WAIT_S = 20.0
SCOPES = {"a": A, "b": B}


class Authorizer(OpenAuthorizer):
    """Keys are clients with the scope of the same name."""

    def access(self, principal: Principal, host: str) -> Access:
        if principal.type != KEY:
            return Unrestricted(principal, host)
        return ScopedAccess(principal, host, SCOPES[principal.name])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path) as made:
        made.services = replace(made.services, authorizer=Authorizer())
        yield made


class TenantClient(FakeClient):
    """A client that has logged in with the key of a scope."""

    def __init__(self, node: QuietNode, name: str, handlers: dict[int, Handler] | None = None) -> None:
        super().__init__(shared_of(node.services, handlers or HANDLERS))
        self.log_in(name)
        self._count = 0

    def log_in(self, name: str) -> None:
        self.connection.set_principal(Principal(KEY, name))

    async def ask(self, request: Any, version: int) -> Any:
        self._count += 1
        self.send(frame(request, version, self._count))
        await self.until(lambda: len(self.received()) == self._count)
        response = HANDLERS[message_of(type(request)).key].api.response
        return parse(response, version, split(bytes(self.transport.sent))[-1])

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0)


def produce_request(name: str, topic_id: bytes, *partitions: int) -> ProduceRequest:
    records = build_batch([Record(None, b"v")])
    data = [PartitionProduceData(index=index, records=records) for index in partitions]
    topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


@pytest.mark.parametrize("version", [7, 9, 12, 13])
@in_loop
async def test_repeated_produce_uses_the_template(node: QuietNode, version: int) -> None:
    own = await node.create(A.full_name("orders"), 3)
    other = await node.create("orders", 3)
    client = TenantClient(node, "a")
    topic_id = own.topic_id if version >= 13 else bytes(16)
    for number in range(5):
        response: ProduceResponse = await client.ask(produce_request("orders", topic_id, 0, 1), version)
        (topic,) = response.responses
        assert topic.name == ("orders" if version < 13 else "")
        assert [(one.error_code, one.base_offset) for one in topic.partition_responses] == [(0, number)] * 2
    cache: Any = client.connection._template_cache
    assert cache is not None
    assert cache._template is not None
    assert [one.high_watermark for one in own.partitions] == [5, 5, 0]
    assert [one.high_watermark for one in other.partitions] == [0, 0, 0]
    # An error of a templated request has plain names, too.
    response = await client.ask(produce_request("orders", topic_id, 7), version)
    assert response.responses[0].partition_responses[0].error_code != 0


@pytest.mark.parametrize("version", [5, 8, 10])
@in_loop
async def test_repeated_offset_commit_uses_the_template(node: QuietNode, version: int) -> None:
    await node.topics.offsets_topic()
    topic = await node.create(A.full_name("orders"), 1)
    client = TenantClient(node, "a")
    for number in range(5):
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=number, committed_metadata="kws-")
        asked = OffsetCommitRequestTopic(name="orders", topic_id=topic.topic_id, partitions=[partition])
        request = OffsetCommitRequest(group_id="g", member_id="", topics=[asked])
        response: OffsetCommitResponse = await client.ask(request, version)
        assert [one.error_code for one in response.topics[0].partitions] == [0]
        assert response.topics[0].name == ("orders" if version < 10 else "")
    cache: Any = client.connection._template_cache
    assert cache._template is not None
    group = OffsetFetchRequestGroup(group_id=A.full_name("g"), topics=None)
    (found,) = (await Client(node, None).ask(OffsetFetchRequest(groups=[group]), 9)).groups[0].topics
    assert (found.name, found.partitions[0].committed_offset) == (A.full_name("orders"), 4)


@in_loop
async def test_large_request_is_translated_in_chunks(node: QuietNode) -> None:
    await node.create(A.full_name("t5"), 1)
    await node.create("t6", 1)
    client = TenantClient(node, "a")
    names = [f"t{number}" for number in range(5 * ELEMENTS_AT_ONCE_MAX)]
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response: MetadataResponse = await client.ask(request, 9)
    assert [one.name for one in response.topics] == names
    assert [one.name for one in response.topics if one.error_code == 0] == ["t5"]


@in_loop
async def test_large_response_has_plain_names(node: QuietNode) -> None:
    for number in range(600):
        await node.create(A.full_name(f"t{number:03}"), 1)
        if number % 3 == 0:
            await node.create(B.full_name(f"t{number:03}"), 1)
    client = TenantClient(node, "a")
    response: MetadataResponse = await client.ask(MetadataRequest(topics=None), 12)
    assert [one.name for one in response.topics] == [f"t{number:03}" for number in range(600)]
    assert b"kws-" not in client.transport.sent


@in_loop
async def test_waiting_response_has_the_names_of_its_request(node: QuietNode) -> None:
    """A client that logs in again with the key of another scope gets earlier responses with the earlier names."""
    topic = await node.create(A.full_name("orders"), 1)
    client = TenantClient(node, "a")
    one = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[one])])
    client.send(frame(request, 12, 1))
    client.log_in("b")
    producer = TenantClient(node, "a")
    await producer.ask(produce_request("orders", topic.topic_id, 0), 12)
    await client.until(lambda: client.received() == [1])
    response: FetchResponse = parse(FetchResponse, 12, split(bytes(client.transport.sent))[0])
    assert response.responses[0].topic == "orders"
    client._count = 1
    again: FetchResponse = await client.ask(
        FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[one])]), 12
    )
    assert again.responses[0].partitions[0].error_code == 3
    assert node.topics.get(B.full_name("orders")) is None


@in_loop
async def test_fetch_session_ends_with_the_scope(node: QuietNode) -> None:
    await node.create(A.full_name("orders"), 1)
    client = TenantClient(node, "a")
    one = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    asked = [FetchTopic(topic="orders", partitions=[one])]
    opened = await client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=asked), 12)
    following = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=opened.session_id, session_epoch=1, topics=[])
    client.log_in("b")
    assert (await client.ask(following, 12)).error_code == 70
    closing = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=opened.session_id, session_epoch=-1, topics=[])
    assert (await client.ask(closing, 12)).error_code == 0
    client.log_in("a")
    assert (await client.ask(following, 12)).error_code == 0


def leaking(make: Callable[[Context], Any]) -> dict[int, Handler]:
    def handle(context: Context, request: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(brokers=[], topics=make(context))

    return {METADATA.key: Handler(METADATA, handle, ())}


def foreign_topic(context: Context) -> list[MetadataResponseTopic]:
    return [MetadataResponseTopic(error_code=0, name=B.full_name("secret"), partitions=[])]


def unscoped_topic(context: Context) -> list[MetadataResponseTopic]:
    return [MetadataResponseTopic(error_code=0, name="secret", partitions=[])]


def encoded_topics(context: Context) -> EncodedElements:
    encoded = elements_encoder(MetadataResponse, "topics", context.api_version)(foreign_topic(context))
    return EncodedElements(1, encoded)


@pytest.mark.parametrize("make", [foreign_topic, unscoped_topic, encoded_topics])
@in_loop
async def test_response_with_another_name_is_not_sent(node: QuietNode, make: Callable[[Context], Any]) -> None:
    client = TenantClient(node, "a", leaking(make))
    client.send(frame(MetadataRequest(topics=None), 9, 1))
    assert client.transport.is_aborted
    assert not client.transport.sent


@in_loop
async def test_name_that_is_too_long_for_the_records_of_groups_is_refused(node: QuietNode) -> None:
    client = TenantClient(node, "a")
    request = OffsetCommitRequest(group_id="g" * (32767 - 15), member_id="", topics=[])
    client.send(frame(request, 8, 1))
    assert client.transport.is_aborted
