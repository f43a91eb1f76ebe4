"""The scrub periodically reads and checks every closed segment, to find damage while an intact copy may still exist.

The interval is divided into slots of time. The hash of a partition's name selects the partition's slot. So the load is
spread evenly, and no state has to be stored: a restarted server continues with the slot of the current time. If the
server did not run during a slot, the partitions of that slot are checked in the next interval.

The worker process reads and checks the bytes, one piece at a time. The event loop makes the pauses between the pieces,
so that the worker can do other work. No log is opened. The worker reads the folders directly, and only closed segments,
because they do not change. A segment that seems damaged is read a second time, because compaction may have replaced
its file during the first read. Damage that is found twice is quarantined.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import ParamSpec, Protocol, TypeVar

from crc32c import crc32c

from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topics
from kwire.clock import Clock
from kwire.config.tree import LogConfig
from storage.data_directory.partition_metadata import partition_folder
from storage.errors import StorageError
from storage.log.quarantine import Quarantine
from storage.recovery.verify import Finding, Kind, SegmentJob, SegmentReport, verify_segment
from storage.recovery.verify_folder import FolderPlan, partition_of, plan_scrub
from storage.segment.segment import LogSegment

log = logging.getLogger("kwire.broker.maintenance.scrub")

P = ParamSpec("P")
R = TypeVar("R")

# The scrub begins after this delay, so that it does not slow down the start of the server.
START_DELAY_SECONDS = 30.0
SLOTS_MAX = 1024
SLOT_MS_MIN = 60_000
# The longest sleep between two reads of the wall clock. Longer sleeps would not notice that the clock was changed.
SLEEP_SECONDS_MAX = 60.0
# After hashing this many names, the event loop runs other work.
NAMES_PER_CHUNK = 1000
FOLDERS_PER_CALL = 100
PIECE_BYTES_MIN = 64 * 1024
PIECE_BYTES_MAX = 4 * 1024 * 1024
PIECES_PER_SECOND = 4
# The maximum number of findings that are logged and counted. They are kept in memory, so that a finding is not logged
# again in each interval.
REPORTED_MAX = 1000


class Worker(Protocol):
    """Runs a module-level function in another process."""

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...


class Scrub:
    """The scrub task of the node. Its counters start at 0 when the server starts."""

    def __init__(self, topics: Topics, clock: Clock, worker: Worker, config: LogConfig) -> None:
        self._topics = topics
        self._clock = clock
        self._worker = worker
        self._interval_ms = config.scrub_interval_ms
        self._data_dirs = [str(data_dir) for data_dir in config.data_dirs]
        self._bytes_per_second_max = config.scrub_bytes_per_second_max
        self._piece_bytes = min(max(self._bytes_per_second_max // PIECES_PER_SECOND, PIECE_BYTES_MIN), PIECE_BYTES_MAX)
        self._slot_count = min(max(self._interval_ms // SLOT_MS_MIN, 1), SLOTS_MAX)
        self._reported: set[tuple[str, Kind, int | None]] = set()
        self.scrubbed_bytes = 0
        self.scrubbed_segments = 0
        self.findings = 0
        self._done_slot = self._slot() - 1
        self._task: asyncio.Task[None] | None = None
        if self._interval_ms > 0:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _slot(self) -> int:
        """Return the number of the current slot. Slots are counted from 1970 on, not from the start of the server."""
        return self._clock.now_ms() * self._slot_count // max(self._interval_ms, 1)

    async def _run(self) -> None:
        await asyncio.sleep(START_DELAY_SECONDS)
        while True:
            try:
                await self.catch_up()
            except Exception:
                log.exception("the scrub of closed segments failed; it continues with the next slot")
            slot_seconds = self._interval_ms / self._slot_count / 1000
            await asyncio.sleep(min(slot_seconds, SLEEP_SECONDS_MAX))

    async def catch_up(self) -> None:
        """Scrub the slots that have begun since the last call.

        If more than one interval has passed, scrub one interval.
        """
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
        """Return the folder names of the partitions in a slot, in the order of the hashes of the names."""
        found: list[tuple[int, str]] = []
        names = _folder_names(self._topics.catalogue.partition_counts())
        while chunk := list(islice(names, NAMES_PER_CHUNK)):
            for folder in chunk:
                number = crc32c(folder.encode())
                if number % self._slot_count == slot:
                    found.append((number, folder))
            await asyncio.sleep(0)
        return [folder for _, folder in sorted(found)]

    # --- one partition

    async def _scrub_folder(self, plan: FolderPlan) -> None:
        for finding in plan.findings:
            self._report(finding)
        for job in plan.jobs:
            report = await self._read(job)
            if any(not finding.is_sound for finding in report.findings):
                job, report = await self._read_again(job)
            self.scrubbed_segments += not report.is_gone
            for finding in report.findings:
                if not finding.is_sound:
                    self._quarantine(job, finding)

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
        """Read the segment that has the same base offset now. If there is none, the report has `is_gone`."""
        data_dir, folder = job.directory.rsplit("/", 1)
        for plan in await self._worker.run(plan_scrub, [data_dir], [folder]):
            for again in plan.jobs:
                if again.base_offset == job.base_offset:
                    return again, await self._read(again)
        return job, SegmentReport(0, job.base_offset, is_done=True, is_gone=True)

    # --- findings

    def _quarantine(self, job: SegmentJob, finding: Finding) -> None:
        """Quarantine the damaged range of a finding. A finding without a range is only logged."""
        is_range = finding.kind in (Kind.DAMAGE, Kind.MISSING)
        if not is_range or finding.position is None or finding.offset is None or finding.end_offset is None:
            self._report(finding)
            return
        partition = self._partition(job)
        if partition is None:
            return
        quarantine = Quarantine(
            job.base_offset, finding.position, finding.size_bytes, finding.offset, finding.end_offset, finding.reason
        )
        try:
            stored = partition.maintenance()
            is_elsewhere = stored.directory != job.directory  # the log was moved to another data directory
            if is_elsewhere or not _has_segment(stored.segments(), job) or quarantine in stored.quarantined:
                return
            self._report(finding)
            stored.quarantine(quarantine)
        except StorageError:
            log.exception("%s: the damaged range could not be quarantined", job.path)

    def _partition(self, job: SegmentJob) -> Partition | None:
        place = partition_of(job.directory.rsplit("/", 1)[1])
        return self._topics.find_partition(*place) if place is not None else None

    def _report(self, finding: Finding) -> None:
        key = (finding.path, finding.kind, finding.position)
        if finding.is_sound or key in self._reported or len(self._reported) >= REPORTED_MAX:
            return
        self._reported.add(key)
        self.findings += 1
        log.error(
            "%s: %s at position %s, offsets %s to %s: %s",
            *(finding.path, finding.kind.value, finding.position, finding.offset, finding.end_offset, finding.reason),
        )
        if len(self._reported) >= REPORTED_MAX:
            log.error("%d findings were logged. Further ones are not logged or counted before a restart.", REPORTED_MAX)


def _folder_names(counts: Iterable[tuple[str, int]]) -> Iterator[str]:
    for name, count in counts:
        for index in range(count):
            yield partition_folder(name, index)


def _has_segment(segments: Iterator[LogSegment], job: SegmentJob) -> bool:
    """Whether the log still has the segment that was read. The last segment may have become larger since."""
    return any(one.base_offset == job.base_offset and one.size_bytes >= job.size_bytes for one in segments)
