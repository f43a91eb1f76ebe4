"""The metric names of kafka_exporter, which other people's dashboards and alerts use."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from kwire.broker.topics.topics import Topics
from kwire.node import Node
from kwire.wire.messages.find_coordinator import FindCoordinatorRequest
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from storage.batch.record_batch import check_batch
from tests.server.frames import Client
from tests.support.batches import make_batch
from tests.support.node import in_uvloop, running_node
from tests.support.scraping import Scrape, scrape

WAIT_S = 20.0
EXPORTER = "kwire.metrics.kafka.exporter=true"
PARTITION = {"partition", "topic"}
# The names and labels of kafka_exporter 1.9, without those of ZooKeeper.
NAMES: Mapping[str, set[str]] = {
    "kafka_brokers": set(),
    "kafka_broker_info": {"address", "id"},
    "kafka_topic_partitions": {"topic"},
    "kafka_topic_partition_current_offset": PARTITION,
    "kafka_topic_partition_oldest_offset": PARTITION,
    "kafka_topic_partition_in_sync_replica": PARTITION,
    "kafka_topic_partition_leader": PARTITION,
    "kafka_topic_partition_leader_is_preferred": PARTITION,
    "kafka_topic_partition_replicas": PARTITION,
    "kafka_topic_partition_under_replicated_partition": PARTITION,
    "kafka_consumergroup_current_offset": {"consumergroup", *PARTITION},
    "kafka_consumergroup_current_offset_sum": {"consumergroup", "topic"},
    "kafka_consumergroup_lag": {"consumergroup", *PARTITION},
    "kafka_consumergroup_lag_sum": {"consumergroup", "topic"},
    "kafka_consumergroup_members": {"consumergroup"},
}


async def write_records(topics: Topics) -> None:
    """The topic t with three records in partition 0 and five in partition 1."""
    topic = await topics.get_or_create("t")
    await topics.create_partitions(topic, 2)
    for index, count in enumerate((3, 5)):
        batch = make_batch(count, timestamp_ms=0)
        topic.partitions[index].append(batch, check_batch(batch))


async def commit(node: Node, offsets: Mapping[int, int]) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index, offset in offsets.items()
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    request = OffsetCommitRequest(group_id="g", member_id="", topics=topics)
    async with await Client.connect(node.kafka_listeners[0].port) as client, asyncio.timeout(WAIT_S):
        await client.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        while True:  # until the coordinator has loaded its partition
            answer = await client.ask(request, 9)
            if not any(one.error_code for topic in answer.topics for one in topic.partitions):
                return


def check(shown: Scrape) -> None:
    for index, (end, committed) in enumerate(((3, 1), (5, 5))):
        labels = {"topic": "t", "partition": str(index)}
        assert shown.value("kafka_topic_partition_current_offset", **labels) == end
        assert shown.value("kafka_topic_partition_oldest_offset", **labels) == 0
        assert shown.value("kafka_consumergroup_current_offset", consumergroup="g", **labels) == committed
        assert shown.value("kafka_consumergroup_lag", consumergroup="g", **labels) == end - committed
    assert shown.value("kafka_consumergroup_current_offset_sum", consumergroup="g", topic="t") == 6
    assert shown.value("kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 2
    assert shown.value("kafka_topic_partitions", topic="t") == 2


@in_uvloop
async def test_topics_and_groups_have_the_names_of_kafka_exporter(tmp_path: Path) -> None:
    async with running_node(tmp_path, EXPORTER) as node:
        topics = node._shared.services.topics
        await write_records(topics)
        await commit(node, {0: 1, 1: 5})
        async with asyncio.timeout(WAIT_S):  # the records become readable when they are synced
            while (shown := await scrape(node)).value(
                "kafka_topic_partition_current_offset", topic="t", partition="1"
            ) < 5:
                await asyncio.sleep(0)
        check(shown)
        found = {name: family for name, family in shown.families.items() if name.startswith("kafka_")}
        assert {name: set(family.samples[0].labels) for name, family in found.items()} == NAMES
        assert {family.type for family in found.values()} == {"gauge"}
        assert shown.value("kafka_brokers") == 1
        port = node.kafka_listeners[0].port
        assert shown.value("kafka_broker_info", id="1", address=f"127.0.0.1:{port}") == 1
        assert shown.value("kafka_consumergroup_members", consumergroup="g") == 0
        assert "__consumer_offsets" in shown.labels("kafka_topic_partitions", "topic")
        topic = topics.get("t")
        assert topic is not None
        await topics.delete(topic)
        assert "t" not in (await scrape(node)).labels("kafka_topic_partitions", "topic")


@in_uvloop
async def test_offsets_are_known_after_a_restart_before_anybody_opened_a_log(tmp_path: Path) -> None:
    async with running_node(tmp_path, EXPORTER) as node:
        await write_records(node._shared.services.topics)
        await commit(node, {0: 1, 1: 5})
    async with running_node(tmp_path, EXPORTER) as node:
        async with asyncio.timeout(WAIT_S):  # until the groups are loaded
            while (shown := await scrape(node)).value("kwire_coordinator_loading_shards"):
                await asyncio.sleep(0)
        check(shown)
        topic = node._shared.services.topics.get("t")
        assert topic is not None
        assert not topic.partitions[1].is_open


@in_uvloop
async def test_without_the_setting_there_are_none(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        assert not [name for name in (await scrape(node)).families if name.startswith("kafka_")]


@in_uvloop
async def test_the_names_have_the_bounds_of_the_other_metrics(tmp_path: Path) -> None:
    async with running_node(tmp_path, EXPORTER, "kwire.metrics.topics.max=1") as node:
        for name in ("a", "b", "c"):
            topic = await node._shared.services.topics.get_or_create(name)
            batch = make_batch(timestamp_ms=0)
            topic.partitions[0].append(batch, check_batch(batch))
        assert (await scrape(node)).labels("kafka_topic_partition_current_offset", "topic") == {"a"}
