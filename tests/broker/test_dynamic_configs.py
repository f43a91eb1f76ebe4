"""Dynamic settings: stored, applied, passed to the listeners; and what a start does with stored settings."""

import asyncio
from pathlib import Path

import pytest

from kwire.broker.admin.dynamic_configs import DynamicConfigs
from kwire.config import SETTINGS, Config, ConfigSource
from kwire.config.description import ResourceType
from kwire.config.resources.topic import TOPIC_SETTINGS
from kwire.config.tree import with_dynamic
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change
from tests.support.node import QuietNode, in_loop, running_node

BROKER, GROUP = ResourceType.BROKER, ResourceType.GROUP
HERE = "1"


@in_loop
async def test_listeners_are_told_of_each_new_configuration_in_order(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        told: list[int] = []

        def at_once(config: Config) -> None:
            told.append(config.network.connections_max)

        async def later(config: Config) -> None:
            await asyncio.sleep(0)
            told.append(-config.network.connections_max)

        node.configs.listen(at_once)
        node.configs.listen(later)
        await node.configs.replace(BROKER, HERE, {"max.connections": "5"})
        await node.configs.replace(BROKER, "", {"max.connections": "6"})
        await node.configs.replace(BROKER, HERE, {})
        # Nothing new, and nothing of the broker: nobody is told.
        await node.configs.replace(BROKER, HERE, {})
        await node.configs.replace(GROUP, "g", {"share.auto.offset.reset": "earliest"})
        assert told == [5, -5, 5, -5, 6, -6]
        assert node.configs.config.network.connections_max == 6


@in_loop
async def test_one_who_cannot_follow_does_not_keep_others_from_it(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        told: list[Config] = []

        def broken(config: Config) -> None:
            raise RuntimeError("no")

        node.configs.listen(broken)
        node.configs.listen(told.append)
        await node.configs.replace(BROKER, HERE, {"max.connections": "5"})
        assert [config.network.connections_max for config in told] == [5]


@in_loop
async def test_what_is_stored_wins_at_the_next_start_in_order_of_its_source(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "max.connections=7", "message.max.bytes=8") as node:
        await node.configs.replace(BROKER, "", {"max.connections": "5", "log.roll.ms": "4"})
        await node.configs.replace(BROKER, HERE, {"log.roll.ms": "3"})
        node.restart()
        values = node.configs.config.values
        assert {name: (values[name].text, values[name].config_source) for name in _CHANGED} == {
            "log.roll.ms": ("3", ConfigSource.DYNAMIC_BROKER_CONFIG),
            "max.connections": ("5", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            "message.max.bytes": ("8", ConfigSource.STATIC_BROKER_CONFIG),
            "log.roll.hours": ("168", ConfigSource.DEFAULT_CONFIG),
        }
        assert node.configs.config.network.connections_max == 5


_CHANGED = ("log.roll.ms", "max.connections", "message.max.bytes", "log.roll.hours")


@in_loop
async def test_what_cannot_be_any_more_is_left_out_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A later version may know less, or allow less; that must not keep a server from starting."""
    with QuietNode(tmp_path) as node:
        stored = {"no.such": "1", "num.partitions": "3", "message.max.bytes": "x", "max.connections": "5"}
        await node.metastore.commit([Change("config/brokers/1", stored, 0)])
        group = {"share.auto.offset.reset": "nowhere", "share.isolation.level": "read_committed"}
        await node.metastore.commit([Change("config/groups/g", group, 0)])
        node.restart()
        assert node.configs.overrides(GROUP, "g") == {"share.isolation.level": "read_committed"}
        assert node.configs.config.network.connections_max == 5
        assert node.configs.config.topics.partition_count == 1
        for name in ("no.such", "num.partitions", "message.max.bytes"):
            assert name in caplog.text
        # It can be taken away.
        await node.configs.replace(BROKER, HERE, {})
        assert node.metastore.get("config/brokers/1") is None


@in_loop
async def test_what_has_nothing_to_do_with_an_impossible_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory that is gone from log.dirs must not let retention take what it was told to keep."""
    with QuietNode(tmp_path / "a", more_dirs=[tmp_path / "b"]) as node:
        kept = {"log.retention.ms": "-1", "max.connections": "5"}
        await node.configs.replace(BROKER, HERE, {"cordoned.log.dirs": str(tmp_path / "b"), **kept})
        await node.configs.replace(BROKER, "", {"log.roll.ms": "4"})
    with QuietNode(tmp_path / "a") as node:
        assert "the dynamic setting cordoned.log.dirs is ignored" in caplog.text
        values = node.configs.config.values
        told = {name: values[name].text for name in (*kept, "log.roll.ms", "cordoned.log.dirs")}
        assert told == {**kept, "log.roll.ms": "4", "cordoned.log.dirs": ""}
        # Others can be changed, and what was left out goes with that.
        await node.configs.replace(BROKER, HERE, {**kept, "max.connections": "6"})
        entry = node.metastore.get("config/brokers/1")
        assert entry is not None
        assert entry.value == {**kept, "max.connections": "6"}


@in_loop
async def test_resource_of_which_all_was_left_out_can_be_taken_away(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.metastore.commit([Change("config/brokers/1", {"no.such": "1"}, 0)])
        node.restart()
        assert node.configs.overrides(BROKER, HERE) == {}
        await node.configs.replace(BROKER, HERE, {})
        assert node.metastore.get("config/brokers/1") is None


@in_loop
async def test_settings_of_another_node_are_kept_and_do_nothing_here(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.metastore.commit([Change("config/brokers/2", {"max.connections": "5"}, 0)])
        node.restart()
        assert node.configs.config.network.connections_max == 10000
        assert node.configs.names(BROKER) == ["2"]


@in_loop
async def test_change_by_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        other = DynamicConfigs(node.metastore, node.config)
        await other.replace(GROUP, "g", {"share.auto.offset.reset": "earliest"})
        with pytest.raises(KafkaError) as refusal:
            await node.configs.replace(GROUP, "g", {"share.isolation.level": "read_committed"})
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert node.configs.overrides(GROUP, "g") == {}


@in_loop
async def test_names_of_any_kind_are_kept_apart(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        names = ["a/b", "groups/x", "ü", " ", "config/"]
        for name in names:
            await node.configs.replace(GROUP, name, {"share.auto.offset.reset": "earliest"})
        node.restart()
        assert sorted(node.configs.names(GROUP)) == sorted(names)
        assert node.configs.names(ResourceType.CLIENT_METRICS) == []


@in_loop
async def test_running_node_hands_changes_to_those_who_act_on_them(tmp_path: Path) -> None:
    changes = {
        "max.connections": "5",
        "max.connections.per.ip": "4",
        "producer.id.expiration.ms": "3",
        "log.cleaner.backoff.ms": "2",
        "log.cleaner.io.max.bytes.per.second": "1.5",
        "log.cleaner.dedupe.buffer.size": "2000000",
        "log.roll.ms": "6",
    }
    async with running_node(tmp_path) as node:
        topic = await node._shared.services.topics.get_or_create("t")
        configs = node._shared.services.configs
        configs.check(BROKER, HERE, changes)
        await configs.replace(BROKER, HERE, changes)
        network, maintenance = node._shared.network, node._maintenance
        assert (network.connections_max, network.connections_per_ip_max) == (5, 4)
        assert maintenance.idle_logs.producer_id_expiration_ms == 3
        assert topic.partitions[0].settings.segment_ms == 6
        cleaner = maintenance.log_cleaner._config
        assert (cleaner.cleaner_backoff_ms, cleaner.cleaner_bytes_per_second_max) == (2, 1.5)
        assert cleaner.cleaner_keys_bytes_max == 2000000
    async with running_node(tmp_path) as node:
        assert node._shared.network.connections_max == 5
        assert node._maintenance.idle_logs.producer_id_expiration_ms == 3
        assert node._maintenance.log_cleaner._config.cleaner_backoff_ms == 2


def test_every_setting_that_can_be_changed_is_one_of_kafka_or_of_ours() -> None:
    """Settings of Kafka are compared with its own in tests/test_unused_settings.py."""
    dynamic = {name for name, setting in SETTINGS.items() if setting.is_dynamic}
    assert {name for name in dynamic if name.startswith("kwire.")} == {
        "kwire.log.sync",
        "kwire.max.connections.per.principal",
    }
    for name in ("listeners", "node.id", "num.partitions", "log.dirs", "log.retention.hours"):
        assert name not in dynamic
    behind_topics = {setting.synonyms[0].name for setting in TOPIC_SETTINGS.values() if setting.synonyms}
    assert behind_topics <= dynamic


@in_loop
async def test_live_topics_follow_the_broker_in_turns_with_the_loop(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        kept = [await node.create(f"t{index}", 300) for index in range(4)]
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.ensure_future(count())
        await asyncio.sleep(0)
        before = turns
        await node.topics.reconfigure(with_dynamic(node.config, {"log.roll.ms": "5"}, {}))
        assert turns > before
        counting.cancel()
        assert {partition.settings.segment_ms for topic in kept for partition in topic.partitions} == {5}
