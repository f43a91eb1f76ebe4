"""The log cleaner: chooses logs for compaction, and swaps in the cleaned segments.

One log is compacted at a time, the log with the highest dirty ratio first. A worker process runs
`storage.compaction.compaction.compact` at a limited rate. The event loop only chooses the log and swaps in the result.
It discards a result if the log was deleted, truncated or parked since the log was chosen. Results for segments that
retention has removed are skipped.

The cleaner checks all open logs. A closed log gets no appends, so it is checked only if it was dirty at its last check
or becomes due at a later time. The cleaner keeps a list of these logs and opens them when they are due. After a start
of the server, a log is not checked before its first use.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

from kwire.broker.maintenance.cleanable import NEVER_MS, CleanableRange, dirty_since, find_cleanable, has_lag_limit
from kwire.broker.maintenance.disk_throttle import DiskThrottle
from kwire.broker.maintenance.file_removal import FileRemover
from kwire.broker.partition import LogMaintenance, Partition
from kwire.broker.topics.topics import Topic, Topics
from kwire.clock import Clock
from kwire.concurrency.worker_process import WorkerDied, WorkerProcess
from kwire.config.tree import LogConfig
from storage.compaction.cleaned_segment import has_new_files, remove_new_files
from storage.compaction.compaction import GROUP_SEGMENTS_MAX, CompactionJob, CompactionResult, SegmentGroup, compact
from storage.disk.files import Files
from storage.errors import CorruptBatch, DamagedLog, DiskFailure, StorageError, StorageFailed
from storage.segment.sealed_scan import first_timestamp
from storage.segment.segment import LogSegment

log = logging.getLogger("kwire.broker")

V = TypeVar("V")

# Checking a log takes about ten microseconds. After this many logs, the event loop runs other work.
LOGS_PER_CHUNK = 100
# One check opens at most this many closed logs. It begins with the logs whose last check is the longest ago. Opening a
# log takes half a millisecond.
CLOSED_PER_ROUND = 10
# The maximum number of entries in each dictionary with a PartitionKey. If a dictionary is full, its oldest entry is
# removed. A closed log without an entry in `_due` is not checked before it is opened again.
REMEMBERED_MAX = 10_000
# The maximum number of partitions whose last error is kept.
ERRORS_MAX = 100
# After a failure, a log is not compacted for this long, so that other logs are compacted first.
RETRY_DELAY_MS = 60_000
# If the worker process dies this many times in a row while it compacts a log, the log is not compacted again.
WORKER_DEATHS_MAX = 3
# The interval at which `Topics.touch` is called for a log that is being compacted, so that the log is not parked.
TOUCH_SECONDS = 5.0

# Replaced segments stay open for `file.delete.delay.ms`, because readers may still use them. If more than
# OLD_SEGMENTS_MAX segments are waiting, further segments stay open for at most OLD_SEGMENT_MS.
OLD_SEGMENTS_MAX = 256
OLD_SEGMENT_MS = 1000

# Topic id and partition index. A topic that is deleted and created again has another id.
PartitionKey = tuple[bytes, int]


class _LogToClean(NamedTuple):
    topic: Topic
    partition: Partition
    log: LogMaintenance
    cleanable: CleanableRange

    @property
    def key(self) -> PartitionKey:
        return self.topic.topic_id, self.partition.index

    @property
    def name(self) -> str:
        return f"{self.partition.topic_name}-{self.partition.index}"


class LogCleaner:
    """Compacts logs in the background. Use it only in the event loop's thread.

    The counters start at 0 when the server starts. `dirtiest_ratio` is the highest dirty ratio of the last check.
    `last_errors` contains the last errors by partition.
    """

    def __init__(
        self, topics: Topics, clock: Clock, worker: WorkerProcess, config: LogConfig, files: Files | None = None
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._worker = worker
        self._config = config
        self._files = files or Files()
        self._due: dict[PartitionKey, int] = {}
        self._retry_at: dict[PartitionKey, int] = {}
        self._deaths: dict[PartitionKey, int] = {}
        # The end offset of the last cleanable segment when a compaction made no progress. The log is compacted again
        # when there are more cleanable segments.
        self._no_progress_at: dict[PartitionKey, int] = {}
        self._uncleanable: dict[PartitionKey, str] = {}
        self._swapping: asyncio.Future[bool] | None = None
        self._loop = asyncio.get_running_loop()
        self._file_remover = FileRemover(clock, topics.lanes.delete)
        self.last_errors: dict[str, str] = {}
        self.cleaned_count = 0
        self.read_bytes = 0
        self.written_bytes = 0
        self.removed_bytes = 0
        self.dropped_records = 0
        self.keyless_records = 0
        self.unreadable_batches = 0
        self.failures = 0
        self.abandoned_count = 0
        self.dirtiest_ratio = 0.0
        self._task = self._loop.create_task(self._repeat())

    @property
    def uncleanable(self) -> dict[str, str]:
        """The reasons why partitions are not compacted until the next start, by partition name."""
        named = {}
        for (topic_id, index), reason in self._uncleanable.items():
            name = self._topics.catalogue.name_of(topic_id)
            if name is not None:
                named[f"{name}-{index}"] = reason
        return named

    def reconfigure(self, config: LogConfig) -> None:
        """Replace the configuration. The next check and the next compaction use it."""
        self._config = config

    async def close(self) -> None:
        """Stop the cleaner. The result of a running compaction is discarded. A swap that has begun is completed."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        if self._swapping is not None:
            with suppress(StorageError):
                await self._swapping
        self._file_remover.close()

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._config.cleaner_backoff_ms / 1000)
            if not self._config.is_cleaner_enabled:
                return
            try:
                while await self.clean_one():
                    pass
            except Exception:
                self.failures += 1
                log.exception("a round of compaction failed")

    async def clean_one(self) -> bool:
        """Compact the log with the highest dirty ratio, if one is due. Returns whether the compaction was completed."""
        choice = await self._choose()
        return choice is not None and await self._clean(choice)

    # --- choosing

    async def _choose(self) -> _LogToClean | None:
        now_ms = self._clock.now_ms()
        best: _LogToClean | None = None
        self.dirtiest_ratio = 0.0
        for number, partition in enumerate(self._candidates(now_ms), start=1):
            if number % LOGS_PER_CHUNK == 0:
                await asyncio.sleep(0)
            topic = self._topics.get(partition.topic_name)
            if topic is None or topic.partition(partition.index) is not partition:
                continue
            key = (topic.topic_id, partition.index)
            if key in self._uncleanable or self._retry_at.get(key, 0) > now_ms:
                continue
            try:
                choice = await self._check(topic, partition, now_ms)
            except StorageError as error:
                self._fail(key, f"{partition.topic_name}-{partition.index}", error)
                continue
            if choice is not None and (best is None or choice.cleanable.dirty_ratio > best.cleanable.dirty_ratio):
                best = choice
        return best

    def _candidates(self, now_ms: int) -> list[Partition]:
        opened = [one for one in self._topics.open_partitions if one.settings.is_compacted]
        closed_count = 0
        for key in [key for key, due_ms in self._due.items() if due_ms <= now_ms]:
            topic = self._topics.get_by_id(key[0])
            partition = topic.partition(key[1]) if topic is not None else None
            if partition is None or not partition.settings.is_compacted:
                del self._due[key]
            elif not partition.is_open and self._retry_at.get(key, 0) <= now_ms:
                opened.append(partition)
                closed_count += 1
                if closed_count == CLOSED_PER_ROUND:
                    break
        return opened

    async def _check(self, topic: Topic, partition: Partition, now_ms: int) -> _LogToClean | None:
        """Return the log if it has to be compacted now.

        Also record the time at which the log may become due without further appends.
        """
        key = (topic.topic_id, partition.index)
        found = partition.maintenance()
        if not found.is_writable:
            return None
        cleanable = find_cleanable(partition, now_ms)
        due_ms = cleanable.due_ms
        is_overdue = False
        if has_lag_limit(partition.settings):
            since_ms = await self._dirty_since(found, cleanable)
            overdue_ms = since_ms + partition.settings.compaction_lag_max_ms if since_ms != NEVER_MS else NEVER_MS
            is_overdue = overdue_ms < now_ms
            due_ms = min(due_ms, overdue_ms)
            if is_overdue:
                self._roll_if_old(partition, found, now_ms)
        self.dirtiest_ratio = max(self.dirtiest_ratio, cleanable.dirty_ratio)
        is_dirty = cleanable.dirty_bytes > 0 and (
            is_overdue or cleanable.dirty_ratio > partition.settings.cleanable_ratio_min
        )
        if is_dirty and self._no_progress_at.get(key) == cleanable.segments[-1].next_offset:
            is_dirty = False
        if is_dirty:
            due_ms = now_ms
        elif is_overdue:
            due_ms = now_ms + RETRY_DELAY_MS  # the log cannot be compacted now, so it is checked again later
        self._remember(key, due_ms)
        return _LogToClean(topic, partition, found, cleanable) if is_dirty else None

    async def _dirty_since(self, found: LogMaintenance, cleanable: CleanableRange) -> int:
        segments = list(found.segments())
        unknown = [
            one
            for one in segments
            if one.first_timestamp < 0 and one.is_sealed and one.next_offset > cleanable.first_dirty_offset
        ]
        if unknown:
            # The first timestamps of segments from an earlier run are not in memory. They are read from the first
            # batch.
            times = await self._topics.lanes.maintenance.run(_first_timestamps, unknown, self._files)
            for segment, timestamp in zip(unknown, times, strict=True):
                segment.first_timestamp = timestamp
        return dirty_since(segments, cleanable.first_dirty_offset)

    def _roll_if_old(self, partition: Partition, found: LogMaintenance, now_ms: int) -> None:
        """Seal the active segment if its first record is older than `max.compaction.lag.ms`. Then it can be cleaned."""
        *_, last = found.segments()
        limit_ms = now_ms - partition.settings.compaction_lag_max_ms
        if not last.is_sealed and last.size_bytes and 0 <= last.first_timestamp < limit_ms:
            found.roll(now_ms)

    def _remember(self, key: PartitionKey, due_ms: int) -> None:
        if due_ms < NEVER_MS:
            _put(self._due, key, due_ms)
        else:
            self._due.pop(key, None)

    # --- cleaning

    async def _clean(self, choice: _LogToClean) -> bool:
        job = self._job(choice)
        try:
            result = await self._compacted(choice, job)
        except WorkerDied as error:
            await self._topics.lanes.delete.run(_discard, job, self._files)
            self._note_death(choice, error)
            return False
        except (DamagedLog, CorruptBatch) as error:
            if self._is_current(choice):
                self._give_up(choice, error)
            return False
        except Exception as error:
            await self._topics.lanes.delete.run(_discard, job, self._files)
            if self._is_current(choice):
                self._fail(choice.key, choice.name, error)
            return False
        self._deaths.pop(choice.key, None)
        self.read_bytes += result.read_bytes
        self.written_bytes += result.written_bytes
        if not result.groups:
            _put(self._no_progress_at, choice.key, job.segments[-1].next_offset)
            return False
        self._no_progress_at.pop(choice.key, None)
        self._swapping = asyncio.ensure_future(self._swap(choice, job, result))
        try:
            return await asyncio.shield(self._swapping)
        finally:
            if self._swapping.done():
                self._swapping = None

    def _job(self, choice: _LogToClean) -> CompactionJob:
        settings, cleanable = choice.partition.settings, choice.cleanable
        return CompactionJob(
            directory=choice.log.directory,
            segments=cleanable.sealed(),
            clean_upto=cleanable.first_dirty_offset,
            uncleanable_offset=cleanable.uncleanable_offset,
            producers=choice.log.encoded_producers(),
            now_ms=self._clock.now_ms(),
            delete_retention_ms=settings.delete_retention_ms,
            keys_bytes_max=self._config.cleaner_keys_bytes_max,
            segment_bytes=settings.segment_bytes,
            index_interval_bytes=settings.index_interval_bytes,
        )

    async def _compacted(self, choice: _LogToClean, job: CompactionJob) -> CompactionResult:
        work = asyncio.ensure_future(
            self._worker.run(compact, job, DiskThrottle(self._config.cleaner_bytes_per_second_max))
        )
        try:
            while not work.done():
                # If the log were parked, the next opening would delete the new files.
                self._topics.touch(choice.partition)
                await asyncio.wait([work], timeout=TOUCH_SECONDS)
            return work.result()
        finally:
            work.cancel()

    async def _swap(self, choice: _LogToClean, job: CompactionJob, result: CompactionResult) -> bool:
        """Swap in the cleaned segments, some groups at a time, from the start of the log on.

        The log is consistent after each group. If a swap fails, the groups that were already swapped in stay.
        """
        is_done = True
        try:
            for groups in _swap_batches(result.groups):
                is_done = is_done and await self._swap_groups(choice, job, groups)
        except (StorageError, ValueError) as error:
            if self._is_current(choice):
                self._fail(choice.key, choice.name, error)
            if isinstance(error, StorageFailed):
                return False  # the swap may be durable, so the new files may be part of the log and are not deleted
            is_done = False
        await self._topics.lanes.delete.run(_discard, job, self._files)
        if not is_done:
            self.abandoned_count += 1
            return False
        self.cleaned_count += 1
        self.dropped_records += result.record_count - result.kept_record_count
        self.keyless_records += result.keyless_count
        self.unreadable_batches += result.unreadable_batch_count
        self.last_errors.pop(choice.name, None)
        return True

    async def _swap_groups(self, choice: _LogToClean, job: CompactionJob, groups: list[SegmentGroup]) -> bool:
        removed = self._still_there(choice, groups)
        if not removed:
            return removed is not None
        # The event loop opens the new segments. A thread reads the data for that into memory first.
        if not await self._topics.lanes.maintenance.run(_prepare, removed, job, groups, self._files):
            raise DiskFailure(f"a new segment of {job.directory} is missing or incomplete")
        removed = self._still_there(choice, groups)
        if not removed:
            return removed is not None
        first_offset = removed[0].base_offset
        added = [group.added for group in groups if group.removed[0].base_offset >= first_offset]
        clean_upto = max(groups[-1].clean_upto, choice.log.clean_upto)
        swap = choice.log.begin_replacement(removed, added, clean_upto)
        try:
            await self._topics.lanes.maintenance.run(swap.run)
        except DiskFailure as error:
            swap.fail(error)
            raise
        old = swap.finish()
        delay_ms = choice.partition.settings.file_delete_delay_ms
        if len(self._file_remover) > OLD_SEGMENTS_MAX:
            delay_ms = min(delay_ms, OLD_SEGMENT_MS)
        # The files of the old segments have been unlinked or replaced. Closing them, in a thread, frees the disk space.
        self._file_remover.add(old, delay_ms)
        self.removed_bytes += sum(one.size_bytes for one in old) - sum(one.size_bytes for one in added)
        return True

    def _is_current(self, choice: _LogToClean) -> bool:
        """Whether the chosen log is still the open log of its partition, so it was neither deleted nor parked."""
        return choice.log.is_current and self._topics.get(choice.partition.topic_name) is choice.topic

    def _still_there(self, choice: _LogToClean, groups: list[SegmentGroup]) -> list[LogSegment] | None:
        """Return the segments that `groups` replace, without groups whose segments retention has removed.

        Returns None if the log or one of the segments has changed. The result must then be discarded.
        """
        if not self._is_current(choice):
            return None
        known = {segment.base_offset: segment for segment in choice.log.segments()}
        first_offset = min(known, default=NEVER_MS)
        removed = []
        for group in groups:
            if group.removed[-1].base_offset < first_offset:
                continue
            for source in group.removed:
                segment = known.get(source.base_offset)
                if segment is None or (segment.next_offset, segment.size_bytes) != source[1:]:
                    return None
                removed.append(segment)
        return removed

    # --- failures

    def _fail(self, key: PartitionKey, name: str, error: Exception) -> None:
        self.failures += 1
        _put(self._retry_at, key, self._clock.now_ms() + RETRY_DELAY_MS)
        self._note_error(name, error)
        log.warning("compaction of %s failed, it is tried again later: %s", name, error)

    def _note_death(self, choice: _LogToClean, error: WorkerDied) -> None:
        deaths = self._deaths.pop(choice.key, 0) + 1
        _put(self._deaths, choice.key, deaths)
        if deaths < WORKER_DEATHS_MAX:
            self._fail(choice.key, choice.name, error)
        else:
            self._give_up(choice, error)

    def _give_up(self, choice: _LogToClean, error: Exception) -> None:
        self.failures += 1
        _put(self._uncleanable, choice.key, str(error))
        self._due.pop(choice.key, None)
        self._note_error(choice.name, error)
        log.error("%s is not compacted until the next start: %s", choice.name, error)

    def _note_error(self, name: str, error: Exception) -> None:
        self.last_errors.pop(name, None)
        if len(self.last_errors) >= ERRORS_MAX:
            del self.last_errors[next(iter(self.last_errors))]
        self.last_errors[name] = str(error)


