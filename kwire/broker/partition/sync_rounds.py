"""Making appended records durable: one round at a time for the whole node, for all partitions that need it.

A round takes everything that was appended until it begins, from every partition; what arrives meanwhile goes into the
next one, also where the round is done with that partition already. So the disk is asked as often as it can answer and
no more, and many producers share one wait. A round begins at the end of a loop turn, so that all requests of one turn
are in it.

The kernel syncs the files of a small round in the background. A thread syncs many files, new files and folders, and
everything where the kernel cannot.
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
from kwire.disk_lanes import Lane
from storage.errors import DiskFailure, FileSystemFailed, StorageFailed
from storage.files import Files
from storage.syncing import FILES_ONE_BY_ONE_MAX, LogSync, Synced, sync_each

log = logging.getLogger("kwire.broker")

# Waiting calls are checked for their time-outs this often while rounds run.
LOOK_SECONDS = 1.0
# A thread reports a round that takes longer than this in parts: each report costs the loop a turn.
TELL_SECONDS = 0.001
# When a sync could not even begin.
RETRY_SECONDS = 0.5
# To take one in takes the loop five microseconds and a descriptor; the others are in the next round.
LOGS_PER_ROUND_MAX = 500
# At the stop: how long a round on a disk that hangs is waited for.
CLOSE_SECONDS = 30.0


class KernelSyncs(Protocol):
    """`storage.kernel_syncs.KernelSyncs`."""

    event_fd: int

    def begin(self, fd: int) -> int | None: ...
    def done(self) -> list[tuple[int, int]]: ...
    def wait(self, seconds: float) -> None: ...
    def close(self) -> None: ...


class SyncRounds:
    """Called from the event loop. `rounds` and `files` count what was done, `longest_seconds` is the longest round."""

    def __init__(
        self,
        files: Files,
        data_dirs: Sequence[str],
        lane: Lane,
        all_open: Callable[[], Iterable[Partition]] = tuple,
        kernel: KernelSyncs | None = None,
    ) -> None:
        """`lane` runs what `kernel` does not; both are closed with the rounds.

        `all_open` are the partitions that a failed sync of a whole file system may have harmed.
        """
        self._files = files
        self._data_dirs = tuple(data_dirs)
        self._all_open = all_open
        self._loop = asyncio.get_running_loop()
        self._lane = lane
        self._kernel = kernel
        if kernel is not None:
            self._loop.add_reader(kernel.event_fd, self._take_done)
        # The syncs that are under way in the kernel, by its numbers.
        self._in_kernel: dict[int, LogSync] = {}
        # In the order in which they asked; a set would do if it kept one.
        self._dirty: dict[Partition, None] = {}
        self._running: dict[LogSync, tuple[Partition, int]] = {}
        # Partitions whose sync could not even be begun.
        self._delayed: set[Partition] = set()
        self._began_at = 0.0
        self._is_begun = False
        self._is_closed = False
        self._look: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None
        self.rounds = 0
        self.files = 0
        self.failures = 0
        # Partitions whose sync had to be put off because no descriptor was to be had.
        self.delays = 0
        self.longest_seconds = 0.0

    def add(self, partition: Partition) -> None:
        """Sync what has been appended to it; its `end_sync` is called when that is done."""
        self._dirty[partition] = None
        if not self._is_begun:
            self._is_begun = True
            self._loop.call_soon(self._begin)

    def add_within(self, partition: Partition, delay_ms: int) -> None:
        self._loop.call_later(delay_ms / 1000, self.add, partition)

    async def idle(self) -> None:
        """Wait until nothing is left to be synced."""
        if self._is_begun:
            if self._idle is None:
                self._idle = self._loop.create_future()
            await asyncio.shield(self._idle)

    def close(self) -> None:
        """Finish the round that runs; nothing new is begun. The logs sync the rest themselves when they are closed."""
        if self._look is not None:
            self._look.cancel()
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
            kernel.close()  # with syncs under way it would wait for the disk that hangs
        for sync in self._in_kernel.values():
            # Their outcome will not be known, so these logs must not be closed as if all of their records were safe.
            self._lane.submit(partial(self._end_failed, sync, OSError(errno.EIO, "the disk does not answer")))

    def _begin(self) -> None:
        if self._is_closed:  # what is dirty is synced when its log is closed
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
                # One reader that fails when it is told must not end the rounds for all.
                log.exception("at the sync of %s-%d", partition.topic_name, partition.index)
                continue
            if sync is None:
                self._delayed.discard(partition)
            else:
                self._running[sync] = (partition, partition.appended_bytes)
        if not self._running:
            self._rest()
            return
        self._began_at = self._loop.time()
        if self._look is None:
            self._look = self._loop.call_later(LOOK_SECONDS, self._look_after)
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
            sync.give_up()
            return False
        self._in_kernel[number] = sync
        return True

    def _take_done(self) -> None:
        """The kernel has finished some syncs."""
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
        """In the sync lane: the end of a sync that failed in the kernel."""
        self._tell([(sync, sync.end(error))])

    def _delay(self, partition: Partition, error: DiskFailure) -> None:
        """Out of descriptors. Nothing is lost: a later round answers waiting callers, within their time-outs."""
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
        """In the sync lane: one round."""
        left = dict.fromkeys(syncs)
        done: list[Synced] = []
        told_at = time.monotonic()
        try:
            for sync, failure in sync_each(self._files, self._data_dirs, syncs):
                del left[sync]
                done.append((sync, failure))
                if left and time.monotonic() - told_at >= TELL_SECONDS:
                    self._tell(done)
                    done, told_at = [], time.monotonic()
        except Exception as error:
            # Whatever it was, nobody may believe that these records are safe.
            log.exception("a sync round failed")
            done += [(sync, StorageFailed(f"sync: {error}")) for sync in left]
        self._tell(done)

    def _tell(self, done: list[Synced]) -> None:
        with suppress(RuntimeError):  # the loop is gone, and everybody who waited with it
            self._loop.call_soon_threadsafe(self._end, done)

    def _end(self, done: list[Synced]) -> None:
        """Some syncs of the round are over, or all that were left."""
        for sync, failure in done:
            partition, readable_bytes = self._running.pop(sync)
            self.files += sync.file_count
            if failure is None:
                self._delayed.discard(partition)
            elif isinstance(failure, StorageFailed):
                self.failures += 1
                log.critical(
                    "%s-%d cannot be synced and takes no more records until the next start: %s",
                    partition.topic_name,
                    partition.index,
                    failure,
                )
            try:
                partition.end_sync(sync, readable_bytes, failure)
            except Exception:
                # One reader that fails must not keep the others from being told.
                log.exception("after the sync of %s-%d", partition.topic_name, partition.index)
            if failure is not None and not isinstance(failure, StorageFailed):
                self._delay(partition, failure)
        for _, failure in done:
            if isinstance(failure, FileSystemFailed):
                self._mourn(failure)
        if self._running:
            return
        self.rounds += 1
        self.longest_seconds = max(self.longest_seconds, self._loop.time() - self._began_at)
        if self._dirty:
            self._begin()
        else:
            self._rest()

    def _mourn(self, failure: FileSystemFailed) -> None:
        """A whole file system could not be synced: pages of logs that were not in the round may be lost as well."""
        for partition in self._all_open():
            opened = partition.maintenance() if partition.is_open else None
            if opened is not None and opened.directory.startswith(os.path.join(failure.data_dir, "")):
                opened.fail(failure)

    def _rest(self) -> None:
        if self._dirty:
            self._loop.call_soon(self._begin)
            return
        self._is_begun = False
        if self._idle is not None:
            idle, self._idle = self._idle, None
            if not idle.done():
                idle.set_result(None)

    def _look_after(self) -> None:
        self._look = None
        if not self._is_begun:
            return
        for partition in (*self._dirty, *(partition for partition, _ in self._running.values())):
            partition.give_up_overdue()
        self._look = self._loop.call_later(LOOK_SECONDS, self._look_after)
