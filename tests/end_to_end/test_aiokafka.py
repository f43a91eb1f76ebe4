"""aiokafka: a client that never leaves the old, non-flexible versions of the protocol."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.support.clients import CODECS, DEADLINE_S, Topics, read_values, unique_name
from tests.support.server import Broker


@asynccontextmanager
async def running(client: Any) -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


def producer(broker: Broker, **options: Any) -> Any:
    return running(AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **options))


def consumer(broker: Broker, *topics: str, **options: Any) -> Any:
    return running(
        AIOKafkaConsumer(
            *topics,
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            **options,
        )
    )


async def take(source: Any, count: int) -> list[Any]:
    async with asyncio.timeout(DEADLINE_S):
        return [await source.getone() for _ in range(count)]


def test_an_idempotent_producer_and_a_consumer_agree(broker: Broker, topics: Topics) -> None:
    topic = topics.create("aio-round-trip")

    async def scenario() -> None:
        async with producer(broker, enable_idempotence=True) as sender, consumer(broker, topic) as receiver:
            sent = [
                await sender.send(
                    topic, key=b"key", value=str(number).encode(), headers=[("number", str(number).encode())]
                )
                for number in range(200)
            ]
            acknowledged = [await asyncio.wait_for(future, DEADLINE_S) for future in sent]
            assert [answer.offset for answer in acknowledged] == list(range(200))
            records = await take(receiver, 200)
            assert [record.value for record in records] == [str(number).encode() for number in range(200)]
            assert records[7].headers == (("number", b"7"),)
            partition = TopicPartition(topic, 0)
            assert await receiver.beginning_offsets([partition]) == {partition: 0}
            assert await receiver.end_offsets([partition]) == {partition: 200}
            found = await receiver.offsets_for_times({partition: records[50].timestamp})
            assert found[partition].offset <= 50
            assert found[partition].timestamp == records[50].timestamp

    asyncio.run(scenario())


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches_come_back_whole(broker: Broker, topics: Topics, codec: str) -> None:
    topic = topics.create(f"aio-{codec}")
    values = [bytes([number % 251]) * 300 for number in range(200)]

    async def scenario() -> None:
        async with producer(broker, compression_type=codec, linger_ms=20) as sender:
            sent = [await sender.send(topic, value) for value in values]
            for future in sent:
                await asyncio.wait_for(future, DEADLINE_S)
        async with consumer(broker, topic) as receiver:
            assert [record.value for record in await take(receiver, len(values))] == values

    asyncio.run(scenario())
    assert read_values(broker.bootstrap, topic) == values


def test_a_group_shares_partitions_commits_and_resumes(broker: Broker, topics: Topics) -> None:
    topic = topics.create("aio-group", partitions=2)
    group = unique_name("aio-group")

    async def scenario() -> None:
        async with producer(broker) as sender:
            for number in range(20):
                await sender.send_and_wait(topic, str(number).encode(), partition=number % 2)
        async with consumer(broker, topic, group_id=group) as first, consumer(broker, topic, group_id=group) as second:
            async with asyncio.timeout(DEADLINE_S):
                while not (len(first.assignment()) == len(second.assignment()) == 1):
                    await asyncio.sleep(0.05)
            assert first.assignment() != second.assignment()
            for member in (first, second):
                await take(member, 6)
                (partition,) = member.assignment()
                await member.commit({partition: 6})
        async with consumer(broker, topic, group_id=group) as resumed:
            records = await take(resumed, 8)
            assert {record.offset for record in records} == {6, 7, 8, 9}
            assert await resumed.committed(TopicPartition(topic, 0)) == 6

    asyncio.run(scenario())


def test_admin_creates_describes_grows_and_deletes_a_topic(broker: Broker) -> None:
    name = unique_name("aio-admin")

    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:

            async def until_partitions(count: int) -> None:
                async with asyncio.timeout(DEADLINE_S):
                    while len((await admin.describe_topics([name]))[0]["partitions"]) != count:
                        await asyncio.sleep(0.05)

            await admin.create_topics(
                [NewTopic(name, num_partitions=2, replication_factor=1, topic_configs={"retention.ms": "3600000"})]
            )
            await until_partitions(2)
            assert name in await admin.list_topics()
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
            values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert values["retention.ms"] == "3600000"
            await admin.create_partitions({name: NewPartitions(3)})
            await until_partitions(3)
            await admin.delete_topics([name])
            async with asyncio.timeout(DEADLINE_S):
                while name in await admin.list_topics():
                    await asyncio.sleep(0.05)
        finally:
            await admin.close()

    asyncio.run(scenario())
