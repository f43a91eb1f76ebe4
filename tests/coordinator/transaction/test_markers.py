"""The transaction coordinator and its marker writer."""

from collections.abc import Callable
from typing import Any

import pytest

from kwire.coordinator.transaction.commands import AddPartitions, EndTransaction, InitProducer
from kwire.coordinator.transaction.marker_effect import MarkersDone, WriteMarkers
from kwire.coordinator.transaction.states import State
from kwire.errors import ErrorCode, KafkaError
from tests.coordinator.transaction.world import World


@pytest.fixture
def world() -> World:
    """Somebody has a transaction open."""
    world = World()
    world.ask(InitProducer(transactional_id="x", timeout_ms=60_000, fresh_producer_id=1))
    world.ask(AddPartitions(transactional_id="x", producer_id=1, producer_epoch=0, partitions=[("t", 0)], is_v2=True))
    return world


def end(world: World) -> list[Any]:
    return world.ask(EndTransaction(transactional_id="x", producer_id=1, producer_epoch=0, is_commit=True, is_v2=True))


def state(world: World) -> State:
    metadata = world.metadata()
    assert metadata is not None
    return metadata.state


def test_writer_that_breaks_down_is_asked_again(world: World) -> None:
    def break_down(effect: WriteMarkers) -> None:
        raise RuntimeError

    world.on_markers = break_down
    (answer,) = end(world)
    assert answer.error is ErrorCode.NONE
    (_, late) = world.markers.pop()
    world.on_markers = lambda effect: None
    # It has been told that the attempt is over; what comes of it later is not listened to.
    late(())
    assert state(world) is State.PREPARE_COMMIT
    world.timers.advance(100)
    world.mark()
    assert state(world) is State.COMPLETE_COMMIT


def test_writer_that_is_done_at_once(world: World) -> None:
    order: list[str] = []

    def write(effect: WriteMarkers) -> None:
        order.append("markers")
        world.mark()

    world.on_markers = write
    command = EndTransaction(transactional_id="x", producer_id=1, producer_epoch=0, is_commit=True, is_v2=True)
    world.transactions.submit(command, lambda answer: order.append(answer.error.name))
    assert order == ["NONE", "markers"]
    assert state(world) is State.COMPLETE_COMMIT


def test_attempt_is_over_once(world: World) -> None:
    end(world)
    done: MarkersDone = world.markers[0][1]
    done([("t", 0)])
    done(())
    assert state(world) is State.PREPARE_COMMIT


def test_partitions_that_nobody_asked_for_cannot_fail(world: World) -> None:
    end(world)
    world.markers.pop()[1]([("other", 3)])
    assert state(world) is State.COMPLETE_COMMIT


def test_decision_that_is_not_committed_in_time_is_told_to_partitions_when_it_is(world: World) -> None:
    world.log.is_holding = True
    answers = end(world)
    world.log.release(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert [answer.error for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not world.markers
    world.timers.advance(99)
    assert not world.markers
    world.timers.advance(1)
    world.mark()
    # The producer comes back and hears how it ended.
    assert [answer.error for answer in end(world)] == [ErrorCode.NONE]


def test_what_was_added_is_written_before_the_marker(world: World) -> None:
    """A producer that was told "added" writes inside the answer; the marker of a later decision comes behind."""
    order: list[str] = []
    world.on_markers = lambda effect: order.append("marker")
    world.log.is_holding = True

    def ask(command: AddPartitions | EndTransaction, name: str) -> None:
        append: Callable[[Any], None] = lambda answer: order.append(name)  # noqa: E731
        world.transactions.submit(command, append)

    ask(
        AddPartitions(transactional_id="x", producer_id=1, producer_epoch=0, partitions=[("t", 1)], is_v2=True),
        "data",
    )
    # Known already, so nothing is written, and yet it keeps its place.
    ask(
        AddPartitions(transactional_id="x", producer_id=1, producer_epoch=0, partitions=[("t", 0)], is_v2=True),
        "more data",
    )
    ask(
        EndTransaction(transactional_id="x", producer_id=1, producer_epoch=0, is_commit=True, is_v2=True),
        "told",
    )
    assert order == []
    world.log.release()
    assert order == ["data", "more data", "told", "marker"]
