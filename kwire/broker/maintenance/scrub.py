"""Reads what nobody reads: every closed segment now and then, to find damage while there may be a copy elsewhere.

When a partition's turn comes is told by its name and the time of day: the interval is cut into slots, a partition
belongs to the slot its name's hash says. So reading is spread evenly, nothing has to be remembered over a restart, and
a server that is started again goes on where the clock stands. Slots that passed while no server ran are not made up
for; they come again after one interval.

Bytes are read and checked in the worker process, a piece at a time; the pauses between the pieces are made here, so the
worker is free for others meanwhile. No log is opened for it: folders are read as they are, and only closed segments,
which never change. What looks damaged is read a second time, because a segment may be replaced while it is read; what
is found twice becomes a quarantine of the log.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import ParamSpec, Protocol, TypeVar

from crc32c import crc32c

from kwire.broker.partition import Partition
from kwire.broker.topics import Topics
from kwire.clock import Clock
from kwire.config.tree import LogConfig
from storage.errors import StorageError
from storage.partition_metadata import partition_folder
from storage.quarantine import Quarantine
from storage.segment import LogSegment
from storage.verify import Finding, Kind, SegmentJob, SegmentReport, verify_segment
from storage.verify_folder import FolderPlan, partition_of, plan_scrub

log = logging.getLogger("kwire.broker.scrub")

P = ParamSpec("P")
R = TypeVar("R")

# A start has better things to do.
START_DELAY_SECONDS = 30.0
SLOTS_MAX = 1024
SLOT_MS_MIN = 60_000
# The clock may be set, so nobody sleeps long by it.
SLEEP_SECONDS_MAX = 60.0
# Names are looked through in turns with the loop: a million hashes would hold it up.
NAMES_PER_TURN = 1000
FOLDERS_PER_CALL = 100
PIECE_BYTES_MIN = 64 * 1024
PIECE_BYTES_MAX = 4 * 1024 * 1024
PIECES_PER_SECOND = 4
# Findings that cannot be put into quarantine are told once; so many are remembered.
TOLD_MAX = 1000


class Worker(Protocol):
    """Runs a function of a module in another process."""

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...


class Scrub:
    """One task for the whole node; its state is the number of the last slot. Counters only grow."""

    def __init__(self, topics: Topics, clock: Clock, worker: Worker, config: LogConfig) -> None:
        self._topics = topics
        self._clock = clock
        self._worker = worker
        self._interval_ms = config.scrub_interval_ms
        self._data_dirs = [str(data_dir) for data_dir in config.data_dirs]
        self._bytes_per_second_max = config.scrub_bytes_per_second_max
        self._piece_bytes = min(max(self._bytes_per_second_max // PIECES_PER_SECOND, PIECE_BYTES_MIN), PIECE_BYTES_MAX)
        self._slot_count = min(max(self._interval_ms // SLOT_MS_MIN, 1), SLOTS_MAX)
        self._told: set[tuple[str, Kind, int | None]] = set()
        self.scrubbed_bytes = 0
        self.scrubbed_segments = 0
        self.findings = 0
        self._done_slot = self._slot() - 1
        self._task: asyncio.Task[None] | None = None
        if self._interval_ms > 0:
            self._task = asyncio.get_running_loop().create_task(self._go_on())

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _slot(self) -> int:
        """Slots are counted from 1970 on, so that every run of the server counts the same way."""
        return self._clock.now_ms() * self._slot_count // max(self._interval_ms, 1)

    async def _go_on(self) -> None:
        await asyncio.sleep(START_DELAY_SECONDS)
        while True:
            try:
                await self.catch_up()
            except Exception:
                log.exception("the check of closed segments failed; it goes on with the next slot")
            slot_seconds = self._interval_ms / self._slot_count / 1000
            await asyncio.sleep(min(slot_seconds, SLEEP_SECONDS_MAX))

    async def catch_up(self) -> None:
        """Do the slots that have begun; more than one interval behind, nothing is done twice."""
        now = self._slot()
        if now < self._done_slot:  # the clock was set back
            self._done_slot = now
        slot = max(self._done_slot, now - self._slot_count)
        while slot < now:
            slot += 1
            self._done_slot = slot
            await self._scrub_slot(slot % self._slot_count)

    async def _scrub_slot(self, slot: int) -> None:
        folders = await self._folders(slot)
        for at in range(0, len(folders), FOLDERS_PER_CALL):
            plans = await self._worker.run(plan_scrub, self._data_dirs, folders[at : at + FOLDERS_PER_CALL])
            for plan in plans:
                await self._scrub_folder(plan)

    async def _folders(self, slot: int) -> list[str]:
        """The partitions whose turn it is, in the order of their names' hashes."""
        found: list[tuple[int, str]] = []
        names = _folder_names(self._topics.catalogue.partition_counts())
        while turn := list(islice(names, NAMES_PER_TURN)):
            for folder in turn:
                number = crc32c(folder.encode())
                if number % self._slot_count == slot:
                    found.append((number, folder))
            await asyncio.sleep(0)
        return [folder for _, folder in sorted(found)]

    # --- one partition

    async def _scrub_folder(self, plan: FolderPlan) -> None:
        for finding in plan.findings:
            self._tell(finding)
        for job in plan.jobs:
            report = await self._read(job)
            if any(not finding.is_sound for finding in report.findings):
                job, report = await self._read_again(job)
            self.scrubbed_segments += not report.is_gone
            for finding in report.findings:
                if not finding.is_sound:
                    self._take(job, finding)

    async def _read(self, job: SegmentJob) -> SegmentReport:
        report: SegmentReport | None = None
        while report is None or not report.is_done:
            before = report.position if report is not None else 0
            report = await self._worker.run(verify_segment, job, report, self._piece_bytes)
            read_bytes = report.position - before
            self.scrubbed_bytes += read_bytes
            await asyncio.sleep(read_bytes / self._bytes_per_second_max)
        return report

    async def _read_again(self, job: SegmentJob) -> tuple[SegmentJob, SegmentReport]:
        """The segment of that name as it is now; gone, if there is none any more."""
        data_dir, folder = job.directory.rsplit("/", 1)
        for plan in await self._worker.run(plan_scrub, [data_dir], [folder]):
            for again in plan.jobs:
                if again.base_offset == job.base_offset:
                    return again, await self._read(again)
        return job, SegmentReport(0, job.base_offset, is_done=True, is_gone=True)

    # --- what is found

    def _take(self, job: SegmentJob, finding: Finding) -> None:
        """Set the range apart, if it is one; tell everything else."""
        is_range = finding.kind in (Kind.DAMAGE, Kind.MISSING)
        if not is_range or finding.position is None or finding.offset is None or finding.end_offset is None:
            self._tell(finding)
            return
        partition = self._partition(job)
        if partition is None:
            return
        quarantine = Quarantine(
            job.base_offset, finding.position, finding.size_bytes, finding.offset, finding.end_offset, finding.reason
        )
        try:
            stored = partition.maintenance()
            is_elsewhere = stored.directory != job.directory  # moved to another data directory since
            if is_elsewhere or not _is_of(stored.segments(), job) or quarantine in stored.quarantined:
                return
            self._tell(finding)
            stored.quarantine(quarantine)
        except StorageError:
            log.exception("%s: the damage could not be written down", job.path)

    def _partition(self, job: SegmentJob) -> Partition | None:
        place = partition_of(job.directory.rsplit("/", 1)[1])
        return self._topics.find_partition(*place) if place is not None else None

    def _tell(self, finding: Finding) -> None:
        key = (finding.path, finding.kind, finding.position)
        if finding.is_sound or key in self._told:
            return
        if len(self._told) < TOLD_MAX:
            self._told.add(key)
        self.findings += 1
        log.error(
            "%s: %s at position %s, offsets %s to %s: %s",
            *(finding.path, finding.kind.value, finding.position, finding.offset, finding.end_offset, finding.reason),
        )


def _folder_names(counts: Iterable[tuple[str, int]]) -> Iterator[str]:
    for name, count in counts:
        for index in range(count):
            yield partition_folder(name, index)


def _is_of(segments: Iterator[LogSegment], job: SegmentJob) -> bool:
    """Whether the log still has the segment that was read; the last one may have grown since."""
    return any(one.base_offset == job.base_offset and one.size_bytes >= job.size_bytes for one in segments)
