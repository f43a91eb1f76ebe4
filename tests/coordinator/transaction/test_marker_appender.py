"""Writing markers: an error in one partition delays neither the others nor the transaction."""

from collections.abc import Callable, Collection
from typing import Any

import pytest

from kwire.broker.chunked_answers import OPENS_PER_CHUNK
from kwire.coordinator.transaction import marker_appender
from kwire.coordinator.transaction.marker_appender import MarkerAppender, TransactionMarker, Written
from kwire.coordinator.transaction.marker_effect import WriteMarkers
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


def markers(turns: list[Callable[[], None]]) -> MarkerAppender:
    topics: Any = _Topics()
    groups: Any = None
    return MarkerAppender(topics, groups, turns.append)


def test_partition_that_breaks_down_in_a_later_turn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_appender, "MARKERS_PER_CHUNK", 1)

    def write(self: MarkerAppender, place: TopicPartition, marker: TransactionMarker, written: Written) -> None:
        if place == ("t", 2):
            raise OSError
        written(ErrorCode.NONE)

    monkeypatch.setattr(MarkerAppender, "write", write)
    turns: list[Callable[[], None]] = []
    told: list[Collection[TopicPartition]] = []
    markers(turns).write_all(order(5), told.append)
    while turns:
        turns.pop()()
    assert [list(failed) for failed in told] == [[("t", 2)]]


def test_logs_that_have_to_be_opened_leave_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def write(self: MarkerAppender, place: TopicPartition, marker: TransactionMarker, written: Written) -> None:
        nonlocal count
        count += 1
        written(ErrorCode.NONE)

    monkeypatch.setattr(MarkerAppender, "write", write)
    turns: list[Callable[[], None]] = []
    markers(turns).write_all(order(100), lambda failed: None)
    assert count == OPENS_PER_CHUNK
    while turns:
        turns.pop()()
    assert count == 100
