"""Random lives of a log against a list that remembers everything."""

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.batch.record_batch import Record, build_batch, check_batch, parse_header, read_records
from storage.compaction.compaction import CompactionJob, compact
from storage.errors import DiskFailure, OffsetOutOfRange
from storage.log.log import Appended, Log
from storage.log.producers import WINDOW_BATCHES
from storage.log.settings import LogSettings
from storage.recovery.crash_recovery import open_log
from storage.segment.sealed_scan import SealedSegment
from tests.support.batches import NOW_MS, LaterJobs, split_batches
from tests.support.effort import examples
from tests.support.rewriting import batches_of
from tests.support.simulated_disk import SimulatedDisk, SimulatedFiles

DIRECTORY = "/data/life-0"
MAX_BYTES = st.sampled_from([1, 100, 300, 1000, 5000, 10**9])
KEYS = [b"a", b"b", b"c", b"d"]
BUDGET_BYTES = 1 << 20
HELD_MAX = 10


@dataclass(frozen=True)
class Stored:
    """One batch of the twin."""

    base_offset: int
    end_offset: int
    batch: bytes


class LogLife(RuleBasedStateMachine):
    """Appends, reads, failed appends, upkeep, kills, power cuts and restarts in any order; the list is the truth."""

    @initialize(
        segment_bytes=st.sampled_from([400, 2000, 10**6]), index_interval_bytes=st.sampled_from([1, 200, 1000, 4096])
    )
    def start(self, segment_bytes: int, index_interval_bytes: int) -> None:
        self.settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
        self.disk = SimulatedDisk()
        self.files = SimulatedFiles(self.disk)
        self.files.makedirs(DIRECTORY)
        self.files.syncfs("/")
        self.jobs = LaterJobs()
        self.stored: list[Stored] = []
        self.end = 0
        # The log may start anywhere between these two after a power cut.
        self.start_offset = 0
        self.durable_start_offset = 0
        self.synced_offset = 0
        self.sequence = 0
        # What the log remembers of its producer, as it was sent; a cut takes it away.
        self.repeatable: list[Stored] = []
        self.clock_ms = NOW_MS
        self.held: list[tuple[memoryview, bytes]] = []
        self.log = self.open()

    def open(self) -> Log:
        return open_log(DIRECTORY, self.files, self.jobs, self.settings, self.files.boot_id())

    # --- writing

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
        size=st.integers(0, 700),
        rise_ms=st.integers(-5, 20),
        epoch_rise=st.booleans(),
    )
    def append(self, keys: list[bytes], size: int, rise_ms: int, epoch_rise: bool) -> None:
        self.clock_ms += rise_ms
        batch = self.next_batch(keys, size)
        epoch = max(self.log.epochs.latest, 0) + epoch_rise
        appended = self.log.append(batch, check_batch(batch), epoch, self.clock_ms)
        assert appended == Appended(self.end, self.end + len(keys) - 1, -1, False)
        self.remember(batch)

    def next_batch(self, keys: list[bytes], size: int) -> memoryview:
        records = [Record(key, bytes([size % 251]) * size, self.clock_ms + number) for number, key in enumerate(keys)]
        return memoryview(build_batch(records, producer_id=3, producer_epoch=0, base_sequence=self.sequence))

    def remember(self, batch: memoryview) -> None:
        count = parse_header(batch).record_count
        stored = Stored(self.end, self.end + count, bytes(batch))
        self.stored.append(stored)
        self.end += count
        self.sequence += count
        self.repeatable = [*self.repeatable, stored][-WINDOW_BATCHES:]

    @rule(operation=st.sampled_from(["pwrite", "fallocate", "create", "tear", "short"]), size=st.integers(0, 70_000))
    def fail_to_append(self, operation: str, size: int) -> None:
        if operation in ("tear", "short"):
            self.disk.shorten_next_write(size // 2 or 1, is_error=operation == "tear")
        else:
            self.disk.fail_next(operation)
        batch = self.next_batch([b"a"], size)
        try:
            self.log.append(batch, check_batch(batch), max(self.log.epochs.latest, 0), self.clock_ms)
            self.remember(batch)
        except DiskFailure:
            assert operation != "short"  # the rest of a short write goes in by another one
        finally:
            self.disk.repair()

    @precondition(lambda self: self.repeatable)
    @rule(back=st.integers(1, 5))
    def repeat(self, back: int) -> None:
        stored = self.repeatable[-min(back, len(self.repeatable))]
        batch = memoryview(bytearray(stored.batch))
        appended = self.log.append(batch, check_batch(batch), max(self.log.epochs.latest, 0), self.clock_ms)
        assert appended == Appended(stored.base_offset, stored.end_offset - 1, -1, True)

    # --- upkeep

    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock_ms)

    @rule()
    def sync(self) -> None:
        sync = self.log.begin_sync()
        if sync is not None:
            sync.run()
            sync.finish()
        self.synced_offset = self.end
        assert self.log.synced_offset == self.end

    @rule(share=st.floats(0, 1), is_dropped=st.booleans(), is_deleted=st.booleans())
    def retain(self, share: float, is_dropped: bool, is_deleted: bool) -> None:
        offset = self.start_offset + int((self.end - self.start_offset) * share)
        self.log.advance_log_start_offset(offset)
        self.start_offset = offset
        if not is_dropped:
            return
        for segment in self.log.drop_segments():
            if is_deleted:
                segment.delete_files()
                # The checkpoint that allowed it is durable: neither start nor end can go back behind it.
                self.durable_start_offset = max(self.durable_start_offset, segment.next_offset)
                self.synced_offset = max(self.synced_offset, min(self.durable_start_offset, self.end))

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        # Replicas agree on what was compacted, so a cut never goes into it.
        offset = max(self.start_offset + int((self.end - self.start_offset) * share), self.log.clean_upto)
        kept = [stored for stored in self.stored if stored.end_offset <= offset]
        gone = [stored for stored in self.stored if stored.end_offset > offset]
        self.log.truncate(offset)
        self.stored = kept
        self.end = self.log.log_end_offset
        assert max((stored.end_offset for stored in kept), default=0) <= self.end <= offset
        self.synced_offset = min(self.synced_offset, self.end)
        if gone:
            self.forget(gone[0])

    def forget(self, first_gone: Stored) -> None:
        """This batch and all behind it are gone."""
        self.sequence = parse_header(first_gone.batch).base_sequence
        self.repeatable = [stored for stored in self.repeatable if stored.end_offset <= self.end]

    @rule()
    def compact(self) -> None:
        """Of each key, only the last record below the end of what was compacted stays."""
        self.jobs.run()
        sealed = []
        for segment in list(self.log.segments())[:-1]:
            if segment.is_seal_pending or not segment.is_sealed or segment.next_offset > self.synced_offset:
                break
            sealed.append(SealedSegment(segment.base_offset, segment.next_offset, segment.size_bytes))
        if not sealed:
            return
        compacted = compact(
            CompactionJob(
                directory=DIRECTORY,
                segments=tuple(sealed),
                clean_upto=self.log.clean_upto,
                uncleanable_offset=sealed[-1].next_offset,
                producers=self.log.producers.encode(),
                now_ms=self.clock_ms,
                delete_retention_ms=10**12,
                keys_bytes_max=1 << 20,
                segment_bytes=self.settings.segment_bytes,
                index_interval_bytes=self.settings.index_interval_bytes,
            ),
            files=self.files,
        )
        before = self.records(self.log)
        for group in compacted.groups:
            bases = {segment.base_offset for segment in group.removed}
            removed = [segment for segment in self.log.segments() if segment.base_offset in bases]
            for segment in self.log.replace_segments(removed, [group.added], compacted.clean_upto):
                segment.delete_files()
        latest = {key: offset for offset, (key, _) in before.items() if offset < compacted.clean_upto}
        expected = {
            offset: record
            for offset, record in before.items()
            if offset >= compacted.clean_upto or latest[record[0]] == offset
        }
        assert self.records(self.log) == expected
        # Dropped segments may still come back by a crash; they are as they were.
        first = next(self.log.segments()).base_offset
        self.stored = [stored for stored in self.stored if stored.base_offset < first] + [
            Stored(header.base_offset, header.last_offset + 1, bytes(view))
            for segment in self.log.segments()
            for view in batches_of(segment)
            for header in [parse_header(view)]
        ]

    def records(self, log: Log) -> dict[int, tuple[bytes | None, bytes | None]]:
        found: dict[int, tuple[bytes | None, bytes | None]] = {}
        for segment in log.segments():
            for view in batches_of(segment):
                for record in read_records(view, BUDGET_BYTES):
                    assert not found or record.offset > max(found)
                    found[record.offset] = (record.key, record.value)
        return found

    # --- background and restarts

    @rule()
    def do_background_work(self) -> None:
        self.jobs.run()

    @rule()
    def release(self) -> None:
        self.log.release()

    @rule()
    def kill(self) -> None:
        """The process is gone; the page cache is not. Pending background work is lost."""
        self.disk.restarted()
        self.restart()

    @rule(seed=st.integers(0, 1000))
    def cut_power(self, seed: int) -> None:
        """What was not synced may be gone, from some batch on; what was is there."""
        self.slices_stay_as_they_were()
        self.held.clear()
        self.disk = self.disk.after_power_cut(Random(seed))
        self.jobs = LaterJobs()
        self.files = SimulatedFiles(self.disk)
        self.log = self.open()
        assert self.log.damage is None
        assert self.synced_offset <= self.log.log_end_offset <= self.end
        self.end = self.log.log_end_offset
        gone = [stored for stored in self.stored if stored.end_offset > self.end]
        self.stored = self.stored[: len(self.stored) - len(gone)]
        if gone:
            self.forget(gone[0])
        assert min(self.durable_start_offset, self.end) <= self.log.log_start_offset <= self.start_offset
        self.start_offset = self.log.log_start_offset

    @rule(boot=st.sampled_from(["same", "other"]))
    def stop(self, boot: str) -> None:
        self.log.close()
        self.jobs.run()
        self.synced_offset = self.end
        self.durable_start_offset = self.start_offset
        if boot == "other":
            self.disk.boot += 1
        self.restart()

    def restart(self) -> None:
        self.jobs = LaterJobs()
        self.files = SimulatedFiles(self.disk)
        self.log = self.open()
        assert self.log.damage is None
        assert self.log.log_start_offset <= self.start_offset
        self.start_offset = self.log.log_start_offset

    # --- reading

    @rule(share=st.floats(0, 1), max_bytes=MAX_BYTES, held_back=st.integers(0, 3), at_least_one=st.booleans())
    def read(self, share: float, max_bytes: int, held_back: int, at_least_one: bool) -> None:
        offset = self.start_offset + int((self.end - self.start_offset) * share)
        upto = self.stored[-1 - held_back].end_offset if held_back < len(self.stored) else self.end
        read = self.log.read(offset, max_bytes, upto, at_least_one=at_least_one)
        expected = [stored for stored in self.stored if stored.end_offset > offset and stored.end_offset <= upto]
        found = [bytes(batch) for batch in split_batches(read.view)]
        assert found == [stored.batch for stored in expected[: len(found)]]
        if found:
            behind = [stored.base_offset for stored in self.stored if stored.base_offset >= read.next_offset]
            assert expected[len(found) - 1].end_offset <= read.next_offset <= min(behind, default=self.end)
            assert len(read.view) <= max_bytes or (len(found) == 1 and at_least_one)
            self.held.append((read.view, bytes(read.view)))
        else:
            assert read.next_offset == offset
            assert not expected or (len(expected[0].batch) > max_bytes and not at_least_one)

    @rule(distance_ms=st.integers(-30, 200))
    def look_for_a_time(self, distance_ms: int) -> None:
        wanted = NOW_MS + distance_ms
        expected = None
        for stored in self.stored:
            for record in read_records(stored.batch, BUDGET_BYTES):
                if expected is None and record.timestamp_ms >= wanted and record.offset >= self.start_offset:
                    expected = (record.timestamp_ms, record.offset)
        assert self.log.offset_for_timestamp(wanted) == expected

    @rule(outside=st.integers(1, 3))
    def read_outside(self, outside: int) -> None:
        for offset in (self.start_offset - outside, self.end + outside):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, 100, self.end)

    @invariant()
    def the_facts_agree(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start_offset, self.end)
            first = min((segment.base_offset for segment in self.log.segments()), default=self.end)
            kept = [len(stored.batch) for stored in self.stored if stored.base_offset >= first]
            assert self.log.size_bytes == sum(kept)
            # After a restart the log is more careful than it was; what was promised holds all the same.
            assert self.log.synced_offset <= self.end

    @invariant()
    def slices_stay_as_they_were(self) -> None:
        if hasattr(self, "log"):
            del self.held[:-HELD_MAX]
            for view, expected in self.held:
                assert view == expected


TestLogLife = LogLife.TestCase
TestLogLife.settings = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)
