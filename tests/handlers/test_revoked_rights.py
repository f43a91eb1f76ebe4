"""A right that is taken away acts on the next request, on Produce templates, fetch sessions and waiting fetches."""

import asyncio
from typing import Any

import pytest

from kwire.access.acl import CLUSTER_NAME, Operation, ResourceType
from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context, DropConnection
from kwire.wire.codec import decode_message
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.wire.messages.produce import ProduceResponse
from tests.handlers.test_repeated_produce import Producer, batch, request
from tests.support.access import BOB
from tests.support.access_cases import Subject, fetch_request
from tests.support.node import FakePeer, QuietNode, in_loop, received
from tests.support.transactions import append_plain

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
LONG_MS = 60_000
TOPIC = ResourceType.TOPIC

by_name_and_id = pytest.mark.parametrize("version", [12, 13])


async def topic_with_records(node: QuietNode, name: str = "orders", count: int = 1) -> Topic:
    topic = await node.create(name, count)
    for partition in topic.partitions:
        append_plain(partition)
    return topic


# --- Produce


class RestrictedProducer(Producer):
    """A producer whose connection has the node's current principal."""

    def __init__(self, node: QuietNode, version: int) -> None:
        super().__init__(node, version)
        self._context = Context(node.services, FakePeer(), version, "test", node.views)

    def code(self, topic: Topic, acks: int = -1) -> int:
        answer = self.send(request(topic.name, topic.topic_id, 0, batch(), acks))
        assert answer is not None
        head_bytes = 8 + (self._context.api_version >= 9)
        response = decode_message(ProduceResponse, self._context.api_version, memoryview(answer)[head_bytes:])
        code: int = response.responses[0].partition_responses[0].error_code
        return code


@pytest.mark.parametrize("version", [8, 11, 13])
@in_loop
async def test_a_template_ends_with_the_right(node: QuietNode, version: int) -> None:
    topic = await node.create("orders")
    node.restrict()
    right = await node.allow(Operation.WRITE, TOPIC, "orders")
    producer = RestrictedProducer(node, version)
    assert [producer.code(topic) for _ in range(4)] == [0] * 4
    assert producer.taken == 2
    await node.revoke(right)
    assert [producer.code(topic) for _ in range(3)] == [REFUSED] * 3
    assert producer.taken == 2
    assert topic.partitions[0].log_end_offset == 4
    await node.allow(Operation.WRITE, TOPIC, "orders")
    assert [producer.code(topic) for _ in range(4)] == [0] * 4
    assert producer.taken > 2


@in_loop
async def test_a_template_survives_changes_of_other_rights(node: QuietNode) -> None:
    topic = await node.create("orders")
    node.restrict()
    await node.allow(Operation.WRITE, TOPIC, "orders")
    producer = RestrictedProducer(node, 11)
    for _ in range(3):
        assert producer.code(topic) == 0
    await node.allow(Operation.READ, TOPIC, "payments")
    for _ in range(4):
        assert producer.code(topic) == 0
    assert producer.taken >= 3


@in_loop
async def test_without_acks_a_refusal_closes_the_connection(node: QuietNode) -> None:
    topic = await node.create("orders")
    node.restrict()
    with pytest.raises(DropConnection):
        await node.ask(request("orders", topic.topic_id, 0, batch(), acks=0), 11)
    assert topic.partitions[0].log_end_offset == 0


# --- fetch sessions


class Session:
    """A fetch session: the first request names the partitions, the later ones name none."""

    def __init__(self, node: QuietNode, version: int, topics: list[Topic]) -> None:
        self.node = node
        self.version = version
        self._topics = topics
        self._id = self._epoch = 0

    def start(self, **more: Any) -> Any:
        names = [
            FetchTopic(
                topic=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    FetchPartition(partition=one.index, fetch_offset=0, partition_max_bytes=1000)
                    for one in topic.partitions
                ],
            )
            for topic in (self._topics if self._epoch == 0 else ())
        ]
        settings = {"max_wait_ms": 0, "min_bytes": 1, **more}
        return self.node.start(
            FetchRequest(topics=names, session_id=self._id, session_epoch=self._epoch, **settings), self.version
        )

    async def open(self) -> int:
        """Send the first request to topics without records. Returns the number of partitions in the response."""
        response = received(self.start(), self.version)
        self._id, self._epoch = response.session_id, 1
        return sum(len(topic.partitions) for topic in response.responses)

    async def fetch(self) -> dict[str, int]:
        """Return the error codes of the response by topic; records have the code 0."""
        answer = self.start()
        return self.read(await answer if isinstance(answer, asyncio.Future) else answer)

    def advance(self) -> None:
        """Continue after a response that `fetch` has not read."""
        self._epoch += 1

    def read(self, answer: Any) -> dict[str, int]:
        response = received(answer, self.version)
        assert response.error_code == 0
        self._id, self._epoch = response.session_id, self._epoch + 1
        names = {topic.topic_id: topic.name for topic in self._topics}
        for topic in response.responses:
            for one in topic.partitions:
                assert bool(one.records) == (one.error_code == 0)
        return {topic.topic or names[topic.topic_id]: topic.partitions[0].error_code for topic in response.responses}


