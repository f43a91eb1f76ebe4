"""TxnOffsetCommit: what is committed in a transaction counts when it ends, in every version."""

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kwire.broker.topics.topics import OFFSETS_TOPIC, Topic
from kwire.coordinator.transaction.admission import AdmissionRequest, OnAdmission
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context
from kwire.handlers.txn_offset_commit import handle
from kwire.wire.apis import OFFSET_FETCH, TXN_OFFSET_COMMIT
from kwire.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire.wire.messages.describe_transactions import DescribeTransactionsRequest
from kwire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kwire.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from storage.batch.record_batch import parse_header
from storage.log.log import Log
from tests.coordinator.context import FakeTopics, context_of, topic_id
from tests.coordinator.world import World
from tests.support.batches import read_all
from tests.support.node import QuietNode, in_every_version, in_loop
from tests.support.partition_log import log_of
from tests.support.transactional_requests import Producer, ended, started

GROUP = "g"
# From here on nobody has to add the group first.
FIRST_V2 = 5
STABLE_VERSIONS = [version for version in OFFSET_FETCH.versions if version >= 7]

Found = dict[int, tuple[int, int]]


def asked_topic(
    name: str, id_: bytes, offsets: dict[int, int], metadata: str | None = ""
) -> TxnOffsetCommitRequestTopic:
    return TxnOffsetCommitRequestTopic(
        name=name,
        topic_id=id_,
        partitions=[
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
            )
            for index, offset in offsets.items()
        ],
    )


def commit_request(
    producer: Producer, *topics: TxnOffsetCommitRequestTopic, group_id: str = GROUP, **more: Any
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=list(topics),
        **more,
    )


def told(response: TxnOffsetCommitResponse) -> list[ErrorCode]:
    return [ErrorCode(one.error_code) for topic in response.topics for one in topic.partitions]


async def committed(
    node: QuietNode, producer: Producer, topic: Topic, offsets: dict[int, int], version: int, **more: Any
) -> list[ErrorCode]:
    """As a producer of this version does: the group is added first if the server does not do that."""
    if version < FIRST_V2:
        assert await add_group(node, producer) is ErrorCode.NONE
    request = commit_request(producer, asked_topic(topic.name, topic.topic_id, offsets), **more)
    return told(await node.ask(request, version))


async def add_group(node: QuietNode, producer: Producer) -> ErrorCode:
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=GROUP,
    )
    return ErrorCode((await node.ask(request, 4)).error_code)


async def fetched(node: QuietNode, topic: Topic, *, version: int = 9, require_stable: bool = False) -> Found:
    """By partition, the offset and the error."""
    indexes = list(range(len(topic.partitions)))
    if version < 8:
        asked = OffsetFetchRequestTopic(name=topic.name, partition_indexes=indexes)
        request = OffsetFetchRequest(group_id=GROUP, topics=[asked], require_stable=require_stable)
        found = (await node.ask(request, version)).topics
    else:
        named = OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=indexes)
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=[named])
        (answer,) = (await node.ask(OffsetFetchRequest(groups=[group], require_stable=require_stable), version)).groups
        found = answer.topics
    (partitions,) = (one.partitions for one in found)
    return {one.partition_index: (one.committed_offset, one.error_code) for one in partitions}


async def two_partitions(node: QuietNode) -> Topic:
    await node.topics.offsets_topic()
    return await node.create("t", 2)


def end_version(version: int) -> int:
    return 5 if version >= FIRST_V2 else 4


@pytest.mark.parametrize("is_commit", [True, False])
@in_every_version(TXN_OFFSET_COMMIT)
@in_loop
async def test_offsets_count_when_the_transaction_is_committed(node: QuietNode, version: int, is_commit: bool) -> None:
    topic = await two_partitions(node)
    producer = await started(node)
    assert await committed(node, producer, topic, {0: 10, 1: 20}, version) == [ErrorCode.NONE] * 2
    assert await fetched(node, topic) == {0: (-1, 0), 1: (-1, 0)}
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await fetched(node, topic, require_stable=True) == {0: (-1, unstable), 1: (-1, unstable)}
    answer = await ended(node, producer, is_commit=is_commit, version=end_version(version))
    assert answer.error_code == ErrorCode.NONE
    expected = {0: (10, 0), 1: (20, 0)} if is_commit else {0: (-1, 0), 1: (-1, 0)}
    assert await fetched(node, topic, require_stable=True) == expected
    node.restart()
    assert await fetched(node, topic, require_stable=True) == expected


@in_every_version(TXN_OFFSET_COMMIT)
@in_loop
async def test_pending_offsets_survive_a_restart(node: QuietNode, version: int) -> None:
    topic = await two_partitions(node)
    producer = await started(node)
    assert await committed(node, producer, topic, {0: 10}, version) == [ErrorCode.NONE]
    node.restart()
    assert (await fetched(node, topic, require_stable=True))[0] == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert (await ended(node, producer, version=end_version(version))).error_code == ErrorCode.NONE
    assert (await fetched(node, topic, require_stable=True))[0] == (10, 0)


