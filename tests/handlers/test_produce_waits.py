"""Produce requests that wait for the disk, the coordinator or the event store: their time-outs and their memory."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.batch_validation import RECORDS_ON_LOOP_MAX
from kwire.broker.partition import Partition
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import BlockingContinuation
from kwire.wire.frame import ReceiveMemory
from kwire.wire.messages.produce import PartitionProduceResponse, ProduceRequest
from storage.batch.record_batch import Record, build_batch
from storage.errors import RecordProblem
from tests.handlers.test_produce import batch, request
from tests.support.batches import UnsyncedFiles
from tests.support.node import FakePeer, QuietNode, SyncAtOnce, in_loop
from tests.support.transactional_requests import V2, Producer, produce_request, started, transactional_batch

TIMEOUT_MS = 1000
WAIT_SECONDS = 10.0


class HeldSyncs(SyncAtOnce):
    """Sync rounds that are over at once, except for those of one topic: these wait for the test."""

    def __init__(self, topic_name: str) -> None:
        super().__init__(UnsyncedFiles())
        self.topic_name = topic_name
        self.held: dict[Partition, None] = {}

    def add(self, partition: Partition) -> None:
        if partition.topic_name == self.topic_name:
            self.held[partition] = None
        else:
            super().add(partition)

    def run(self) -> None:
        held, self.held = self.held, {}
        for partition in held:
            super().add(partition)


@pytest.fixture
def syncs() -> HeldSyncs:
    return HeldSyncs("t")


@pytest.fixture
def node(tmp_path: Path, syncs: HeldSyncs) -> Iterator[QuietNode]:
    with QuietNode(tmp_path, syncs=syncs) as made:
        yield made


class StuckCoordinator:
    """Keeps the questions that Produce has for the transaction coordinator, until a test lets them through."""

    def __init__(self, node: QuietNode) -> None:
        self._ask = node.transactions.submit
        self._asked: list[tuple[Any, Callable[[Any], None]]] = []
        self._node = node
        node.transactions.submit = self.keep  # type: ignore[method-assign]

    def keep(self, command: Any, reply: Callable[[Any], None]) -> None:
        self._asked.append((command, reply))

    def let_go(self) -> None:
        self._node.transactions.submit = self._ask  # type: ignore[method-assign]
        asked, self._asked = self._asked, []
        for command, reply in asked:
            self._ask(command, reply)


def sent(node: QuietNode, asked: ProduceRequest, version: int = V2) -> "asyncio.Future[Any]":
    """The answer to a request that waits."""
    asked.timeout_ms = TIMEOUT_MS
    answer = node.start(asked, version)
    assert asyncio.isfuture(answer)
    return answer


def transactional(producer: Producer, topic: Any, sequence: int = 0, size: int = 1) -> ProduceRequest:
    return produce_request(producer, topic, transactional_batch(producer, bytes(size), sequence=sequence))


async def outcome(answer: "asyncio.Future[Any]") -> ErrorCode:
    one: PartitionProduceResponse = (await asyncio.wait_for(answer, WAIT_SECONDS)).responses[0].partition_responses[0]
    assert (one.base_offset >= 0) == (one.error_code == ErrorCode.NONE)
    return ErrorCode(one.error_code)


@pytest.mark.parametrize("is_transactional", [False, True], ids=["plain", "transactional"])
@in_loop
async def test_a_wait_for_the_disk_ends_with_the_timeout_of_its_request(
    node: QuietNode, syncs: HeldSyncs, is_transactional: bool
) -> None:
    topic = await node.create("t")
    producer = await started(node)

    def asked(sequence: int) -> ProduceRequest:
        return transactional(producer, topic, sequence) if is_transactional else request(topic, batch())

    early = sent(node, asked(0))
    while topic.partitions[0].log_end_offset < 1:  # the coordinator has replied
        await asyncio.sleep(0)
    node.clock.advance(TIMEOUT_MS - 1)
    late = sent(node, asked(1))
    node.clock.advance(1)
    topic.partitions[0].give_up_overdue()
    assert await outcome(early) is ErrorCode.REQUEST_TIMED_OUT
    assert not late.done()
    syncs.run()
    assert await outcome(late) is ErrorCode.NONE


@in_loop
async def test_time_spent_at_the_coordinator_counts(node: QuietNode) -> None:
    topic = await node.create("t")
    producer = await started(node)
    coordinator = StuckCoordinator(node)
    answer = sent(node, transactional(producer, topic))
    node.clock.advance(TIMEOUT_MS - 1)
    coordinator.let_go()
    while topic.partitions[0].log_end_offset < 1:
        await asyncio.sleep(0)
    node.clock.advance(1)
    topic.partitions[0].give_up_overdue()
    assert await outcome(answer) is ErrorCode.REQUEST_TIMED_OUT


@in_loop
async def test_a_wait_for_the_coordinator_ends_with_the_timeout_and_nothing_is_stored(
    node: QuietNode, syncs: HeldSyncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.handlers.produce.handler.WORK_MS_MIN", 1)
    monkeypatch.setattr("tests.handlers.test_produce_waits.TIMEOUT_MS", 1)
    topic = await node.create("t")
    producer = await started(node)
    coordinator = StuckCoordinator(node)
    assert await outcome(sent(node, transactional(producer, topic))) is ErrorCode.REQUEST_TIMED_OUT
    assert node.peer.reader.account.used_bytes == 0
    coordinator.let_go()
    monkeypatch.undo()
    # It replies after all: what follows does not take the place of the batch, which comes again.
    answer = await node.ask(transactional(producer, topic, sequence=1), V2)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert topic.partitions[0].log_end_offset == 0
    again = sent(node, transactional(producer, topic))
    while not syncs.held:
        await asyncio.sleep(0)
    syncs.run()
    assert await outcome(again) is ErrorCode.NONE


@in_loop
async def test_a_commit_of_the_event_store_ends_with_the_timeout_of_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.streams.event_store.commit_pipeline.DEADLINE_CHECK_SECONDS", 0.001)
    syncs = HeldSyncs("__events")
    with QuietNode(tmp_path, syncs=syncs) as node:
        topic = await node.create_event_topic("orders")
        with monkeypatch.context() as hurry:
            hurry.setattr("kwire.handlers.produce.handler.WORK_MS_MIN", 1)
            hurry.setattr("tests.handlers.test_produce_waits.TIMEOUT_MS", 1)
            early = sent(node, request(topic, batch()))
        late = sent(node, request(topic, batch()))
        assert await outcome(early) is ErrorCode.REQUEST_TIMED_OUT
        assert not late.done()
        while not late.done():
            syncs.run()
            await asyncio.sleep(0)
        assert await outcome(late) is ErrorCode.NONE
        assert node.peer.reader.account.used_bytes == 0


@in_loop
async def test_batches_that_wait_for_the_coordinator_count_in_the_memory_for_requests(
    node: QuietNode, syncs: HeldSyncs
) -> None:
    syncs.topic_name = ""
    topic = await node.create("t")
    one, other = await started(node, "a"), await started(node, "b")
    size = len(transactional_batch(one, bytes(1000)))
    memory = ReceiveMemory(2 * size - 1)
    node.peer = FakePeer(memory)
    coordinator = StuckCoordinator(node)
    waiting = sent(node, transactional(one, topic, size=1000))
    assert memory.used_bytes == size
    refused = await node.ask(transactional(other, topic, size=1000), V2)
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert memory.used_bytes == size
    coordinator.let_go()
    assert await outcome(waiting) is ErrorCode.NONE
    assert memory.used_bytes == 0
    answer = await node.ask(transactional(other, topic, size=1000), V2)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert memory.used_bytes == 0


@in_loop
async def test_batches_that_wait_for_the_event_store_count_in_the_memory_for_requests(node: QuietNode) -> None:
    topic = await node.create_event_topic("orders")
    checked: asyncio.Future[Sequence[RecordProblem]] = asyncio.get_running_loop().create_future()
    node.event_checks.check_batch = lambda topic, batch, header: checked
    size = len(batch())
    memory = ReceiveMemory(2 * size - 1)
    node.peer = FakePeer(memory)
    waiting = sent(node, request(topic, batch()))
    assert memory.used_bytes == size
    refused = await node.ask(request(topic, batch()), V2)
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    # What the store refuses at once holds nothing.
    await node.ask(request(topic, transactional_batch(await started(node), b"{}")), V2)
    assert memory.used_bytes == size
    checked.set_result([RecordProblem(0, "no")])
    assert await outcome(waiting) is ErrorCode.INVALID_RECORD
    assert memory.used_bytes == 0


@pytest.mark.parametrize("problems", [[], [RecordProblem(0, "no")]], ids=["committed", "refused"])
@in_loop
async def test_a_batch_whose_outcome_is_known_before_the_others_are_appended_is_not_waited_for(
    node: QuietNode, syncs: HeldSyncs, problems: list[RecordProblem]
) -> None:
    syncs.topic_name = ""
    orders, compacted = await node.create_event_topic("orders"), await node.create("c", cleanup_policy="compact")
    node.event_checks.check_batch = lambda topic, batch, header: problems
    gate = asyncio.Event()

    async def validate(function: Callable[..., Any], *args: Any) -> Any:
        await gate.wait()
        return function(*args)

    node.services.validation._run = validate
    asked = request(orders, batch())
    long = memoryview(build_batch([Record(b"k", b"", 0)] * (RECORDS_ON_LOOP_MAX + 1)))
    asked.topic_data += request(compacted, long).topic_data
    held = node.start(asked, V2)
    assert isinstance(held, BlockingContinuation)
    ordered = asyncio.ensure_future(held.rest)
    while node.peer.reader.account.used_bytes != len(long):  # the copy of the event is needed no longer
        await asyncio.sleep(0)
    gate.set()
    answer = await asyncio.wait_for(ordered, WAIT_SECONDS)
    codes = [one.partition_responses[0].error_code for one in answer.responses]
    assert codes == [ErrorCode.INVALID_RECORD if problems else ErrorCode.NONE, ErrorCode.NONE]
    assert node.peer.reader.account.used_bytes == 0
