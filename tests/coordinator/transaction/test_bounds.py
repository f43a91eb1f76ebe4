"""Bounds of the transaction coordinator: memory, and long scans that run in chunks."""

import pytest

from kwire.coordinator import runtime
from kwire.coordinator.decisions import Command, Moment, Result
from kwire.coordinator.log_records import KeyValue
from kwire.coordinator.transaction import shard, timeout_scans, transaction
from kwire.coordinator.transaction.commands import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    RunTimeoutScan,
)
from kwire.coordinator.transaction.shard import TransactionShard
from kwire.coordinator.transaction.states import State
from kwire.errors import ErrorCode, KafkaError
from tests.coordinator.transaction.world import SHARD_COUNT, World

TIMEOUT_MS = 1_000


def begun(world: World, transactional_id: str) -> InitProducer:
    producer_id = world.fresh_producer_id()
    command = InitProducer(transactional_id=transactional_id, timeout_ms=TIMEOUT_MS, fresh_producer_id=producer_id)
    (answer,) = world.ask(command)
    assert answer.error is ErrorCode.NONE
    return command


def add(world: World, command: InitProducer, *partitions: tuple[str, int]) -> list[ErrorCode]:
    return world.ask(
        AddPartitions(
            transactional_id=command.transactional_id,
            producer_id=command.fresh_producer_id,
            producer_epoch=0,
            partitions=partitions,
            is_v2=True,
        )
    )


def names_of_one_shard(world: World, count: int) -> list[str]:
    names = (f"n{number}" for number in range(100 * count))
    return [name for name in names if world.transactions.shard_of(name) == 0][:count]


def test_shard_takes_only_so_many_transactional_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "TRANSACTIONAL_IDS_MAX", 2)
    world = World()
    first, second, third = names_of_one_shard(world, 3)
    begun(world, first)
    begun(world, second)
    (answer,) = world.ask(InitProducer(transactional_id=third, timeout_ms=TIMEOUT_MS, fresh_producer_id=9))
    assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    # Who is known goes on.
    (answer,) = world.ask(InitProducer(transactional_id=first, timeout_ms=TIMEOUT_MS))
    assert answer.error is ErrorCode.NONE


def test_transaction_that_reaches_too_many_partitions_can_only_be_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "PARTITIONS_MAX", 2)
    world = World()
    producer = begun(world, "x")
    assert add(world, producer, ("t", 0), ("t", 1)) == [ErrorCode.NONE]
    assert add(world, producer, ("t", 2)) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert add(world, producer, ("t", 1)) == [ErrorCode.NONE]
    end = EndTransaction(
        transactional_id="x",
        producer_id=producer.fresh_producer_id,
        producer_epoch=0,
        is_commit=False,
        is_v2=True,
    )
    (answer,) = world.ask(end)
    assert answer.error is ErrorCode.NONE


def test_only_so_many_wait_for_the_markers_of_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "WAITING_MAX", 1)
    world = World()
    producer = begun(world, "x")
    add(world, producer, ("t", 0))
    waits = world.ask(InitProducer(transactional_id="x", timeout_ms=TIMEOUT_MS))
    (answer,) = world.ask(InitProducer(transactional_id="x", timeout_ms=TIMEOUT_MS))
    assert answer.error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not waits
    assert world.transactions.waiting_count() == 1
    world.mark()
    assert [one.error for one in waits] == [ErrorCode.NONE]
    assert world.transactions.waiting_count() == 0


