"""Disk lanes: the server's threads for disk access. Each lane is a small thread pool with a bounded queue.

Each kind of work has its own lane, so that slow syncs do not delay the allocation of space for an append, and the
deletion of ten thousand files does not delay a read from disk. The constants below set the number of threads and the
length of the queue of each lane.

When the queue is full, :meth:`Lane.submit` refuses the job. The caller continues without it, or submits it again later.
:meth:`Lane.run` waits for a free slot instead. No job ever runs on the event loop.

The event loop takes a lock only to start a thread, because queue and counter operations are atomic in the interpreter.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple, ParamSpec, TypeVar

log = logging.getLogger("kwire.disk")

# Allocation of further disk space for segment files. The jobs are short, and appends need the space soon. If a job is
# refused, the append extends the file.
ALLOCATE_THREADS = 1
ALLOCATE_QUEUE_MAX = 10_000
# Sync rounds, and the processing of syncs that failed in the kernel. One round runs at a time. At most eight syncs per
# round can fail in the kernel.
SYNC_THREADS = 1
SYNC_QUEUE_MAX = 10
# Writes of seals, checkpoints and new log start offsets. If a job is refused, the log tries again at its next
# maintenance pass.
SETTLE_THREADS = 2
SETTLE_QUEUE_MAX = 10_000
# Renaming and removing files and folders. If a job is refused, the caller tries again later.
DELETE_THREADS = 1
DELETE_QUEUE_MAX = 1_000
# Reads whose pages are not in memory. Callers wait for a free slot.
READ_THREADS = 4
READ_QUEUE_MAX = 10_000
# Writes of the metadata journal, and in a second lane of its mirror. Commits run one after the other.
METADATA_THREADS = 1
METADATA_QUEUE_MAX = 1
# Retention, compaction and moves between data directories. Callers wait for a free slot.
MAINTENANCE_THREADS = 3
MAINTENANCE_QUEUE_MAX = 100
# Sizes and metadata of many folders, for metrics and admin requests. Callers wait for a free slot.
SURVEY_THREADS = 1
SURVEY_QUEUE_MAX = 100

Job = Callable[[], None]
P = ParamSpec("P")
R = TypeVar("R")


class LaneFull(RuntimeError):
    """The queue of a lane is full; the job was not accepted."""


class LaneClosed(RuntimeError):
    """The lane accepts no more jobs because the server is stopping."""


class _Queued(NamedTuple):
    job: Job
    # Called instead of the job if `Lane.close` drops the job.
    drop: Job | None


class _Worker(threading.Thread):
    """One thread of a lane. It has its own counters, so that no counter is written by two threads."""

    def __init__(self, lane: "Lane", number: int) -> None:
        super().__init__(name=f"disk-{lane.name}-{number}", daemon=True)
        self._lane = lane
        self.jobs = 0
        self.longest_seconds = 0.0
        # The start time of the running job.
        self.began_at: float | None = None

    def run(self) -> None:
        queue, lane, monotonic = self._lane._queue, self._lane, time.monotonic
        while (queued := queue.get()) is not None:
            if lane._waiting:
                lane._admit_one()
            began_at = self.began_at = monotonic()
            try:
                queued.job()
            except BaseException:  # the thread must survive: other jobs wait for it
                log.exception("a job of the disk lane %s failed", lane.name)
            self.began_at = None
            del queued  # it would keep the objects of the job in memory until the next job
            self.jobs += 1
            seconds = monotonic() - began_at
            if seconds > self.longest_seconds:
                self.longest_seconds = seconds


class Lane:
    """A bounded queue of jobs, and the threads that run them. `lane(job)` is the same as `lane.submit(job)`."""

    def __init__(self, name: str, threads_max: int, queue_max: int) -> None:
        self.name = name
        self.threads_max = threads_max
        self.queue_max = queue_max
        self.refusals = 0
        self._queue: SimpleQueue[_Queued | None] = SimpleQueue()
        self._workers: tuple[_Worker, ...] = ()
        # Held while a thread is started. A lane starts at most `threads_max` threads.
        self._starting = threading.Lock()
        # Calls that wait for a free slot in the queue.
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_closed = False

    # --- jobs

    def submit(self, job: Job, drop: Job | None = None) -> None:
        """Queue ``job`` to be run in a thread. Raises LaneFull or LaneClosed. May be called from any thread.

        ``drop`` is called instead if `close` drops the job before it has begun.
        """
        if self._is_closed:
            raise LaneClosed(f"the disk lane {self.name} is closed")
        if self._queue.qsize() >= self.queue_max:
            self.refusals += 1
            raise LaneFull(f"the disk lane {self.name} has {self.queue_max} jobs waiting")
        self._queue.put(_Queued(job, drop))
        if len(self._workers) < self.threads_max:
            self._start_worker()

    __call__ = submit

    def begin(self, function: Callable[[], R], done: Callable[[R | None, BaseException | None], None]) -> None:
        """Run ``function`` in a thread, then call ``done`` on the running event loop with the result or the exception.

        If the queue is full, the job waits for a free slot. If the lane is closed while the job waits for a slot, or
        `close` drops the job, ``done`` gets LaneClosed.
        """
        loop = asyncio.get_running_loop()

        def report(result: R | None, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop is closed, and no caller is left
                loop.call_soon_threadsafe(done, result, error)

        def run() -> None:
            try:
                result = function()
            except BaseException as error:  # handled by the caller
                report(None, error)
            else:
                report(result, None)

        def drop() -> None:
            report(None, LaneClosed(f"the disk lane {self.name} is closed"))

        self._submit_or_wait(loop, run, drop)

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[R]":
        """Run ``function`` in a thread. Returns a future for its result or exception. Call it on the event loop.

        If the queue is full, the job waits for a free slot. If the future is cancelled, a job that has not begun never
        runs. A job that has begun runs to its end, and its result is dropped.
        """
        outcome: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def call() -> R | None:
            return None if outcome.cancelled() else function(*args, **kwargs)

        def end(result: R | None, error: BaseException | None) -> None:
            if outcome.done():  # cancelled
                return
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)  # type: ignore[arg-type]

        self.begin(call, end)
        return outcome

    def _submit_or_wait(self, loop: asyncio.AbstractEventLoop, job: Job, drop: Job) -> None:
        """Submit a job, or wait for a free slot. The limits on the callers bound the number of waiting calls."""
        try:
            self.submit(job, drop)
        except LaneFull:
            self._waiting.append(partial(loop.call_soon_threadsafe, self._submit_or_wait, loop, job, drop))
            if self._queue.qsize() < self.queue_max:
                # The threads may have taken all jobs before this call was in `_waiting`. Then no thread admits it.
                self._admit_one()
        except LaneClosed:
            drop()

    def _admit_one(self) -> None:
        """Let the call that has waited longest submit its job, because a slot has become free."""
        with suppress(IndexError, RuntimeError):  # another thread has admitted the call, or the loop is closed
            self._waiting.popleft()()

    # --- threads

    def _start_worker(self) -> None:
        with self._starting:
            if len(self._workers) >= self.threads_max or self._is_closed:
                return
            worker = _Worker(self, len(self._workers) + 1)
            try:
                worker.start()
            except RuntimeError:
                if not self._workers:
                    raise
                return  # the system allows no further thread, so the existing threads run all jobs
            self._workers = (*self._workers, worker)

    def close(self, timeout_seconds: float | None = None, *, drops: bool = False) -> None:
        """Accept no more jobs, and wait until the accepted jobs have ended, but at most ``timeout_seconds``.

        With ``drops``, jobs that have not begun are dropped.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if drops:
            self._drop_queued()
        while self._waiting:
            self._admit_one()
        for _ in self._workers:
            self._queue.put(None)
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        for worker in self._workers:
            worker.join(None if deadline is None else max(deadline - time.monotonic(), 0.0))

    def _drop_queued(self) -> None:
        with suppress(Empty):
            while True:
                queued = self._queue.get_nowait()
                if queued is not None and queued.drop is not None:
                    queued.drop()

    # --- metrics

    @property
    def queue_length(self) -> int:
        """The number of jobs that wait for a thread or for a slot in the queue."""
        return self._queue.qsize() + len(self._waiting)

    @property
    def jobs(self) -> int:
        """The number of jobs that have ended."""
        return sum(worker.jobs for worker in self._workers)

    @property
    def longest_seconds(self) -> float:
        """The duration of the longest job so far, including the running jobs."""
        now, longest = time.monotonic(), 0.0
        for worker in self._workers:
            began_at = worker.began_at
            longest = max(longest, worker.longest_seconds, 0.0 if began_at is None else now - began_at)
        return longest


