"""A model of partitions for transactions: the data and markers written to them, in order."""

from typing import NamedTuple

from kwire.coordinator.transaction.marker_effect import WriteMarkers
from kwire.coordinator.transaction.states import TopicPartition


class Data(NamedTuple):
    producer_id: int
    producer_epoch: int
    # Which of its transactions the producer wrote this in; only the test knows.
    transaction: int


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    is_commit: bool


class Partitions:
    def __init__(self) -> None:
        self._logs: dict[TopicPartition, list[Data | Marker]] = {}

    def append(self, partition: TopicPartition, data: Data) -> None:
        log = self._logs.setdefault(partition, [])
        for one in log:
            if isinstance(one, Marker) and one.producer_id == data.producer_id:
                assert one.producer_epoch <= data.producer_epoch, "a producer was let through that is kept out here"
        ended = {one.transaction for one in log if isinstance(one, Data) and self._end_of(log, one) is not None}
        assert data.transaction not in ended, "written into a transaction that has ended here"
        log.append(data)

    def mark(self, effect: WriteMarkers, partition: TopicPartition) -> None:
        marker = Marker(effect.producer_id, effect.producer_epoch, effect.is_commit)
        self._logs.setdefault(partition, []).append(marker)

    def fates(self) -> dict[int, set[bool | None]]:
        """How each transaction ended, partition by partition: committed, aborted, or not at all."""
        fates: dict[int, set[bool | None]] = {}
        for log in self._logs.values():
            for one in log:
                if isinstance(one, Data):
                    end = self._end_of(log, one)
                    fates.setdefault(one.transaction, set()).add(None if end is None else end.is_commit)
        return fates

    @staticmethod
    def _end_of(log: list[Data | Marker], data: Data) -> Marker | None:
        for one in log[log.index(data) + 1 :]:
            if isinstance(one, Marker) and one.producer_id == data.producer_id:
                return one
        return None
