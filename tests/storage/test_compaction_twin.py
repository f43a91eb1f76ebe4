"""Compaction against a naive twin: lists and dictionaries over whole records, random histories, many rounds.

The twin says exactly which data records stay. For markers it says less: when they must stay and when they must go.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from storage.batch.format import ABORT, COMMIT, GZIP, LZ4, NONE, SNAPPY, ZSTD
from storage.batch.record_batch import Record, is_intact, parse_header
from tests.support.batches import NOW_MS
from tests.support.compactable import DAY_MS, CompactableFolder
from tests.support.effort import repetitions

SEEDS = repetitions(quick=20, full=60)
ROUNDS = 6
KEYS = 12


@dataclass
class TwinBatch:
    base_offset: int
    last_offset: int
    producer_id: int
    is_transactional: bool
    records: list[Record]
    marker: int | None = None
    horizon_ms: int | None = None
    fate: int | None = None


@dataclass
class Twin:
    """Knows every batch ever written and what is left of it."""

    batches: list[TwinBatch] = field(default_factory=list)
    clean_upto: int = 0

    def add(self, batch: TwinBatch) -> None:
        if batch.marker is not None:
            for earlier in self.batches:
                if earlier.is_transactional and earlier.producer_id == batch.producer_id and earlier.fate is None:
                    earlier.fate = batch.marker
        self.batches.append(batch)

    def compact(self, upto: int, now_ms: int) -> None:
        """All batches below ``upto`` are in closed segments."""
        known = [batch for batch in self.batches if batch.last_offset < upto]
        ends = {batch.producer_id: batch.base_offset for batch in known if batch.marker is not None}
        undecided = [
            batch.base_offset
            for batch in known
            if batch.is_transactional and batch.marker is None and batch.base_offset > ends.get(batch.producer_id, -1)
        ]
        end = min([upto, *undecided])
        if end <= self.clean_upto:
            return
        data = [batch for batch in known if batch.marker is None and batch.last_offset < end]
        last: dict[bytes, int] = {}
        for batch in data:
            for record in batch.records:
                if batch.fate != ABORT and record.offset >= self.clean_upto and record.key is not None:
                    last[record.key] = record.offset
        for batch in data:
            is_due = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
            batch.records = [
                record
                for record in batch.records
                if batch.fate != ABORT
                and record.key is not None
                and last.get(record.key, -1) <= record.offset
                and not (record.value is None and is_due)
            ]
            if batch.horizon_ms is None and any(record.value is None for record in batch.records):
                batch.horizon_ms = now_ms + DAY_MS
        self.clean_upto = end

    def records(self, upto: int) -> list[Record]:
        data = [batch for batch in self.batches if batch.marker is None and batch.last_offset < upto]
        return [record for batch in data for record in batch.records]

    def transactions_with_data(self, upto: int) -> set[int]:
        """Offsets of the markers that somebody may still need."""
        needed = set()
        pending: dict[int, bool] = {}
        for batch in self.batches:
            if batch.last_offset >= upto:
                break
            if batch.marker is not None:
                if pending.pop(batch.producer_id, False):
                    needed.add(batch.base_offset)
            elif batch.is_transactional:
                pending[batch.producer_id] = pending.get(batch.producer_id, False) or bool(batch.records)
        return needed


class History:
    """Writes the same random batches to both."""

    def __init__(self, folder: CompactableFolder, seed: int) -> None:
        self.folder = folder
        self.twin = Twin()
        self.random = random.Random(seed)
        self.now_ms = NOW_MS
        self.open_transactions: set[int] = set()

    def write(self, count: int) -> None:
        for _ in range(count):
            choice = self.random.random()
            if choice < 0.05:
                self.folder.roll()
            elif choice < 0.25 and self.open_transactions:
                self.end_transaction(self.random.choice(sorted(self.open_transactions)))
            else:
                self.add_data()
        self.folder.roll()

    def add_data(self) -> None:
        producer_id = self.random.choice([-1, -1, 1, 10, 11, 12])
        is_transactional = producer_id >= 10
        records = []
        for _ in range(self.random.choice([1, 1, 2, 5, 30])):
            self.now_ms += self.random.randrange(3)
            key = b"key-%d" % self.random.randrange(KEYS) * self.random.choice([1, 1, 12])
            value = None if self.random.random() < 0.15 else self.random.randbytes(self.random.randrange(200))
            headers = [("trace", b"1")] if self.random.random() < 0.2 else []
            records.append(Record(key if self.random.random() < 0.97 else None, value, self.now_ms, headers))
        codec = self.random.choice([NONE, NONE, NONE, GZIP, SNAPPY, LZ4, ZSTD])
        header = self.folder.add(records, producer_id=producer_id, compression=codec, is_transactional=is_transactional)
        placed = [record._replace(offset=header.base_offset + at) for at, record in enumerate(records)]
        self.twin.add(TwinBatch(header.base_offset, header.last_offset, producer_id, is_transactional, placed))
        if is_transactional:
            self.open_transactions.add(producer_id)

    def end_transaction(self, producer_id: int) -> None:
        kind = self.random.choice([ABORT, COMMIT])
        offset = self.folder.mark(producer_id, kind)
        self.twin.add(TwinBatch(offset, offset, producer_id, True, [], marker=kind))
        self.open_transactions.discard(producer_id)

    def compact(self) -> None:
        self.now_ms += self.random.choice([0, 1000, DAY_MS])
        # Little memory for keys: they are kept in flat arrays instead of a dictionary.
        keys_bytes_max = self.random.choice([1024 * 1024, 24 * 400])
        self.folder.compact(now_ms=self.now_ms, keys_bytes_max=keys_bytes_max)
        self.twin.compact(self.folder.next_offset, self.now_ms)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_stays_is_what_the_twin_says(tmp_path: Path, seed: int) -> None:
    folder = CompactableFolder(tmp_path, segment_bytes=random.Random(seed).choice([2000, 20_000]))
    history = History(folder, seed)
    for _ in range(ROUNDS):
        history.write(history.random.randrange(40))
        if not folder.segments:
            continue
        before = folder.records()
        history.compact()
        after = folder.records()
        assert after == history.twin.records(folder.next_offset)
        assert folder.clean_upto == history.twin.clean_upto
        # A consumer that reads on from any offset sees, of what it would have seen, a part in the same order.
        left = iter(before)
        assert all(record in left for record in after)
        assert history.twin.transactions_with_data(folder.next_offset) <= set(folder.marker_offsets())
        assert all(is_intact(memoryview(batch)) for batch in folder.batches())


@pytest.mark.parametrize("seed", range(20))
def test_the_last_value_of_every_key_is_still_there(tmp_path: Path, seed: int) -> None:
    folder = CompactableFolder(tmp_path, segment_bytes=5000)
    rng = random.Random(seed)
    last: dict[bytes, bytes | None] = {}
    for _ in range(4):
        for _ in range(rng.randrange(60)):
            records = [
                Record(b"key-%d" % rng.randrange(30), rng.choice([None, rng.randbytes(20)]), NOW_MS)
                for _ in range(rng.randrange(1, 6))
            ]
            last.update({record.key: record.value for record in records if record.key is not None})
            folder.add(records, producer_id=rng.choice([-1, 1, 2]), compression=rng.choice([NONE, LZ4]))
        folder.roll()
        if folder.segments:
            folder.compact()
        assert {record.key: record.value for record in folder.records()} == last
        assert len(folder.records()) == len(last)


@pytest.mark.parametrize("seed", range(10))
def test_in_the_end_only_markers_of_living_transactions_are_left(tmp_path: Path, seed: int) -> None:
    folder = CompactableFolder(tmp_path, segment_bytes=100_000)
    history = History(folder, seed)
    history.write(60)
    for producer_id in sorted(history.open_transactions):
        history.end_transaction(producer_id)
    for day in range(4):
        folder.put("makes it dirty", f"{day}")
        folder.roll()
        folder.compact(now_ms=history.now_ms + day * DAY_MS, producers=b"")
    living = set()
    pending: set[int] = set()
    for header in map(parse_header, folder.batches()):
        if header.is_control:
            if header.producer_id in pending:
                living.add(header.base_offset)
            pending.discard(header.producer_id)
        elif header.is_transactional:
            pending.add(header.producer_id)
    assert set(folder.marker_offsets()) == living
