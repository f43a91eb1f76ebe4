"""Partitions that move from one data directory to another, while they are read and written.

How a log gets there safely is the business of `storage/moving.py`. Here it is decided who moves, a few at a time and at
a bounded pace, and the switch is made at a moment when no sync of the log is under way: between two rounds of the
partition, if need be in the very callback in which one ends, so that producers and readers notice nothing.

A partition that loses segments to retention, or has them replaced by compaction, is copied again where it has changed;
whoever works on the old log finds that the partition has another one and drops what it has.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

from kwire.broker.partition import Partition, code_of
from kwire.broker.topics import Topic, Topics
from kwire.errors import ErrorCode, KafkaError
from storage.directories import LogDirectories
from storage.errors import DiskFailure, StorageError
from storage.moving import HASTY_REST_BYTES_MAX, REST_BYTES_MAX, CopyRound, LogMove
from storage.partition_metadata import partition_folder

log = logging.getLogger("kwire.broker")

# Each of them reads one disk and writes another.
MOVES_AT_ONCE_MAX = 2
# Those that wait their turn have a folder already.
MOVES_MAX = 10_000
# Copying comes closer to the log end with each round; where it does not any more, the last step may be a longer one.
PATIENT_ROUNDS_MAX = 10
# How long a switch waits for the end of a sync before the rest is looked at again.
SWITCH_WAIT_SECONDS = 1.0
# Files go under the hands of a copy when retention or compaction is at work; then it looks again what there is.
MISSING_FILES_MAX = 10
# No single wait is longer.
PAUSE_SECONDS_MAX = 1.0
# Partitions whose trouble is kept in words.
ERRORS_MAX = 100


class FutureReplica(NamedTuple):
    """A copy in the making, as DescribeLogDirs shows it."""

    topic_name: str
    partition_index: int
    data_dir: str
    size_bytes: int
    offset_lag: int


class _Entry:
    """One move that was asked for. `stop` is set when it is not wanted any more."""

    def __init__(self, topic: Topic, partition: Partition, move: LogMove) -> None:
        self.topic = topic
        self.partition = partition
        self.move = move
        self.stop = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        # Its folder is made, so it may begin.
        self.is_prepared = False
        self.missing_files = 0
        self.rounds = 0

    @property
    def rest_bytes_max(self) -> int:
        return REST_BYTES_MAX if self.rounds < PATIENT_ROUNDS_MAX else HASTY_REST_BYTES_MAX

    @property
    def name(self) -> str:
        return f"{self.partition.topic_name}-{self.partition.index} to {self.move.target.data_dir}"


class Moves:
    """Called from the event loop. Counters tell what was done since the start, `last_errors` what failed and why."""

    def __init__(self, topics: Topics, store: LogDirectories, bytes_per_second_max: float) -> None:
        self._topics = topics
        self._store = store
        self.bytes_per_second_max = bytes_per_second_max
        self._entries: dict[str, _Entry] = {}
        self._running = 0
        self._beginning = asyncio.Lock()
        self._beginnings: set[asyncio.Task[None]] = set()
        self._removals: dict[str, asyncio.TimerHandle] = {}
        self._resuming: asyncio.Task[None] | None = None
        self._is_closed = False
        self.moved_count = 0
        self.copied_bytes = 0
        self.failures = 0
        self.last_errors: dict[str, str] = {}

    # --- asked for

    def check_directory(self, path: str) -> None:
        """Raise KafkaError if nothing can move there."""
        if path not in self._store.configured_dirs:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
        if path in self._store.offline_dirs:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
        if path in self._store.cordoned_dirs:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")

    async def begin(self, topic: Topic, partition: Partition, data_dir: str) -> None:
        """Let a partition move to a directory, or stay if it is there; durable when this returns. Raises KafkaError."""
        self.check_directory(data_dir)
        # In a task of its own: a client that goes away meanwhile must not leave half a beginning.
        task = asyncio.get_running_loop().create_task(self._begin_in_turn(topic, partition, data_dir))
        self._beginnings.add(task)
        task.add_done_callback(self._beginnings.discard)
        await asyncio.shield(task)

    async def _begin_in_turn(self, topic: Topic, partition: Partition, data_dir: str) -> None:
        # One after the other: what is asked for twice is done once.
        async with self._beginning:
            try:
                await self._begin(topic, partition, data_dir)
            except StorageError as error:
                raise KafkaError(code_of(error), str(error)) from error

    async def _begin(self, topic: Topic, partition: Partition, data_dir: str) -> None:
        folder = partition_folder(topic.name, partition.index)
        entry = self._entries.get(folder)
        if entry is not None and (
            entry.move.target.data_dir != data_dir or not self._is_current(entry.topic, entry.partition)
        ):
            await self._end(entry)
            entry = None
        here = self._store.directory_of(folder, topic.topic_id)
        if here == data_dir or entry is not None:
            return
        if self._store.offline_dirs:
            # As Kafka: a copy could be in one of those already.
            raise DiskFailure("nothing moves while a log directory is offline")
        await self._settle_first(partition)
        self._check_current(topic, partition)
        if self._store.path_of(folder) is None:
            await self._place_empty(topic, partition, folder, data_dir)
            return
        if not partition.is_writable or partition.damage is not None:
            raise DiskFailure(f"the log of {folder} is damaged or failed, and stays where it is")
        if len(self._entries) >= MOVES_MAX:
            raise DiskFailure(f"{MOVES_MAX} partitions are moving already")
        self._forget_removal(folder)
        entry = self._entries[folder] = _Entry(
            topic, partition, self._store.begin_move(folder, topic.topic_id, data_dir)
        )
        try:
            await self._topics.lanes.maintenance.run(entry.move.prepare)
        except DiskFailure:
            del self._entries[folder]
            self._abandon(entry)
            self._check_current(topic, partition)
            raise
        entry.is_prepared = True
        self._start_some()

    async def _settle_first(self, partition: Partition) -> None:
        """Where an earlier move could not be settled, the folder that it came from is still needed."""
        opened = partition.maintenance() if partition.is_open else None
        if opened is not None and not opened.is_settled:
            await self._topics.lanes.maintenance.run(opened.settle)

    async def _place_empty(self, topic: Topic, partition: Partition, folder: str, data_dir: str) -> None:
        """It has no record, so nothing is to be copied: the folder is made where the first one is to go."""
        if not self._topics.park(partition):
            raise DiskFailure(f"{folder} is in use just now")
        self._store.make_empty(folder, topic.topic_id, data_dir)
        await self._topics.lanes.maintenance.run(self._store.sync_empty, folder, data_dir)

    async def resume(self) -> None:
        """Go on with what the last run did not finish."""
        for folder, data_dir in list(self._store.unfinished_moves.items()):
            name, _, index = folder.rpartition("-")
            topic = self._topics.get(name)
            partition = topic.partition(int(index)) if topic is not None else None
            if topic is None or partition is None:
                continue
            try:
                await self.begin(topic, partition, data_dir)
            except KafkaError as error:
                self._note_failure(folder, error)
        self._store.unfinished_moves.clear()

    def resume_soon(self) -> None:
        if self._store.unfinished_moves:
            self._resuming = asyncio.get_running_loop().create_task(self.resume())

    def futures(self) -> Iterator[FutureReplica]:
        for entry in self._entries.values():
            partition, move = entry.partition, entry.move
            if not move.is_switched:
                lag = partition.maintenance().move_lag(move) if partition.is_open else -1
                yield FutureReplica(partition.topic_name, partition.index, move.target.data_dir, move.copied_bytes, lag)

    @property
    def moving_count(self) -> int:
        return len(self._entries)

    @property
    def cordoned_dirs(self) -> Collection[str]:
        return self._store.cordoned_dirs

    async def idle(self) -> None:
        """Wait until nothing moves."""
        while self._entries:
            await asyncio.wait([entry.task for entry in self._entries.values() if entry.task is not None])

    async def close(self) -> None:
        """Stop. What is being copied is begun anew after the next start; a switch that was made is settled."""
        self._is_closed = True
        if self._resuming is not None:
            self._resuming.cancel()
            with suppress(asyncio.CancelledError):
                await self._resuming
        if self._beginnings:
            await asyncio.wait(self._beginnings)
        for entry in self._entries.values():
            entry.stop.set()
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        for removal in self._removals.values():
            removal.cancel()

    # --- one move

    def _start_some(self) -> None:
        for entry in self._entries.values():
            if self._running >= MOVES_AT_ONCE_MAX or self._is_closed:
                return
            if entry.task is None and entry.is_prepared:
                self._running += 1
                entry.task = asyncio.get_running_loop().create_task(self._run(entry))

    async def _end(self, entry: _Entry) -> None:
        """It is to go elsewhere, or to stay."""
        entry.stop.set()
        if entry.task is not None:
            await asyncio.wait([entry.task])
        else:
            self._entries.pop(entry.move.folder, None)
        if not entry.move.is_switched:
            entry.move.abandon()
            await self._topics.lanes.maintenance.run(entry.move.target.sync_names)

    async def _run(self, entry: _Entry) -> None:
        try:
            if await self._copy(entry):
                await self._settle(entry)
            elif not self._is_current(entry.topic, entry.partition):
                self._abandon(entry)  # deleted
        except (StorageError, OSError) as error:
            self._abandon(entry)
            self._note_failure(entry.name, error)
        except Exception as error:
            log.exception("moving %s failed", entry.name)
            self._abandon(entry)
            self._note_failure(entry.name, error)
        finally:
            await self._topics.lanes.maintenance.run(entry.move.end_old_work)
            entry.move.close_old()
            self._running -= 1
            self._entries.pop(entry.move.folder, None)
            self._start_some()

    async def _copy(self, entry: _Entry) -> bool:
        """Copy until the switch is made; False when it is not wanted any more."""
        while self._is_wanted(entry):
            opened = entry.partition.maintenance()
            if not opened.is_writable or opened.damage is not None:
                raise DiskFailure(f"the log of {entry.name} is damaged or failed")
            rest = opened.plan_copy(entry.move)
            if rest.is_rest(entry.rest_bytes_max):
                if await self._switched(entry):
                    return True
                continue
            entry.rounds += 1
            try:
                await self._run_jobs(entry, rest)
            except FileNotFoundError:
                entry.missing_files += 1
                if entry.missing_files > MISSING_FILES_MAX:
                    raise
        return False

    async def _run_jobs(self, entry: _Entry, copying: CopyRound) -> None:
        for job in copying.jobs():
            if not self._is_wanted(entry):
                return
            size_bytes = await self._topics.lanes.maintenance.run(job)
            self.copied_bytes += size_bytes
            # A log that is put away and opened again would have to be copied from its beginning.
            self._topics.touch(entry.partition)
            await self._pause(entry, size_bytes)

    async def _pause(self, entry: _Entry, size_bytes: int) -> None:
        left = size_bytes / self.bytes_per_second_max
        while left > 0 and self._is_wanted(entry):
            pause = min(left, PAUSE_SECONDS_MAX)
            with suppress(TimeoutError):
                await asyncio.wait_for(entry.stop.wait(), pause)
            left -= pause

    async def _switched(self, entry: _Entry) -> bool:
        if self._switch(entry):
            return True
        # A sync is under way, and when it ends the next one may begin at once: in between is the moment.
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def on_rise(_: Partition) -> None:
            if done.done():
                return
            try:
                if self._switch(entry):
                    done.set_result(True)
            except Exception as error:
                done.set_exception(error)

        entry.partition.watch(on_rise)
        try:
            return await asyncio.wait_for(asyncio.shield(done), SWITCH_WAIT_SECONDS)
        except TimeoutError:
            return entry.move.is_switched  # it may have been made in the turn in which the time was up
        finally:
            entry.partition.unwatch(on_rise)
            if not done.done():
                done.cancel()

    def _switch(self, entry: _Entry) -> bool:
        """In one turn, without waiting for the disk; False if this is not the moment."""
        partition = entry.partition
        if not self._is_wanted(entry) or not partition.is_open:
            return False
        return partition.maintenance().switch(entry.move, entry.rest_bytes_max)

    async def _settle(self, entry: _Entry) -> None:
        move, partition = entry.move, entry.partition
        assert move.settlement is not None
        await self._topics.lanes.maintenance.run(move.settlement.run)
        self.moved_count += 1
        self.last_errors.pop(entry.name, None)
        log.info("%s-%d is in %s now", partition.topic_name, partition.index, move.target.data_dir)
        # Those who have just found the old files by name may read them to the end.
        delay_seconds = partition.settings.file_delete_delay_ms / 1000
        loop = asyncio.get_running_loop()
        self._removals[move.folder] = loop.call_later(delay_seconds, self._remove_old, move)

    def _remove_old(self, move: LogMove) -> None:
        self._removals.pop(move.folder, None)
        try:
            move.remove_old()
        except StorageError as error:  # the next start does it
            self._note_failure(move.folder, error)

    def _forget_removal(self, folder: str) -> None:
        removal = self._removals.pop(folder, None)
        if removal is not None:
            removal.cancel()

    def _abandon(self, entry: _Entry) -> None:
        try:
            entry.move.abandon()
        except StorageError as error:  # the next start removes it
            log.warning("the copy in %s stays for now: %s", entry.move.path, error)

    def _is_wanted(self, entry: _Entry) -> bool:
        return not entry.stop.is_set() and self._is_current(entry.topic, entry.partition)

    def _is_current(self, topic: Topic, partition: Partition) -> bool:
        return self._topics.get(topic.name) is topic and topic.partition(partition.index) is partition

    def _check_current(self, topic: Topic, partition: Partition) -> None:
        if self._is_closed or not self._is_current(topic, partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic was deleted, or the server is stopping.")

    def _note_failure(self, name: str, error: Exception) -> None:
        self.failures += 1
        self.last_errors.pop(name, None)
        if len(self.last_errors) >= ERRORS_MAX:
            del self.last_errors[next(iter(self.last_errors))]
        self.last_errors[name] = str(error)
        log.error("moving %s failed: %s", name, error)