def test_markers_are_heard_of_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is from them that those who wait get their answer."""
    world = World()
    producer = begun(world, "x")
    add(world, producer, ("t", 0))
    waits = world.ask(InitProducer(transactional_id="x", timeout_ms=TIMEOUT_MS))
    monkeypatch.setattr(runtime, "WAITING_COMMANDS_MAX", 1)
    (described,) = world.ask(DescribeTransaction(transactional_id="x"))
    assert described.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.mark()
    assert [one.error for one in waits] == [ErrorCode.NONE]


def test_notes_of_deadlines_do_not_pile_up() -> None:
    world = World()
    producer = begun(world, "x")
    for epoch in range(200):
        command = AddPartitions(
            transactional_id="x",
            producer_id=producer.fresh_producer_id,
            producer_epoch=epoch,
            partitions=[("t", 0)],
            is_v2=True,
        )
        added = world.ask(command)
        if epoch:
            assert not added
            world.mark()
        assert added == [ErrorCode.NONE]
        end = EndTransaction(
            transactional_id="x",
            producer_id=producer.fresh_producer_id,
            producer_epoch=epoch,
            is_commit=True,
            is_v2=True,
        )
        assert [one.error for one in world.ask(end)] == [ErrorCode.NONE]
    (one,) = (one for one in world.transactions.shards() if one.transactions)
    assert len(one._wakes) <= 1


@pytest.mark.parametrize("bound", ["CHUNK_IDS_MAX", "CHUNK_RECORDS_MAX"])
def test_round_over_many_ids_is_made_in_portions(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(timeout_scans, bound, 3)
    world = World(abort_timed_out_interval_ms=5_000)
    names = names_of_one_shard(world, 10)
    for name in names:
        add(world, begun(world, name), ("t", 0))
    portions: list[int] = []
    step = TransactionShard.step

    def counted(machine: TransactionShard, command: object, moment: Moment) -> Result:
        result = step(machine, command, moment)  # type: ignore[arg-type]
        if isinstance(command, RunTimeoutScan):
            portions.append(len(result.records))
        return result

    monkeypatch.setattr(TransactionShard, "step", counted)
    world.timers.advance(5_100)
    assert sum(portions) == 10
    assert max(portions) == 3
    assert {world.metadata(name).state for name in names} == {State.PREPARE_ABORT}  # type: ignore[union-attr]


def test_batch_of_a_round_is_not_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeout_scans, "CHUNK_BYTES_MAX", 100)
    world = World(abort_timed_out_interval_ms=5_000)
    for name in names_of_one_shard(world, 4):
        add(world, begun(world, name), *(("t" * 100, index) for index in range(5)))
    sizes: list[int] = []
    append = world.log.append

    def counted(index: int, records: list[KeyValue], now_ms: int) -> int:
        sizes.append(len(records))
        return append(index, records, now_ms)

    monkeypatch.setattr(world.log, "append", counted)
    world.timers.advance(5_100)
    assert sizes == [1, 1, 1, 1]


def test_many_prepared_transactions_are_completed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "DUE_MAX", 3)
    world = World()
    names = names_of_one_shard(world, 10)
    for name in names:
        producer = begun(world, name)
        add(world, producer, ("t", 0))
        world.ask(InitProducer(transactional_id=name, timeout_ms=TIMEOUT_MS))
    world.restart()
    turns: list[int] = []
    due = TransactionShard.due

    def counted(machine: TransactionShard, steady_ms: int) -> list[Command[object]]:
        commands = due(machine, steady_ms)
        turns.append(len(commands))
        return commands

    monkeypatch.setattr(TransactionShard, "due", counted)
    world.transactions.load()
    world.timers.advance(100)
    assert len(world.markers) == 10
    assert max(turns) == 3


def test_shard_that_cannot_be_loaded_is_tried_again_without_anybody_asking() -> None:
    world = World()
    producer = begun(world, "x")
    add(world, producer, ("t", 0))
    world.ask(InitProducer(transactional_id="x", timeout_ms=TIMEOUT_MS))
    index = world.transactions.shard_of("x")
    whole = world.log.shards[index]
    world.log.shards[index] = [(b"\x00", None), *whole]
    world.restart()
    world.transactions.load()
    world.timers.advance(1_000)
    assert sum(1 for _ in world.transactions.shards()) == SHARD_COUNT - 1
    world.log.shards[index] = whole
    world.timers.advance(5_000)
    assert [effect.transactional_id for effect, _ in world.markers] == ["x"]
    world.mark()
    world.timers.advance(60_000)
    assert world.metadata().state is State.COMPLETE_ABORT  # type: ignore[union-attr]


def test_closing_ends_loading_and_waiting() -> None:
    world = World()
    producer = begun(world, "x")
    add(world, producer, ("t", 0))
    waits = world.ask(InitProducer(transactional_id="x", timeout_ms=TIMEOUT_MS))
    world.transactions.load()
    world.transactions.close()
    assert [one.error for one in waits] == [ErrorCode.NOT_COORDINATOR]
    assert world.timers.live_count() == 0
    # Markers that come too late change nothing: the next start writes them again.
    world.mark()
    (refused,) = world.ask(ListTransactions(transactional_id="x"))
    assert refused.error is ErrorCode.NOT_COORDINATOR
    assert world.replayed()["x"].state is State.PREPARE_ABORT


def test_transaction_can_be_ended_however_long_the_names_of_its_partitions_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several that took too long are ended in one batch, which a log takes only up to a size."""
    batch_bytes_max = 1_048_588
    world = World(abort_timed_out_interval_ms=5_000)
    names = names_of_one_shard(world, 3)
    append = world.log.append

    def bounded(index: int, records: list[KeyValue], now_ms: int) -> int:
        if sum(len(key) + len(value or b"") for key, value in records) > batch_bytes_max - 1_000:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        return append(index, records, now_ms)

    monkeypatch.setattr(world.log, "append", bounded)
    for name, count in zip(names, (1_000, 4_000, 4_000), strict=True):
        producer = begun(world, name)
        for start in range(0, count, 250):
            error = add(world, producer, *((f"{number:0240d}", 0) for number in range(start, start + 250)))
            assert error in ([ErrorCode.NONE], [ErrorCode.TRANSACTION_ABORTABLE])
    world.timers.advance(60_000)
    assert {world.metadata(name).state for name in names} == {State.PREPARE_ABORT}  # type: ignore[union-attr]


def test_the_oldest_transaction_is_known_after_a_replay_of_a_compacted_log() -> None:
    world = World()
    older, newer = (begun(world, name) for name in names_of_one_shard(world, 2))
    started_ms = world.clock.now_ms()
    add(world, older, ("t", 0))
    world.clock.advance(1_000)
    add(world, newer, ("t", 0))
    # The last record of the older transaction comes after the record of the newer one.
    add(world, older, ("t", 1))
    compacted = dict(world.log.key_values(0)[-2:])
    replayed = TransactionShard(world.settings, lambda: world.version)
    for key, value in compacted.items():
        replayed.apply(key, value)
    replayed.loaded(Moment(world.now_ms, world.clock.now_ms()))
    assert (replayed.open_count, replayed.oldest_start_ms) == (2, started_ms)
