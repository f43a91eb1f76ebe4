"""DescribeTopicPartitions: all topics page by page, and nothing twice or left out."""

import asyncio
import inspect
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.broker import chunked_answers as turns
from kwire.broker.topics.topics import OFFSETS_TOPIC
from kwire.errors import ErrorCode
from kwire.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from kwire.wire.types import ZERO_UUID
from tests.support.access import TOPIC_OPERATIONS
from tests.support.node import NODE_ID, QuietNode, in_loop

PAGES_MAX = 1000


def request(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def shown(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [one.partition_index for one in topic.partitions]) for topic in answer.topics]


def next_of(answer: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


async def pages(node: QuietNode, *names: str, limit: int) -> list[list[tuple[str | None, list[int]]]]:
    """As a client reads them: each request goes on where the answer before ended."""
    read: list[list[tuple[str | None, list[int]]]] = []
    cursor: tuple[str, int] | None = None
    while not read or cursor is not None:
        assert len(read) < PAGES_MAX
        answer = await node.ask(request(*names, limit=limit, cursor=cursor), 0)
        read.append(shown(answer))
        cursor = next_of(answer)
    return read


@in_loop
async def test_topics_are_described_in_the_order_of_their_names(node: QuietNode) -> None:
    topic = await node.create("b", 2)
    await node.create("a")
    await node.topics.offsets_topic()
    answer = await node.ask(request(), 0)
    assert next_of(answer) is None
    offsets, a, b = answer.topics
    assert (offsets.name, a.name, b.name) == (OFFSETS_TOPIC, "a", "b")
    assert (offsets.is_internal, a.is_internal) == (True, False)
    assert (b.error_code, b.topic_id, b.topic_authorized_operations) == (0, topic.topic_id, TOPIC_OPERATIONS)
    for index, one in enumerate(b.partitions):
        assert (one.error_code, one.partition_index, one.leader_id) == (0, index, NODE_ID)
        assert one.leader_epoch == node.topics.leader_epoch
        assert one.replica_nodes == one.isr_nodes == [NODE_ID]
        assert one.eligible_leader_replicas == one.last_known_elr == one.offline_replicas == []


@in_loop
async def test_topics_are_not_made_live_to_be_described(node: QuietNode) -> None:
    for name in ("a", "b"):
        await node.create(name)
    node.restart()
    assert len((await node.ask(request(), 0)).topics) == 2
    assert node.topics.live_count == 0


@in_loop
async def test_a_page_ends_within_a_topic_or_between_two(node: QuietNode) -> None:
    for name, count in (("a", 2), ("b", 3), ("c", 1)):
        await node.create(name, count)
    first = await node.ask(request(limit=4), 0)
    assert (shown(first), next_of(first)) == ([("a", [0, 1]), ("b", [0, 1])], ("b", 2))
    second = await node.ask(request(limit=4, cursor=("b", 2)), 0)
    assert (shown(second), next_of(second)) == ([("b", [2]), ("c", [0])], None)
    between = await node.ask(request(limit=2), 0)
    assert (shown(between), next_of(between)) == ([("a", [0, 1])], ("b", 0))
    exactly = await node.ask(request(limit=6), 0)
    assert next_of(exactly) is None


@pytest.mark.parametrize("limit", [0, -1, -(2**31), 1])
@in_loop
async def test_a_page_has_at_least_one_partition(node: QuietNode, limit: int) -> None:
    await node.create("a", 2)
    assert await pages(node, limit=limit) == [[("a", [0])], [("a", [1])]]


@in_loop
async def test_the_servers_limit_holds_whatever_is_asked(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "max.request.partition.size.limit=3") as node:
        await node.create("a", 7)
        assert [len(page[0][1]) for page in await pages(node, limit=2**31 - 1)] == [3, 3, 1]


@in_loop
async def test_named_topics_are_told_once_each_and_unknown_ones_with_their_error(node: QuietNode) -> None:
    await node.create("b")
    answer = await node.ask(request("zz", "b", "no/t", "b", "a"), 0)
    assert [(one.name, one.error_code) for one in answer.topics] == [
        ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", ErrorCode.NONE),
        ("no/t", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [one.topic_id == ZERO_UUID for one in answer.topics] == [True, False, True, True]
    assert next_of(answer) is None


@in_loop
async def test_named_topics_are_paged_too(node: QuietNode) -> None:
    for name, count in (("a", 2), ("b", 3), ("c", 1), ("d", 1)):
        await node.create(name, count)
    assert await pages(node, "d", "b", "a", limit=3) == [
        [("a", [0, 1]), ("b", [0])],
        [("b", [1, 2]), ("d", [0])],
    ]


@in_loop
async def test_a_cursor_that_cannot_be_makes_the_request_invalid(node: QuietNode) -> None:
    await node.create("a", 2)
    for asked in (request("a", cursor=("b", 0)), request("a", cursor=("", 0)), request("a", cursor=("a", -1))):
        answer = await node.ask(asked, 0)
        assert [(one.name, one.error_code, one.partitions) for one in answer.topics] == [
            ("a", ErrorCode.INVALID_REQUEST, [])
        ]
        assert next_of(answer) is None
    assert shown(await node.ask(request(cursor=("a", -1)), 0)) == []


@in_loop
async def test_a_cursor_whose_topic_or_partition_is_gone_goes_on_behind_it(node: QuietNode) -> None:
    await node.create("a", 2)
    await node.create("c")
    assert shown(await node.ask(request(cursor=("b", 5)), 0)) == [("c", [0])]
    assert shown(await node.ask(request(cursor=("a", 9)), 0)) == [("a", []), ("c", [0])]
    assert shown(await node.ask(request(cursor=("zz", 0)), 0)) == []


@in_loop
async def test_topics_that_come_and_go_between_pages_shift_nothing(node: QuietNode) -> None:
    for name in ("a", "c", "e"):
        await node.create(name)
    first = await node.ask(request(limit=1), 0)
    assert next_of(first) == ("c", 0)
    gone = node.topics.get("c")
    assert gone is not None
    await node.topics.delete(gone)
    await node.create("b")
    await node.create("d")
    assert shown(await node.ask(request(cursor=("c", 0)), 0)) == [("d", [0]), ("e", [0])]


@in_loop
async def test_a_long_page_is_made_in_turns_and_ends_as_a_short_one(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        await node.create(f"t{number:02}", 1 + number % 3)
    asked = request(limit=20)
    whole = node.start(asked, 0)
    assert not inspect.isawaitable(whole)
    monkeypatch.setattr(turns, "WEIGHT_PER_CHUNK", 5)
    answering = asyncio.ensure_future(node.ask(asked, 0))
    turns_taken = 0
    while not answering.done():
        turns_taken += 1
        await asyncio.sleep(0)
    assert turns_taken > 3
    assert shown(answering.result()) == shown(whole)
    assert next_of(answering.result()) == next_of(whole) == ("t10", 1)


@given(
    counts=st.dictionaries(st.text("ab._", min_size=1, max_size=4), st.integers(1, 5), max_size=8),
    limit=st.integers(1, 12),
)
def test_pages_put_together_are_everything_once(
    tmp_path_factory: pytest.TempPathFactory, counts: dict[str, int], limit: int
) -> None:
    looks = {name.replace(".", "_"): name for name in counts if name not in (".", "..")}
    named = {name: counts[name] for name in looks.values()}

    @in_loop
    async def read() -> None:
        with QuietNode(tmp_path_factory.mktemp("pages")) as node:
            for name, count in named.items():
                await node.create(name, count)
            expected = [(name, index) for name in sorted(named) for index in range(named[name])]
            read = await pages(node, limit=limit)
            assert [(name, index) for page in read for name, indexes in page for index in indexes] == expected
            sizes = [sum(len(indexes) for _, indexes in page) for page in read]
            assert all(size == limit for size in sizes[:-1])

    read()
