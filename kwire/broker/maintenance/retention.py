"""Retention: periodically deletes old records from all logs, at most LOGS_PER_CHUNK logs at a time.

`storage/log/retention_rules.py` computes the new log start offset of a log from the sizes and ages of its segments.
This module makes the new offset durable and then applies it to the log, so that it becomes visible to readers. Then it
removes the segments below the offset from the log, and passes their files to `file_removal.py`. If the new offset
cannot be written, the log stays unchanged, and this module tries again after a pause.

- An open log is checked in memory. Timestamps that are not in memory are read from disk by a thread.
- A closed log does not change. A thread reads its folder once, and again when the oldest segment reaches the retention
  time or the settings of the topic change. The log is opened only if records have to be deleted, and is parked
  afterwards.
- With `kwire.retention.messages`, a partition is a ring: it raises its log start offset when its high watermark rises.
  The offset is not written at each append, because the next start computes it again. A short round every
  RING_ROUND_SECONDS removes the segments.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from kwire.broker.maintenance.backoff import Backoff
from kwire.broker.maintenance.file_removal import FileRemover, delete_files
from kwire.broker.partition import LogMaintenance, Partition
from kwire.broker.topics.topics import Topics
from kwire.clock import Clock
from kwire.config.resources.topic import TopicSettings
from storage.data_directory.disk_reserve import DiskReserve
from storage.disk.files import Files
from storage.errors import StorageError
from storage.log.retention_rules import RetentionLimits, message_limit_start
from storage.log.segment_ages import LogAges, RetentionResult, closed_log_ages
from storage.log.settings import Background, LogSettings
from storage.log.start_offset import LogStartUpdate
from storage.segment.segment import LogSegment

R = TypeVar("R")

log = logging.getLogger("kwire.broker")

RING_ROUND_SECONDS = 5.0
# A failed removal is retried after RETRY_SECONDS. The pause doubles after each failure, up to RETRY_SECONDS_MAX.
RETRY_SECONDS = 5.0
RETRY_SECONDS_MAX = 300.0
# The maximum number of failed partitions that are named in the server's log at a time.
FAILURES_SHOWN_MAX = 10
# Checking an open log takes about ten microseconds, and dropping segments about a hundred microseconds. After this many
# logs, the event loop runs other work.
LOGS_PER_CHUNK = 50
# Folders are read in chunks, with a pause after each chunk. A node can have a hundred thousand folders, and the work is
# not urgent.
FOLDERS_PER_CHUNK = 20
CHUNK_PAUSE_SECONDS = 0.1
# Skipping a folder that need not be read takes a few microseconds. After this many folders, the event loop runs other
# work.
NAMES_PER_CHUNK = 200


class LogFolders(Protocol):
    """The part of the log store that retention uses: paths of folders, failed removals, and disk reserves."""

    def path_of(self, folder: str) -> str | None: ...

    @property
    def failed_removals(self) -> Mapping[str, OSError]: ...

    def retry_removals(self) -> None: ...

    @property
    def reserves(self) -> Sequence[DiskReserve]: ...


class _NewStart(NamedTuple):
    """A log, and the log start offset that it should get."""

    partition: Partition
    opened: LogMaintenance
    start: int


class _NextCheck(NamedTuple):
    """The time of the next check of a closed log.

    The time is valid as long as the topic's catalogue entry has this `revision`, and the log has these `stored_bytes`.
    """

    due_ms: int
    revision: int
    stored_bytes: int | None


class _Closed(NamedTuple):
    """A closed log whose folder is to be read."""

    folder: str
    path: str
    topic_name: str
    partition_index: int
    revision: int
    stored_bytes: int | None
    settings: TopicSettings


class Retention:
    """Deletes old records. Use it only in the event loop's thread. The counters start at 0 when the server starts."""

    def __init__(
        self,
        topics: Topics,
        clock: Clock,
        background: Background,
        check_interval_ms: int,
        stored: LogFolders,
        files: Files,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._stored = stored
        self._in_thread = topics.lanes.maintenance.run
        self._files = files
        self._loop = asyncio.get_running_loop()
        self._next_checks: dict[str, _NextCheck] = {}
        self.file_remover = FileRemover(clock, background)
        self.deleted_segments = 0
        self.deleted_bytes = 0
        self.failures = 0
        # Logs whose new log start offset could not be written.
        self._failed: dict[Partition, None] = {}
        self._failed_folders: Collection[str] = ()
        self._backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        self._were_reserves_whole = True
        # The time at which the last round over all logs ended. None before the end of the first round.
        self.last_round_ms: int | None = None
        self._tasks = [
            self._loop.create_task(self._repeat(self.round, check_interval_ms / 1000)),
            self._loop.create_task(self._repeat(self.short_round, RING_ROUND_SECONDS)),
        ]

    @property
    def reserved_bytes(self) -> int:
        return sum(one.kept_bytes for one in self._stored.reserves)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.file_remover.close()

    async def _repeat(self, do: Callable[[], Awaitable[None]], pause_seconds: float) -> None:
        while True:
            await asyncio.sleep(pause_seconds)
            try:
                await do()
            except Exception:
                self.failures += 1
                log.exception("a round of retention failed")

    # --- rounds

    async def round(self) -> None:
        """Apply retention to every log."""
        for some in _chunks(self._topics.open_partitions, LOGS_PER_CHUNK):
            for partition, dropped in await self._apply_to_open(some):
                self._delete_later(partition, dropped)
            await asyncio.sleep(0)
        await self._round_of_closed()
        self.last_round_ms = self._clock.now_ms()

    async def short_round(self) -> None:
        """Remove the segments below the log start offset of rings, retry failed work, and restore disk reserves."""
        rings = [one for one in self._topics.open_partitions if one.settings.retention_messages >= 0]
        for some in _chunks(rings, LOGS_PER_CHUNK):
            wanted = [_NewStart(one, one.maintenance(), _ring_start(one)) for one in some if _may_delete_from(one)]
            for partition, dropped in await self._drop_all(wanted):
                self._delete_later(partition, dropped)
            await asyncio.sleep(0)
        await self._retry_failed()
        await self._restore_reserves()

    async def _retry_failed(self) -> None:
        folders = self._stored.failed_removals
        if not self._failed and not folders:
            self._backoff.reset()
            return
        if not self._backoff.is_over(self._clock.monotonic()):
            return
        self._backoff.begin(self._clock.monotonic())
        failed, self._failed = self._failed, {}
        for some in _chunks(failed, LOGS_PER_CHUNK):
            for partition, dropped in await self._apply_to_open(some):
                self._delete_later(partition, dropped)
            await asyncio.sleep(0)
        for path in islice((path for path in folders if path not in self._failed_folders), FAILURES_SHOWN_MAX):
            log.warning("%s could not be removed and is tried again: %s", path, folders[path])
        self._failed_folders = folders.keys()
        self._stored.retry_removals()

    async def _restore_reserves(self) -> None:
        reserves = [one for one in self._stored.reserves if not one.is_whole]
        if reserves and self._were_reserves_whole:
            log.warning(
                "the disk is full: the space reserved in %s was released so that old records and topics can be deleted",
                ", ".join(one.data_dir for one in reserves),
            )
        is_whole = not reserves or all(await self._in_thread(lambda: [one.restore() for one in reserves]))
        if is_whole and not self._were_reserves_whole:
            log.info("the disk has space again: the reserve is restored")
        self._were_reserves_whole = is_whole

    # --- open logs

    async def _apply_to_open(self, partitions: Sequence[Partition]) -> list[tuple[Partition, list[LogSegment]]]:
        """Apply retention to open logs. Returns the segments that were removed from each log."""
        now_ms = self._clock.now_ms()
        wanted: list[_NewStart] = []
        unread: list[tuple[Partition, LogMaintenance, LogAges, RetentionLimits]] = []
        for partition in partitions:
            if not _may_delete_from(partition):
                continue
            opened = partition.maintenance()
            ages = opened.ages(self._files)
            limits = _limits(partition.settings, partition.high_watermark - partition.last_stable_offset)
            if ages.is_known(limits):
                start = ages.apply(limits, now_ms).log_start_offset
                wanted.append(_NewStart(partition, opened, start))
            else:
                unread.append((partition, opened, ages, limits))
        if unread:
            results = await self._in_thread(lambda: [ages.apply(limits, now_ms) for *_, ages, limits in unread])
            for (partition, opened, *_), result in zip(unread, results, strict=True):
                wanted.append(_NewStart(partition, opened, result.log_start_offset))
        return await self._drop_all(wanted)

    async def _drop_all(self, wanted: Sequence[_NewStart]) -> list[tuple[Partition, list[LogSegment]]]:
        """Raise each log start offset after it was made durable, and remove the segments below it from the log.

        Returns the removed segments of each log.
        """
        updates: dict[_NewStart, LogStartUpdate] = {}
        failures: dict[_NewStart, StorageError] = {}
        for one in wanted:
            if not _is_current(one):
                continue
            start = self._start_of(one)
            try:
                if start > one.opened.log_start_offset:
                    updates[one] = one.opened.begin_start_update(start)
            except StorageError as error:
                failures[one] = error
        if updates:
            outcomes = await self._in_thread(lambda: [_outcome(update) for update in updates.values()])
            for (one, update), outcome in zip(updates.items(), outcomes, strict=True):
                if outcome is True and _is_current(one):
                    update.finish()
                else:
                    update.fail()
                if isinstance(outcome, StorageError):
                    failures[one] = outcome
        dropped: list[tuple[Partition, list[LogSegment]]] = []
        for one in wanted:
            if one not in failures and _is_current(one):
                try:
                    dropped.append((one.partition, self._drop(one.opened)))
                except StorageError as error:
                    failures[one] = error
        self._note_failures(failures)
        return dropped

    def _start_of(self, wanted: _NewStart) -> int:
        start = min(wanted.start, wanted.partition.high_watermark)
        if wanted.partition.topic_name in self._topics.retained_from:
            start = min(start, self._topics.retained_from[wanted.partition.topic_name]())
        return start

    def _note_failures(self, failures: Mapping[_NewStart, StorageError]) -> None:
        if not failures:
            return
        self.failures += len(failures)
        self._failed |= dict.fromkeys(one.partition for one in failures)
        self._backoff.begin(self._clock.monotonic())
        for one, error in islice(failures.items(), FAILURES_SHOWN_MAX):
            log.warning(
                "old records of %s-%d could not be deleted, the next try is in %d s: %s",
                one.partition.topic_name,
                one.partition.index,
                self._backoff.seconds,
                error,
            )

    def _drop(self, opened: LogMaintenance) -> list[LogSegment]:
        dropped = opened.drop_segments()
        self.deleted_segments += len(dropped)
        self.deleted_bytes += sum(segment.size_bytes for segment in dropped)
        return dropped

    def _delete_later(self, partition: Partition, dropped: Sequence[LogSegment]) -> None:
        if dropped:
            self.file_remover.add(dropped, partition.settings.file_delete_delay_ms)

    # --- closed logs

    async def _round_of_closed(self) -> None:
        # Only entries of existing partitions are copied, so the entries of deleted topics are dropped.
        before, self._next_checks = self._next_checks, {}
        counts = self._topics.catalogue.partition_counts()
        folders = (f"{name}-{index}" for name, count in counts for index in range(count))
        # A log that is opened during this round is skipped by `_open_and_apply`.
        opened = {f"{one.topic_name}-{one.index}" for one in self._topics.open_partitions}
        chunk: list[_Closed] = []
        while some := list(islice(folders, NAMES_PER_CHUNK)):
            for folder in some:
                if folder in opened:
                    continue
                if (known := before.get(folder)) is not None:
                    self._next_checks[folder] = known
                if (closed := self._due(folder)) is not None:
                    chunk.append(closed)
                if len(chunk) == FOLDERS_PER_CHUNK:
                    await self._apply_to_closed(chunk)
                    chunk = []
                    await asyncio.sleep(CHUNK_PAUSE_SECONDS)
            await asyncio.sleep(0)
        if chunk:
            await self._apply_to_closed(chunk)

    def _due(self, folder: str) -> _Closed | None:
        name, _, number = folder.rpartition("-")
        facts = self._topics.catalogue.find(name)
        if facts is None or int(number) >= facts.partition_count:
            return None
        stored_bytes = self._topics.stored_bytes.get(folder)
        known = self._next_checks.get(folder)
        if (
            known is not None
            and known.due_ms > self._clock.now_ms()
            and known.revision == facts.revision
            and known.stored_bytes == stored_bytes
        ):
            return None
        topic, path = self._topics.get(name), self._stored.path_of(folder)
        if topic is None or path is None:
            return None
        return _Closed(folder, path, name, int(number), facts.revision, stored_bytes, topic.settings)

    async def _apply_to_closed(self, chunk: Sequence[_Closed]) -> None:
        now_ms = self._clock.now_ms()
        results = await self._in_thread(lambda: [_check_folder(one, self._files, now_ms) for one in chunk])
        for closed, result in zip(chunk, results, strict=True):
            if isinstance(result, RetentionResult):
                self._next_checks[closed.folder] = _NextCheck(
                    result.next_check_ms, closed.revision, closed.stored_bytes
                )
            else:
                await self._open_and_apply(closed)

    async def _open_and_apply(self, closed: _Closed) -> None:
        """Open a closed log, apply retention to it and park it again.

        Called if records have to be deleted, or if the log has to be open to find out whether that is so. The files are
        deleted without a delay, because a closed log has no readers, and because the log cannot be parked before its
        files are deleted.
        """
        self._next_checks.pop(closed.folder, None)
        partition = self._topics.find_partition(closed.topic_name, closed.partition_index)
        if partition is None or partition.is_open:
            return  # the topic was deleted, or the log was opened: the next round checks an open log
        try:
            partition.open()
        except StorageError as error:
            self.failures += 1
            log.warning("%s cannot be opened to delete old records: %s", closed.folder, error)
            return
        for _, dropped in await self._apply_to_open([partition]):
            self._delete_later(partition, await self._in_thread(partial(_delete, dropped)))
        self._topics.park(partition)


def _may_delete_from(partition: Partition) -> bool:
    """Whether the log is open, and is neither damaged nor failed nor deleted."""
    return partition.is_open and partition.is_writable and partition.damage is None


def _is_current(wanted: _NewStart) -> bool:
    return wanted.opened.is_current and _may_delete_from(wanted.partition)


def _outcome(update: LogStartUpdate) -> bool | StorageError:
    """Run an update and return its result or its error. Runs in a thread."""
    try:
        return update.run()
    except StorageError as error:
        return error


def _ring_start(partition: Partition) -> int:
    messages = partition.settings.retention_messages
    return message_limit_start(partition.log_start_offset, partition.last_stable_offset, messages)


def _limits(settings: TopicSettings, undecided: int = 0) -> RetentionLimits:
    """Return the retention limits of a topic.

    `undecided` is the number of offsets between the last stable offset and the high watermark. They are not counted
    against `kwire.retention.messages`, because their records may not be readable yet.
    """
    messages = settings.retention_messages
    if messages >= 0:
        messages += undecided
    return RetentionLimits(settings.retention_ms, settings.retention_bytes, messages, settings.has_delete_policy)


def _check_folder(one: _Closed, files: Files, now_ms: int) -> RetentionResult | None:
    """Return the retention result of a closed log, or None if the log has to be opened. Runs in a thread.

    The log has to be opened if records or leftover files have to be deleted, or if the log was not closed cleanly.
    """
    settings = LogSettings(segment_ms=one.settings.segment_ms, index_interval_bytes=one.settings.index_interval_bytes)
    try:
        ages = closed_log_ages(one.path, files, settings)
    except StorageError:
        return RetentionResult(0, False, now_ms)  # the topic was deleted, or the disk failed: retry in the next round
    if ages is None:
        return None
    result = ages.apply(_limits(one.settings), now_ms)
    return None if result.has_leftovers or result.log_start_offset > ages.extent.log_start_offset else result


def _delete(segments: Sequence[LogSegment]) -> list[LogSegment]:
    """Delete the files of segments. Returns the segments whose files could not be deleted. Runs in a thread."""
    return [segment for segment in segments if delete_files(segment) is not None]


def _chunks(items: Iterable[R], size: int) -> Iterator[list[R]]:
    """Copy the items, and yield lists of up to `size` of them."""
    whole = list(items)
    for first in range(0, len(whole), size):
        yield whole[first : first + size]
