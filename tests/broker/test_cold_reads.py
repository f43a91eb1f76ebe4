"""Cold reads: the disk is waited for by threads, never by the loop."""

import asyncio
import threading

import pytest

from kwire.broker.fetch.cold_reads import ColdReads
from kwire.concurrency.disk_lanes import DiskLanes
from storage.errors import DiskFailure, LogClosed
from tests.support.node import in_loop

WAIT_S = 10.0


@in_loop
async def test_pages_are_fetched_by_threads_at_the_same_time() -> None:
    reads = ColdReads(DiskLanes().read)
    together = threading.Barrier(3, timeout=WAIT_S)
    threads: set[str] = set()

    def warm_up() -> None:
        threads.add(threading.current_thread().name)
        together.wait()

    await reads.do([warm_up] * 3)
    assert reads.count == 3
    assert threading.current_thread().name not in threads
    assert len(threads) == 3
    reads.close()


@in_loop
async def test_loop_goes_on_while_pages_are_fetched() -> None:
    reads = ColdReads(DiskLanes().read)
    may_end = threading.Event()
    doing = asyncio.ensure_future(reads.do([lambda: assert_set(may_end)]))
    await asyncio.sleep(0)
    assert not doing.done()
    may_end.set()
    await doing
    reads.close()


def assert_set(event: threading.Event) -> None:
    assert event.wait(WAIT_S)


def closed() -> None:
    raise LogClosed("deleted")


def broken() -> None:
    raise DiskFailure("unreadable")


@in_loop
async def test_log_that_was_deleted_meanwhile_is_no_failure() -> None:
    reads = ColdReads(DiskLanes().read)
    await reads.do([closed, lambda: None])
    with pytest.raises(DiskFailure):
        await reads.do([closed, broken])
    reads.close()
