"""Quotas on the Kafka port, with real sockets: throttle times, muted connections, limits of connections."""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import pytest

from kwire.access.quotas.entities import entity_of
from kwire.access.quotas.quotas import Alteration
from kwire.errors import ErrorCode
from kwire.node import Node
from kwire.wire.messages.api_versions import ApiVersionsRequest
from kwire.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.wire.types import ZERO_UUID
from tests.server.frames import Client, frame
from tests.server.test_node import create_topic, port
from tests.support.batches import make_batch
from tests.support.node import in_uvloop, running_node

KIB = 1024


def produce(size_bytes: int, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=make_batch(value=bytes(size_bytes), timestamp_ms=0))
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def fetch(offset: int = 0, session_epoch: int = -1, session_id: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10**7)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=10**7,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic="t", partitions=[asked])],
        forgotten_topics_data=[],
    )


async def limit(node: Node, value: float | None, kind: str, **entity: str | None) -> None:
    parts = [(name.replace("_", "-"), one) for name, one in entity.items()]
    await node._shared.services.quotas.alter([Alteration(entity_of(parts), {kind: value})])


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@in_uvloop
async def test_a_producer_above_its_quota_is_throttled_and_muted(tmp_path: Path, version: int) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        await create_topic(client)
        await limit(node, 10 * KIB, "producer_byte_rate", client_id="test")
        # The first requests are decoded, the later ones are answered from a template. Half a second too much.
        for _ in range(4):
            answer = await client.ask(produce(24 * KIB), version)
            assert answer.throttle_time_ms == 0
        began = perf_counter()
        answer = await client.ask(produce(9 * KIB), version)
        answered_ms = (perf_counter() - began) * 1000
        assert answer.responses[0].partition_responses[0].error_code == 0
        throttle_ms = answer.throttle_time_ms
        assert 50 < throttle_ms < 900
        assert answered_ms < throttle_ms, "the response does not wait"
        # The next request is read when the time is over. A second connection of this client id has the same meter.
        await client.ask(ApiVersionsRequest(client_software_name="", client_software_version=""), 0)
        assert perf_counter() - began >= throttle_ms / 1000 - 0.01
        async with await Client.connect(port(node)) as other:
            assert (await other.ask(produce(KIB), version)).throttle_time_ms > 0
        await limit(node, None, "producer_byte_rate", client_id="test")
    assert len(node._shared.services.quotas) == 0


@in_uvloop
async def test_a_repeated_produce_is_charged_to_its_own_client_id(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        await create_topic(client)
        await limit(node, 10 * KIB, "producer_byte_rate", client_id="test")
        for _ in range(3):  # the third one is answered from a template
            assert (await client.ask(produce(KIB), 9)).throttle_time_ms == 0
        client.client_id = b"another"
        await client.ask(ApiVersionsRequest(client_software_name="", client_software_version=""), 0)
        client.client_id = b"test"
        assert (await client.ask(produce(120 * KIB), 9)).throttle_time_ms > 0


@in_uvloop
async def test_topics_that_are_created_on_first_use_are_charged_and_not_refused(tmp_path: Path) -> None:
    settings = "controller.quota.window.num=1"
    async with running_node(tmp_path, settings) as node, await Client.connect(port(node)) as client:
        await limit(node, 1, "controller_mutation_rate", user="ANONYMOUS")
        for name in ("a", "b", "c"):
            topics = [MetadataRequestTopic(topic_id=ZERO_UUID, name=name)]
            answer = await client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
            assert [one.error_code for one in answer.topics] == [0]
        asked = CreatableTopic(name="d", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        answer = await client.ask(CreateTopicsRequest(topics=[asked], timeout_ms=1000), 6)
        assert [one.error_code for one in answer.topics] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]


@in_uvloop
async def test_a_producer_without_acks_is_muted(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        await create_topic(client)
        await limit(node, 10 * KIB, "producer_byte_rate", user=None)
        began = perf_counter()
        client.send(produce(103 * KIB, acks=0), 8, is_answered=False)
        client.sent -= 1
        await client.ask(ApiVersionsRequest(client_software_name="", client_software_version=""), 0)
        assert perf_counter() - began >= 0.25


@in_uvloop
async def test_a_consumer_above_its_quota_gets_an_empty_response_and_no_record_is_lost(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        await create_topic(client)
        for _ in range(6):
            await client.ask(produce(20 * KIB), 8)
        await limit(node, 10 * KIB, "consumer_byte_rate", user="ANONYMOUS")
        offset, epoch, session_id, empty = 0, 0, 0, 0
        while offset < 6:
            answer = await client.ask(fetch(offset, epoch, session_id), 7)
            assert answer.error_code == 0
            if answer.throttle_time_ms:
                assert answer.responses == []
                empty += 1
                assert answer.session_id == session_id
                # A test does not wait for ten seconds: the window forgets.
                await limit(node, 10**9, "consumer_byte_rate", user="ANONYMOUS")
                epoch += bool(session_id)
                continue
            [topic] = answer.responses
            size = len(topic.partitions[0].records)
            # Not more than ten seconds' worth, in whole batches.
            assert size > 0
            if not empty:
                assert size <= 100 * KIB
            offset += size // (20 * KIB)
            session_id, epoch = answer.session_id, epoch + 1
        assert empty == 1


@in_uvloop
async def test_a_long_poll_is_charged_when_it_is_answered(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path) as node,
        await Client.connect(port(node)) as reader,
        await Client.connect(port(node)) as writer,
    ):
        await create_topic(writer)
        await limit(node, KIB, "consumer_byte_rate", user="ANONYMOUS")
        reader.send(fetch(0, max_wait_ms=5_000), 7)
        await writer.ask(produce(20 * KIB), 8)
        answer = await reader.receive()
        # One batch above the quota of a whole window is sent, and then the client has to wait.
        assert (answer.throttle_time_ms, len(answer.responses)) == (0, 1)
        answer = await reader.ask(fetch(0), 7)
        assert answer.throttle_time_ms > 10_000


@pytest.mark.parametrize("version", [2, 3, 8])
@in_uvloop
async def test_request_time_is_charged_for_every_api(tmp_path: Path, version: int) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        await create_topic(client)
        commit = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
                    ],
                )
            ],
        )
        await client.ask(commit, version)
        await limit(node, 0.01, "request_percentage", user="ANONYMOUS", client_id=None)
        throttled = 0
        began = perf_counter()
        for _ in range(5_000):
            answer = await client.ask(commit, version)
            assert answer.topics[0].partitions[0].error_code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 15, 16)
            throttled = max(throttled, answer.throttle_time_ms)
            if perf_counter() - began > 1.5:
                break
        else:
            pytest.fail("5,000 requests were not throttled")
        if version >= 3:
            # Not longer than one sample.
            assert 0 < throttled <= 1000