class DiskLanes:
    """All lanes of a server. `lanes(job)` submits the job to the lane for seals and checkpoints (`settle`)."""

    def __init__(self) -> None:
        self.allocate = Lane("allocate", ALLOCATE_THREADS, ALLOCATE_QUEUE_MAX)
        self.sync = Lane("sync", SYNC_THREADS, SYNC_QUEUE_MAX)
        self.settle = Lane("settle", SETTLE_THREADS, SETTLE_QUEUE_MAX)
        self.delete = Lane("delete", DELETE_THREADS, DELETE_QUEUE_MAX)
        self.read = Lane("read", READ_THREADS, READ_QUEUE_MAX)
        self.metadata = Lane("metadata", METADATA_THREADS, METADATA_QUEUE_MAX)
        self.mirror = Lane("mirror", METADATA_THREADS, METADATA_QUEUE_MAX)
        self.maintenance = Lane("maintenance", MAINTENANCE_THREADS, MAINTENANCE_QUEUE_MAX)
        self.survey = Lane("survey", SURVEY_THREADS, SURVEY_QUEUE_MAX)
        self.all = (
            self.allocate,
            self.sync,
            self.settle,
            self.delete,
            self.read,
            self.metadata,
            self.mirror,
            self.maintenance,
            self.survey,
        )

    def __call__(self, job: Job) -> None:
        self.settle.submit(job)

    def close(self) -> None:
        """Close all lanes, and wait until all accepted jobs have ended. Further calls of `submit` raise LaneClosed."""
        for lane in self.all:
            lane.close()
