"""Sync rounds make appended records durable. One round at a time syncs the partitions that requested a sync.

A round syncs the records that were appended before the round began. Records that are appended during a round are synced
by the next round. So a slow disk gets fewer and larger rounds, and many producers wait for the same sync. A round
begins at the end of a loop iteration, so that it includes all requests of that iteration.

The kernel syncs a round of at most FILES_ONE_BY_ONE_MAX files in the background. A thread syncs larger rounds, and new
files and folders. If the kernel does not support background syncs, the thread syncs everything.
"""

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Protocol

from kwire.broker.partition.partition import Partition
from kwire.concurrency.chunking import yield_processor_while
from kwire.concurrency.disk_lanes import Lane
from kwire.metrics import Latency
from storage.disk.files import Files
from storage.errors import DiskFailure, FileSystemFailed, StorageFailed
from storage.log.syncing import FILES_ONE_BY_ONE_MAX, LogSync, Synced, sync_each

log = logging.getLogger("kwire.broker")

# While rounds run, the interval between two checks for requests that have waited for a sync until their deadline.
TIMEOUT_CHECK_SECONDS = 1.0
# The minimum interval between two reports of a thread about the finished syncs of a round. Each report wakes the event
# loop.
REPORT_SECONDS = 0.001
# The pause before a sync that could not begin is retried.
RETRY_SECONDS = 0.5
# The maximum number of logs in a round. Further logs are synced in the next round. Adding a log to a round takes five
# microseconds, and needs a file descriptor.
LOGS_PER_ROUND_MAX = 500
# The maximum time that the stop of the server waits for a running round, in case the disk hangs.
CLOSE_SECONDS = 30.0


class KernelSyncs(Protocol):
    """The interface of `storage.disk.kernel_syncs.KernelSyncs`."""

    event_fd: int

    def begin(self, fd: int) -> int | None: ...
    def done(self) -> list[tuple[int, int]]: ...
    def wait(self, seconds: float) -> None: ...
    def close(self) -> None: ...


