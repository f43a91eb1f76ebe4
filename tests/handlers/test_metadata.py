"""Metadata: this node, its topics, and topics that come into being because somebody asks."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.topics.topics import OFFSETS_TOPIC
from kwire.errors import ErrorCode
from kwire.wire.apis import METADATA
from kwire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire.wire.types import ZERO_UUID
from tests.support.access import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from tests.support.node import CLUSTER_ID, NODE_ID, FakePeer, QuietNode, in_every_version, in_loop

NOT_ASKED = -(2**31)
SINCE_12 = [version for version in METADATA.versions if version >= 12]


def versions(first: int, last: int = 99) -> list[int]:
    return [version for version in METADATA.versions if first <= version <= last]


def named(*names: str | None, create: bool = False, **more: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **more)


def by_id(*ids: bytes, name: str | None = None, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name, topic_id=one) for one in ids]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def everything(version: int) -> MetadataRequest:
    return MetadataRequest(topics=[] if version == 0 else None)


@in_loop
async def test_node_and_its_topics_are_described(node: QuietNode) -> None:
    topic = await node.create("orders", 2)
    await node.topics.offsets_topic()
    for version in METADATA.versions:
        answer = await node.ask(everything(version), version)
        (broker,) = answer.brokers
        assert (broker.node_id, broker.host, broker.port, broker.rack) == (NODE_ID, *FakePeer.endpoint, None)
        if version >= 1:
            assert answer.controller_id == NODE_ID
        if version >= 2:
            assert answer.cluster_id == CLUSTER_ID
        orders, offsets = sorted(answer.topics, key=lambda one: one.name, reverse=True)
        assert (orders.name, orders.error_code) == ("orders", ErrorCode.NONE)
        assert orders.topic_id == (topic.topic_id if version >= 10 else ZERO_UUID)
        assert offsets.name == OFFSETS_TOPIC
        assert (orders.is_internal, offsets.is_internal) == (False, version >= 1)
        assert [one.partition_index for one in orders.partitions] == [0, 1]
        for one in orders.partitions:
            assert one.error_code == ErrorCode.NONE
            assert one.leader_id == NODE_ID
            assert one.replica_nodes == one.isr_nodes == [NODE_ID]
            assert one.offline_replicas == []
            assert one.leader_epoch == (0 if version >= 7 else -1)


@in_loop
async def test_empty_list_asks_for_no_topic(node: QuietNode) -> None:
    await node.create("t")
    for version in versions(1):
        answer = await node.ask(MetadataRequest(topics=[]), version)
        assert answer.topics == []
        assert len(answer.brokers) == 1


@in_loop
async def test_in_version_0_the_empty_list_asks_for_all(node: QuietNode) -> None:
    await node.create("t")
    assert [one.name for one in (await node.ask(MetadataRequest(topics=[]), 0)).topics] == ["t"]


@in_loop
async def test_rack_is_told(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "broker.rack=left") as node:
        for version in versions(1):
            (broker,) = (await node.ask(everything(version), version)).brokers
            assert broker.rack == "left"


@in_loop
async def test_topics_are_answered_in_the_order_asked(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "auto.create.topics.enable=false") as node:
        await node.create("b")
        await node.create("a")
        for version in METADATA.versions:
            answer = await node.ask(named("a", "missing", "b", "not/legal", ""), version)
            assert [(one.name, one.error_code) for one in answer.topics] == [
                ("a", ErrorCode.NONE),
                ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("b", ErrorCode.NONE),
                ("not/legal", ErrorCode.INVALID_TOPIC_EXCEPTION),
                ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ]
            assert [len(one.partitions) for one in answer.topics] == [1, 0, 1, 0, 0]


@in_every_version(METADATA)
@in_loop
async def test_unknown_topic_is_created_when_server_and_client_allow_it(tmp_path: Path, version: int) -> None:
    with QuietNode(tmp_path, "num.partitions=3") as node:
        answer = await node.ask(named("new", "not/legal", "a.b", "a_b", create=True), version)
        codes = [one.error_code for one in answer.topics]
        assert codes == [
            ErrorCode.NONE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.NONE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert [len(one.partitions) for one in answer.topics] == [3, 0, 3, 0]
        node.restart()
        assert sorted(topic.name for topic in node.topics) == ["a.b", "new"]


@in_loop
async def test_client_may_forbid_creation_since_version_4(node: QuietNode) -> None:
    for version in versions(4):
        answer = await node.ask(named("new", create=False), version)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(node.topics) == 0


@in_loop
async def test_server_may_forbid_creation(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "auto.create.topics.enable=false") as node:
        for version in METADATA.versions:
            answer = await node.ask(named("new", create=True), version)
            assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert len(node.topics) == 0


@in_loop
async def test_clients_that_ask_at_the_same_time_see_the_same_topic(node: QuietNode) -> None:
    answers = await asyncio.gather(*(node.ask(named("new", create=True), 12) for _ in range(8)))
    assert {answer.topics[0].error_code for answer in answers} == {ErrorCode.NONE}
    assert len({answer.topics[0].topic_id for answer in answers}) == 1


@pytest.mark.parametrize("version", SINCE_12)
@in_loop
async def test_topic_is_found_by_its_id(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    unknown = b"\x01" * 16
    for create in (False, True):
        answer = await node.ask(by_id(topic.topic_id, unknown, ZERO_UUID, create=create), version)
        assert [(one.name, one.topic_id, one.error_code) for one in answer.topics] == [
            ("t", topic.topic_id, ErrorCode.NONE),
            (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
            (None, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
    assert len(node.topics) == 1


@pytest.mark.parametrize("version", SINCE_12)
@in_loop
async def test_topic_named_by_an_id_is_never_created(node: QuietNode, version: int) -> None:
    answer = await node.ask(by_id(b"\x01" * 16, name="new", create=True), version)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert len(node.topics) == 0


@pytest.mark.parametrize("version", versions(10, 11))
@in_loop
async def test_before_version_12_an_id_makes_the_request_invalid(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    for bad in (by_id(topic.topic_id), by_id(topic.topic_id, name="t"), named(None), named("t", None)):
        answer = await node.ask(bad, version)
        assert bad.topics is not None
        assert [(one.name, one.error_code) for one in answer.topics] == [
            (one.name or "", ErrorCode.INVALID_REQUEST) for one in bad.topics
        ]


@pytest.mark.parametrize("is_asked", [False, True])
@in_loop
async def test_allowed_operations_are_told_to_those_who_ask(node: QuietNode, is_asked: bool) -> None:
    await node.create("t")
    for version in versions(8):
        request = MetadataRequest(topics=None, include_topic_authorized_operations=is_asked)
        if version <= 10:
            request.include_cluster_authorized_operations = is_asked
        answer = await node.ask(request, version)
        assert answer.topics[0].topic_authorized_operations == (TOPIC_OPERATIONS if is_asked else NOT_ASKED)
        expected = CLUSTER_OPERATIONS if is_asked and version <= 10 else NOT_ASKED
        assert answer.cluster_authorized_operations == expected


@in_every_version(METADATA)
@in_loop
async def test_offsets_topic_is_made_for_whoever_asks_before_the_first_group(tmp_path: Path, version: int) -> None:
    with QuietNode(tmp_path, "offsets.topic.num.partitions=7") as node:
        (one,) = (await node.ask(named(OFFSETS_TOPIC, create=True), version)).topics
        assert one.error_code == ErrorCode.NONE
        assert len(one.partitions) == 7
        assert version == 0 or one.is_internal


@in_loop
async def test_a_topic_named_twice_is_answered_once(node: QuietNode) -> None:
    topic = await node.create("t")
    for version in METADATA.versions:
        answer = await node.ask(named("t", "missing", "t", "missing"), version)
        assert [one.name for one in answer.topics] == ["t", "missing"]
    for version in SINCE_12:
        answer = await node.ask(by_id(topic.topic_id, topic.topic_id), version)
        assert [one.name for one in answer.topics] == ["t"]
        # Whatever it is called beside its id.
        topics = [MetadataRequestTopic(name=name, topic_id=topic.topic_id) for name in ("a", "b", None)]
        answer = await node.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), version)
        assert [one.name for one in answer.topics] == ["t"]
