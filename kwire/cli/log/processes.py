"""Verifies segments in a pool of processes, or in this process if there is little to read."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection

from kwire.cli.framework.errors import CannotRun
from storage.recovery.verify import SegmentJob, SegmentReport, verify_segments
from storage.recovery.verify_folder import FolderPlan, plan_folders

PROCESSES_MAX = 16
# The pool is used only above these bounds. Processes take some tenths of a second to start, so for less work one
# process is faster.
BYTES_MIN = 256 * 1024 * 1024
FOLDERS_MIN = 2000
FOLDERS_PER_TASK = 250
# The maximum size of a task. Tasks are short, so that progress is visible and Ctrl-C takes effect quickly.
TASK_BYTES = 16 * 1024 * 1024
TASK_SEGMENTS_MAX = 250
TASKS_PER_PROCESS = 2
POLL_SECONDS = 0.1
NICENESS = 5

Task = list[tuple[SegmentJob, SegmentReport | None]]


class CheckFailed(CannotRun):
    """The check could not be run. The message gives the reason."""


def plan_all(directories: Sequence[str], boot_id: str, sealed_only: bool, processes: int) -> list[FolderPlan]:
    """Return the segments to verify in each folder."""
    if len(directories) < FOLDERS_MIN or processes == 1:
        return plan_folders(directories, boot_id, sealed_only)
    tasks = [directories[at : at + FOLDERS_PER_TASK] for at in range(0, len(directories), FOLDERS_PER_TASK)]
    with _workers(processes) as pool:
        waits = [pool.submit(plan_folders, task, boot_id, sealed_only) for task in tasks]
        return [plan for done in waits for plan in done.result()]


def verify_all(
    jobs: Sequence[SegmentJob], processes: int, show: Callable[[int], None]
) -> Iterator[tuple[SegmentJob, SegmentReport]]:
    """Verify the segments. Yield each job and its report when the report is complete.

    `show` is called with the number of bytes read so far.
    """
    tasks = deque(_tasks(jobs))
    if processes == 1 or sum(job.size_bytes for job in jobs) < BYTES_MIN:
        yield from _verify_here(tasks, show)
        return
    with _workers(processes) as pool:
        yield from _verify_in_pool(tasks, show, pool, processes)


def _tasks(jobs: Sequence[SegmentJob]) -> Iterator[Task]:
    task: Task = []
    size_bytes = 0
    for job in jobs:
        task.append((job, None))
        size_bytes += job.size_bytes
        if size_bytes >= TASK_BYTES or len(task) == TASK_SEGMENTS_MAX:
            yield task
            task, size_bytes = [], 0
    if task:
        yield task


def _verify_here(tasks: deque[Task], show: Callable[[int], None]) -> Iterator[tuple[SegmentJob, SegmentReport]]:
    done_bytes = 0
    while tasks:
        task = tasks.popleft()
        rest, finished, read_bytes = _split_finished(task, verify_segments(task, TASK_BYTES))
        if rest:
            tasks.appendleft(rest)
        done_bytes += read_bytes
        show(done_bytes)
        yield from finished


def _verify_in_pool(
    tasks: deque[Task], show: Callable[[int], None], pool: ProcessPoolExecutor, processes: int
) -> Iterator[tuple[SegmentJob, SegmentReport]]:
    done_bytes = 0
    running: dict[Future[list[SegmentReport | None]], Task] = {}
    show(0)
    while tasks or running:
        while tasks and len(running) < processes * TASKS_PER_PROCESS:
            task = tasks.popleft()
            with _without_interrupts():  # `submit` may start a process.
                running[pool.submit(verify_segments, task, TASK_BYTES)] = task
        for done in wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED).done:
            task = running.pop(done)
            rest, finished, read_bytes = _split_finished(task, done.result())
            if rest:
                tasks.appendleft(rest)
            done_bytes += read_bytes
            yield from finished
        show(done_bytes)


def _split_finished(
    task: Task, reports: Sequence[SegmentReport | None]
) -> tuple[Task, list[tuple[SegmentJob, SegmentReport]], int]:
    """Return the unfinished jobs of a task, its finished jobs with their reports, and the number of bytes read."""
    rest: Task = []
    finished: list[tuple[SegmentJob, SegmentReport]] = []
    read_bytes = 0
    for (job, before), report in zip(task, reports, strict=True):
        if report is not None:
            read_bytes += report.position - (before.position if before is not None else 0)
        if report is not None and report.is_done:
            finished.append((job, report))
        else:
            rest.append((job, report))
    return rest, finished, read_bytes


# --- processes


@contextmanager
def _workers(processes: int) -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    worker_end, parent_end = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        min(processes, PROCESSES_MAX), mp_context=context, initializer=_init_worker, initargs=(worker_end,)
    )
    try:
        yield pool
        pool.shutdown(wait=True)
    except BrokenProcessPool as error:
        raise CheckFailed("a worker process was killed while it read segments: run the check again") from error
    finally:
        with _without_interrupts():
            # The workers exit immediately when this pipe is closed. The kernel also closes the pipe if this process is
            # killed.
            parent_end.close()
            pool.shutdown(wait=True, cancel_futures=True)
            worker_end.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block SIGINT (Ctrl-C) in this block.

    Processes that are started in the block inherit the blocked signal, so only this process handles Ctrl-C.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _init_worker(pipe: Connection) -> None:
    """Initialise a worker: set a low priority, and start a thread that exits when the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)

    def exit_with_parent() -> None:
        with suppress(EOFError, OSError):
            pipe.recv()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