@by_name_and_id
@in_loop
async def test_partitions_of_a_session_are_authorized_again(node: QuietNode, version: int) -> None:
    topics = [await topic_with_records(node, name) for name in ("orders", "payments")]
    node.restrict()
    right = await node.allow(Operation.READ, TOPIC, "orders")
    await node.allow(Operation.READ, TOPIC, "payments")
    session = Session(node, version, topics)
    assert await session.fetch() == {"orders": 0, "payments": 0}
    assert await session.fetch() == {"orders": 0, "payments": 0}
    await node.revoke(right)
    assert await session.fetch() == {"orders": REFUSED, "payments": 0}
    assert await session.fetch() == {"orders": REFUSED, "payments": 0}
    await node.allow(Operation.READ, TOPIC, "orders")
    assert await session.fetch() == {"orders": 0, "payments": 0}
    await node.deny(Operation.READ, TOPIC, "payments")
    assert await session.fetch() == {"orders": 0, "payments": REFUSED}


@by_name_and_id
@in_loop
async def test_a_session_gives_its_rights_to_nobody_else(node: QuietNode, version: int) -> None:
    topic = await topic_with_records(node)
    node.restrict()
    await node.allow(Operation.READ, TOPIC, "orders")
    session = Session(node, version, [topic])
    # The second request looks the partition up and keeps it.
    assert await session.fetch() == {"orders": 0}
    assert await session.fetch() == {"orders": 0}
    node.become(BOB)
    assert await session.fetch() == {"orders": REFUSED}


@by_name_and_id
@in_loop
async def test_the_right_of_a_follower_lets_no_consumer_read(node: QuietNode, version: int) -> None:
    topic = await topic_with_records(node)
    node.restrict()
    await node.allow(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    session = Session(node, version, [topic])
    assert await session.fetch() == {"orders": REFUSED}
    # The second request looks the partition up and keeps it. kwire has no followers, so it has an error.
    for _ in range(2):
        (refused,) = received(session.start(replica_id=2), version).responses
        assert refused.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        session.advance()
    assert await session.fetch() == {"orders": REFUSED}


# --- waiting fetches


@by_name_and_id
@in_loop
async def test_a_waiting_fetch_returns_no_records_after_the_right_is_gone(node: QuietNode, version: int) -> None:
    topic = await node.create("orders")
    node.restrict()
    right = await node.allow(Operation.READ, TOPIC, "orders")
    waiting = node.start(fetch_request(Subject("orders", topic.topic_id), max_wait_ms=LONG_MS), version)
    assert isinstance(waiting, asyncio.Future)
    await asyncio.sleep(0)
    assert not waiting.done()
    await node.revoke(right)
    append_plain(topic.partitions[0])
    response = received(await waiting, version)
    (one,) = response.responses[0].partitions
    assert (one.error_code, bytes(one.records or b""), one.high_watermark) == (REFUSED, b"", -1)


@by_name_and_id
@in_loop
async def test_a_waiting_session_returns_no_records_after_the_right_is_gone(node: QuietNode, version: int) -> None:
    topic = await node.create("orders")
    node.restrict()
    right = await node.allow(Operation.READ, TOPIC, "orders")
    session = Session(node, version, [topic])
    assert await session.open() == 1
    waiting = session.start(max_wait_ms=LONG_MS)
    assert isinstance(waiting, asyncio.Future)
    await node.revoke(right)
    append_plain(topic.partitions[0])
    assert session.read(await waiting) == {"orders": REFUSED}


@by_name_and_id
@in_loop
async def test_rights_that_change_between_two_chunks_of_a_fetch_count(
    node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.handlers.fetch.handler._CHUNK_WEIGHT", 10)
    topics = [await topic_with_records(node, name) for name in ("orders", "payments", "refunds")]
    node.restrict()
    right = await node.allow(Operation.READ, TOPIC, "orders")
    await node.allow(Operation.READ, TOPIC, "payments")
    names = [
        FetchTopic(
            topic=topic.name,
            topic_id=topic.topic_id,
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
        )
        for topic in topics
    ]
    rest = node.start(FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=-1, topics=names), version)
    # The first chunk has read the first topic; the next chunk runs when the rest is awaited.
    await node.revoke(right)
    response = received(await rest, version)
    codes = [topic.partitions[0].error_code for topic in response.responses]
    assert codes == [REFUSED, 0, REFUSED]
    assert [bool(topic.partitions[0].records) for topic in response.responses] == [False, True, False]
