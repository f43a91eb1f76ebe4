"""DeleteTopics: gone from the catalogue, then from the disk."""

import errno
from pathlib import Path

import pytest

from kwire.broker.topics.topics import OFFSETS_TOPIC
from kwire.errors import ErrorCode
from kwire.wire.apis import DELETE_TOPICS
from kwire.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from kwire.wire.types import ZERO_UUID
from storage.batch.record_batch import check_batch
from tests.support.batches import make_batch
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_every_version, in_loop

ENDS = [1, 6]
BY_ID = 6


def named(*names: str) -> DeleteTopicsRequest:
    """Every version takes its own of the two lists."""
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names], topic_names=list(names), timeout_ms=1000
    )


async def delete(node: QuietNode, request: DeleteTopicsRequest, version: int) -> list[DeletableTopicResult]:
    results: list[DeletableTopicResult] = (await node.ask(request, version)).responses
    for one in results:
        assert bool(one.error_message) == (bool(one.error_code) and version >= 5)
    return results


@in_every_version(DELETE_TOPICS)
@in_loop
async def test_named_topics_go_and_the_others_stay(node: QuietNode, version: int) -> None:
    topics = [await node.create(name) for name in ("a", "b", "c")]
    batch = make_batch(timestamp_ms=0)
    topics[0].partitions[0].append(batch, check_batch(batch))
    results = await delete(node, named("a", "missing", "b"), version)
    assert [(one.name, one.error_code) for one in results] == [
        ("a", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", ErrorCode.NONE),
    ]
    expected = [topics[0].topic_id, ZERO_UUID, topics[1].topic_id] if version >= BY_ID else [ZERO_UUID] * 3
    assert [one.topic_id for one in results] == expected
    assert not list(node.directory.glob("a-*"))
    node.restart()
    assert [topic.name for topic in node.topics] == ["c"]


@in_loop
async def test_topics_can_be_named_by_id(node: QuietNode) -> None:
    topic = await node.create("t")
    unknown = b"\x01" * 16
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(topic_id=topic.topic_id), DeleteTopicState(topic_id=unknown)], timeout_ms=1000
    )
    results = await delete(node, request, BY_ID)
    assert [(one.name, one.topic_id, one.error_code) for one in results] == [
        ("t", topic.topic_id, ErrorCode.NONE),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert len(node.topics) == 0


@in_loop
async def test_name_and_id_exclude_each_other(node: QuietNode) -> None:
    topic = await node.create("t")
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="t", topic_id=topic.topic_id), DeleteTopicState()], timeout_ms=1000
    )
    results = await delete(node, request, BY_ID)
    assert [(one.name, one.error_code) for one in results] == [
        ("t", ErrorCode.INVALID_REQUEST),
        (None, ErrorCode.INVALID_REQUEST),
    ]
    assert len(node.topics) == 1


@in_loop
async def test_deletion_can_be_switched_off(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "delete.topic.enable=false") as node:
        await node.create("t")
        for version in DELETE_TOPICS.versions:
            (one,) = await delete(node, named("t"), version)
            # The code came with version 3; older clients do not know it.
            expected = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
            assert one.error_code == expected
        assert len(node.topics) == 1


@in_loop
async def test_internal_topics_stay(node: QuietNode) -> None:
    topic = await node.topics.offsets_topic()
    for version in DELETE_TOPICS.versions:
        (one,) = await delete(node, named(OFFSETS_TOPIC), version)
        assert one.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert node.topics.get(OFFSETS_TOPIC) is topic


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_topic_named_twice_is_refused_once(node: QuietNode, version: int) -> None:
    await node.create("t")
    results = await delete(node, named("t", "t"), version)
    assert [(one.name, one.error_code) for one in results] == [("t", ErrorCode.INVALID_REQUEST)]
    assert node.topics.get("t") is not None


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_full_disk_keeps_the_topic(tmp_path: Path, version: int) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        await node.create("t")
        files.break_down("pwrite", errno.ENOSPC)
        (one,) = await delete(node, named("t"), version)
        assert one.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        files.repair()
        assert (await delete(node, named("t"), version))[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_nothing_asked_nothing_answered(node: QuietNode, version: int) -> None:
    assert await delete(node, named(), version) == []


@in_loop
async def test_a_topic_named_by_name_and_by_id_is_refused_once(node: QuietNode) -> None:
    topic, other = await node.create("t"), await node.create("u")
    both = [DeleteTopicState(name="t"), DeleteTopicState(topic_id=topic.topic_id), DeleteTopicState(name="u")]
    for asked in (both, both[::-1]):
        results = await delete(node, DeleteTopicsRequest(topics=asked, timeout_ms=1000), BY_ID)
        codes = {(one.name, one.topic_id): one.error_code for one in results}
        assert len(results) == 2
        assert codes[("t", topic.topic_id)] == ErrorCode.INVALID_REQUEST
        assert ("u", other.topic_id) in codes or ("u", ZERO_UUID) in codes
    assert [one.name for one in node.topics] == ["t"]


@in_loop
async def test_a_name_that_comes_twice_does_not_speak_against_an_id(node: QuietNode) -> None:
    topic = await node.create("t")
    asked = [DeleteTopicState(name="t"), DeleteTopicState(name="t"), DeleteTopicState(topic_id=topic.topic_id)]
    results = await delete(node, DeleteTopicsRequest(topics=asked, timeout_ms=1000), BY_ID)
    assert [(one.name, one.topic_id, one.error_code) for one in results] == [
        ("t", ZERO_UUID, ErrorCode.INVALID_REQUEST),
        ("t", topic.topic_id, ErrorCode.NONE),
    ]


@in_loop
async def test_an_id_that_comes_twice_is_refused_once(node: QuietNode) -> None:
    topic = await node.create("t")
    asked = [DeleteTopicState(topic_id=topic.topic_id)] * 2 + [DeleteTopicState(name="t")]
    results = await delete(node, DeleteTopicsRequest(topics=asked, timeout_ms=1000), BY_ID)
    assert [(one.name, one.topic_id, one.error_code) for one in results] == [
        (None, topic.topic_id, ErrorCode.INVALID_REQUEST),
        ("t", topic.topic_id, ErrorCode.INVALID_REQUEST),
    ]
    assert node.topics.get("t") is topic


@in_loop
async def test_what_names_no_topic_is_refused_as_often_as_it_comes(node: QuietNode) -> None:
    results = await delete(node, DeleteTopicsRequest(topics=[DeleteTopicState()] * 3, timeout_ms=1000), BY_ID)
    assert [one.error_code for one in results] == [ErrorCode.INVALID_REQUEST] * 3
