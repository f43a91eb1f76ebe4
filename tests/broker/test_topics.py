"""Topics: which may be created, what survives a restart, and conflicting concurrent changes."""

import asyncio
import errno
import gc
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.partition import Partition, code_of
from kwire.broker.topics import topics
from kwire.broker.topics.names import NAME_LENGTH_MAX, PARTITIONS_MAX
from kwire.broker.topics.topics import OFFSETS_TOPIC, NewTopic, Topics
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change
from kwire.streams.local import LocalLog
from storage.batch.format import CREATE_TIME, LOG_APPEND_TIME
from storage.batch.record_batch import check_batch
from storage.errors import StorageError
from storage.log.deletion import LogDeletion
from tests.support.batches import make_batch
from tests.support.events import validate_now
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, SyncAtOnce, in_loop
from tests.support.partition_log import log_of


def append(partition: Partition) -> int:
    batch = make_batch(timestamp_ms=0)
    return partition.append(batch, check_batch(batch)).base_offset


def refusal(node: QuietNode, new: NewTopic) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        node.topics.check(new)
    return caught.value.code


@in_loop
async def test_topic_is_found_by_name_and_by_id(node: QuietNode) -> None:
    topic = await node.create("orders", 3)
    assert node.topics.get("orders") is topic
    assert node.topics.get_by_id(topic.topic_id) is topic
    assert len(topic.topic_id) == 16
    assert [partition.index for partition in topic.partitions] == [0, 1, 2]
    assert topic.partition(2) is topic.partitions[2]
    assert topic.partition(3) is None
    assert topic.partition(-1) is None
    assert list(node.topics) == [topic]
    assert len(node.topics) == 1
    assert node.topics.get("other") is None
    assert node.topics.get_by_id(bytes(16)) is None


@in_loop
async def test_restart_keeps_ids_partitions_configs_and_records(node: QuietNode) -> None:
    topic = await node.create("orders", 2, retention_ms="5")
    other = await node.create("other")
    append(topic.partitions[1])
    node.restart()
    again = node.topics.get("orders")
    assert again is not None
    assert again is not topic
    assert again.topic_id == topic.topic_id
    assert again.configs == {"retention.ms": "5"}
    assert [partition.log_end_offset for partition in again.partitions] == [0, 1]
    assert again.partitions[1].high_watermark == 1
    found = node.topics.get_by_id(other.topic_id)
    assert found is not None
    assert found.name == "other"


@in_loop
async def test_every_start_leads_under_an_epoch_of_its_own(node: QuietNode) -> None:
    topic = await node.create("t")
    assert topic.partitions[0].leader_epoch == 0
    append(topic.partitions[0])
    node.restart()
    again = node.topics.get("t")
    assert again is not None
    partition = again.partitions[0]
    assert partition.leader_epoch == 1
    append(partition)
    assert log_of(partition).epochs.entries == [(0, 0), (1, 1)]


@in_loop
async def test_topics_open_no_logs_until_somebody_asks(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    append(topic.partitions[0])
    assert [partition.is_open for partition in topic.partitions] == [True, False]
    node.restart()
    again = node.topics.get("t")
    assert again is not None
    assert [partition.is_open for partition in again.partitions] == [False, False]


@in_loop
async def test_deleted_topic_is_gone_with_its_files_also_after_a_restart(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    append(topic.partitions[0])
    assert (node.directory / "t-0").exists()
    await node.topics.delete(topic)
    for _ in range(2):
        assert node.topics.get("t") is None
        assert node.topics.get_by_id(topic.topic_id) is None
        assert len(node.topics) == 0
        assert not list(node.directory.glob("t-*"))
        node.restart()


@in_loop
async def test_topic_of_the_same_name_has_another_id_and_nothing_of_the_old_one(node: QuietNode) -> None:
    old = await node.create("t")
    append(old.partitions[0])
    await node.topics.delete(old)
    new = await node.create("t")
    assert new.topic_id != old.topic_id
    assert new.partitions[0].log_end_offset == 0
    assert append(new.partitions[0]) == 0
    node.restart()
    again = node.topics.get("t")
    assert again is not None
    assert again.topic_id == new.topic_id
    assert again.partitions[0].log_end_offset == 1


@in_loop
async def test_partition_of_a_deleted_topic_takes_no_records(node: QuietNode) -> None:
    topic = await node.create("t")
    append(topic.partitions[0])
    await node.topics.delete(topic)
    with pytest.raises(StorageError) as caught:
        append(topic.partitions[0])
    assert code_of(caught.value) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_widened_topic_keeps_what_it_has(node: QuietNode) -> None:
    topic = await node.create("t", 2, retention_ms="5")
    first = topic.partitions[0]
    append(first)
    await node.topics.create_partitions(topic, 5)
    assert len(topic.partitions) == 5
    assert topic.partitions[0] is first
    assert append(topic.partitions[4]) == 0
    assert topic.configs == {"retention.ms": "5"}
    node.restart()
    again = node.topics.get("t")
    assert again is not None
    assert [partition.log_end_offset for partition in again.partitions] == [1, 0, 0, 0, 1]
    assert again.configs == {"retention.ms": "5"}


@in_loop
async def test_configuration_reaches_open_and_unopened_logs(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    opened, unopened = topic.partitions
    append(opened)
    assert log_of(opened).settings.timestamp_type == CREATE_TIME
    await node.topics.configure(topic, {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "200"})
    for partition in (opened, unopened):
        assert partition.settings.max_message_bytes == 200
        assert log_of(partition).settings.timestamp_type == LOG_APPEND_TIME
    await node.topics.create_partitions(topic, 3)
    assert topic.partitions[2].settings.max_message_bytes == 200
    node.restart()
    again = node.topics.get("t")
    assert again is not None
    assert again.settings.max_message_bytes == 200
    assert len(again.partitions) == 3


@in_loop
async def test_configuration_is_replaced_as_a_whole(node: QuietNode) -> None:
    topic = await node.create("t", retention_ms="5", segment_ms="7")
    await node.topics.configure(topic, {"segment.ms": "8"})
    assert topic.configs == {"segment.ms": "8"}
    assert topic.settings.segment_ms == 8


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "a\n", "a\0", "x" * (NAME_LENGTH_MAX + 1), "a:b"])
def test_illegal_name_is_refused(node: QuietNode, name: str) -> None:
    assert refusal(node, NewTopic(name, 1, {})) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "...", "A-b_c.9", "-", "x" * NAME_LENGTH_MAX])
