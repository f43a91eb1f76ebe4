"""Rebuilding a catalogue from folders: what is found again, what is set aside; a second run changes nothing."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.partition import Partition
from kwire.broker.topics.adoption import KEEP_ALL, Adoption, AdoptionRefused, Outcome
from kwire.broker.topics.topics import OFFSETS_TOPIC, Topic
from storage.batch.record_batch import Record, build_batch, check_batch
from storage.data_directory.partition_metadata import METADATA_NAME, encode_metadata
from storage.disk.mirrored_journal import JOURNAL_NAME, MIRROR_NAME
from tests.support.batches import make_batch, read_all
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

COPIES = (JOURNAL_NAME, MIRROR_NAME)


def append(partition: Partition, **options: Any) -> None:
    batch = make_batch(timestamp_ms=0, **options)
    partition.append(batch, check_batch(batch))


async def fill(node: QuietNode, name: str = "orders", partitions: int = 3) -> Topic:
    topic = await node.create(name, partitions)
    for partition in topic.partitions:
        append(partition)
    return topic


def lose_catalogue(node: QuietNode) -> None:
    node.close()
    for name in COPIES:
        (node.directory / name).unlink(missing_ok=True)


async def adopt(node: QuietNode, *accepted: str) -> Outcome:
    """Also checks that a second run finds nothing to do."""
    data_dirs = [str(path) for path in node.config.log.data_dirs]
    outcome = await Adoption(data_dirs, node.files, node.config).run(frozenset(accepted))
    again = await Adoption(data_dirs, node.files, node.config).run(frozenset())
    assert again.done == []
    assert again.left == outcome.left
    return outcome


def start(node: QuietNode) -> None:
    node._starts += 1
    node._open()
    check = node.store.check(node.topics.catalogue.folder_ids(), node.topics.deletion_notes.all())
    assert check.report.unknown == []
    check.update_folder_list(is_all_online=True)
    assert check.report.lost == []


def found(node: QuietNode, name: str) -> Topic:
    topic = node.topics.get(name)
    assert topic is not None
    return topic


@in_loop
async def test_topics_come_back_with_ids_and_records_and_keep_everything(node: QuietNode) -> None:
    topic = await fill(node)
    other = await fill(node, "with-dashes-7", 1)
    lose_catalogue(node)
    outcome = await adopt(node)
    assert outcome.left == []
    start(node)
    assert found(node, "orders").topic_id == topic.topic_id
    assert found(node, "with-dashes-7").topic_id == other.topic_id
    assert dict(found(node, "orders").configs) == KEEP_ALL
    assert [len(read_all(log_of(partition))) for partition in found(node, "orders").partitions] == [1, 1, 1]


@in_loop
async def test_numbers_that_were_given_out_are_not_given_again(node: QuietNode) -> None:
    for _ in range(3):
        node.restart()
    topic = await fill(node)
    append(topic.partitions[0], producer_id=5000, producer_epoch=0, base_sequence=0)
    epoch = topic.partitions[0].leader_epoch
    lose_catalogue(node)
    await adopt(node)
    start(node)
    entry = node.metastore.get("node")
    assert entry is not None
    assert entry.value["starts"] > epoch
    assert await node.services.producer_ids.take() > 5000


@in_loop
async def test_internal_topics_have_the_partitions_that_groups_count_with(node: QuietNode) -> None:
    topic = await node.topics.offsets_topic()
    batch = memoryview(bytearray(build_batch([Record(b"key", b"value", 0)])))
    topic.partitions[2].append(batch, check_batch(batch))
    lose_catalogue(node)
    await adopt(node)
    start(node)
    again = found(node, OFFSETS_TOPIC)
    assert len(again.partitions) == len(topic.partitions) == node.config.groups.offsets_partition_count
    assert again.configs["cleanup.policy"] == "compact"


@in_loop
async def test_folders_without_metadata_or_of_another_topic_are_not_lost(node: QuietNode) -> None:
    topic = await fill(node, partitions=4)
    node.close()
    (node.directory / "orders-1" / METADATA_NAME).unlink()
    (node.directory / "orders-3" / METADATA_NAME).write_bytes(encode_metadata(bytes(16)))
    lose_catalogue(node)
    outcome = await adopt(node)
    assert any("set-aside-" in line and "orders-3" in line for line in outcome.done)
    (kept,) = node.directory.glob("set-aside-*/orders-3/*.log")
    assert kept.stat().st_size
    start(node)
    assert found(node, "orders").topic_id == topic.topic_id
    assert [partition.log_end_offset for partition in found(node, "orders").partitions] == [1, 1, 1]


@in_loop
async def test_a_copy_of_a_folder_becomes_a_topic_of_its_own(node: QuietNode) -> None:
    topic = await fill(node, partitions=1)
    node.close()
    shutil.copytree(node.directory / "orders-0", node.directory / "copied-0")
    shutil.copytree(node.directory / "orders-0", node.directory / "orders-1")
    await adopt(node)
    start(node)
    assert found(node, "copied").topic_id != topic.topic_id
    assert found(node, "copied").partitions[0].log_end_offset == 1
    assert [partition.log_end_offset for partition in found(node, "orders").partitions] == [1, 1]


@in_loop
async def test_folders_that_no_partition_can_have_are_set_aside(node: QuietNode) -> None:
    await fill(node, partitions=1)
    node.close()
    names = ("orders-007", "orders-99999999", "not legal-0")
    for name in names:
        shutil.copytree(node.directory / "orders-0", node.directory / name)
    outcome = await adopt(node)
    assert len(outcome.done) == len(names)
    assert sorted(path.name for path in node.directory.glob("set-aside-*/*")) == sorted(names)
    start(node)
    assert len(found(node, "orders").partitions) == 1


@in_loop
async def test_two_damaged_copies_are_salvaged(node: QuietNode) -> None:
    await fill(node)
    await node.create("settled", 7, retention_ms="5")
    node.close()
    damaged = {}
    sound = (node.directory / JOURNAL_NAME).read_bytes()
    for name, position in zip(COPIES, (-3, 40), strict=True):
        data = bytearray(sound)
        data[position] ^= 1
        (node.directory / name).write_bytes(data)
        damaged[name] = bytes(data)
    outcome = await adopt(node)
    assert "both copies of the catalogue were damaged" in outcome.done[0]
    (aside,) = node.directory.glob("set-aside-*")
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == damaged
    start(node)
    assert len(found(node, "settled").partitions) == 7
    assert found(node, "settled").configs == {"retention.ms": "5"}
    assert [partition.log_end_offset for partition in found(node, "orders").partitions] == [1, 1, 1]


@in_loop
async def test_what_the_catalogue_notes_as_deleted_is_not_adopted(node: QuietNode, tmp_path: Path) -> None:
    topic = await fill(node, partitions=1)
    shutil.copytree(node.directory / "orders-0", tmp_path / "kept")
    await node.topics.delete(topic)
    node.close()
    shutil.copytree(tmp_path / "kept", node.directory / "orders-0")
    outcome = await adopt(node)
    assert outcome == Outcome()
    start(node)
    assert node.topics.get("orders") is None
    assert not (node.directory / "orders-0").exists()


@in_loop
async def test_several_directories_are_adopted_together(tmp_path: Path) -> None:
    with QuietNode(tmp_path / "a", more_dirs=[tmp_path / "b"]) as node:
        topic = await fill(node, partitions=4)
        assert len({Path(log_of(partition).directory).parent for partition in topic.partitions}) == 2
        lose_catalogue(node)
        await adopt(node)
        start(node)
        assert [partition.log_end_offset for partition in found(node, "orders").partitions] == [1, 1, 1, 1]


@in_loop
async def test_only_lost_partitions_can_be_accepted_as_lost(node: QuietNode) -> None:
    await fill(node, partitions=2)
    node.close()
    shutil.rmtree(node.directory / "orders-1")
    for name in ("orders-0", "orders-2", "orders", "nowhere-0"):
        with pytest.raises(AdoptionRefused, match=name):
            await Adoption([str(node.directory)], node.files, node.config).run(frozenset({"orders-1", name}))
    # Nothing was done for the one that is lost either.
    assert not (node.directory / "orders-1").exists()
    outcome = await Adoption([str(node.directory)], node.files, node.config).run(frozenset())
    assert outcome.done == []
    assert len(outcome.left) == 1
    await adopt(node, "orders-1")
    start(node)
    assert found(node, "orders").partitions[1].log_start_offset > 0


@in_loop
async def test_a_folder_with_damaged_metadata_can_be_given_up(node: QuietNode) -> None:
    await fill(node, partitions=1)
    node.close()
    (node.directory / "orders-0" / METADATA_NAME).write_bytes(b"garbage")
    outcome = await adopt(node, "orders-0")
    assert any("its loss was accepted" in line for line in outcome.done)
    assert len(list(node.directory.glob("set-aside-*/orders-0/*.log"))) == 1
    start(node)
    assert found(node, "orders").partitions[0].log_start_offset >= 1
