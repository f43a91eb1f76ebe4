"""Relocation moves partitions from one data directory to another while clients read and write them.

`storage/relocation/relocation.py` copies one log. This module runs at most MOVES_AT_ONCE_MAX moves at a time, at a
limited rate. It switches a partition to the copy when no sync of the log is running. If sync rounds follow each other
without a pause, it switches in the callback at the end of a round. Requests of clients are not interrupted.

If retention removes segments of the log during the move, or compaction replaces them, the changed part is copied again.
Maintenance work on the old log detects after the switch that the partition has another log, and discards its result.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

from kwire.broker.partition import Partition, code_of
from kwire.broker.topics.topics import Topic, Topics
from kwire.errors import ErrorCode, KafkaError
from storage.data_directory.directories import LogDirectories
from storage.data_directory.partition_metadata import partition_folder
from storage.errors import DiskFailure, StorageError
from storage.relocation.relocation import LARGE_REST_BYTES_MAX, REST_BYTES_MAX, CopyRound, LogMove

log = logging.getLogger("kwire.broker")

# The maximum number of moves that run at the same time. Each move reads one disk and writes another.
MOVES_AT_ONCE_MAX = 2
# The maximum number of requested moves, including waiting ones. The target folder of a waiting move exists already.
MOVES_MAX = 10_000
# Each round of copying leaves fewer bytes for the last step, which copies the rest while it blocks the event loop.
# After this many rounds, the last step may copy more bytes.
PATIENT_ROUNDS_MAX = 10
# The maximum time that a switch waits for the end of a sync. Afterwards the remaining bytes are computed again.
SWITCH_WAIT_SECONDS = 1.0
# Retention or compaction may delete files while they are copied. The copy is then planned again, at most this many
# times per move.
MISSING_FILES_MAX = 10
# A longer pause of the rate limit is divided into several pauses.
PAUSE_SECONDS_MAX = 1.0
# The maximum number of partitions whose last error is kept.
ERRORS_MAX = 100


class FutureReplica(NamedTuple):
    """An incomplete copy of a log. DescribeLogDirs reports it as a future replica."""

    topic_name: str
    partition_index: int
    data_dir: str
    size_bytes: int
    offset_lag: int


class _Relocation:
    """One requested move. `stop` is set when the move is cancelled or the server stops."""

    def __init__(self, topic: Topic, partition: Partition, move: LogMove) -> None:
        self.topic = topic
        self.partition = partition
        self.move = move
        self.stop = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        # Whether the target folder exists, so that copying may begin.
        self.is_prepared = False
        self.missing_files = 0
        self.rounds = 0

    @property
    def rest_bytes_max(self) -> int:
        return REST_BYTES_MAX if self.rounds < PATIENT_ROUNDS_MAX else LARGE_REST_BYTES_MAX

    @property
    def name(self) -> str:
        return f"{self.partition.topic_name}-{self.partition.index} to {self.move.target.data_dir}"


class Relocations:
    """Moves partitions between data directories. Use it only in the event loop's thread.

    The counters start at 0 when the server starts. `last_errors` contains the last error of each move that failed.
    """

    def __init__(self, topics: Topics, store: LogDirectories, bytes_per_second_max: float) -> None:
        self._topics = topics
        self._store = store
        self.bytes_per_second_max = bytes_per_second_max
        self._entries: dict[str, _Relocation] = {}
        self._running = 0
        self._begin_lock = asyncio.Lock()
        self._begin_tasks: set[asyncio.Task[None]] = set()
        self._removals: dict[str, asyncio.TimerHandle] = {}
        self._resuming: asyncio.Task[None] | None = None
        self._is_closed = False
        self.moved_count = 0
        self.copied_bytes = 0
        self.failures = 0
        self.last_errors: dict[str, str] = {}

    # --- requests

    def check_directory(self, path: str) -> None:
        """Raise KafkaError if no partition can be moved to this directory."""
        if path not in self._store.configured_dirs:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
        if path in self._store.offline_dirs:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
        if path in self._store.cordoned_dirs:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")

    async def begin(self, topic: Topic, partition: Partition, data_dir: str) -> None:
        """Begin to move a partition to a directory. Raises KafkaError.

        If the partition is already in this directory, only cancel its move to another directory. The request is durable
        when this method returns.
        """
        self.check_directory(data_dir)
        # This runs in its own task, so that it is completed even if the client's request is cancelled.
        task = asyncio.get_running_loop().create_task(self._begin_locked(topic, partition, data_dir))
        self._begin_tasks.add(task)
        task.add_done_callback(self._begin_tasks.discard)
        await asyncio.shield(task)

    async def _begin_locked(self, topic: Topic, partition: Partition, data_dir: str) -> None:
        # One request at a time, so that a move that is requested twice is begun only once.
        async with self._begin_lock:
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
            # As in Kafka: the offline directory may already contain a copy of the log.
            raise DiskFailure("no partition can be moved while a log directory is offline")
        await self._settle_earlier_move(partition)
        self._check_current(topic, partition)
        if self._store.path_of(folder) is None:
            await self._place_empty(topic, partition, folder, data_dir)
            return
        if not partition.is_writable or partition.damage is not None:
            raise DiskFailure(f"the log of {folder} is damaged or has failed, so it cannot be moved")
        if len(self._entries) >= MOVES_MAX:
            raise DiskFailure(f"{MOVES_MAX} partitions are already being moved, which is the limit")
        self._forget_removal(folder)
        entry = self._entries[folder] = _Relocation(
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
        self._start_next()

    async def _settle_earlier_move(self, partition: Partition) -> None:
        """Commit an earlier move of the log, if it is not committed. Until then the log's old folder is needed."""
        opened = partition.maintenance() if partition.is_open else None
        if opened is not None and not opened.is_move_committed:
            await self._topics.lanes.maintenance.run(opened.commit_move)

    async def _place_empty(self, topic: Topic, partition: Partition, folder: str, data_dir: str) -> None:
        """Create the folder of a partition in `data_dir`. The partition has no folder yet, so no records are copied."""
        if not self._topics.park(partition):
            raise DiskFailure(f"the log of {folder} is in use, try again")
        self._store.create_empty(folder, topic.topic_id, data_dir)
        await self._topics.lanes.maintenance.run(self._store.sync_empty, folder, data_dir)

    async def resume(self) -> None:
        """Begin the moves again that the last run of the server did not complete."""
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
        """Wait until no move is running or waiting."""
        # An entry without a task is being begun, or waits for the end of another one. After `close` it stays so.
        while self._entries and (tasks := self._tasks() | self._begin_tasks):
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Stop all moves. The next start begins incomplete copies again. A move that was switched is committed."""
        self._is_closed = True
        if self._resuming is not None:
            self._resuming.cancel()
            with suppress(asyncio.CancelledError):
                await self._resuming
        if self._begin_tasks:
            await asyncio.wait(self._begin_tasks)
        for entry in self._entries.values():
            entry.stop.set()
        if tasks := self._tasks():
            await asyncio.wait(tasks)
        for removal in self._removals.values():
            removal.cancel()

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {entry.task for entry in self._entries.values() if entry.task is not None}

    # --- one move

    def _start_next(self) -> None:
        for entry in self._entries.values():
            if self._running >= MOVES_AT_ONCE_MAX or self._is_closed:
                return
            if entry.task is None and entry.is_prepared:
                self._running += 1
                entry.task = asyncio.get_running_loop().create_task(self._run(entry))

    async def _end(self, entry: _Relocation) -> None:
        """Cancel a move, because a request names another directory for the partition, or the topic was deleted."""
        entry.stop.set()
        if entry.task is not None:
            await asyncio.wait([entry.task])
        else:
            self._entries.pop(entry.move.folder, None)
        if not entry.move.is_switched:
            entry.move.abandon()
            await self._topics.lanes.maintenance.run(entry.move.target.sync_names)

    async def _run(self, entry: _Relocation) -> None:
        try:
            if await self._copy(entry):
                await self._settle(entry)
            elif not self._is_current(entry.topic, entry.partition):
                self._abandon(entry)  # the topic was deleted
        except (StorageError, OSError) as error:
            self._abandon(entry)
            self._note_failure(entry.name, error)
        except Exception as error:
            log.exception("moving %s failed", entry.name)
            self._abandon(entry)
            self._note_failure(entry.name, error)
        finally:
            await self._topics.lanes.maintenance.run(entry.move.stop_old_work)
            entry.move.close_old()
            self._running -= 1
            self._entries.pop(entry.move.folder, None)
            self._start_next()

    async def _copy(self, entry: _Relocation) -> bool:
        """Copy the log and switch to the copy. Returns False if the move was cancelled before the switch."""
        while self._is_wanted(entry):
            opened = entry.partition.maintenance()
            if not opened.is_writable or opened.damage is not None:
                raise DiskFailure(f"the log of {entry.name} is damaged or has failed")
            rest = opened.plan_copy(entry.move)
            if rest.is_small(entry.rest_bytes_max):
                if await self._wait_for_switch(entry):
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

    async def _run_jobs(self, entry: _Relocation, copying: CopyRound) -> None:
        for job in copying.jobs():
            if not self._is_wanted(entry):
                return
            size_bytes = await self._topics.lanes.maintenance.run(job)
            self.copied_bytes += size_bytes
            # If the log were parked, it would have to be copied from its beginning again.
            self._topics.touch(entry.partition)
            await self._pause(entry, size_bytes)

    async def _pause(self, entry: _Relocation, size_bytes: int) -> None:
        left = size_bytes / self.bytes_per_second_max
        while left > 0 and self._is_wanted(entry):
            pause = min(left, PAUSE_SECONDS_MAX)
            with suppress(TimeoutError):
                await asyncio.wait_for(entry.stop.wait(), pause)
            left -= pause

    async def _wait_for_switch(self, entry: _Relocation) -> bool:
        if self._switch(entry):
            return True
        # A sync is running, and the next sync may begin immediately after it. The switch has to be made between the
        # two.
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
            return entry.move.is_switched  # the switch may have been made in the loop iteration of the timeout
        finally:
            entry.partition.unwatch(on_rise)
            if not done.done():
                done.cancel()

    def _switch(self, entry: _Relocation) -> bool:
        """Switch to the copy without waiting for the disk. Returns False if that is not possible now."""
        partition = entry.partition
        if not self._is_wanted(entry) or not partition.is_open:
            return False
        return partition.maintenance().switch(entry.move, entry.rest_bytes_max)

    async def _settle(self, entry: _Relocation) -> None:
        move, partition = entry.move, entry.partition
        assert move.commit is not None
        await self._topics.lanes.maintenance.run(move.commit.run)
        self.moved_count += 1
        self.last_errors.pop(entry.name, None)
        log.info("%s-%d was moved to %s", partition.topic_name, partition.index, move.target.data_dir)
        # The old files are deleted after a delay, because readers may still use them.
        delay_seconds = partition.settings.file_delete_delay_ms / 1000
        loop = asyncio.get_running_loop()
        self._removals[move.folder] = loop.call_later(delay_seconds, self._remove_old, move)

    def _remove_old(self, move: LogMove) -> None:
        self._removals.pop(move.folder, None)
        try:
            move.remove_old()
        except StorageError as error:  # the next start removes the old folder
            self._note_failure(move.folder, error)

    def _forget_removal(self, folder: str) -> None:
        removal = self._removals.pop(folder, None)
        if removal is not None:
            removal.cancel()

    def _abandon(self, entry: _Relocation) -> None:
        try:
            entry.move.abandon()
        except StorageError as error:
            log.warning("the copy in %s could not be removed, the next start removes it: %s", entry.move.path, error)

    def _is_wanted(self, entry: _Relocation) -> bool:
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
