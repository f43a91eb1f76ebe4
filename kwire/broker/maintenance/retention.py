"""Letting old records go: a round over all logs now and then, a few of them per loop turn.

What may go is decided by `storage/retention.py`. Here the logs are asked for their facts, the new log start is made
durable and then shown to readers, the segments below it are taken out of the log, and their files are handed to
`deletions.py`. Where the disk does not take the new start, the log stays as it is and is looked at again after a pause.

- An open log is judged from what it has in memory; only the times of closed segments are read, by a thread.
- A log that is not open does not change: a thread looks at its folder once, and again when its oldest segment comes of
  age or its topic's settings change. It is opened only if something is to go, and put away again.
- The ring of `kwire.retention.messages` is held by the partition at each append; a start finds the same place by the
  same rule. A round of its own follows every few seconds and takes the segments out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from kwire.broker.backoff import Backoff
from kwire.broker.deletions import Deletions, delete_files
from kwire.broker.partition import LogMaintenance, Partition
from kwire.broker.topics import Topics
from kwire.clock import Clock
from kwire.topic_config import TopicSettings
from storage.disk_reserve import DiskReserve
from storage.errors import StorageError
from storage.files import Files
from storage.log_ages import AgingLog, Verdict, age_closed_log
from storage.log_start import StartMove
from storage.retention import RetentionLimits, ring_start
from storage.segment import LogSegment
from storage.settings import Background, LogSettings

R = TypeVar("R")

log = logging.getLogger("kwire.broker")

RING_ROUND_SECONDS = 5.0
# What could not be removed is tried again after the first pause, then after twice as long, up to the second.
RETRY_SECONDS = 5.0
RETRY_SECONDS_MAX = 300.0
# Of the logs that a round could not deal with, at most this many are named in the server's log.
FAILURES_SHOWN_MAX = 10
# To look at an open log takes some ten microseconds, to drop segments a hundred; then the loop gets its turn.
LOGS_PER_TURN = 50
# Folders are looked at in portions with a pause between them: a node can have a hundred thousand, and is in no hurry.
FOLDERS_PER_PORTION = 20
PORTION_PAUSE_SECONDS = 0.1
# To see that a folder needs no look takes a few microseconds.
NAMES_PER_TURN = 200


class Stored(Protocol):
    """Where logs are, open or not, and what is left of deleted ones: the store."""

    def path_of(self, folder: str) -> str | None: ...

    @property
    def failed_removals(self) -> Mapping[str, OSError]: ...

    def retry_removals(self) -> None: ...

    @property
    def reserves(self) -> Sequence[DiskReserve]: ...


class _Wanted(NamedTuple):
    """A log that is to begin at `start`."""

    partition: Partition
    opened: LogMaintenance
    start: int


class _Look(NamedTuple):
    """When a log that is not open has to be looked at again, if it is still what it was."""

    due_ms: int
    revision: int
    stored_bytes: int | None


class _Closed(NamedTuple):
    """A folder to be looked at."""

    folder: str
    path: str
    topic_name: str
    partition_index: int
    revision: int
    stored_bytes: int | None
    settings: TopicSettings


class Retention:
    """Called from the event loop. The counters tell what has been taken out of logs since the start."""

    def __init__(
        self,
        topics: Topics,
        clock: Clock,
        background: Background,
        check_interval_ms: int,
        stored: Stored,
        files: Files,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._stored = stored
        self._in_thread = topics.lanes.maintenance.run
        self._files = files
        self._loop = asyncio.get_running_loop()
        self._looks: dict[str, _Look] = {}
        self.deletions = Deletions(clock, background)
        self.deleted_segments = 0
        self.deleted_bytes = 0
        self.failures = 0
        # Logs whose new start the disk did not take.
        self._failed: dict[Partition, None] = {}
        self._failed_folders: Collection[str] = ()
        self._backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        self._were_reserves_whole = True
        # When a round over all logs ended last; None before the first.
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
        self.deletions.close()

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
        """Look at every log once."""
        for some in _portions(self._topics.open_partitions, LOGS_PER_TURN):
            for partition, dropped in await self._judge_open(some):
                self._delete_later(partition, dropped)
            await asyncio.sleep(0)
        await self._round_of_closed()
        self.last_round_ms = self._clock.now_ms()

    async def short_round(self) -> None:
        """Take out the segments that a ring has left behind, and try again what has failed before."""
        rings = [one for one in self._topics.open_partitions if one.settings.retention_messages >= 0]
        for some in _portions(rings, LOGS_PER_TURN):
            wanted = [_Wanted(one, one.maintenance(), _ring_start(one)) for one in some if _may_lose(one)]
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
        for some in _portions(failed, LOGS_PER_TURN):
            for partition, dropped in await self._judge_open(some):
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
                "the disk is full: the space reserved in %s was given up so that old records and deleted topics can go",
                ", ".join(one.data_dir for one in reserves),
            )
        is_whole = not reserves or all(await self._in_thread(lambda: [one.restore() for one in reserves]))
        if is_whole and not self._were_reserves_whole:
            log.info("the disk has space again: the reserve is whole")
        self._were_reserves_whole = is_whole

    # --- open logs

    async def _judge_open(self, partitions: Sequence[Partition]) -> list[tuple[Partition, list[LogSegment]]]:
        """Takes out of these logs what is to go, and returns it."""
        now_ms = self._clock.now_ms()
        wanted: list[_Wanted] = []
        looks: list[tuple[Partition, LogMaintenance, AgingLog, RetentionLimits]] = []
        for partition in partitions:
            if not _may_lose(partition):
                continue
            opened = partition.maintenance()
            aging = opened.ages(self._files)
            limits = _limits(partition.settings, partition.high_watermark - partition.last_stable_offset)
            if aging.is_known(limits):
                start = aging.judge(limits, now_ms).log_start_offset
                wanted.append(_Wanted(partition, opened, start))
            else:
                looks.append((partition, opened, aging, limits))
        if looks:
            verdicts = await self._in_thread(lambda: [aging.judge(limits, now_ms) for *_, aging, limits in looks])
            for (partition, opened, *_), verdict in zip(looks, verdicts, strict=True):
                wanted.append(_Wanted(partition, opened, verdict.log_start_offset))
        return await self._drop_all(wanted)

    async def _drop_all(self, wanted: Sequence[_Wanted]) -> list[tuple[Partition, list[LogSegment]]]:
        """Move the log starts, each once it is durable, and take the segments below them out of the logs."""
        moves: dict[_Wanted, StartMove] = {}
        failures: dict[_Wanted, StorageError] = {}
        for one in wanted:
            if not _is_current(one):
                continue
            start = self._start_of(one)
            try:
                if start > one.opened.log_start_offset:
                    moves[one] = one.opened.begin_start_move(start)
            except StorageError as error:
                failures[one] = error
        if moves:
            outcomes = await self._in_thread(lambda: [_outcome(move) for move in moves.values()])
            for (one, move), outcome in zip(moves.items(), outcomes, strict=True):
                if outcome is True and _is_current(one):
                    move.finish()
                else:
                    move.fail()
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

    def _start_of(self, wanted: _Wanted) -> int:
        start = min(wanted.start, wanted.partition.high_watermark)
        if wanted.partition.topic_name in self._topics.held_from:
            start = min(start, self._topics.held_from[wanted.partition.topic_name]())
        return start

    def _note_failures(self, failures: Mapping[_Wanted, StorageError]) -> None:
        if not failures:
            return
        self.failures += len(failures)
        self._failed |= dict.fromkeys(one.partition for one in failures)
        self._backoff.begin(self._clock.monotonic())
        for one, error in islice(failures.items(), FAILURES_SHOWN_MAX):
            log.warning(
                "old records of %s-%d stay, the next try is in %d s: %s",
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
            self.deletions.add(dropped, partition.settings.file_delete_delay_ms)

    # --- logs that are not open

    async def _round_of_closed(self) -> None:
        # Taken over name by name, so that what is known of deleted topics goes without a look at everything.
        before, self._looks = self._looks, {}
        counts = self._topics.catalogue.partition_counts()
        folders = (f"{name}-{index}" for name, count in counts for index in range(count))
        # What is opened meanwhile is told apart later, by the partition itself.
        opened = {f"{one.topic_name}-{one.index}" for one in self._topics.open_partitions}
        portion: list[_Closed] = []
        while some := list(islice(folders, NAMES_PER_TURN)):
            for folder in some:
                if folder in opened:
                    continue
                if (known := before.get(folder)) is not None:
                    self._looks[folder] = known
                if (closed := self._due(folder)) is not None:
                    portion.append(closed)
                if len(portion) == FOLDERS_PER_PORTION:
                    await self._judge_closed(portion)
                    portion = []
                    await asyncio.sleep(PORTION_PAUSE_SECONDS)
            await asyncio.sleep(0)
        if portion:
            await self._judge_closed(portion)

    def _due(self, folder: str) -> _Closed | None:
        name, _, number = folder.rpartition("-")
        facts = self._topics.catalogue.find(name)
        if facts is None or int(number) >= facts.partition_count:
            return None
        stored_bytes = self._topics.stored_bytes.get(folder)
        known = self._looks.get(folder)
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

    async def _judge_closed(self, portion: Sequence[_Closed]) -> None:
        now_ms = self._clock.now_ms()
        verdicts = await self._in_thread(lambda: [_judge_folder(one, self._files, now_ms) for one in portion])
        for closed, verdict in zip(portion, verdicts, strict=True):
            if isinstance(verdict, Verdict):
                self._looks[closed.folder] = _Look(verdict.next_look_ms, closed.revision, closed.stored_bytes)
            else:
                await self._open_and_judge(closed)

    async def _open_and_judge(self, closed: _Closed) -> None:
        """Something is to go, or nobody can tell: open it as anybody would, and put it away again.

        Nobody has been reading here, so the files need not stay for a while: the log could not be put away so long.
        """
        self._looks.pop(closed.folder, None)
        partition = self._topics.find_partition(closed.topic_name, closed.partition_index)
        if partition is None or partition.is_open:
            return  # the next round sees to it
        try:
            partition.open()
        except StorageError as error:
            self.failures += 1
            log.warning("%s cannot be opened to let old records go: %s", closed.folder, error)
            return
        for _, dropped in await self._judge_open([partition]):
            self._delete_later(partition, await self._in_thread(partial(_delete, dropped)))
        self._topics.park(partition)


def _may_lose(partition: Partition) -> bool:
    """A log that is damaged, failed, or deleted is left as it is."""
    return partition.is_open and partition.is_writable and partition.damage is None


def _is_current(wanted: _Wanted) -> bool:
    return wanted.opened.is_current and _may_lose(wanted.partition)


def _outcome(move: StartMove) -> bool | StorageError:
    """In the thread."""
    try:
        return move.run()
    except StorageError as error:
        return error


def _ring_start(partition: Partition) -> int:
    messages = partition.settings.retention_messages
    return ring_start(partition.log_start_offset, partition.last_stable_offset, messages)


def _limits(settings: TopicSettings, undecided: int = 0) -> RetentionLimits:
    """A ring counts what can be read: so many offsets at the end are in, or behind, open transactions."""
    messages = settings.retention_messages
    if messages >= 0:
        messages += undecided
    return RetentionLimits(settings.retention_ms, settings.retention_bytes, messages, settings.is_deleted)


def _judge_folder(one: _Closed, files: Files, now_ms: int) -> Verdict | None:
    """In the thread. None: it has to be opened, because something is to go or because its folder does not tell."""
    settings = LogSettings(segment_ms=one.settings.segment_ms, index_interval_bytes=one.settings.index_interval_bytes)
    try:
        aging = age_closed_log(one.path, files, settings)
    except StorageError:
        return Verdict(0, False, now_ms)  # deleted meanwhile, or a disk in trouble: the next round looks again
    if aging is None:
        return None
    verdict = aging.judge(_limits(one.settings), now_ms)
    return None if verdict.has_leftovers or verdict.log_start_offset > aging.extent.log_start_offset else verdict


def _delete(segments: Sequence[LogSegment]) -> list[LogSegment]:
    """In the thread. Returns those that are still there."""
    return [segment for segment in segments if delete_files(segment) is not None]


def _portions(items: Iterable[R], size: int) -> Iterator[list[R]]:
    """The items of this moment, some at a time."""
    whole = list(items)
    for first in range(0, len(whole), size):
        yield whole[first : first + size]
