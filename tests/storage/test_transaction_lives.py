"""Random lives of a log with transactions against a list that remembers everything: what readers see is the same.

KWIRE_TEST_SEED repeats a run.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

import storage.log.log
import storage.segment.txn_index
from storage.batch.markers import build_marker
from storage.batch.record_batch import Record, build_batch, parse_header
from storage.compaction.compaction import CompactionJob, compact
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.log.transactions import AbortedTransaction
from storage.recovery.crash_recovery import open_log
from storage.segment.reading import txn_index_name
from storage.segment.sealed_scan import SealedSegment
from tests.end_to_end.seeds import announced_seed
from tests.support.batches import NOW_MS, LaterJobs
from tests.support.effort import repetitions
from tests.support.simulated_disk import SimulatedDisk, SimulatedFiles
from tests.support.transactional import committed_values

LIVES = repetitions(quick=15, full=60)
STEPS = 150
DIRECTORY = "/data/life-0"
KEYS = [b"a", b"b", b"c"]
PRODUCERS = 5
# Lives that once found something.
KEPT_SEEDS = (2, 4, 7, 5343, 200039, 918318)


@dataclass
class TwinBatch:
    """One batch: a marker if ``is_commit`` is not None."""

    base_offset: int
    end_offset: int
    producer_id: int
    is_transactional: bool
    records: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    is_commit: bool | None = None


class Twin:
    """Says the slow way what has to be known of a list of batches."""

    def __init__(self) -> None:
        self.batches: list[TwinBatch] = []

    def transactions(self, start: int = 0) -> list[tuple[int, int, int, bool | None]]:
        """(producer, first offset, marker's offset, is commit) of each; open ones have no marker yet.

        Told from the batches that do not end before ``start``.
        """
        found: list[tuple[int, int, int, bool | None]] = []
        opened: dict[int, int] = {}
        for batch in self.batches:
            if batch.end_offset <= start:
                continue
            if batch.is_commit is not None:
                first = opened.pop(batch.producer_id, None)
                if first is not None:
                    found.append((batch.producer_id, first, batch.base_offset, batch.is_commit))
            elif batch.is_transactional:
                opened.setdefault(batch.producer_id, batch.base_offset)
        return [*found, *((producer_id, first, 2**62, None) for producer_id, first in opened.items())]

    def stable(self, high_watermark: int, log_start_offset: int, start: int = 0) -> int:
        firsts = [first for _, first, marker, _ in self.transactions(start) if marker >= high_watermark]
        return max(min([high_watermark, *firsts]), log_start_offset)

    def committed(self, start: int, end: int) -> list[tuple[int, bytes]]:
        """(offset, value) of committed records."""
        return [(offset, value) for offset, _, value in self.shown() if start <= offset < end]

    def compact(self, end: int, swapped_end: int) -> None:
        """Of each key only the last committed record below ``end`` stays; what is behind ``swapped_end`` stays, too."""
        latest = {key: offset for offset, key, _ in self.shown() if offset < end}
        for batch in self.batches:
            batch.records = [one for one in batch.records if one[0] >= swapped_end or latest.get(one[1]) == one[0]]

    def shown(self) -> list[tuple[int, bytes, bytes]]:
        aborted = [one for one in self.transactions() if one[3] is False]
        shown: list[tuple[int, bytes, bytes]] = []
        for batch in self.batches:
            if batch.is_transactional and any(
                producer_id == batch.producer_id and first <= batch.base_offset < marker
                for producer_id, first, marker, _ in aborted
            ):
                continue
            shown += batch.records
        return shown


class TransactionLife:
    """Appends, ends of transactions, upkeep, cuts, kills, power cuts and restarts in any order."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.settings = LogSettings(
            segment_bytes=self.chance.choice([400, 1500, 6000]), index_interval_bytes=self.chance.choice([1, 300, 4096])
        )
        self.disk = SimulatedDisk()
        self.files = SimulatedFiles(self.disk)
        self.files.makedirs(DIRECTORY)
        self.files.syncfs("/")
        self.jobs = LaterJobs()
        self.twin = Twin()
        self.epochs = [0] * PRODUCERS
        self.serial = 0
        self.high_watermark = 0
        # Compaction has looked how transactions ended below: no cut goes there, as none goes below a high watermark.
        self.compacted_upto = 0
        self.log = self.open()

    def open(self) -> Log:
        return open_log(DIRECTORY, self.files, self.jobs, self.settings, self.files.boot_id())

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
            self.check()

    def step(self) -> None:
        kinds = {
            self.append: 20,
            self.end: 10,
            self.sync: 4,
            self.do_jobs: 4,
            self.roll: 2,
            self.retain: 1,
            self.compact: 3,
            self.cut: 1,
            self.kill: 2,
            self.cut_power: 2,
            self.stop: 1,
            self.park: 1,
            self.release: 2,
            self.lose_an_index: 1,
        }
        self.chance.choices(list(kinds), list(kinds.values()))[0]()

    # --- writing

    def append(self) -> None:
        log, producer_id = self.log, self.chance.randrange(-1, PRODUCERS)
        is_open = producer_id >= 0 and log.open_transaction(producer_id) is not None
        is_transactional = is_open or (producer_id > 1 and self.chance.random() < 0.9)
        state = log.producers.get(producer_id) if producer_id >= 0 else None
        sequence = -1 if producer_id < 0 else state.next_sequence if state is not None else 0
        epoch = -1 if producer_id < 0 else self.epochs[producer_id]
        records = []
        for _ in range(self.chance.choice([1, 1, 2, 4])):
            self.serial += 1
            value = b"%d." % self.serial + bytes(self.chance.choice([0, 20, 200]))
            records.append(Record(self.chance.choice(KEYS), value, NOW_MS + self.serial))
        batch = memoryview(
            build_batch(
                records,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
        )
        appended = log.append(batch, parse_header(batch), 0, NOW_MS)
        assert not appended.is_duplicate
        placed = [(appended.base_offset + at, one.key or b"", one.value or b"") for at, one in enumerate(records)]
        base_offset, end_offset = appended.base_offset, appended.last_offset + 1
        self.twin.batches.append(TwinBatch(base_offset, end_offset, producer_id, is_transactional, placed))

    def end(self) -> None:
        producer_id = self.chance.randrange(PRODUCERS)
        if self.log.open_transaction(producer_id) is None and self.chance.random() < 0.8:
            return
        is_commit = self.chance.random() < 0.5
        if self.chance.random() < 0.4:
            self.epochs[producer_id] += 1
        marker = bytearray(build_marker(producer_id, self.epochs[producer_id], 0, is_commit, NOW_MS))
        appended = self.log.append(memoryview(marker), parse_header(marker), 0, NOW_MS)
        offset = appended.base_offset
        self.twin.batches.append(TwinBatch(offset, offset + 1, producer_id, True, is_commit=is_commit))

    # --- upkeep

    def sync(self) -> None:
        sync = self.log.begin_sync()
        if sync is not None:
            sync.run()
            sync.finish()

    def do_jobs(self) -> None:
        self.jobs.run()

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def release(self) -> None:
        self.log.release()

    def lose_an_index(self) -> None:
        """A file of aborted transactions is spoiled: it says nothing any more, and the batches are asked."""
        folder = self.disk.folder(DIRECTORY)
        names = [txn_index_name(segment.base_offset) for segment in self.log.segments() if segment.is_aborted_on_file]
        there = [name for name in names if name in folder.names]
        if there:
            self.log.release()
            fd = self.files.open_write(f"{DIRECTORY}/{self.chance.choice(there)}")
            self.files.write_all(fd, b"?", self.chance.randrange(50))
            self.files.fsync(fd)
            self.files.close(fd)

    def retain(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.advance_log_start_offset(self.chance.randint(start, start + (end - start) // 2))
        for segment in self.log.drop_segments():
            segment.delete_files()

    def cut(self) -> None:
        start = max(self.log.log_start_offset, self.compacted_upto, self.log.log_end_offset - 30)
        self.log.truncate(self.chance.randint(start, self.log.log_end_offset))
        self.lost()

    def compact(self) -> None:
        self.jobs.run()
        sealed = []
        for segment in list(self.log.segments())[:-1]:
            if not segment.is_aborted_on_file or segment.next_offset > self.log.synced_offset:
                break
            sealed.append(SealedSegment(segment.base_offset, segment.next_offset, segment.size_bytes))
        if not sealed:
            return
        self.compacted_upto = max(self.compacted_upto, sealed[-1].next_offset)
        compacted = compact(
            CompactionJob(
                directory=DIRECTORY,
                segments=tuple(sealed),
                clean_upto=self.log.clean_upto,
                uncleanable_offset=self.chance.choice([sealed[-1].next_offset, sealed[-1].base_offset + 3]),
                producers=self.log.producers.encode(),
                now_ms=NOW_MS,
                delete_retention_ms=0,
                keys_bytes_max=self.chance.choice([1 << 20, 600]),
                segment_bytes=self.settings.segment_bytes,
                index_interval_bytes=self.settings.index_interval_bytes,
            ),
            files=self.files,
        )
        for group in compacted.groups:
            bases = {segment.base_offset for segment in group.removed}
            removed = [segment for segment in self.log.segments() if segment.base_offset in bases]
            for segment in self.log.replace_segments(removed, [group.added], group.clean_upto):
                segment.delete_files()
            self.twin.compact(compacted.clean_upto, min(group.added.next_offset, compacted.clean_upto))
            self.check()
            if self.chance.random() < 0.2:
                return  # the rest is not swapped any more

    # --- ends and beginnings

    def restart(self) -> None:
        self.jobs = LaterJobs()
        self.files = SimulatedFiles(self.disk)
        self.log = self.open()
        assert self.log.damage is None
        self.lost()

    def lost(self) -> None:
        """What the log lost at its end is lost for the list, too."""
        end = self.log.log_end_offset
        self.twin.batches = [batch for batch in self.twin.batches if batch.end_offset <= end]
        self.high_watermark = min(self.high_watermark, end)
        for producer_id in range(PRODUCERS):
            state = self.log.producers.get(producer_id)
            self.epochs[producer_id] = max(state.epoch if state is not None else 0, 0)

    def kill(self) -> None:
        self.disk.restarted()
        self.restart()

    def cut_power(self) -> None:
        self.disk = self.disk.after_power_cut(self.chance)
        synced_offset = self.log.synced_offset
        self.restart()
        assert self.log.log_end_offset >= synced_offset

    def stop(self) -> None:
        self.log.close()
        self.jobs.run()
        if self.chance.random() < 0.5:
            self.disk.boot += 1
        self.restart()

    def park(self) -> None:
        self.sync()
        self.jobs.run()
        is_parked = self.log.park()
        self.jobs.run()
        if is_parked or self.log.park():
            self.restart()

    # --- what readers see

    def check(self) -> None:
        log, twin = self.log, self.twin
        start, end = log.log_start_offset, log.log_end_offset
        ends = [batch.end_offset for batch in twin.batches if batch.end_offset >= max(self.high_watermark, start)]
        if self.high_watermark < start:
            self.high_watermark = min([*ends, end])
        if self.chance.random() < 0.3:
            self.high_watermark = self.chance.choice([*ends[:5], end])
        hw = self.high_watermark
        stable = log.last_stable_offset(hw)
        # A cut looks for what is open again in the segments that are left; retention may have taken its beginning.
        first = min((segment.base_offset for segment in log.segments()), default=end)
        assert stable in (twin.stable(hw, start), twin.stable(hw, start, first))
        if not first:
            assert stable == twin.stable(hw, start)
        expected = twin.committed(start, stable)
        max_bytes = self.chance.choice([1, 300, 2000, 1 << 20])
        assert committed_values(log, hw, max_bytes=max_bytes) == expected
        where = self.chance.randint(start, end)
        shown = committed_values(log, hw, start=where, max_bytes=max_bytes)
        assert shown == [one for one in expected if one[0] >= where]
        opened = {one: first for one, first, _, is_commit in twin.transactions() if is_commit is None}
        for producer_id in range(PRODUCERS):
            found = log.open_transaction(producer_id)
            if found is None:
                assert producer_id not in opened or opened[producer_id] < first
            else:
                assert found.first_offset == opened[producer_id] or opened[producer_id] < first
        self.check_aborted(stable)

    def check_aborted(self, stable: int) -> None:
        log = self.log
        aborted = [AbortedTransaction(*one[:3]) for one in self.twin.transactions() if one[3] is False]
        start = self.chance.randint(log.log_start_offset, max(stable, log.log_start_offset))
        end = self.chance.randint(start, max(stable, start))
        expected = [one for one in aborted if one.first_offset < end and one.last_offset >= start]
        found = log.aborted_between(start, end)
        assert found == sorted(found, key=lambda one: one.first_offset)
        if not log.clean_upto and not log.log_start_offset:
            assert found == sorted(expected, key=lambda one: one.first_offset)
            return
        # Where compaction or retention has been, nothing may be left to be skipped: an entry is gone or begins later.
        ends = {(one.producer_id, one.last_offset): one.first_offset for one in expected}
        for one in found:
            assert one.first_offset >= ends[one.producer_id, one.last_offset]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few kilobytes do what takes megabytes otherwise."""
    monkeypatch.setattr(storage.log.log, "CHECKPOINT_INTERVAL_BYTES", 1_000)
    monkeypatch.setattr(storage.segment.txn_index, "ENTRIES_MAX", 3)


@pytest.mark.parametrize("seed", KEPT_SEEDS)
def test_lives_that_once_failed_hold(seed: int) -> None:
    TransactionLife(seed).run()


@pytest.mark.timeout(120 + LIVES)
def test_readers_of_committed_data_see_what_was_committed_and_nothing_else() -> None:
    first = announced_seed()
    for seed in range(first, first + LIVES):
        try:
            TransactionLife(seed).run()
        except BaseException as error:
            error.add_note(f"repeat with KWIRE_TEST_SEED={seed}")
            raise
