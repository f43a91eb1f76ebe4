"""Publishing: atomic over several topics, ids in request order, versions, keys, and one global order."""

import asyncio
import json

import pytest

from kwire.broker.topics.topics import Topic
from kwire.errors import (
    EventTooLarge,
    IdempotencyConflict,
    InvalidEvent,
    KafkaError,
    NotAnEventTopic,
    TopicNotFound,
    WrongExpectedVersion,
)
from kwire.streams.event_store.drafts import EVENTS_MAX, EventDraft
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.event_store.journal import batches_from, commits_in
from kwire.streams.topic_directory import StreamTopic
from tests.support.event_store import all_events, draft, drafts, events_of, journal_of, payloads_of
from tests.support.node import QuietNode, in_loop


async def topics_of(node: QuietNode, *names: str) -> list[Topic]:
    return [await node.create_event_topic(name) for name in names]


@pytest.mark.proves("S2-5", "S2-10", "S2-11", "S2-32", "S2-38")
@in_loop
async def test_ids_are_numbered_from_one_in_each_topic_and_told_in_request_order(node: QuietNode) -> None:
    await topics_of(node, "orders", "users-2")
    ids = await node.event_store.publish(drafts(("orders", 1), ("users-2", 2), ("orders", 3)))
    assert list(map(str, ids)) == ["orders-1", "users-2-1", "orders-2"]
    [following] = await node.event_store.publish([draft("orders", 4)])
    assert str(following) == "orders-3"
    assert following == EventId("orders", 2)


@pytest.mark.proves("S2-2", "S2-30")
@in_loop
async def test_events_of_a_commit_are_in_their_own_topics(node: QuietNode) -> None:
    orders, users = await topics_of(node, "orders", "users")
    await node.event_store.publish(drafts(("orders", 1), ("users", 2), ("orders", 3)))
    assert payloads_of(orders) == [1, 3]
    assert payloads_of(users) == [2]
    assert [event.type for event in events_of(orders)] == ["made", "made"]


@pytest.mark.proves("S2-31", "S2-12")
@in_loop
async def test_one_unknown_topic_refuses_everything(node: QuietNode) -> None:
    (orders,) = await topics_of(node, "orders")
    with pytest.raises(TopicNotFound):
        await node.event_store.publish(drafts(("orders", 1), ("nowhere", 2)))
    with pytest.raises(TopicNotFound):
        await node.event_store.publish(drafts(("orders", 1), ("__events", 2)))
    assert payloads_of(orders) == []


@pytest.mark.proves("S2-31")
@in_loop
async def test_one_event_that_its_schema_refuses_refuses_everything(node: QuietNode) -> None:
    orders, users = await topics_of(node, "orders", "users")

    def check(topic: StreamTopic, one: EventDraft) -> None:
        if json.loads(one.payload) == "bad":
            raise InvalidEvent("it is bad")

    node.event_checks.check_draft = check
    with pytest.raises(InvalidEvent, match="it is bad"):
        await node.event_store.publish(drafts(("orders", 1), ("users", "bad")))
    assert payloads_of(orders) == payloads_of(users) == []


@in_loop
async def test_a_topic_that_is_not_of_the_event_store_is_refused(node: QuietNode) -> None:
    await node.create("plain")
    with pytest.raises(NotAnEventTopic):
        await node.event_store.publish([draft("plain")])


@pytest.mark.proves("S3-17")
@in_loop
async def test_global_positions_are_contiguous_and_in_request_order(node: QuietNode) -> None:
    await topics_of(node, "a", "b")
    await node.event_store.publish(drafts(("a", 0), ("b", 1), ("a", 2), ("b", 3)))
    await asyncio.gather(*(node.event_store.publish(drafts(("b", n), ("a", n))) for n in range(20)))
    found = all_events(node.event_store, node.topics)
    assert [event.offset for event in found] == list(range(44))
    assert [event.event_id for event in found[:4]] == ["a-1", "b-1", "a-2", "b-2"]
    assert [json.loads(event.data) for event in found[:4]] == [0, 1, 2, 3]
    for start in (0, 1, 2, 3, 5, 30, 43, 44):
        assert all_events(node.event_store, node.topics, start) == found[start:]


@in_loop
async def test_many_calls_of_one_turn_share_one_batch_of_the_journal(node: QuietNode) -> None:
    (orders,) = await topics_of(node, "orders")
    await node.event_store.publish([draft("orders", -1)])
    before = node.event_store.pipeline.group_count
    ids = await asyncio.gather(*(node.event_store.publish([draft("orders", n)]) for n in range(100)))
    assert node.event_store.pipeline.group_count - before == 1
    assert [one.offset for (one,) in ids] == list(range(1, 101))
    assert payloads_of(orders) == list(range(-1, 100))


@in_loop
async def test_an_expected_version_holds_or_nothing_is_stored(node: QuietNode) -> None:
    orders, users = await topics_of(node, "orders", "users")
    publish = node.event_store.publish
    await publish([draft("orders", 0, expected_version=-1)])
    with pytest.raises(WrongExpectedVersion) as caught:
        await publish([draft("users", 1), draft("orders", 1, expected_version=-1)])
    assert caught.value.details == {"topic": "orders", "expected": -1, "actual": 0}
    await publish([draft("orders", 1, expected_version=0), draft("orders", 2, expected_version=1)])
    assert payloads_of(orders) == [0, 1, 2]
    assert payloads_of(users) == []