@in_uvloop
async def test_topics_above_the_quota_of_changes_are_refused(tmp_path: Path) -> None:
    def create(name: str, count: int) -> CreateTopicsRequest:
        topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
        return CreateTopicsRequest(topics=[topic])

    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        await limit(node, 2, "controller_mutation_rate", user="ANONYMOUS")
        answer = await client.ask(create("a", 23), 6)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0), "22 are left at first, and any number"
        answer = await client.ask(create("b", 1), 6)
        assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 0 < answer.throttle_time_ms <= 500
        # Older versions do not know the error: the topic is created, and the client waits.
        answer = await client.ask(create("c", 3), 5)
        assert answer.topics[0].error_code == 0
        assert 0 < answer.throttle_time_ms <= 2000
        async with await Client.connect(port(node)) as other:
            answer = await other.ask(
                DeleteTopicsRequest(topics=[DeleteTopicState(name="c")], topic_names=[], timeout_ms=1000), 6
            )
            assert answer.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@in_uvloop
async def test_connections_above_the_quota_of_their_address_are_closed_after_a_delay(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await limit(node, 1, "connection_creation_rate", ip="127.0.0.1")
        request = ApiVersionsRequest(client_software_name="", client_software_version="")
        for _ in range(10):
            async with await Client.connect(port(node)) as client:
                await client.ask(request, 0)
        began = perf_counter()
        async with await Client.connect(port(node)) as client:
            client.send(request, 0)
            assert await client.ended() == b""
        assert perf_counter() - began >= 0.4
        await limit(node, None, "connection_creation_rate", ip="127.0.0.1")
        async with await Client.connect(port(node)) as client:
            await client.ask(request, 0)


@in_uvloop
async def test_a_refused_connection_is_not_served_before_it_is_closed(tmp_path: Path) -> None:
    """Its request arrives together with the connection, so uvloop reads it before any scheduled callback runs."""
    async with running_node(tmp_path, "listeners=SASL_PLAINTEXT://127.0.0.1:0", kafka=None) as node:
        await limit(node, 1, "connection_creation_rate", ip="127.0.0.1")
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        for _ in range(12):
            with socket.create_connection(("127.0.0.1", port(node))) as client:
                client.sendall(frame(request, 4))
                client.setblocking(False)
                with suppress(ConnectionError):
                    assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        assert node._shared.services.topics.get("t") is None


@in_uvloop
async def test_new_connections_above_the_rate_wait(tmp_path: Path) -> None:
    settings = ("max.connection.creation.rate=1",)
    async with running_node(tmp_path, *settings) as node:
        request = ApiVersionsRequest(client_software_name="", client_software_version="")
        times = []
        for _ in range(12):
            began = perf_counter()
            async with await Client.connect(port(node)) as client:
                await client.ask(request, 0)
            times.append(perf_counter() - began)
        assert max(times[:10]) < 0.4
        assert max(times[10:]) > 0.4


@in_uvloop
async def test_one_listener_and_one_address_may_have_limits_of_their_own(tmp_path: Path) -> None:
    request = ApiVersionsRequest(client_software_name="", client_software_version="")
    for setting in ("listener.name.plaintext.max.connections=2", "max.connections.per.ip.overrides=127.0.0.1:2"):
        async with (
            running_node(tmp_path, setting) as node,
            await Client.connect(port(node)) as one,
            await Client.connect(port(node)) as two,
        ):
            await one.ask(request, 0)
            await two.ask(request, 0)
            async with await Client.connect(port(node)) as three:
                assert await three.ended() == b""


@in_uvloop
async def test_a_muted_connection_that_is_closed_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        async with await Client.connect(port(node)) as client:
            await create_topic(client)
            await limit(node, 1, "producer_byte_rate", user="ANONYMOUS")
            answer = await client.ask(produce(KIB), 8)
            assert answer.throttle_time_ms > 100_000
        began = perf_counter()
        await node.stop()
        assert perf_counter() - began < 10
    await asyncio.sleep(0)