@in_loop
async def test_legal_name_gets_a_log(node: QuietNode, name: str) -> None:
    topic = await node.create(name)
    assert append(topic.partitions[0]) == 0


@in_loop
async def test_name_is_taken_once(node: QuietNode) -> None:
    await node.create("t")
    assert refusal(node, NewTopic("t", 1, {})) is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaError) as caught:
        await node.topics.create([NewTopic("u", 1, {}), NewTopic("t", 1, {})])
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert [topic.name for topic in node.topics] == ["t"]
    node.restart()
    assert [topic.name for topic in node.topics] == ["t"]


@pytest.mark.parametrize(("first", "second"), [("a.b", "a_b"), ("a_b", "a.b"), ("_.", "._")])
@in_loop
async def test_names_that_differ_only_in_dot_and_underscore_collide(node: QuietNode, first: str, second: str) -> None:
    topic = await node.create(first)
    assert refusal(node, NewTopic(second, 1, {})) is ErrorCode.INVALID_TOPIC_EXCEPTION
    node.restart()
    assert refusal(node, NewTopic(second, 1, {})) is ErrorCode.INVALID_TOPIC_EXCEPTION
    found = node.topics.get_by_id(topic.topic_id)
    assert found is not None
    await node.topics.delete(found)
    await node.create(second)


@in_loop
async def test_names_that_collide_in_one_request_are_not_both_created(node: QuietNode) -> None:
    with pytest.raises(KafkaError) as caught:
        await node.topics.create([NewTopic("a.b", 1, {}), NewTopic("a_b", 1, {})])
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(node.topics) == 0


@in_loop
async def test_names_that_collide_at_the_same_time_are_not_both_created(node: QuietNode) -> None:
    results = await asyncio.gather(
        node.topics.create([NewTopic("a.b", 1, {})]),
        node.topics.create([NewTopic("a_b", 1, {})]),
        node.topics.create([NewTopic("a.b", 1, {})]),
        return_exceptions=True,
    )
    assert [topic.name for topic in node.topics] == ["a.b"]
    codes = [result.code for result in results if isinstance(result, KafkaError)]
    assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_ALREADY_EXISTS]


@pytest.mark.parametrize("count", [0, -1, PARTITIONS_MAX + 1, 2**31 - 1])
def test_partition_count_is_bounded(node: QuietNode, count: int) -> None:
    assert refusal(node, NewTopic("t", count, {})) is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize(
    "configs",
    [{"no.such.thing": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "shred"}, {"segment.bytes": "1"}],
    ids=str,
)
@in_loop
async def test_configuration_is_checked(node: QuietNode, configs: dict[str, str]) -> None:
    assert refusal(node, NewTopic("t", 1, configs)) is ErrorCode.INVALID_CONFIG
    topic = await node.create("t")
    with pytest.raises(KafkaError) as caught:
        await node.topics.configure(topic, configs)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert topic.configs == {}