@in_loop
async def test_of_two_who_expect_the_same_version_at_once_one_wins(node: QuietNode) -> None:
    (orders,) = await topics_of(node, "orders")
    calls = (node.event_store.publish([draft("orders", n, expected_version=-1)]) for n in range(5))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(one, WrongExpectedVersion) for one in outcomes] == [False, True, True, True, True]
    assert payloads_of(orders) == [0]


@in_loop
async def test_what_comes_again_under_its_key_is_not_stored_twice(node: QuietNode) -> None:
    orders, _ = await topics_of(node, "orders", "users")
    asked = drafts(("orders", 1), ("users", 2), ("orders", 3))
    first, again = await asyncio.gather(
        node.event_store.publish(asked, idempotency_key="k"), node.event_store.publish(asked, idempotency_key="k")
    )
    assert first == again == await node.event_store.publish(asked, idempotency_key="k")
    assert payloads_of(orders) == [1, 3]
    with pytest.raises(IdempotencyConflict):
        await node.event_store.publish([draft("orders", 4)], idempotency_key="k")
    node.restart()
    await node.event_store.open()
    assert await node.event_store.publish(asked, idempotency_key="k") == first
    with pytest.raises(InvalidEvent):
        await node.event_store.publish(asked, idempotency_key="")


@in_loop
async def test_bounds_hold_before_anything_is_stored(node: QuietNode) -> None:
    await node.create_event_topic("small", max_message_bytes="2000")
    with pytest.raises(InvalidEvent, match="contains no events"):
        await node.event_store.publish([])
    with pytest.raises(InvalidEvent):
        await node.event_store.publish([draft("small")] * (EVENTS_MAX + 1))
    with pytest.raises(EventTooLarge):
        await node.event_store.publish([draft("small", "x" * 3000)])
    with pytest.raises(EventTooLarge):
        await node.event_store.publish([draft("small", "x" * 500)] * 5)
    assert node.topics.get("__events") is None


@in_loop
async def test_readers_are_told_when_all_topics_of_the_commit_have_it(node: QuietNode) -> None:
    one, other = await topics_of(node, "one", "other")
    seen: list[tuple[int, int]] = []

    def look(_: object) -> None:
        seen.append((one.partitions[0].log_end_offset, other.partitions[0].log_end_offset))

    one.partitions[0].watch(look)
    other.partitions[0].watch(look)
    await node.event_store.publish(drafts(("one", 1), ("other", 2)))
    assert seen == [(1, 1), (1, 1)]


@in_loop
async def test_a_settings_change_of_the_topic_is_followed(node: QuietNode) -> None:
    topic = await node.create_event_topic("stamped", message_timestamp_type="LogAppendTime", compression_type="gzip")
    await node.event_store.publish(drafts(("stamped", 1), ("stamped", 2)))
    assert payloads_of(topic) == [1, 2]
    assert topic.partitions[0].read(0, 10_000).view == _last_part(node)
    assert [json.loads(event.data) for event in all_events(node.event_store, node.topics)] == [1, 2]


def _last_part(node: QuietNode) -> memoryview:
    (batch,) = batches_from(journal_of(node.topics), 0)
    (commit,) = commits_in(batch)
    (part,) = commit.parts
    return memoryview(part.batch)


@pytest.mark.parametrize(
    "text", ["orders", "orders-", "-1", "orders-0", "orders-01", "orders-x", "orders-٣", "o-" + "9" * 20]
)
def test_what_is_no_event_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidEvent):
        EventId.parse(text)


@pytest.mark.proves("S2-10")
def test_an_event_id_is_split_at_its_last_dash() -> None:
    assert EventId.parse("orders-2026-7") == EventId("orders-2026", 6)
    assert str(EventId.parse("a1-1")) == "a1-1"


@in_loop
async def test_a_key_is_free_again_when_all_that_was_published_under_it_is_deleted(node: QuietNode) -> None:
    """Otherwise an import of them into a new topic under the same keys would be refused while the keys are known."""
    orders, _ = await topics_of(node, "orders", "users")
    both = drafts(("orders", 1), ("users", 2))
    await node.event_store.publish([draft("orders", 0)], idempotency_key="one")
    await node.event_store.publish(both, idempotency_key="both")
    await node.topics.delete(orders)
    await topics_of(node, "orders")
    for is_repeated in (False, True):
        stored = await node.event_store.store([draft("orders", 0)], idempotency_key="one")
        assert stored.is_repeated is is_repeated
    # One of the topics still has them: they would be stored twice.
    with pytest.raises(KafkaError):
        await node.event_store.publish(both, idempotency_key="both")
    node.restart()
    await node.event_store.open()
    assert (await node.event_store.store([draft("orders", 0)], idempotency_key="one")).is_repeated
    found = [node.topics.get(name) for name in ("orders", "users")]
    assert [payloads_of(topic) for topic in found if topic is not None] == [[0], [2]]