class SyncRounds:
    """Runs the sync rounds of a node. Use it only in the event loop's thread.

    `rounds` and `files` are the numbers of finished rounds and synced files. `failures` is the number of failed syncs.
    `durations` and `longest_seconds` are the durations of the rounds and of the longest one.
    """

    def __init__(
        self,
        files: Files,
        data_dirs: Sequence[str],
        lane: Lane,
        all_open: Callable[[], Iterable[Partition]] = tuple,
        kernel: KernelSyncs | None = None,
    ) -> None:
        """`lane` runs the syncs that `kernel` does not run. `close` closes both.

        `all_open` returns all open partitions. It is called when the sync of a whole file system has failed, because
        each of them may have lost pages.
        """
        self._files = files
        self._data_dirs = tuple(data_dirs)
        self._all_open = all_open
        self._loop = asyncio.get_running_loop()
        self._lane = lane
        self._kernel = kernel
        if kernel is not None:
            self._loop.add_reader(kernel.event_fd, self._take_done)
            yield_processor_while(lambda: bool(self._in_kernel))
        # The syncs that run in the kernel, by the numbers that `KernelSyncs.begin` returned.
        self._in_kernel: dict[int, LogSync] = {}
        # The partitions that requested a sync, in the order of the requests.
        self._dirty: dict[Partition, None] = {}
        self._running: dict[LogSync, tuple[Partition, int]] = {}
        # Partitions whose sync could not begin.
        self._delayed: set[Partition] = set()
        self._began_at = 0.0
        self._is_begun = False
        self._is_closed = False
        self._timeout_timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None
        self.rounds = 0
        self.files = 0
        self.failures = 0
        # The number of times a sync was delayed, because there was no free file descriptor.
        self.delays = 0
        self.durations = Latency()
        self.longest_seconds = 0.0

    def add(self, partition: Partition) -> None:
        """Sync everything appended to the partition so far, in the next round. Then call the partition's `end_sync`."""
        self._dirty[partition] = None
        if not self._is_begun:
            self._is_begun = True
            self._loop.call_soon(self._begin)

    def add_within(self, partition: Partition, delay_ms: int) -> None:
        self._loop.call_later(delay_ms / 1000, self.add, partition)

    async def idle(self) -> None:
        """Wait until no sync is running or requested."""
        if self._is_begun:
            if self._idle is None:
                self._idle = self._loop.create_future()
            await asyncio.shield(self._idle)

    def close(self) -> None:
        """Wait for the running round, and begin no other round. Each log syncs its last records when it is closed."""
        if self._timeout_timer is not None:
            self._timeout_timer.cancel()
        self._is_closed = True
        if self._kernel is not None:
            self._close_kernel(self._kernel)
        self._lane.close(CLOSE_SECONDS)

    def _close_kernel(self, kernel: KernelSyncs) -> None:
        deadline = time.monotonic() + CLOSE_SECONDS
        while self._in_kernel and (seconds := deadline - time.monotonic()) > 0:
            kernel.wait(seconds)
            self._take_done()
        self._loop.remove_reader(kernel.event_fd)
        if not self._in_kernel:
            kernel.close()  # while syncs run, this call would wait for the disk that hangs
        for sync in self._in_kernel.values():
            # The results of these syncs are not known, so the syncs count as failed. Otherwise the logs would be closed
            # as if their records were durable.
            self._lane.submit(partial(self._end_failed, sync, OSError(errno.EIO, "the disk does not answer")))

    def _begin(self) -> None:
        if self._is_closed:  # each log is synced when it is closed
            return
        dirty = list(islice(self._dirty, LOGS_PER_ROUND_MAX))
        for partition in dirty:
            del self._dirty[partition]
        for partition in dirty:
            try:
                sync = partition.begin_sync()
            except DiskFailure as error:
                self._delay(partition, error)
                continue
            except Exception:
                # `begin_sync` may run callbacks. If one raises, the round continues with the other partitions.
                log.exception("beginning the sync of %s-%d failed", partition.topic_name, partition.index)
                continue
            if sync is None:
                self._delayed.discard(partition)
            else:
                self._running[sync] = (partition, partition.appended_bytes)
        if not self._running:
            self._become_idle()
            return
        self._began_at = self._loop.time()
        if self._timeout_timer is None:
            self._timeout_timer = self._loop.call_later(TIMEOUT_CHECK_SECONDS, self._check_timeouts)
        syncs = list(self._running)
        if self._kernel is not None and sum(sync.file_count for sync in syncs) <= FILES_ONE_BY_ONE_MAX:
            syncs = [sync for sync in syncs if not self._begin_in_kernel(self._kernel, sync)]
        if syncs:
            self._lane.submit(partial(self._run_round, syncs))

    def _begin_in_kernel(self, kernel: KernelSyncs, sync: LogSync) -> bool:
        fd = sync.begin()
        if fd is None:
            return False
        number = kernel.begin(fd)
        if number is None:
            sync.cancel()
            return False
        self._in_kernel[number] = sync
        return True

    def _take_done(self) -> None:
        """Complete the syncs that the kernel has finished."""
        assert self._kernel is not None
        done: list[Synced] = []
        for number, error_number in self._kernel.done():
            sync = self._in_kernel.pop(number)
            if error_number:
                error = OSError(error_number, os.strerror(error_number))
                self._lane.submit(partial(self._end_failed, sync, error))
            else:
                done.append((sync, sync.end(None)))
        if done:
            self._end(done)

    def _end_failed(self, sync: LogSync, error: OSError) -> None:
        """Process a sync that failed in the kernel. Runs in a thread of the sync lane."""
        self._report([(sync, sync.end(error))])

    def _delay(self, partition: Partition, error: DiskFailure) -> None:
        """Retry a sync later, because there is no free file descriptor. No record is lost.

        The deadlines of the requests that wait for the sync do not change.
        """
        if partition not in self._delayed:
            self._delayed.add(partition)
            self.delays += 1
            log.warning(
                "%s-%d cannot be synced yet, the next try is in %s s: %s",
                partition.topic_name,
                partition.index,
                RETRY_SECONDS,
                error,
            )
        partition.give_up_overdue()
        self._loop.call_later(RETRY_SECONDS, self.add, partition)

    def _run_round(self, syncs: Sequence[LogSync]) -> None:
        """Run one round. Runs in a thread of the sync lane."""
        left = dict.fromkeys(syncs)
        done: list[Synced] = []
        reported_at = time.monotonic()
        try:
            for sync, failure in sync_each(self._files, self._data_dirs, syncs):
                del left[sync]
                done.append((sync, failure))
                if left and time.monotonic() - reported_at >= REPORT_SECONDS:
                    self._report(done)
                    done, reported_at = [], time.monotonic()
        except Exception as error:
            # After an unexpected error, the records of all remaining syncs must not be treated as durable.
            log.exception("a sync round failed")
            done += [(sync, StorageFailed(f"sync: {error}")) for sync in left]
        self._report(done)

    def _report(self, done: list[Synced]) -> None:
        """Report finished syncs to the event loop."""
        with suppress(RuntimeError):  # the event loop is closed, so no call waits for the result
            self._loop.call_soon_threadsafe(self._end, done)

    def _end(self, done: list[Synced]) -> None:
        """Process finished syncs of the round. After the last sync of the round, begin the next round."""
        for sync, failure in done:
            partition, readable_bytes = self._running.pop(sync)
            self.files += sync.file_count
            if failure is None:
                self._delayed.discard(partition)
            elif isinstance(failure, StorageFailed):
                self.failures += 1
                log.critical(
                    "%s-%d cannot be synced and accepts no more records until the next start: %s",
                    partition.topic_name,
                    partition.index,
                    failure,
                )
            try:
                partition.end_sync(sync, readable_bytes, failure)
            except Exception:
                # `end_sync` runs callbacks. If one raises, the other partitions are still notified.
                log.exception("processing the finished sync of %s-%d failed", partition.topic_name, partition.index)
            if failure is not None and not isinstance(failure, StorageFailed):
                self._delay(partition, failure)
        for _, failure in done:
            if isinstance(failure, FileSystemFailed):
                self._fail_logs_on(failure)
        if self._running:
            return
        self.rounds += 1
        seconds = self._loop.time() - self._began_at
        self.durations.observe(seconds)
        self.longest_seconds = max(self.longest_seconds, seconds)
        if self._dirty:
            self._begin()
        else:
            self._become_idle()

    def _fail_logs_on(self, failure: FileSystemFailed) -> None:
        """Make all open logs on a file system refuse records. Its sync has failed, so any log may have lost pages."""
        for partition in self._all_open():
            opened = partition.maintenance() if partition.is_open else None
            if opened is not None and opened.directory.startswith(os.path.join(failure.data_dir, "")):
                opened.fail(failure)

    def _become_idle(self) -> None:
        if self._dirty:
            self._loop.call_soon(self._begin)
            return
        self._is_begun = False
        if self._idle is not None:
            idle, self._idle = self._idle, None
            if not idle.done():
                idle.set_result(None)

    def _check_timeouts(self) -> None:
        self._timeout_timer = None
        if not self._is_begun:
            return
        for partition in (*self._dirty, *(partition for partition, _ in self._running.values())):
            partition.give_up_overdue()
        self._timeout_timer = self._loop.call_later(TIMEOUT_CHECK_SECONDS, self._check_timeouts)
