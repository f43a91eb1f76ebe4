"""Fetch for readers of committed data: how far they get, what they wait for, and what they are told to leave out."""

import asyncio
import inspect
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode
from kwire.handlers.fetch import handler as fetch_handler
from kwire.wire.apis import FETCH
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from storage.batch.record_batch import parse_header, read_records
from tests.support.batches import headers, split_batches
from tests.support.effort import examples
from tests.support.new_segments import write_new_segment
from tests.support.node import QuietNode, in_every_version, in_loop, received
from tests.support.partition_log import log_of
from tests.support.transactions import TransactionalProducer, append_plain

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
SOME_VERSIONS = [4, 7, 18]
# Far beyond what a test may take: only a wake can end such a wait.
LONG_MS = 600_000
LARGE = 2**31 - 1

in_some_versions = pytest.mark.parametrize("version", SOME_VERSIONS)


def request(topic: Topic, offset: int, isolation: int = READ_COMMITTED, **more: Any) -> FetchRequest:
    limit = more.pop("partition_max_bytes", LARGE)
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit)
    return FetchRequest(
        topics=[FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[asked])],
        isolation_level=isolation,
        **{"max_wait_ms": 0, "min_bytes": 1, **more},
    )


def offsets(data: PartitionData) -> list[int]:
    """The base offsets of the batches in an answer."""
    assert data.records is not None
    return [header.base_offset for header in headers(memoryview(data.records))]


def told_aborted(data: PartitionData) -> list[tuple[int, int]] | None:
    if data.aborted_transactions is None:
        return None
    return [(one.producer_id, one.first_offset) for one in data.aborted_transactions]


def only(answer: FetchResponse) -> PartitionData:
    assert answer.error_code == ErrorCode.NONE
    ((one,),) = (topic.partitions for topic in answer.responses)
    assert one.error_code == ErrorCode.NONE
    return one


async def fetch(node: QuietNode, asked: FetchRequest, version: int) -> PartitionData:
    return only(await node.ask(asked, version))


def waiting(node: QuietNode, asked: FetchRequest, version: int) -> "asyncio.Future[FetchResponse]":
    answer = node.start(asked, version)
    assert inspect.isawaitable(answer)
    return asyncio.ensure_future(answer)


async def turns(count: int = 5) -> None:
    """Let everything that is already due happen."""
    for _ in range(count):
        await asyncio.sleep(0)


@in_every_version(FETCH)
@in_loop
async def test_an_open_transaction_is_the_end_for_readers_of_committed_data_only(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    partition = topic.partitions[0]
    producer = TransactionalProducer(partition, 7)
    append_plain(partition, 2)
    producer.send(2)
    append_plain(partition)
    committed = await fetch(node, request(topic, 0), version)
    assert (committed.high_watermark, committed.last_stable_offset) == (5, 2)
    assert (offsets(committed), told_aborted(committed)) == ([0], [])
    everything = await fetch(node, request(topic, 0, READ_UNCOMMITTED), version)
    assert (everything.high_watermark, everything.last_stable_offset) == (5, 2)
    assert (offsets(everything), told_aborted(everything)) == ([0, 2, 4], None)
    assert producer.commit() == 5
    committed = await fetch(node, request(topic, 0), version)
    assert (committed.high_watermark, committed.last_stable_offset) == (6, 6)
    assert (offsets(committed), told_aborted(committed)) == ([0, 2, 4, 5], [])


@in_every_version(FETCH)
@in_loop
async def test_readers_of_committed_data_are_told_what_was_aborted_in_what_they_get(
    node: QuietNode, version: int
) -> None:
    topic = await node.create("t", 2)
    partition = topic.partitions[0]
    first, second = TransactionalProducer(partition, 7), TransactionalProducer(partition, 8)
    first.send()  # 0
    second.send()  # 1
    first.abort()  # 2
    second.commit()  # 3
    second.send()  # 4
    second.abort()  # 5
    append_plain(partition)  # 6
    TransactionalProducer(topic.partitions[1], 9).send()
    whole = await fetch(node, request(topic, 0), version)
    assert offsets(whole) == [0, 1, 2, 3, 4, 5, 6]
    assert told_aborted(whole) == [(7, 0), (8, 4)]
    # One that began before what is fetched and ends in it.
    assert told_aborted(await fetch(node, request(topic, 1), version)) == [(7, 0), (8, 4)]
    assert told_aborted(await fetch(node, request(topic, 3), version)) == [(8, 4)]
    assert told_aborted(await fetch(node, request(topic, 6), version)) == []
    assert told_aborted(await fetch(node, request(topic, 7), version)) == []
    # What lies behind it is not told.
    assert told_aborted(await fetch(node, request(topic, 0, partition_max_bytes=1), version)) == [(7, 0)]
    assert told_aborted(await fetch(node, request(topic, 0, READ_UNCOMMITTED), version)) is None


@in_loop
async def test_each_partition_has_its_own_list(node: QuietNode) -> None:
    topic = await node.create("t", 3)
    for index in (0, 2):
        producer = TransactionalProducer(topic.partitions[index], 7 + index)
        producer.send()
        producer.abort()
    append_plain(topic.partitions[1])
    asked = request(topic, 0)
    asked.topics[0].partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=LARGE) for index in range(3)
    ]
    (told,) = (await node.ask(asked, 18)).responses
    assert [told_aborted(one) for one in told.partitions] == [[(7, 0)], [], [(9, 0)]]


