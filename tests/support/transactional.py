"""Transactional producers for tests, and what a reader of committed data makes of a log."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage.batch.markers import build_marker, read_marker
from storage.batch.record_batch import Record, build_batch, parse_header, read_records
from storage.log.log import Appended, Log
from storage.log.transactions import AbortedTransaction
from tests.support.batches import NOW_MS, split_batches

BUDGET_BYTES = 1 << 20


@dataclass
class TransactionalProducer:
    """Writes to one log; ``sequence`` is the next one."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0

    def batch(self, values: Sequence[bytes], *, is_transactional: bool = True, key: bytes | None = None) -> memoryview:
        return memoryview(
            build_batch(
                [Record(key, value, NOW_MS) for value in values],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
                is_transactional=is_transactional,
            )
        )

    def write(self, log: Log, *values: bytes, key: bytes | None = None, is_transactional: bool = True) -> Appended:
        values = values or (b"value",)
        batch = self.batch(values, key=key, is_transactional=is_transactional)
        appended = log.append(batch, parse_header(batch), 0, NOW_MS)
        self.sequence += len(values)
        return appended

    def end(self, log: Log, *, is_commit: bool, coordinator_epoch: int = 0) -> Appended:
        return mark(log, self.producer_id, self.epoch, is_commit=is_commit, coordinator_epoch=coordinator_epoch)

    def commit(self, log: Log) -> int:
        return self.end(log, is_commit=True).base_offset

    def abort(self, log: Log) -> int:
        return self.end(log, is_commit=False).base_offset


def mark(
    log: Log, producer_id: int, producer_epoch: int = 0, *, is_commit: bool = False, coordinator_epoch: int = 0
) -> Appended:
    batch = memoryview(bytearray(build_marker(producer_id, producer_epoch, coordinator_epoch, is_commit, NOW_MS)))
    return log.append(batch, parse_header(batch), 0, NOW_MS)


def committed_values(
    log: Log, high_watermark: int | None = None, *, start: int | None = None, max_bytes: int = 1 << 20
) -> list[tuple[int, bytes | None]]:
    """(offset, value) of each record that a client shows which reads committed data, fetch by fetch, as clients do."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset if start is None else start
    stable = log.last_stable_offset(log.log_end_offset if high_watermark is None else high_watermark)
    while offset < stable:
        read = log.read(offset, max_bytes, stable)
        if not read.view:
            break
        found += _shown(read.view, offset, log.aborted_between(offset, read.next_offset))
        offset = read.next_offset
    return found


def _shown(view: memoryview, start: int, aborted: list[AbortedTransaction]) -> list[tuple[int, bytes | None]]:
    """As clients do it: a transaction is skipped from its first offset on until its ABORT marker comes."""
    waiting = sorted(aborted, key=lambda one: one.first_offset)
    skipped: set[int] = set()
    found: list[tuple[int, bytes | None]] = []
    for batch in split_batches(view):
        header = parse_header(batch)
        while waiting and waiting[0].first_offset <= header.last_offset:
            skipped.add(waiting.pop(0).producer_id)
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                skipped.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in skipped:
            continue
        found += [(one.offset, one.value) for one in read_records(batch, BUDGET_BYTES) if one.offset >= start]
    return found


def write_history(log: Log) -> None:
    """Some of everything, over several segments, with a transaction that stays open."""
    first, second, third = (TransactionalProducer(number) for number in range(3))
    third.write(log, b"open")
    for number in range(8):
        first.write(log, bytes(50), b"%d" % number)
        second.write(log, b"%d" % number)
        first.end(log, is_commit=number % 2 == 0, coordinator_epoch=number)
        second.end(log, is_commit=number % 3 == 0)
