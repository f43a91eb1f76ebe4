"""Large answers: the same bytes as in one go, and others get their turn meanwhile."""

import asyncio
import inspect

import pytest

from kwire.broker import chunked_answers as turns
from kwire.handlers import create_topics
from kwire.wire.codec import encode_message
from kwire.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tests.support.node import QuietNode, in_every_version, in_loop, received


@in_every_version(METADATA)
@in_loop
async def test_answer_in_turns_is_the_answer(node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        await node.create(f"t{number}", 1 + number % 3)
    everything = MetadataRequest(topics=[] if version == 0 else None)
    whole = node.start(everything, version)
    assert not inspect.isawaitable(whole)
    monkeypatch.setattr(turns, "WEIGHT_PER_CHUNK", 7)
    waiting = node.start(everything, version)
    assert inspect.isawaitable(waiting)
    answering = asyncio.ensure_future(waiting)
    turns_taken = 0
    while not answering.done():
        turns_taken += 1
        await asyncio.sleep(0)
    assert turns_taken > 4
    assert encode_message(answering.result(), version) == encode_message(whole, version)
    assert received(answering.result(), version) == received(whole, version)


@in_loop
async def test_topic_deleted_while_all_are_described_is_left_out(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "WEIGHT_PER_CHUNK", 2)
    for name in "abc":
        await node.create(name)
    waiting = node.start(MetadataRequest(topics=None), 12)
    topic = node.topics.get("b")
    assert topic is not None
    await node.topics.delete(topic)
    assert [one.name for one in received(await waiting, 12).topics] == ["a", "c"]


@in_loop
async def test_many_names_are_created_and_answered_in_the_order_asked(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "WEIGHT_PER_CHUNK", 3)
    monkeypatch.setattr("kwire.handlers.metadata.LOOKUPS_PER_CHUNK", 2)
    await node.create("t3")
    names = [f"t{number}" for number in range(7)]
    asked = [MetadataRequestTopic(name=name) for name in names]
    answer = await node.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 12)
    assert [(one.name, one.error_code) for one in answer.topics] == [(name, 0) for name in names]


@pytest.mark.parametrize("version", [2, 5, 7])
@in_loop
async def test_many_topics_are_created_some_at_a_time(
    node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create_topics, "TOPICS_PER_CHUNK", 3)
    await node.create("t5")
    names = [f"t{number}" for number in range(10)]
    asked = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    request = CreateTopicsRequest(topics=asked, timeout_ms=1000)
    answer = await node.ask(request, version)
    assert [one.name for one in answer.topics] == names
    assert [one.name for one in answer.topics if one.error_code] == ["t5"]
    if version >= 7:
        for one in answer.topics:
            topic = node.topics.get(one.name)
            assert topic is not None
            assert one.error_code or one.topic_id == topic.topic_id
    if version >= 5:
        assert len(answer.topics[0].configs) == len(answer.topics[9].configs) > 10
