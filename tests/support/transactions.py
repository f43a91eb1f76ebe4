"""A transactional producer in one partition, without a coordinator: the test says how its transactions end."""

from kwire.broker.partition import Partition
from kwire.streams.events.event import NewEvent, record_of
from storage.batch.record_batch import Record, build_batch, check_batch
from tests.support.batches import make_batch


def append_plain(partition: Partition, count: int = 1, value: bytes = b"value") -> int:
    """One batch of records that are in no transaction; its size.

    They are of now: between records of very different times a segment ends, and a read with it.
    """
    batch = make_batch(count, timestamp_ms=partition._clock.now_ms(), value=value)
    partition.append(batch, check_batch(batch))
    return len(batch)


class TransactionalProducer:
    """Numbers its records, and begins a transaction with the first one behind a marker."""

    def __init__(self, partition: Partition, producer_id: int, producer_epoch: int = 0) -> None:
        self.partition = partition
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = 0
        self._next_sequence = 0

    def send(self, count: int = 1, value: bytes = b"value", *, now_ms: int | None = None) -> int:
        """One batch of equal records; the offset of the first."""
        now_ms = self.partition._clock.now_ms() if now_ms is None else now_ms
        return self.send_records([Record(None, value, now_ms)] * count)

    def send_keyed(self, key: bytes = b"key") -> int:
        """For topics that are compacted."""
        return self.send_records([Record(key, b"value", self.partition._clock.now_ms())])

    def publish(self, *types: str, now_ms: int | None = None) -> int:
        """One batch with an event of each type; the offset of the first."""
        now_ms = self.partition._clock.now_ms() if now_ms is None else now_ms
        records = [
            record_of(NewEvent(kind, b"{}"), b"/rooms/room", f"evt_{kind}_{number}", now_ms)
            for number, kind in enumerate(types)
        ]
        return self.send_records(records)

    def send_records(self, records: list[Record], *, compression: int = 0) -> int:
        batch = memoryview(
            build_batch(
                records,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self._next_sequence,
                is_transactional=True,
                compression=compression,
            )
        )
        self._next_sequence += len(records)
        return self.partition.append(batch, check_batch(batch)).base_offset

    def commit(self) -> int:
        """The offset of the marker."""
        return self._end(True)

    def abort(self) -> int:
        return self._end(False)

    def _end(self, is_commit: bool) -> int:
        appended = self.partition.append_marker(
            self.producer_id, self.producer_epoch, self.coordinator_epoch, is_commit
        )
        return appended.base_offset