@in_loop
async def test_pending_offsets_survive_a_kill(node: QuietNode, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What lies on disk while the server runs is all that the next one has."""
    topic = await two_partitions(node)
    producer = await started(node)
    assert await committed(node, producer, topic, {0: 10}, 5) == [ErrorCode.NONE]
    assert await committed(node, producer, topic, {1: 20}, 5) == [ErrorCode.NONE]
    left = tmp_path_factory.mktemp("left") / "data"
    shutil.copytree(node.directory, left)
    with QuietNode(left) as next_node:
        unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await fetched(next_node, topic, require_stable=True) == {0: unstable, 1: unstable}
        opened = offsets_log(next_node).open_transaction(producer.producer_id)
        assert opened is not None
        assert (opened.first_offset, opened.producer_epoch) == (0, producer.epoch)
        assert (await ended(next_node, producer)).error_code == ErrorCode.NONE
        assert await fetched(next_node, topic, require_stable=True) == {0: (10, 0), 1: (20, 0)}


@pytest.mark.parametrize("fetch_version", STABLE_VERSIONS)
@in_loop
async def test_every_fetch_that_asks_for_stable_offsets_is_told_to_wait(node: QuietNode, fetch_version: int) -> None:
    topic = await two_partitions(node)
    producer = await started(node)
    assert await committed(node, producer, topic, {0: 10, 1: 10}, 5) == [ErrorCode.NONE] * 2
    producer = producer._replace(epoch=(await ended(node, producer)).producer_epoch)
    assert await committed(node, producer, topic, {1: 20}, 5) == [ErrorCode.NONE]
    assert await fetched(node, topic, version=fetch_version) == {0: (10, 0), 1: (10, 0)}
    stable = await fetched(node, topic, version=fetch_version, require_stable=True)
    assert stable == {0: (10, 0), 1: (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}


@pytest.mark.parametrize("version", STABLE_VERSIONS)
@in_loop
async def test_fetch_of_all_names_what_is_unstable(node: QuietNode, version: int) -> None:
    topic = await two_partitions(node)
    producer = await started(node)
    await committed(node, producer, topic, {0: 10}, 5)
    producer = producer._replace(epoch=(await ended(node, producer)).producer_epoch)
    await committed(node, producer, topic, {0: 20, 1: 20}, 5)
    request = OffsetFetchRequest(
        group_id=GROUP,
        topics=None,
        groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)],
        require_stable=True,
    )
    answer = await node.ask(request, version)
    topics = answer.topics if version < 8 else answer.groups[0].topics
    found = [(one.partition_index, one.committed_offset, one.error_code) for one in topics[0].partitions]
    assert found == [(0, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]


@in_every_version(TXN_OFFSET_COMMIT)
@in_loop
async def test_what_does_not_exist_is_refused_and_the_rest_is_stored(node: QuietNode, version: int) -> None:
    topic = await two_partitions(node)
    producer = await started(node)
    if version < FIRST_V2:
        await add_group(node, producer)
    request = commit_request(
        producer,
        asked_topic("gone", topic_id("gone"), {0: 1}),
        asked_topic("t", topic.topic_id, {0: 5, 2: 5}, metadata=None),
    )
    response = await node.ask(request, version)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 6 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told(response) == [unknown, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [one.name for one in response.topics] == (["gone", "t"] if version < 6 else ["", ""])
    assert [one.topic_id for one in response.topics][1] == (topic.topic_id if version >= 6 else bytes(16))
    await ended(node, producer, version=end_version(version))
    ((_, _, stored),) = (one for shard in node.groups.shards() for one in shard.offsets.of_group(GROUP))
    assert (stored.offset, stored.leader_epoch, stored.metadata) == (5, 3 if version >= 2 else -1, "")
    assert stored.topic_id == topic.topic_id


@in_every_version(TXN_OFFSET_COMMIT)
@in_loop
async def test_request_with_nothing_to_store_asks_nobody(node: QuietNode, version: int) -> None:
    request = commit_request(Producer("nobody", 1, 0), asked_topic("gone", topic_id("gone"), {0: 1}))
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 6 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told(await node.ask(request, version)) == [unknown]


@pytest.mark.parametrize("version", range(FIRST_V2))
@in_loop
async def test_group_that_was_not_added_is_not_in_the_transaction(node: QuietNode, version: int) -> None:
    topic = await two_partitions(node)
    producer = await started(node)
    request = commit_request(producer, asked_topic("t", topic.topic_id, {0: 1, 1: 1}))
    error = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    assert told(await node.ask(request, version)) == [error] * 2
    assert offsets_log(node).log_end_offset == 0


@in_loop
async def test_group_need_not_be_added_where_nobody_verifies(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "transaction.partition.verification.enable=false") as node:
        topic = await two_partitions(node)
        producer = await started(node)
        request = commit_request(producer, asked_topic("t", topic.topic_id, {0: 1}))
        assert told(await node.ask(request, 4)) == [ErrorCode.NONE]
        assert (await fetched(node, topic, require_stable=True))[0] == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


@pytest.mark.parametrize("version", [5, 6])
@in_loop
async def test_group_is_added_by_the_commit(node: QuietNode, version: int) -> None:
    topic = await two_partitions(node)
    producer = await started(node)
    assert await committed(node, producer, topic, {0: 1}, version) == [ErrorCode.NONE]
    (state,) = (await node.ask(DescribeTransactionsRequest(transactional_ids=["tx"]), 0)).transaction_states
    assert [(one.topic, one.partitions) for one in state.topics] == [(OFFSETS_TOPIC, [node.groups.shard_of(GROUP)])]


@in_every_version(TXN_OFFSET_COMMIT)
@in_loop
async def test_producer_that_was_replaced_is_refused(node: QuietNode, version: int) -> None:
    topic = await two_partitions(node)
    zombie = await started(node)
    assert await committed(node, zombie, topic, {0: 1}, version) == [ErrorCode.NONE]
    await started(node)
    request = commit_request(zombie, asked_topic("t", topic.topic_id, {0: 2}))
    assert told(await node.ask(request, version)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await fetched(node, topic, require_stable=True) == {0: (-1, 0), 1: (-1, 0)}


@in_loop
async def test_log_refuses_a_producer_that_was_replaced_though_nobody_verifies(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "transaction.partition.verification.enable=false") as node:
        topic = await two_partitions(node)
        zombie = await started(node)
        assert await committed(node, zombie, topic, {0: 1}, 4) == [ErrorCode.NONE]
        await started(node)
        request = commit_request(zombie, asked_topic("t", topic.topic_id, {0: 2}))
        assert told(await node.ask(request, 4)) == [ErrorCode.INVALID_PRODUCER_EPOCH]


@in_every_version(TXN_OFFSET_COMMIT)
@in_loop
async def test_transactional_id_that_nobody_has_is_refused(node: QuietNode, version: int) -> None:
    topic = await two_partitions(node)
    await started(node)
    request = commit_request(Producer("other", 77, 0), asked_topic("t", topic.topic_id, {0: 1}))
    assert told(await node.ask(request, version)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize(
    ("version", "error"),
    [(3, "ILLEGAL_GENERATION"), (4, "ILLEGAL_GENERATION"), (5, "ILLEGAL_GENERATION"), (6, "GROUP_ID_NOT_FOUND")],
)
@in_loop
async def test_generation_of_a_group_that_does_not_exist_is_refused(node: QuietNode, version: int, error: str) -> None:
    topic = await two_partitions(node)
    producer = await started(node)
    who = {"generation_id_or_member_epoch": 1, "member_id": "m"}
    assert await committed(node, producer, topic, {0: 1}, version, **who) == [ErrorCode[error]]


@in_every_version(TXN_OFFSET_COMMIT)
@in_loop
async def test_group_needs_a_name_and_a_topic_to_be_kept_in(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 1)
    producer = await started(node)
    asked = asked_topic("t", topic.topic_id, {0: 1})
    assert told(await node.ask(commit_request(producer, asked), version)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    # Nothing was added: an end of the transaction would find no such partition.
    (state,) = (await node.ask(DescribeTransactionsRequest(transactional_ids=["tx"]), 0)).transaction_states
    assert state.topics == []
    nameless = commit_request(producer, asked, group_id="")
    assert told(await node.ask(nameless, version)) == [ErrorCode.INVALID_GROUP_ID]


@in_loop
async def test_batch_in_the_log_is_that_of_the_producer_without_a_sequence(node: QuietNode) -> None:
    topic = await two_partitions(node)
    producer = await started(node)
    for offset in range(3):
        assert await committed(node, producer, topic, {0: offset}, 5) == [ErrorCode.NONE]
    log = offsets_log(node)
    opened = log.open_transaction(producer.producer_id)
    assert opened is not None
    assert (opened.first_offset, opened.producer_epoch) == (0, producer.epoch)
    assert (await ended(node, producer)).error_code == ErrorCode.NONE
    headers = [parse_header(batch) for batch in read_all(log)]
    assert [(one.is_transactional, one.is_control, one.base_sequence) for one in headers] == [
        *[(True, False, -1)] * 3,
        (True, True, -1),
    ]
    assert {one.producer_id for one in headers} == {producer.producer_id}
    assert log.open_transaction(producer.producer_id) is None
    assert log.last_stable_offset(log.log_end_offset) == 4


# In a world where the coordinators say what the test wants


class HeldAdmission:
    """Answers when the test does."""

    def __init__(self) -> None:
        self.asked: list[AdmissionRequest] = []
        self.go: OnAdmission | None = None

    def admit(self, admission_request: AdmissionRequest, go: OnAdmission) -> None:
        self.asked.append(admission_request)
        self.go = go

    def say(self, error: ErrorCode) -> None:
        assert self.go is not None
        self.go(error)


def held(world: World, version: int) -> tuple[Context, HeldAdmission]:
    context = context_of(world, version, FakeTopics("t", OFFSETS_TOPIC))
    transaction_admission = HeldAdmission()
    services = cast(SimpleNamespace, context.services)
    services.transaction_admission = transaction_admission
    services.config = SimpleNamespace(transactions=SimpleNamespace(is_verified=True))
    return context, transaction_admission


@in_every_version(TXN_OFFSET_COMMIT)
@in_loop
async def test_nothing_is_stored_before_the_coordinator_agrees(version: int) -> None:
    world = World()
    context, transaction_admission = held(world, version)
    response = handle(context, commit_request(Producer("tx", 7, 1), asked_topic("t", topic_id("t"), {0: 1})))
    (admission_request,) = transaction_admission.asked
    assert (admission_request.transactional_id, admission_request.producer_id, admission_request.producer_epoch) == (
        "tx",
        7,
        1,
    )
    assert list(admission_request.partitions) == [(OFFSETS_TOPIC, world.groups.shard_of(GROUP))]
    assert admission_request.is_v2 is (version >= FIRST_V2)
    assert not world.log.appended
    transaction_admission.say(ErrorCode.NONE)
    # It is there before the coordinator goes on: no marker of this transaction can have come first.
    assert len(world.log.appended) == 1
    assert told(await asyncio.wait_for(cast(Any, response), 5)) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("error", "until", "before"),
    [
        ("COORDINATOR_LOAD_IN_PROGRESS", 2, "COORDINATOR_NOT_AVAILABLE"),
        ("TRANSACTION_ABORTABLE", 4, "INVALID_TXN_STATE"),
        ("PRODUCER_FENCED", 7, "INVALID_PRODUCER_EPOCH"),
        ("CONCURRENT_TRANSACTIONS", 0, ""),
        ("INVALID_PRODUCER_ID_MAPPING", 0, ""),
        ("NOT_COORDINATOR", 0, ""),
    ],
)
@in_every_version(TXN_OFFSET_COMMIT)
@in_loop
async def test_error_of_the_coordinator_is_told_in_words_of_the_version(
    version: int, error: str, until: int, before: str
) -> None:
    world = World()
    context, transaction_admission = held(world, version)
    asked = asked_topic("t", topic_id("t"), {0: 1, 1: 1})
    response = handle(context, commit_request(Producer("tx", 7, 1), asked))
    transaction_admission.say(ErrorCode[error])
    expected = ErrorCode[before if version < until else error]
    assert told(await asyncio.wait_for(cast(Any, response), 5)) == [expected] * 2
    assert not world.log.appended


@in_every_version(TXN_OFFSET_COMMIT)
@in_loop
async def test_group_that_is_being_loaded_says_so_in_words_of_the_version(version: int) -> None:
    world = World()
    context, transaction_admission = held(world, version)

    def ask(command: Any, reply: Any) -> None:
        reply(command.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    cast(SimpleNamespace, context.services).groups = SimpleNamespace(submit=ask, shard_of=lambda _: 0)
    response = handle(context, commit_request(Producer("tx", 7, 1), asked_topic("t", topic_id("t"), {0: 1})))
    transaction_admission.say(ErrorCode.NONE)
    name = "COORDINATOR_NOT_AVAILABLE" if version < 2 else "COORDINATOR_LOAD_IN_PROGRESS"
    assert told(await asyncio.wait_for(cast(Any, response), 5)) == [ErrorCode[name]]


@in_loop
async def test_group_that_breaks_down_breaks_nobody_else() -> None:
    context, transaction_admission = held(World(), 5)

    def ask(command: Any, reply: Any) -> None:
        raise RuntimeError

    cast(SimpleNamespace, context.services).groups = SimpleNamespace(submit=ask, shard_of=lambda _: 0)
    response = handle(context, commit_request(Producer("tx", 7, 1), asked_topic("t", topic_id("t"), {0: 1})))
    transaction_admission.say(ErrorCode.NONE)
    assert told(await asyncio.wait_for(cast(Any, response), 5)) == [ErrorCode.UNKNOWN_SERVER_ERROR]


def offsets_log(node: QuietNode) -> Log:
    topic = node.topics.get(OFFSETS_TOPIC)
    assert topic is not None
    return log_of(topic.partitions[node.groups.shard_of(GROUP)])
