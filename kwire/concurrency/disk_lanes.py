"""The threads of the server that touch the disk: lanes with bounded queues, all owned by one object.

Each kind of work has a lane of its own, so that slow syncs do not delay the space that an append needs, and a deletion
of ten thousand files does not delay a cold read. A lane has a fixed number of threads and a queue with a named bound.
When the queue is full, :meth:`Lane.submit` refuses the job (the caller knows how to do without it, or tries again
later) and :meth:`Lane.run` waits for a place; nothing runs on the event loop instead.

The event loop takes no lock here: queues and counters are single operations of the interpreter.
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

# Reserving the next space of a segment file: quick, and an append needs it soon. Refused: the append extends the file.
ALLOCATE_THREADS = 1
ALLOCATE_QUEUE_MAX = 10_000
# Sync rounds, of which one runs at a time, and the ends of syncs that failed in the kernel, at most eight of a round.
SYNC_THREADS = 1
SYNC_QUEUE_MAX = 10
# Seals, checkpoints and new log starts. Refused: the log tries again at its next maintenance pass.
SETTLE_THREADS = 2
SETTLE_QUEUE_MAX = 10_000
# Renaming and removing files and folders. Refused: tried again later.
DELETE_THREADS = 1
DELETE_QUEUE_MAX = 1_000
# Reads whose pages are not in memory. Callers wait for a place.
READ_THREADS = 4
READ_QUEUE_MAX = 10_000
# The metadata journal and its mirror: commits follow one another.
METADATA_THREADS = 1
METADATA_QUEUE_MAX = 1
# Retention, compaction and moves between data directories. Callers wait for a place.
MAINTENANCE_THREADS = 3
MAINTENANCE_QUEUE_MAX = 100
# Sizes and metadata of many folders, for metrics and admin requests. Callers wait for a place.
SURVEY_THREADS = 1
SURVEY_QUEUE_MAX = 100

Job = Callable[[], None]
P = ParamSpec("P")
R = TypeVar("R")


class LaneFull(RuntimeError):
    """The queue of a lane is full: nothing was done."""


class LaneClosed(RuntimeError):
    """The lane takes no more jobs: the server is stopping."""


class _Queued(NamedTuple):
    job: Job
    # Called instead of the job when the lane is closed without running it.
    drop: Job | None


class _Worker(threading.Thread):
    """One thread of a lane, with its own counters, so that none is written by two threads."""

    def __init__(self, lane: "Lane", number: int) -> None:
        super().__init__(name=f"disk-{lane.name}-{number}", daemon=True)
        self._lane = lane
        self.jobs = 0
        self.longest_seconds = 0.0
        # When the job began that runs now.
        self.began_at: float | None = None

    def run(self) -> None:
        queue, lane, monotonic = self._lane._queue, self._lane, time.monotonic
        while (queued := queue.get()) is not None:
            if lane._waiting:
                lane._admit_one()
            began_at = self.began_at = monotonic()
            try:
                queued.job()
            except BaseException:  # the thread goes on: others wait for it
                log.exception("a job of the disk lane %s failed", lane.name)
            self.began_at = None
            del queued  # else what it refers to would stay until the next job
            self.jobs += 1
            seconds = monotonic() - began_at
            if seconds > self.longest_seconds:
                self.longest_seconds = seconds


class Lane:
    """A bounded queue and the threads that work on it. Called with a job, it submits the job."""

    def __init__(self, name: str, threads_max: int, queue_max: int) -> None:
        self.name = name
        self.threads_max = threads_max
        self.queue_max = queue_max
        self.refusals = 0
        self._queue: SimpleQueue[_Queued | None] = SimpleQueue()
        self._workers: tuple[_Worker, ...] = ()
        # Held while a thread is started, which happens `threads_max` times.
        self._starting = threading.Lock()
        # Calls that wait for a place in the queue.
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_closed = False

    # --- jobs

    def submit(self, job: Job, drop: Job | None = None) -> None:
        """Run ``job`` in a thread, some time. Raises LaneFull or LaneClosed; from any thread.

        ``drop`` is called instead when the lane is closed before the job began.
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
        """Run ``function`` in a thread; ``done`` is called on the running loop with its result or its exception.

        When the queue is full, it waits for a place. A lane that is closed meanwhile calls ``done`` with LaneClosed.
        """
        loop = asyncio.get_running_loop()

        def report(result: R | None, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop is closed, and no caller is left
                loop.call_soon_threadsafe(done, result, error)

        def run() -> None:
            try:
                result = function()
            except BaseException as error:  # the caller decides what it means
                report(None, error)
            else:
                report(result, None)

        def drop() -> None:
            report(None, LaneClosed(f"the disk lane {self.name} is closed"))

        self._submit_or_wait(loop, run, drop)

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[R]":
        """Run ``function`` in a thread; the future has what it returns or raises. Called on the loop.

        When the queue is full, it waits for a place. Cancelling gives up the result; a job that has begun runs to its
        end, one that has not never begins.
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
        """Waiting calls are requests, subscriptions and maintenance tasks, which have bounds of their own."""
        try:
            self.submit(job, drop)
        except LaneFull:
            self._waiting.append(partial(loop.call_soon_threadsafe, self._submit_or_wait, loop, job, drop))
            if self._queue.qsize() < self.queue_max:
                self._admit_one()  # the threads have emptied the queue since, and may have nothing left to take
        except LaneClosed:
            drop()

    def _admit_one(self) -> None:
        """A place has become free: let the call go on that has waited longest."""
        with suppress(IndexError, RuntimeError):  # another thread was quicker; the loop is closed
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
                return  # the machine has no thread to spare: those that run do the work
            self._workers = (*self._workers, worker)

    def close(self, timeout_seconds: float | None = None, *, drops: bool = False) -> None:
        """Take no more jobs and wait for those that were taken, or, if it ``drops``, only for those that have begun."""
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
        """Jobs that wait for a thread."""
        return self._queue.qsize() + len(self._waiting)

    @property
    def jobs(self) -> int:
        """Jobs that have ended."""
        return sum(worker.jobs for worker in self._workers)

    @property
    def longest_seconds(self) -> float:
        """The longest job so far; one that still runs counts."""
        now, longest = time.monotonic(), 0.0
        for worker in self._workers:
            began_at = worker.began_at
            longest = max(longest, worker.longest_seconds, 0.0 if began_at is None else now - began_at)
        return longest


class DiskLanes:
    """All lanes of a server. Called with a job, it submits the job to the lane for seals and checkpoints."""

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
        """Wait for all jobs; from then on a job raises LaneClosed."""
        for lane in self.all:
            lane.close()
