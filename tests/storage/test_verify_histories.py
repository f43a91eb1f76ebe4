"""Whatever a log has been through, verification finds nothing wrong with it, open or closed, and all its records."""

import random
import tempfile
from pathlib import Path

import pytest

from storage.batch.record_batch import Record, build_batch, check_batch
from storage.compaction.compaction import CompactionJob, compact
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.recovery.crash_recovery import open_log
from storage.recovery.verify import Finding, Kind, verify_segment
from storage.recovery.verify_folder import plan_folder
from storage.segment.sealed_scan import SealedSegment
from tests.support.batches import BOOT_ID, NOW_MS, UnsyncedFiles, read_all, run_now
from tests.support.transactional import TransactionalProducer

SETTINGS = LogSettings(segment_bytes=1500, index_interval_bytes=200)
SEEDS = range(25)
STEPS = 40
BUDGET_BYTES = 1024 * 1024


class History:
    """One log and what chance does to it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.chance = random.Random(seed)
        self.files = UnsyncedFiles()
        self.log = self.opened()

    def opened(self) -> Log:
        return open_log(str(self.directory), self.files, run_now, SETTINGS, BOOT_ID)

    def step(self) -> None:
        acts = (
            [self.append] * 6
            + [self.transact] * 3
            + [self.roll, self.truncate, self.retain, self.compact, self.kill, self.close]
        )
        self.chance.choice(acts)()

    def append(self) -> None:
        for _ in range(self.chance.randint(1, 12)):
            count = self.chance.randint(1, 4)
            records = [
                Record(self.chance.choice("abcdef").encode(), self.chance.randbytes(60), NOW_MS) for _ in range(count)
            ]
            batch = memoryview(build_batch(records, compression=self.chance.choice([0, 0, 0, 4])))
            self.log.append(batch, check_batch(batch), 0, NOW_MS)

    def transact(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            state = self.log.producers.get(9)
            producer = TransactionalProducer(9, state.epoch if state else 0, state.next_sequence if state else 0)
            if self.chance.random() < 0.4:
                producer.end(self.log, is_commit=self.chance.random() < 0.3)
            else:
                producer.write(self.log, key=b"t")

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def truncate(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.truncate(self.chance.randint(max(start, end - 20), end))

    def retain(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.advance_log_start_offset(self.chance.randint(start, min(end, start + 30)))
        for segment in self.log.drop_segments():
            segment.delete_files()

    def compact(self) -> None:
        self.log.flush()
        log = self.log
        sealed = tuple(
            SealedSegment(one.base_offset, one.next_offset, one.size_bytes) for one in log.segments() if one.is_sealed
        )
        if not sealed:
            return
        job = CompactionJob(
            directory=log.directory,
            segments=sealed,
            clean_upto=log.clean_upto,
            uncleanable_offset=log.synced_offset,
            producers=log.producers.encode(),
            now_ms=NOW_MS,
            delete_retention_ms=1000,
            keys_bytes_max=BUDGET_BYTES,
            segment_bytes=1500,
            index_interval_bytes=200,
        )
        for group in compact(job, files=self.files).groups:
            bases = {source.base_offset for source in group.removed}
            removed = [segment for segment in log.segments() if segment.base_offset in bases]
            log.replace_segments(removed, [group.added], group.clean_upto)

    def kill(self) -> None:
        self.log.close(is_clean=False)
        self.log = self.opened()

    def close(self) -> None:
        self.log.close()
        assert harm(self.directory) == []
        self.log = self.opened()


def harm(directory: Path) -> list[Finding]:
    return [finding for finding in verified(directory)[0] if not finding.is_sound]


def verified(directory: Path) -> tuple[list[Finding], int]:
    """(all findings, batches of which a record is at or above the log start)."""
    plan = plan_folder(str(directory), BOOT_ID)
    reports = [verify_segment(job, None, BUDGET_BYTES) for job in plan.jobs]
    findings = plan.findings + [finding for report in reports for finding in report.findings]
    return findings, sum(report.batch_count for report in reports)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_history_leaves_a_sound_log(seed: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        history = History(Path(name), seed)
        for number in range(STEPS):
            history.step()
            assert harm(history.directory) == [], f"after step {number}"
        findings, batch_count = verified(history.directory)
        assert {finding.kind for finding in findings} <= {Kind.SEAL, Kind.STRAY, Kind.CHECKPOINT}
        assert batch_count >= len(read_all(history.log))