@in_loop
async def test_topic_is_created_once_however_many_ask(node: QuietNode) -> None:
    topics = await asyncio.gather(*(node.topics.get_or_create("t") for _ in range(10)))
    assert set(topics) == {node.topics.get("t")}


@in_loop
async def test_created_on_demand_a_topic_is_as_the_defaults_say(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "num.partitions=4", "offsets.topic.num.partitions=7") as node:
        topic = await node.topics.get_or_create("t")
        assert len(topic.partitions) == 4
        assert not topic.is_internal
        offsets = await node.topics.offsets_topic()
        assert len(offsets.partitions) == 7
        assert offsets.is_internal
        assert offsets.configs["cleanup.policy"] == "compact"
        with pytest.raises(KafkaError):
            await node.topics.get_or_create("not/legal")


@in_loop
async def test_one_of_two_deletions_finds_nothing(node: QuietNode) -> None:
    topic = await node.create("t")
    results = await asyncio.gather(node.topics.delete(topic), node.topics.delete(topic), return_exceptions=True)
    (error,) = [result for result in results if result is not None]
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_of_two_changes_at_the_same_time_one_has_to_try_again(node: QuietNode) -> None:
    """Both were thought out from the same state; the second must not undo the first."""
    topic = await node.create("t")
    results = await asyncio.gather(
        node.topics.create_partitions(topic, 5),
        node.topics.configure(topic, {"retention.ms": "5"}),
        return_exceptions=True,
    )
    (error,) = [result for result in results if result is not None]
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert len(topic.partitions) == 5
    assert topic.configs == {}
    await node.topics.configure(topic, {"retention.ms": "5"})
    node.restart()
    again = node.topics.get("t")
    assert again is not None
    assert len(again.partitions) == 5
    assert again.configs == {"retention.ms": "5"}


@in_loop
async def test_deleted_topic_cannot_be_changed_through_an_old_object(node: QuietNode) -> None:
    old = await node.create("t")
    await node.topics.delete(old)
    await node.create("t")
    for change in (node.topics.create_partitions(old, 3), node.topics.configure(old, {}), node.topics.delete(old)):
        with pytest.raises(KafkaError) as caught:
            await change
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = node.topics.get("t")
    assert found is not None
    assert found is not old
    assert len(found.partitions) == 1


@in_loop
async def test_change_is_finished_when_whoever_asked_has_gone(node: QuietNode) -> None:
    """A deletion that only the disk knows of would lose what is written until the next start."""
    doomed = await node.create("doomed")
    wide = await node.create("wide")
    changes = [
        node.topics.create([NewTopic("new", 1, {})]),
        node.topics.delete(doomed),
        node.topics.create_partitions(wide, 2),
    ]
    for change in changes:
        task = asyncio.ensure_future(change)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    # Commits take turns, so this one ends behind the others.
    await node.create("last")
    await asyncio.sleep(0)
    assert sorted(topic.name for topic in node.topics) == ["last", "new", "wide"]
    assert len(wide.partitions) == 2
    node.restart()
    assert {topic.name: len(topic.partitions) for topic in node.topics} == {"last": 1, "new": 1, "wide": 2}


@in_loop
async def test_catalogue_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        topic = await node.create("t")
        files.break_down("pwrite", errno.ENOSPC)
        changes = [
            node.topics.create([NewTopic("new", 1, {})]),
            node.topics.create_partitions(topic, 2),
            node.topics.configure(topic, {"retention.ms": "1"}),
            node.topics.delete(topic),
        ]
        for change in changes:
            with pytest.raises(KafkaError) as caught:
                await change
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        files.repair()
        assert list(node.topics) == [topic]
        assert len(topic.partitions) == 1
        assert topic.configs == {}
        await node.create("new")


@in_loop
async def test_deletion_counts_although_the_files_would_not_go(tmp_path: Path) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        old = await node.create("t", 2)
        for partition in old.partitions:
            append(partition)
        files.fail_next("rename")
        await node.topics.delete(old)
        assert (tmp_path / "t-0").exists()
        assert not (tmp_path / "t-1").exists()
        new = await node.create("t", 2)
        assert [partition.log_end_offset for partition in new.partitions] == [0, 0]


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
@in_loop
async def test_internal_topics_are_made_by_the_server_alone(node: QuietNode, name: str) -> None:
    assert refusal(node, NewTopic(name, 1, {})) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert node.topics.get(name) is None


