"""Writing markers: nothing that goes wrong in one partition keeps the others, or the transaction, waiting."""

from collections.abc import Callable, Collection
from typing import Any

import pytest

from kwire.broker.turns import OPENS_PER_TURN
from kwire.coordinator.transaction import marker_writing
from kwire.coordinator.transaction.marker_writing import Marker, Markers, Written
from kwire.coordinator.transaction.markers import WriteMarkers
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import ErrorCode


class _Partition:
    is_open = False


class _Topic:
    def partition(self, index: int) -> _Partition:
        return _Partition()


class _Topics:
    def get(self, name: str) -> _Topic:
        return _Topic()


def order(count: int) -> WriteMarkers:
    return WriteMarkers(
        transactional_id="x",
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        is_commit=True,
        partitions=frozenset(("t", index) for index in range(count)),
    )


def markers(turns: list[Callable[[], None]]) -> Markers:
    topics: Any = _Topics()
    groups: Any = None
    return Markers(topics, groups, turns.append)


def test_partition_that_breaks_down_in_a_later_turn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_writing, "MARKERS_PER_TURN", 1)

    def write(self: Markers, place: TopicPartition, marker: Marker, written: Written) -> None:
        if place == ("t", 2):
            raise OSError
        written(ErrorCode.NONE)

    monkeypatch.setattr(Markers, "write", write)
    turns: list[Callable[[], None]] = []
    told: list[Collection[TopicPartition]] = []
    markers(turns).write_all(order(5), told.append)
    while turns:
        turns.pop()()
    assert [list(failed) for failed in told] == [[("t", 2)]]


def test_logs_that_have_to_be_opened_leave_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def write(self: Markers, place: TopicPartition, marker: Marker, written: Written) -> None:
        nonlocal count
        count += 1
        written(ErrorCode.NONE)

    monkeypatch.setattr(Markers, "write", write)
    turns: list[Callable[[], None]] = []
    markers(turns).write_all(order(100), lambda failed: None)
    assert count == OPENS_PER_TURN
    while turns:
        turns.pop()()
    assert count == 100
