"""Verification by several processes at once, when there is enough to read; by this one when there is not."""

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

from storage.verify import SegmentJob, SegmentReport, verify_segments
from storage.verify_folder import FolderPlan, plan_folders

PROCESSES_MAX = 16
# Processes take some tenths of a second to start; less than this is read sooner by this one alone.
BYTES_MIN = 256 * 1024 * 1024
FOLDERS_MIN = 2000
FOLDERS_PER_TASK = 250
# One task ends within a blink, so that progress is seen and an interrupt is heard.
TASK_BYTES = 16 * 1024 * 1024
TASK_SEGMENTS_MAX = 250
TASKS_PER_PROCESS = 2
POLL_SECONDS = 0.1
NICENESS = 5

Pack = list[tuple[SegmentJob, SegmentReport | None]]


class CheckFailed(Exception):
    """The check could not be made; the message says why."""


def plan_all(directories: Sequence[str], boot_id: str, sealed_only: bool, processes: int) -> list[FolderPlan]:
    """What there is to read in each folder."""
    if len(directories) < FOLDERS_MIN or processes == 1:
        return plan_folders(directories, boot_id, sealed_only)
    tasks = [directories[at : at + FOLDERS_PER_TASK] for at in range(0, len(directories), FOLDERS_PER_TASK)]
    with _workers(processes) as pool:
        waits = [pool.submit(plan_folders, task, boot_id, sealed_only) for task in tasks]
        return [plan for done in waits for plan in done.result()]


def verify_all(
    jobs: Sequence[SegmentJob], processes: int, show: Callable[[int], None]
) -> Iterator[tuple[SegmentJob, SegmentReport]]:
    """Every job with its report, in the order in which they are done; `show` is told the bytes read so far."""
    packs = deque(_packs(jobs))
    if processes == 1 or sum(job.size_bytes for job in jobs) < BYTES_MIN:
        yield from _alone(packs, show)
        return
    with _workers(processes) as pool:
        yield from _together(packs, show, pool, processes)


def _packs(jobs: Sequence[SegmentJob]) -> Iterator[Pack]:
    pack: Pack = []
    size_bytes = 0
    for job in jobs:
        pack.append((job, None))
        size_bytes += job.size_bytes
        if size_bytes >= TASK_BYTES or len(pack) == TASK_SEGMENTS_MAX:
            yield pack
            pack, size_bytes = [], 0
    if pack:
        yield pack


def _alone(packs: deque[Pack], show: Callable[[int], None]) -> Iterator[tuple[SegmentJob, SegmentReport]]:
    done_bytes = 0
    while packs:
        pack = packs.popleft()
        rest, finished, read_bytes = _sorted_out(pack, verify_segments(pack, TASK_BYTES))
        if rest:
            packs.appendleft(rest)
        done_bytes += read_bytes
        show(done_bytes)
        yield from finished


def _together(
    packs: deque[Pack], show: Callable[[int], None], pool: ProcessPoolExecutor, processes: int
) -> Iterator[tuple[SegmentJob, SegmentReport]]:
    done_bytes = 0
    running: dict[Future[list[SegmentReport | None]], Pack] = {}
    show(0)
    while packs or running:
        while packs and len(running) < processes * TASKS_PER_PROCESS:
            pack = packs.popleft()
            with _without_interrupts():  # a process may be started here
                running[pool.submit(verify_segments, pack, TASK_BYTES)] = pack
        for done in wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED).done:
            pack = running.pop(done)
            rest, finished, read_bytes = _sorted_out(pack, done.result())
            if rest:
                packs.appendleft(rest)
            done_bytes += read_bytes
            yield from finished
        show(done_bytes)


def _sorted_out(
    pack: Pack, reports: Sequence[SegmentReport | None]
) -> tuple[Pack, list[tuple[SegmentJob, SegmentReport]], int]:
    """(what is left to do, what is done, how many bytes were read)."""
    rest: Pack = []
    finished: list[tuple[SegmentJob, SegmentReport]] = []
    read_bytes = 0
    for (job, before), report in zip(pack, reports, strict=True):
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
    end, alive = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(processes, PROCESSES_MAX), mp_context=context, initializer=_begin, initargs=(end,))
    try:
        yield pool
        pool.shutdown(wait=True)
    except BrokenProcessPool as error:
        raise CheckFailed("a process that read segments was ended from outside") from error
    finally:
        with _without_interrupts():
            # The processes end now, whatever they are at; as they also do when this one is killed.
            alive.close()
            pool.shutdown(wait=True, cancel_futures=True)
            end.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C waits; a process started here never sees it, so it is for this one alone to end things."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(end: Connection) -> None:
    """In each process: low priority, and no life of its own when the one that started it has closed its pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)

    def follow() -> None:
        with suppress(EOFError, OSError):
            end.recv()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