def _put(values: dict[PartitionKey, V], key: PartitionKey, value: V) -> None:
    """Set the entry of `key`, as the newest entry. If the dictionary is full, remove its oldest entry."""
    values.pop(key, None)
    if len(values) >= REMEMBERED_MAX:
        del values[next(iter(values))]
    values[key] = value


def _discard(job: CompactionJob, files: Files) -> None:
    """Delete new files of a compaction that were not swapped in. Runs in a thread."""
    for segment in job.segments:
        remove_new_files(job.directory, segment.base_offset, files)


def _swap_batches(groups: list[SegmentGroup]) -> Iterator[list[SegmentGroup]]:
    """Yield lists of adjacent groups to swap together, because each swap needs about six disk syncs."""
    batch: list[SegmentGroup] = []
    for group in groups:
        if batch and sum(len(one.removed) for one in (*batch, group)) > GROUP_SEGMENTS_MAX:
            yield batch
            batch = []
        batch.append(group)
    if batch:
        yield batch


def _prepare(removed: list[LogSegment], job: CompactionJob, groups: list[SegmentGroup], files: Files) -> bool:
    """Open the files that the swap needs, and return whether the new files are complete. Runs in a thread."""
    for segment in removed:
        segment.preopen()
    return all(has_new_files(job.directory, group.added, files) for group in groups)


def _first_timestamps(segments: list[LogSegment], files: Files) -> list[int]:
    """Return the first timestamp of each segment. Runs in a thread."""
    return [max(first_timestamp(segment.path, files), 0) for segment in segments]
