"""Groups for HTTP members, without the HTTP layer: real topics, a real log and restarts."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from kwire.coordinator.group import definitions
from kwire.coordinator.group.commands import ListGroups
from kwire.coordinator.web_groups.groups import WebGroups
from kwire.coordinator.web_groups.values import GroupDefaults
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.events.event import NewEvent
from kwire.streams.events.publishing import Publisher
from kwire.streams.events.reading import read_events
from tests.support.node import QuietNode, in_loop


async def refusal(attempt: Coroutine[Any, Any, Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await attempt
    assert str(raised.value)
    return raised.value.code


async def partitions(groups: WebGroups, group_id: str, member_id: str) -> list[int]:
    return list((await groups.heartbeat(group_id, member_id)).partitions)


@pytest.mark.proves("S0-85", "S0-82")
@in_loop
async def test_a_group_is_used_from_beginning_to_end(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("events", 4)
        publisher = Publisher(node.clock, asyncio.get_running_loop().call_soon)
        for index in range(4):
            event = NewEvent("made", b"%d" % index)
            await publisher.publish_and_wait(topic.stream(index), b"/topics/events", [event] * (index + 1))
        groups = node.web_groups
        await groups.create("processors", "events", partition_count=4)
        joined = await groups.join("processors")
        assert joined.partitions == [0, 1, 2, 3]
        for index in await partitions(groups, "processors", joined.member_id):
            events = await read_events(topic.stream(index), 0, 100)
            assert [one.data for one in events] == [b"%d" % index] * (index + 1)
            await groups.commit("processors", [(index, events[-1].offset + 1)])
        assert await groups.committed("processors", [0, 1, 2, 3]) == [1, 2, 3, 4]
        stats = await groups.stats("processors")
        state = stats.state
        assert (state.state, state.member_count, state.committed_partitions) == ("Stable", 1, 4)


@pytest.mark.proves("S0-69", "S0-89")
@in_loop
async def test_what_a_definition_leaves_out_is_the_default(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 3)
        made, is_new = await node.web_groups.create("g", "t")
        assert (made.strategy, made.session_timeout_ms, is_new) == ("round_robin", 30_000, True)
        groups = node.new_web_groups(GroupDefaults("sticky", 7_000, rebalance_timeout_ms=1))
        made, _ = await groups.create("h", "t")
        assert (made.strategy, made.session_timeout_ms) == ("sticky", 7_000)
        made, _ = await groups.create("i", "t", strategy="range", session_timeout_ms=9_000)
        assert (made.strategy, made.session_timeout_ms) == ("range", 9_000)


@in_loop
async def test_the_same_definition_twice_is_no_error_and_another_one_is(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 3)
        groups = node.web_groups
        assert (await groups.create("g", "t"))[1]
        assert not (await groups.create("g", "t"))[1]
        assert await refusal(groups.create("g", "t", strategy="range")) is ErrorCode.DUPLICATE_RESOURCE
        assert await refusal(groups.create("g", "t", session_timeout_ms=2_000)) is ErrorCode.DUPLICATE_RESOURCE
        assert (await groups.create("other", "t"))[1]


@in_loop
async def test_a_group_that_is_created_twice_at_once_is_there_once(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 3)
        groups = node.web_groups
        made = await asyncio.gather(*(groups.create("g", "t") for _ in range(3)))
        assert sorted(is_new for _, is_new in made) == [False, False, True]
        attempts = (groups.create("h", "t", strategy=one) for one in ("range", "sticky"))
        found = await asyncio.gather(*attempts, return_exceptions=True)
        (refused,) = (one for one in found if isinstance(one, KafkaError))
        assert refused.code is ErrorCode.DUPLICATE_RESOURCE


@in_loop
async def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 3)
        groups = node.web_groups
        # C-31
        assert await refusal(groups.create("g", "t", partition_count=4)) is ErrorCode.DUPLICATE_RESOURCE
        assert await refusal(groups.create("g", "nowhere")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await refusal(groups.create("g", "__consumer_offsets")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await refusal(groups.create("g", "t", strategy="lucky")) is ErrorCode.UNSUPPORTED_ASSIGNOR
        for name in ("", "  ", "__g", "g" * 250):
            assert await refusal(groups.create(name, "t")) is ErrorCode.INVALID_GROUP_ID
        for timeout_ms in (0, -1, 999, 1_800_001):
            made = groups.create("g", "t", session_timeout_ms=timeout_ms)
            assert await refusal(made) is ErrorCode.INVALID_SESSION_TIMEOUT
        attempts: list[Coroutine[Any, Any, Any]] = [groups.join("g"), groups.stats("g"), groups.delete("g")]
        for attempt in [*attempts, groups.committed("g", [0])]:
            assert await refusal(attempt) is ErrorCode.GROUP_ID_NOT_FOUND
        await groups.create("g", "t")
        assert await refusal(groups.join("g", session_timeout_ms=1)) is ErrorCode.INVALID_SESSION_TIMEOUT
        assert await refusal(groups.heartbeat("g", "nobody")) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await refusal(groups.leave("g", "nobody")) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await refusal(groups.commit("g", [(3, 0)])) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await refusal(groups.committed("g", [3])) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await refusal(groups.commit("g", [(0, 1)], member_id="nobody")) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await refusal(groups.commit("g", [(0, 1)], generation=99)) is ErrorCode.STALE_MEMBER_EPOCH
        assert await groups.committed("g", [0]) == [None]


@pytest.mark.proves("S0-92")
@in_loop
async def test_several_groups_read_one_topic_each_at_its_own_place(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 2)
        groups = node.web_groups
        for group_id in ("a", "b"):
            await groups.create(group_id, "t")
            assert (await groups.join(group_id)).partitions == [0, 1]
        await groups.commit("a", [(0, 5)])
        await groups.commit("b", [(0, 7), (1, 1)])
        assert await groups.committed("a", [0, 1]) == [5, None]
        assert await groups.committed("b", [0, 1]) == [7, 1]


@in_loop
async def test_definition_members_and_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 4)
        await node.web_groups.create("g", "t", strategy="range", session_timeout_ms=11_000)
        a = (await node.web_groups.join("g")).member_id
        b = (await node.web_groups.join("g", session_timeout_ms=5_000)).member_id
        await node.web_groups.heartbeat("g", a)
        before = [await partitions(node.web_groups, "g", one) for one in (a, b)]
        assert sorted(before) == [[0, 1], [2, 3]]
        await node.web_groups.commit("g", [(2, 20)])
        stats = await node.web_groups.stats("g")
        node.restart()
        groups = node.web_groups
        found = groups.find("g")
        assert (found.topic, found.strategy, found.session_timeout_ms) == ("t", "range", 11_000)
        assert await groups.committed("g", [2]) == [20]
        assert [await partitions(groups, "g", one) for one in (a, b)] == before
        assert (await groups.heartbeat("g", b)).session_timeout_ms == 5_000
        assert await groups.stats("g") == stats


@in_loop
async def test_a_group_is_deleted_with_its_offsets_once_it_has_no_members(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 1)
        groups = node.web_groups
        await groups.create("g", "t")
        member_id = (await groups.join("g")).member_id
        await groups.commit("g", [(0, 3)])
        assert await refusal(groups.delete("g")) is ErrorCode.NON_EMPTY_GROUP
        await groups.leave("g", member_id)
        await groups.delete("g")
        assert await refusal(groups.stats("g")) is ErrorCode.GROUP_ID_NOT_FOUND
        await groups.create("g", "t")
        assert await groups.committed("g", [0]) == [None]


@in_loop
async def test_offsets_of_a_topic_that_was_made_anew_do_not_count(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", 1)
        groups = node.web_groups
        await groups.create("g", "t")
        await groups.commit("g", [(0, 3)])
        await node.topics.delete(topic)
        assert await refusal(groups.join("g")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await groups.stats("g")).partition_count == 0
        await node.create("t", 1)
        assert await groups.committed("g", [0]) == [None]
        assert (await groups.stats("g")).state.committed_partitions == 0


@in_loop
async def test_groups_are_listed_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 1)
        groups = node.web_groups
        for name in ("b", "a", "ab", "c"):
            await groups.create(name, "t")
        assert [one.group_id for one in groups.page("", 3)] == ["a", "ab", "b"]
        assert [one.group_id for one in groups.page("ab", 3)] == ["b", "c"]
        node.restart()
        assert [one.group_id for one in node.web_groups.page("a", 2)] == ["ab", "b"]
        monkeypatch.setattr(definitions, "DEFINITIONS_MAX", 4)
        assert await refusal(node.web_groups.create("d", "t")) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        await node.web_groups.delete("c")
        assert (await node.web_groups.create("d", "t"))[1]


@in_loop
async def test_a_group_is_there_for_everybody_as_soon_as_it_is_created(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 1)
        await node.web_groups.create("g", "t")
        listed: list[Any] = []
        node.groups.submit(ListGroups(group_id="g"), listed.append)
        assert [(one.group_id, one.kind, one.state) for one in listed[0].groups] == [("g", "consumer", "Empty")]
