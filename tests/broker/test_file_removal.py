"""FileRemover: files of removed segments are deleted after their delay, in a thread, and no others are."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kwire.broker.maintenance import file_removal as deletions
from kwire.broker.maintenance.file_removal import FileRemover
from kwire.concurrency.disk_lanes import LaneFull
from storage.errors import DiskFailure
from storage.segment.segment import LogSegment
from tests.support.batches import LaterJobs, run_now
from tests.support.clock import ManualClock
from tests.support.node import in_loop

DELAY_MS = 60_000


class Removed:
    """Stands in for a segment that its log has given back."""

    def __init__(self, path: Path, failures: int = 0) -> None:
        self.path = str(path)
        self.failures = failures
        path.write_bytes(b"batches")

    def delete_files(self) -> None:
        if self.failures:
            self.failures -= 1
            raise DiskFailure("not now")
        Path(self.path).unlink()


def removed(directory: Path, count: int, **how: int) -> list[LogSegment]:
    return [Removed(directory / f"{number}.log", **how) for number in range(count)]  # type: ignore[misc]


def left(directory: Path) -> int:
    return len(list(directory.iterdir()))


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0)


@in_loop
async def test_files_stay_for_their_delay(tmp_path: Path) -> None:
    clock = ManualClock()
    files = FileRemover(clock, run_now)
    files.add(removed(tmp_path, 2), DELAY_MS)
    clock.advance(DELAY_MS - 1)
    files.delete_due()
    await asyncio.sleep(0)
    assert (left(tmp_path), len(files)) == (2, 2)
    clock.advance(1)
    files.delete_due()
    await until(lambda: files.deleted_files == 2)
    assert (left(tmp_path), len(files)) == (0, 0)
    files.close()


@in_loop
async def test_the_timer_waits_for_the_first_that_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    # Real time decides when the timer rings, so the clock is the loop's.
    monkeypatch.setattr(clock, "monotonic", asyncio.get_running_loop().time)
    files = FileRemover(clock, run_now)
    (tmp_path / "late").mkdir()
    files.add(removed(tmp_path / "late", 1), DELAY_MS)
    (tmp_path / "soon").mkdir()
    files.add(removed(tmp_path / "soon", 1), 1)
    async with asyncio.timeout(10):
        while files.deleted_files < 1:
            await asyncio.sleep(0.001)
    assert (left(tmp_path / "late"), left(tmp_path / "soon")) == (1, 0)
    files.close()


@in_loop
async def test_a_few_files_are_one_job_and_jobs_follow_each_other(tmp_path: Path) -> None:
    jobs = LaterJobs()
    files = FileRemover(ManualClock(), jobs)
    files.add(removed(tmp_path, deletions.FILES_PER_JOB + 1), 0)
    assert len(jobs.jobs) == 1
    jobs.run()
    await until(lambda: len(jobs.jobs) == 1)
    assert left(tmp_path) == 1
    jobs.run()
    await until(lambda: files.deleted_files == deletions.FILES_PER_JOB + 1)
    assert left(tmp_path) == 0
    files.close()


@in_loop
async def test_files_that_a_full_lane_does_not_take_are_deleted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "RETRY_SECONDS", 0.001)
    refused: list[object] = []

    def lane(job: Callable[[], None]) -> None:
        if len(refused) < 2:
            refused.append(job)
            raise LaneFull("no place")
        job()

    files = FileRemover(ManualClock(), lane)
    files.add(removed(tmp_path, 3), 0)
    assert (left(tmp_path), len(files)) == (3, 3)
    await until(lambda: files.deleted_files == 3)
    assert (left(tmp_path), len(files), files.failures) == (0, 0, 0)
    files.close()


@in_loop
async def test_a_full_list_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "PENDING_MAX", 3)
    files = FileRemover(ManualClock(), run_now)
    files.add(removed(tmp_path, 5), DELAY_MS)
    await until(lambda: len(files) == 3)
    assert left(tmp_path) == 3
    files.close()


@in_loop
async def test_a_file_that_cannot_be_deleted_is_tried_again_with_longer_and_longer_pauses(tmp_path: Path) -> None:
    clock = ManualClock()
    files = FileRemover(clock, run_now)
    files.add(removed(tmp_path, 1, failures=1), 0)
    await until(lambda: len(files) == 1)
    assert left(tmp_path) == 1
    clock.advance(int(deletions.RETRY_SECONDS * 1000))
    files.delete_due()
    await until(lambda: files.deleted_files == 1)
    assert left(tmp_path) == 0
    files.add(removed(tmp_path, 1, failures=10), 0)
    pauses: list[int] = []
    while files.deleted_files < 2:
        failure_count, began = len(pauses) + 2, clock.monotonic()
        await until(lambda: files.failures >= len(pauses) + 2)
        while files.failures == failure_count and files.deleted_files < 2:
            clock.advance(100)
            files.delete_due()
            await asyncio.sleep(0)
        pauses.append(round(clock.monotonic() - began))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert left(tmp_path) == 0
    files.close()


@in_loop
async def test_a_full_list_of_what_cannot_be_deleted_is_not_tried_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "PENDING_MAX", 3)
    files = FileRemover(ManualClock(), run_now)
    files.add(removed(tmp_path, 5, failures=1), 0)
    await until(lambda: files.failures == 5)
    files.delete_due()
    await asyncio.sleep(0)
    assert (len(files), left(tmp_path), files.failures) == (3, 5, 5)
    files.close()


@in_loop
async def test_nothing_is_deleted_after_the_close(tmp_path: Path) -> None:
    clock = ManualClock()
    jobs = LaterJobs()
    files = FileRemover(clock, jobs)
    files.add(removed(tmp_path, 1), DELAY_MS)
    files.close()
    clock.advance(DELAY_MS)
    files.delete_due()
    assert not jobs.jobs


@in_loop
async def test_a_pool_that_is_shut_ends_it(tmp_path: Path) -> None:
    def refuse(job: Callable[[], None]) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    files = FileRemover(ManualClock(), refuse)
    files.add(removed(tmp_path, 1), 0)
    files.delete_due()
    assert left(tmp_path) == 1
