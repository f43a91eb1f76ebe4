"""Disk lanes: jobs run in threads of their own lane, queues are bounded, and the loop gets the outcome."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from kwire.concurrency.disk_lanes import DiskLanes, Lane, LaneClosed, LaneFull
from tests.support.node import in_loop

WAIT_SECONDS = 20.0
QUEUE_MAX = 2


class BusyLane(Lane):
    """A lane with one thread, which is busy until `may_end` is set."""

    def __init__(self) -> None:
        super().__init__("test", 1, QUEUE_MAX)
        self.may_end = threading.Event()
        has_begun = threading.Event()

        def wait() -> None:
            has_begun.set()
            assert self.may_end.wait(WAIT_SECONDS)

        self.submit(wait)
        assert has_begun.wait(WAIT_SECONDS)


@pytest.fixture
def busy() -> Iterator[BusyLane]:
    lane = BusyLane()
    yield lane
    lane.may_end.set()
    lane.close()


@in_loop
async def test_a_job_runs_in_a_thread_of_its_lane_and_the_loop_gets_what_it_returns_or_raises() -> None:
    lane = Lane("test", 1, QUEUE_MAX)
    assert await lane.run(lambda: threading.current_thread().name) == "disk-test-1"
    with pytest.raises(ZeroDivisionError):
        await lane.run(lambda number: 1 // number, 0)
    lane.close()  # the thread counts a job after it has reported the outcome
    assert (lane.jobs, lane.queue_length, lane.refusals) == (2, 0, 0)


@in_loop
async def test_whatever_a_job_raises_reaches_the_caller_and_the_lane_goes_on() -> None:
    lane = Lane("test", 1, QUEUE_MAX)
    with pytest.raises(Stopped):
        await asyncio.wait_for(lane.run(stop), WAIT_SECONDS)
    lane.submit(stop)
    assert await asyncio.wait_for(lane.run(lambda: 7), WAIT_SECONDS) == 7
    lane.close()


class Stopped(BaseException):
    """Not an Exception."""


def stop() -> None:
    raise Stopped


@in_loop
async def test_an_outcome_is_reported_by_a_callback_on_the_loop() -> None:
    lane = Lane("test", 1, QUEUE_MAX)
    reported: asyncio.Future[tuple[object, object, str]] = asyncio.get_running_loop().create_future()
    lane.begin(lambda: 7, lambda result, error: reported.set_result((result, error, threading.current_thread().name)))
    assert await reported == (7, None, threading.current_thread().name)
    lane.close()


def test_a_full_queue_refuses_a_job(busy: BusyLane) -> None:
    done: list[int] = []
    for number in range(QUEUE_MAX):
        busy.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    with pytest.raises(LaneFull):
        busy.submit(lambda: done.append(99))
    assert (busy.refusals, busy.queue_length) == (1, QUEUE_MAX)
    busy.may_end.set()
    busy.close()
    assert done == [0, 1]


@in_loop
async def test_a_call_waits_for_a_place_in_a_full_queue() -> None:
    busy = BusyLane()
    calls = [asyncio.ensure_future(busy.run(lambda number=number: number)) for number in range(5 * QUEUE_MAX)]  # type: ignore[misc]
    await asyncio.sleep(0)
    # The rest has no place in the queue, and the loop goes on.
    assert (busy._queue.qsize(), busy.queue_length) == (QUEUE_MAX, 5 * QUEUE_MAX)
    assert not any(call.done() for call in calls)
    busy.may_end.set()
    assert await asyncio.gather(*calls) == list(range(5 * QUEUE_MAX))
    busy.close()


@in_loop
async def test_a_call_that_is_cancelled_before_it_begins_never_begins() -> None:
    busy = BusyLane()
    done: list[int] = []
    call = busy.run(done.append, 1)
    call.cancel()
    busy.may_end.set()
    await busy.run(done.append, 2)
    assert done == [2]
    busy.close()


@in_loop
async def test_a_lane_that_is_closed_ends_what_waits_for_it() -> None:
    busy = BusyLane()
    calls = [busy.run(lambda: None) for _ in range(2 * QUEUE_MAX)]
    busy.close(0.0, drops=True)
    for call in calls:
        with pytest.raises(LaneClosed):
            await asyncio.wait_for(call, WAIT_SECONDS)
    with pytest.raises(LaneClosed):
        busy.submit(lambda: None)
    busy.may_end.set()


def test_a_lane_is_closed_once_its_jobs_are_done() -> None:
    lane = Lane("test", 2, 100)
    done: list[int] = []
    for number in range(50):
        lane.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    lane.close()
    assert sorted(done) == list(range(50))
    assert lane.jobs == 50


def fail() -> None:
    raise ValueError("a mistake")


def test_a_job_that_fails_does_not_end_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    lane = Lane("test", 1, QUEUE_MAX)
    is_over = threading.Event()
    lane.submit(fail)
    lane.submit(is_over.set)
    assert is_over.wait(WAIT_SECONDS)
    lane.close()
    assert "a job of the disk lane test failed" in caplog.text


def test_a_job_that_still_runs_counts_as_long(busy: BusyLane) -> None:
    before = busy.longest_seconds
    assert busy.jobs == 0
    assert busy.longest_seconds > before


def test_every_lane_has_a_name_and_a_bound_of_its_own() -> None:
    lanes = DiskLanes()
    assert len({lane.name for lane in lanes.all}) == len(lanes.all)
    assert all(getattr(lanes, lane.name) is lane for lane in lanes.all)
    assert all(0 < lane.queue_max <= 10_000 for lane in lanes.all)
    assert all(0 < lane.threads_max <= 4 for lane in lanes.all)
    lanes.close()
    with pytest.raises(LaneClosed):
        lanes(lambda: None)
