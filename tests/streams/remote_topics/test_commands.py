"""Commands about topics of a cluster, which is a kwire server here."""

from pathlib import Path

import pytest

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.admin import Admin
from kwire.streams.remote_topics.commands import RemoteTopicCommands
from tests.support.node import in_uvloop, running_node
from tests.support.remote_worlds import remote_logs
from tests.support.stream_worlds import Appends, read_values


@in_uvloop
async def test_topics_are_created_changed_and_deleted(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        with remote_logs(node.kafka_listeners[0].address) as logs:
            admin = Admin(logs.cluster)
            topics = RemoteTopicCommands(admin)
            await topics.create("orders", 2, {"retention.ms": "1000000"})
            with pytest.raises(KafkaError, match="orders") as refused:
                await topics.create("orders", 2, {})
            assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
            await topics.create_if_missing("orders")
            await topics.create_if_missing("payments")
            await topics.add_partitions("orders", 3)
            assert (await logs.open("orders", 2)).partition == 2
            with pytest.raises(KafkaError, match="no partition 3"):
                await logs.open("orders", 3)
            with pytest.raises(KafkaError, match="no topic 'refunds'"):
                await logs.open("refunds")
            assert await admin.topic_configs("orders", ["retention.ms"]) == {"retention.ms": "1000000"}
            await admin.change_configs("orders", {"retention.ms": None, "max.message.bytes": "5000"})
            configs = await admin.topic_configs("orders", ["retention.ms", "max.message.bytes"])
            assert configs == {"retention.ms": "604800000", "max.message.bytes": "5000"}
            await topics.delete("payments")
            with pytest.raises(KafkaError) as missing:
                await topics.delete("payments")
            assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await logs.close()


@in_uvloop
async def test_records_before_an_offset_are_deleted(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        with remote_logs(node.kafka_listeners[0].address) as logs:
            admin = Admin(logs.cluster)
            await admin.create_topic("orders", 1, {"retention.ms": "-1"})
            log, appends = await logs.open("orders"), Appends()
            appends.send(log, b"a", b"b", b"c")
            await log.in_thread(lambda: None).wait()
            while not appends:
                await log.ask_bounds()
            await admin.delete_records("orders", 0, 2)
            await log.ask_bounds()
            assert log.bounds() == (2, 3, 3)
            assert (await read_values(log, 2))[-1] == (2, b"c")
            await logs.close()