@pytest.mark.parametrize("name", ["__share_group_state"])
@in_loop
async def test_internal_topics_that_are_not_used_yet_are_not_made_on_demand(node: QuietNode, name: str) -> None:
    with pytest.raises(KafkaError) as refused:
        await node.topics.get_or_create(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(node.topics) == 0


@in_loop
async def test_transactions_topic_made_on_demand_is_as_transactions_need_it(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "num.partitions=4", "transaction.state.log.num.partitions=3") as node:
        topic = await node.topics.get_or_create("__transaction_state")
        assert (topic.is_internal, len(topic.partitions)) == (True, 3)
        assert topic.configs["cleanup.policy"] == "compact"
        assert await node.topics.transactions_topic() is topic


@in_loop
async def test_offsets_topic_made_on_demand_is_as_groups_need_it(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "num.partitions=4", "offsets.topic.num.partitions=7") as node:
        topic = await node.topics.get_or_create(OFFSETS_TOPIC)
        assert len(topic.partitions) == 7
        assert topic.configs["cleanup.policy"] == "compact"
        assert await node.topics.offsets_topic() is topic


@pytest.mark.parametrize("name", ["__consumer.offsets", "_.consumer_offsets", "..consumer.offsets"])
@in_loop
async def test_nobody_takes_the_look_of_an_internal_topic(node: QuietNode, name: str) -> None:
    assert refusal(node, NewTopic(name, 1, {})) is ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(KafkaError):
        await node.topics.create([NewTopic(name, 1, {})])
    await node.topics.offsets_topic()
    assert [topic.name for topic in node.topics] == [OFFSETS_TOPIC]


@in_loop
async def test_settings_are_checked_before_they_are_durable(node: QuietNode) -> None:
    """What is stored is brought up at every start: a value that cannot be would end them all."""
    with pytest.raises(KafkaError) as refused:
        await node.topics.create([NewTopic("good", 1, {}), NewTopic("bad", 1, {"segment.bytes": "1000"})])
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    node.restart()
    assert len(node.topics) == 0


@in_loop
async def test_stored_setting_that_cannot_be_is_named_at_the_start(node: QuietNode) -> None:
    value = {"id": bytes(16).hex(), "partitions": 1, "configs": {"segment.bytes": "1000"}}
    await node.metastore.commit([Change("topics/spoilt", value, 0)])
    with pytest.raises(ValueError, match=r"topic spoilt .*1000 for configuration segment\.bytes"):
        Topics(
            node.metastore,
            node.store,
            node.config,
            node.clock,
            1,
            SyncAtOnce(node.files),
            node.lanes,
            partial(LocalLog, node.cold_reads, validate_now),
        )


@in_loop
async def test_loop_gets_its_turn_while_a_wide_topic_is_deleted(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "DELETIONS_PER_CHUNK", 2)
    topic = await node.create("t", 9)
    left: list[int] = []
    deleted: list[int] = []
    begin_deletion = node.store.begin_deletion

    def watched(name: str, partition: int) -> list[LogDeletion]:
        deleted.append(partition)
        return begin_deletion(name, partition)

    monkeypatch.setattr(node.store, "begin_deletion", watched)
    deleting = asyncio.ensure_future(node.topics.delete(topic))
    while not deleting.done():
        left.append(9 - len(deleted))
        await asyncio.sleep(0)
    assert {7, 5, 3, 1} <= set(left)


@in_loop
async def test_topic_of_the_same_name_waits_until_the_old_one_is_out_of_its_way(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "DELETIONS_PER_CHUNK", 1)
    old = await node.create("t", 5)
    for partition in old.partitions:
        append(partition)
    deleting = asyncio.ensure_future(node.topics.delete(old))
    while node.topics.get("t") is not None:
        await asyncio.sleep(0)
    new = await node.topics.get_or_create("t")
    assert deleting.done()
    assert new.topic_id != old.topic_id
    assert append(new.partitions[0]) == 0


@in_loop
async def test_open_logs_are_listed_in_the_order_of_their_last_use(node: QuietNode) -> None:
    first, second, third = (await node.create("t", 3)).partitions
    assert not node.topics.open_partitions
    for partition in (second, first, third):
        append(partition)
    append(second)
    assert list(node.topics.open_partitions) == [second, first, third]
    node.topics.touch(second)
    assert list(node.topics.open_partitions) == [first, third, second]


@in_loop
async def test_logs_of_a_deleted_topic_are_not_open(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    other = await node.create_partition("u")
    for partition in (*topic.partitions, other):
        append(partition)
    await node.topics.delete(topic)
    assert list(node.topics.open_partitions) == [other]
    node.topics.touch(topic.partitions[0])
    assert list(node.topics.open_partitions) == [other]


@in_loop
async def test_refusal_that_nobody_waits_for_any_more_is_no_failure(node: QuietNode) -> None:
    await node.create("t")
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    async with node.topics._creating:
        task = asyncio.ensure_future(node.topics.create([NewTopic("t", 1, {})]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    del task
    await node.create("another")  # one after the other: the refusal has been given by now
    gc.collect()
    assert unheard == []
