"""Random lives of a log against a list that remembers everything."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.batch import check_batch, parse_header
from storage.errors import DiskFailure, OffsetOutOfRange
from storage.log import Log
from storage.recovery import open_log
from storage.settings import LogSettings
from tests.support.batches import NOW_MS, LaterJobs, make_batch, split_batches
from tests.support.faulty_files import FaultyFiles

MAX_BYTES = st.sampled_from([1, 100, 300, 1000, 5000, 10**9])


class FaultyUnsyncedFiles(FaultyFiles):
    """Faults without the wait for the disk."""

    def fsync(self, fd: int) -> None:
        self._enter("fsync")

    def fdatasync(self, fd: int) -> None:
        self._enter("fdatasync")


class LogLife(RuleBasedStateMachine):
    """Appends, reads, failed appends, kills and restarts in any order; the list is the truth."""

    @initialize(
        segment_bytes=st.sampled_from([400, 2000, 10**9]), index_interval_bytes=st.sampled_from([1, 200, 1000, 4096])
    )
    def start(self, segment_bytes: int, index_interval_bytes: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="log-life-"))
        self.settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
        self.files = FaultyUnsyncedFiles()
        self.jobs = LaterJobs()
        self.batches: list[bytes] = []
        self.ends: list[int] = []
        self.start_offset = 0
        self.sequence = 0
        self.clock_ms = NOW_MS
        self.generation = 0
        self.held: list[tuple[memoryview, bytes]] = []
        self.path = self.directory / "0"
        self.path.mkdir()
        self.log = self.open()

    def open(self) -> Log:
        return open_log(str(self.path), self.files, self.jobs, self.settings, self.files.boot)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(is_clean=False)
            shutil.rmtree(self.directory)

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    # --- writing

    @rule(count=st.integers(1, 4), size=st.integers(0, 700), rise_ms=st.integers(-5, 20), epoch_rise=st.booleans())
    def append(self, count: int, size: int, rise_ms: int, epoch_rise: bool) -> None:
        self.clock_ms += rise_ms
        batch = self.next_batch(count, size)
        epoch = max(self.log.epochs.latest, 0) + epoch_rise
        appended = self.log.append(batch, check_batch(batch), epoch, self.clock_ms)
        assert appended == (self.end, self.end + count - 1, -1, False)
        self.remember(batch, count)

    def next_batch(self, count: int, size: int) -> memoryview:
        return make_batch(
            count,
            value=bytes([size % 251]) * size,
            timestamp_ms=self.clock_ms,
            producer_id=3,
            producer_epoch=0,
            base_sequence=self.sequence,
        )

    def remember(self, batch: memoryview, count: int) -> None:
        self.batches.append(bytes(batch))
        self.ends.append(self.end + count)
        self.sequence += count

    @rule(operation=st.sampled_from(["pwrite", "fallocate", "create", "tear"]), size=st.integers(0, 70_000))
    def fail_to_append(self, operation: str, size: int) -> None:
        if operation == "tear":
            self.files.tear_next_write(size // 2)
        else:
            self.files.break_down(operation)
        batch = self.next_batch(1, size)
        try:
            self.log.append(batch, check_batch(batch), max(self.log.epochs.latest, 0), self.clock_ms)
            self.remember(batch, 1)
        except DiskFailure:
            pass
        finally:
            self.files.repair()

    @precondition(lambda self: self.batches)
    @rule(back=st.integers(1, 5))
    def repeat(self, back: int) -> None:
        at = len(self.batches) - min(back, len(self.batches))
        batch = memoryview(bytearray(self.batches[at]))
        count = parse_header(batch).record_count
        appended = self.log.append(batch, check_batch(batch), max(self.log.epochs.latest, 0), self.clock_ms)
        assert appended == (self.ends[at] - count, self.ends[at] - 1, -1, True)

    @rule(share=st.floats(0, 1))
    def raise_the_start(self, share: float) -> None:
        offset = self.start_offset + int((self.end - self.start_offset) * share)
        self.log.advance_log_start_offset(offset)
        self.start_offset = offset

    # --- background and restarts

    @rule()
    def do_background_work(self) -> None:
        self.jobs.run()

    @rule()
    def release(self) -> None:
        self.log.release()

    @rule(boot=st.sampled_from(["same", "other"]))
    def kill(self, boot: str) -> None:
        """The process is gone; the page cache is not. Pending background work is lost."""
        self.generation += 1
        target = self.directory / str(self.generation)
        shutil.copytree(self.path, target)
        self.log.close(is_clean=False)
        self.restart(target, boot)

    @rule(boot=st.sampled_from(["same", "other"]))
    def stop(self, boot: str) -> None:
        self.log.close()
        self.jobs.run()
        self.restart(self.path, boot)

    def restart(self, path: Path, boot: str) -> None:
        self.jobs = LaterJobs()
        self.path = path
        if boot == "other":
            self.files.boot += "x"
        self.log = self.open()
        assert self.log.damage is None

    # --- reading

    @rule(share=st.floats(0, 1), max_bytes=MAX_BYTES, held_back=st.integers(0, 3), at_least_one=st.booleans())
    def read(self, share: float, max_bytes: int, held_back: int, at_least_one: bool) -> None:
        offset = self.start_offset + int((self.end - self.start_offset) * share)
        upto = self.ends[-1 - held_back] if held_back < len(self.ends) else self.end
        read = self.log.read(offset, max_bytes, upto, at_least_one=at_least_one)
        first = sum(end <= offset for end in self.ends)
        limit = sum(end <= upto for end in self.ends)
        found = [bytes(batch) for batch in split_batches(read.view)]
        assert found == self.batches[first : first + len(found)]
        assert first + len(found) <= max(limit, first)
        if found:
            assert read.next_offset == self.ends[first + len(found) - 1]
            assert len(read.view) <= max_bytes or (len(found) == 1 and at_least_one)
            self.held.append((read.view, bytes(read.view)))
        else:
            assert read.next_offset == offset
            too_large = first < limit and len(self.batches[first]) > max_bytes and not at_least_one
            assert first >= limit or too_large

    @rule(distance_ms=st.integers(-30, 200))
    def look_for_a_time(self, distance_ms: int) -> None:
        wanted = NOW_MS + distance_ms
        expected = None
        for batch, end in zip(self.batches, self.ends, strict=True):
            header = parse_header(batch)
            for number in range(header.record_count):
                offset, timestamp_ms = end - header.record_count + number, header.base_timestamp + number
                if expected is None and timestamp_ms >= wanted and offset >= self.start_offset:
                    expected = (timestamp_ms, offset)
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
            assert self.log.size_bytes == sum(len(batch) for batch in self.batches)

    @invariant()
    def slices_stay_as_they_were(self) -> None:
        if hasattr(self, "log"):
            del self.held[:-10]
            for view, expected in self.held:
                assert view == expected


TestLogLife = LogLife.TestCase
TestLogLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