@in_some_versions
@in_loop
async def test_reader_at_an_open_transaction_waits_for_its_end_whatever_is_appended(
    node: QuietNode, version: int
) -> None:
    topic = await node.create("t")
    partition = topic.partitions[0]
    producer, other = TransactionalProducer(partition, 7), TransactionalProducer(partition, 8)
    producer.send()
    answer = waiting(node, request(topic, 0, max_wait_ms=LONG_MS), version)
    for _ in range(3):
        producer.send(value=b"x" * 1000)
        append_plain(partition, 10)
        other.send()
        other.commit()
        await turns()
        assert not answer.done()
    producer.commit()
    data = only(received(await answer, version))
    assert len(offsets(data)) == 14
    assert data.last_stable_offset == data.high_watermark == partition.high_watermark
    assert not partition._watchers


@in_some_versions
@in_loop
async def test_reader_that_stands_beyond_an_open_transaction_waits_as_well(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    partition = topic.partitions[0]
    first, second = TransactionalProducer(partition, 7), TransactionalProducer(partition, 8)
    first.send()  # 0
    second.send()  # 1
    append_plain(partition)  # 2
    answer = waiting(node, request(topic, 2, max_wait_ms=LONG_MS), version)
    first.commit()  # 3
    await turns()
    assert not answer.done()
    second.commit()  # 4
    assert offsets(only(received(await answer, version))) == [2, 3, 4]


@in_some_versions
@in_loop
async def test_the_end_of_a_transaction_that_brings_too_little_does_not_end_the_wait(
    node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create("t")
    partition = topic.partitions[0]
    looks = 0
    read = Partition.read_committed

    def counted(*args: Any, **more: Any) -> Any:
        nonlocal looks
        looks += 1
        return read(*args, **more)

    monkeypatch.setattr(Partition, "read_committed", counted)
    producer = TransactionalProducer(partition, 7)
    producer.send()
    answer = waiting(node, request(topic, 0, max_wait_ms=LONG_MS, min_bytes=10_000), version)
    producer.abort()
    await turns()
    assert looks == 2
    append_plain(partition, value=b"x" * 5000)
    producer.send()
    await turns()
    assert not answer.done()
    append_plain(partition, value=b"x" * 5000)
    await turns()
    # Behind the open transaction nothing is gained, so nothing is looked at.
    assert (looks, answer.done()) == (2, False)
    producer.commit()
    data = only(received(await answer, version))
    assert offsets(data) == [0, 1, 2, 3, 4, 5]
    assert looks == 3


@in_some_versions
@in_loop
async def test_wait_for_an_open_transaction_ends_when_its_time_is_up(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    producer = TransactionalProducer(topic.partitions[0], 7)
    producer.send()
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = waiting(node, request(topic, 0, max_wait_ms=60, min_bytes=10_000), version)
    # A second wait goes on with the time that is left.
    producer.commit()
    data = only(received(await answer, version))
    assert 0.055 <= loop.time() - began < 5
    assert offsets(data) == [0, 1]


@in_loop
async def test_deletion_of_the_topic_ends_the_wait_for_a_transaction(node: QuietNode) -> None:
    topic = await node.create("t")
    TransactionalProducer(topic.partitions[0], 7).send()
    answer = waiting(node, request(topic, 0, max_wait_ms=LONG_MS), 12)
    await node.topics.delete(topic)
    ((one,),) = (told.partitions for told in (await answer).responses)
    assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_reader_in_a_gap_before_an_open_transaction_waits(node: QuietNode) -> None:
    """Compaction has taken the end of the segment before."""
    topic = await node.create("t")
    partition = topic.partitions[0]
    append_plain(partition)
    append_plain(partition)
    log_of(partition).roll(node.clock.now_ms())
    producer = TransactionalProducer(partition, 7)
    producer.send()
    log = log_of(partition)
    sealed = [segment for segment in log.segments() if segment is not log._active]
    new = write_new_segment(log, node.files, sealed, lambda header: header.base_offset == 0)
    log.replace_segments(sealed, [new], clean_upto=2)
    answer = waiting(node, request(topic, 1, max_wait_ms=LONG_MS), 18)
    await turns()
    assert not answer.done()
    producer.commit()
    assert offsets(only(received(await answer, 18))) == [2, 3]


@in_loop
async def test_a_transaction_in_one_partition_holds_up_no_other(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    producer = TransactionalProducer(topic.partitions[0], 7)
    producer.send()
    asked = request(topic, 0, max_wait_ms=LONG_MS)
    asked.topics[0].partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=LARGE) for index in range(2)
    ]
    answer = waiting(node, asked, 18)
    append_plain(topic.partitions[1])
    (told,) = received(await answer, 18).responses
    assert [offsets(one) for one in told.partitions] == [[], [0]]


# --- sessions


class Session:
    """A reader with a session for one partition."""

    def __init__(self, node: QuietNode, topic: Topic, isolation: int) -> None:
        self.node, self.topic, self.isolation = node, topic, isolation
        self.session_id, self.epoch = 0, 0
        self.offset = 0
        self.known = (-1, -1)
        self.batches: list[bytes] = []
        self.aborted: list[tuple[int, int]] = []

    async def fetch(self) -> PartitionData | None:
        asked = request(self.topic, self.offset, self.isolation, session_id=self.session_id, session_epoch=self.epoch)
        answer = await self.node.ask(asked, 18)
        assert answer.error_code == ErrorCode.NONE
        self.session_id, self.epoch = answer.session_id, self.epoch + 1
        if not answer.responses:
            return None
        data = only(answer)
        self.known = data.high_watermark, data.last_stable_offset
        assert data.records is not None
        batches = [bytes(one) for one in split_batches(memoryview(data.records))]
        self.batches += batches
        self.aborted += told_aborted(data) or []
        if batches:
            self.offset = parse_header(batches[-1]).last_offset + 1
        return data


@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
@in_loop
async def test_session_tells_a_changed_last_stable_offset(node: QuietNode, isolation: int) -> None:
    topic = await node.create("t")
    partition = topic.partitions[0]
    producer = TransactionalProducer(partition, 7)
    reader = Session(node, topic, isolation)
    append_plain(partition)
    assert await reader.fetch() is not None
    assert await reader.fetch() is None
    assert reader.known == (1, 1)
    producer.send()
    data = await reader.fetch()
    assert data is not None
    assert offsets(data) == ([1] if isolation == READ_UNCOMMITTED else [])
    assert reader.known == (2, 1)
    assert await reader.fetch() is None
    producer.commit()
    data = await reader.fetch()
    assert data is not None
    assert reader.known == (3, 3)
    assert reader.offset == 3
    assert await reader.fetch() is None


@in_loop
async def test_reader_that_knows_an_open_transaction_is_not_looked_at(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create("t")
    TransactionalProducer(topic.partitions[0], 7).send()
    reader = Session(node, topic, READ_COMMITTED)
    assert await reader.fetch() is not None
    assert await reader.fetch() is None
    monkeypatch.setattr(fetch_handler._FetchAttempt, "_fetch_partition", None)
    for _ in range(3):
        assert await reader.fetch() is None


ACTIONS = st.sampled_from(["plain", "send 7", "send 8", "commit 7", "abort 7", "commit 8", "abort 8", "read"])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(ACTIONS, max_size=25))
def test_readers_with_sessions_know_what_is_true_and_have_what_is_committed(actions: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_live(Path(directory), actions))


async def _live(directory: Path, actions: list[str]) -> None:
    with QuietNode(directory) as node:
        topic = await node.create("t")
        partition = topic.partitions[0]
        producers = {number: TransactionalProducer(partition, int(number)) for number in ("7", "8")}
        readers = [Session(node, topic, isolation) for isolation in (READ_UNCOMMITTED, READ_COMMITTED)]
        committed: set[int] = set()
        pending: dict[str, list[int]] = {"7": [], "8": []}
        for action in [*actions, "commit 7", "abort 8", "read"]:
            verb, _, number = action.partition(" ")
            if verb == "plain":
                committed.add(partition.high_watermark)
                append_plain(partition)
            elif verb == "send":
                pending[number].append(producers[number].send())
            elif verb in ("commit", "abort"):
                if verb == "commit":
                    committed.update(pending[number])
                pending[number] = []
                producers[number].commit() if verb == "commit" else producers[number].abort()
            else:
                for reader in readers:
                    await reader.fetch()
                    assert reader.known == (partition.high_watermark, partition.last_stable_offset)
                    assert reader.offset == reader.known[reader.isolation]
        everything, only_committed = readers
        assert everything.batches == only_committed.batches
        assert _left_in(only_committed) == sorted(committed)


def _left_in(reader: Session) -> list[int]:
    """The offsets of records that a client of the reader keeps, by the rule of Kafka's clients."""
    left: list[int] = []
    to_come = sorted(set(reader.aborted), key=lambda one: one[1])
    aborted: set[int] = set()
    for batch in reader.batches:
        header = parse_header(batch)
        while to_come and to_come[0][1] <= header.last_offset:
            aborted.add(to_come.pop(0)[0])
        if header.is_control:
            if _is_abort(batch):
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            left += range(header.base_offset, header.last_offset + 1)
    return left


def _is_abort(batch: bytes) -> bool:
    """The key of a marker has a version and a type."""
    (record,) = read_records(batch, LARGE)
    assert record.key is not None
    return record.key == b"\x00\x00\x00\x00"
