"""Making appended records durable: one round at a time for the whole node, in a thread, for all that need it.

A round takes everything that was appended until it begins, from every partition; what arrives meanwhile goes into the
next one, also where the round is done with that partition already. So the disk is asked as often as it can answer and
no more, and many producers share one wait. A round begins at the end of a loop turn, so that all requests of one turn
are in it.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from kwire.broker.partition.partition import Partition
from kwire.disk_lanes import Lane
from storage.errors import DiskFailure, FileSystemFailed, StorageFailed
from storage.files import Files
from storage.syncing import LogSync, Synced, sync_each

log = logging.getLogger("kwire.broker")

# Waiting calls are checked for their time-outs this often while rounds run.
LOOK_SECONDS = 1.0
# A round that takes longer than this is told of in portions: to be told costs the loop a turn.
TELL_SECONDS = 0.001
# When a sync could not even begin.
RETRY_SECONDS = 0.5
# To take one in takes the loop five microseconds and a descriptor; the others are in the next round.
LOGS_PER_ROUND_MAX = 500
# At the stop: how long a round on a disk that hangs is waited for.
CLOSE_SECONDS = 30.0


class SyncRounds:
    """Called from the event loop. `rounds` and `files` count what was done, `longest_seconds` is the longest round."""

    def __init__(
        self,
        files: Files,
        data_dirs: Sequence[str],
        lane: Lane,
        all_open: Callable[[], Iterable[Partition]] = tuple,
    ) -> None:
        """`lane` runs the rounds and is closed with them.

        `all_open` are the partitions that a failed sync of a whole file system may have harmed.
        """
        self._files = files
        self._data_dirs = tuple(data_dirs)
        self._all_open = all_open
        self._loop = asyncio.get_running_loop()
        self._lane = lane
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
        self._lane.close(CLOSE_SECONDS)

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
        self._lane.submit(partial(self._run_round, list(self._running)))

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
                    self._tell(done, is_over=False)
                    done, told_at = [], time.monotonic()
        except Exception as error:
            # Whatever it was, nobody may believe that these records are safe.
            log.exception("a sync round failed")
            done += [(sync, StorageFailed(f"sync: {error}")) for sync in left]
        self._tell(done, is_over=True)

    def _tell(self, done: list[Synced], *, is_over: bool) -> None:
        with suppress(RuntimeError):  # the loop is gone, and everybody who waited with it
            self._loop.call_soon_threadsafe(self._end, done, is_over)

    def _end(self, done: list[Synced], is_over: bool) -> None:
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
        if not is_over:
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
