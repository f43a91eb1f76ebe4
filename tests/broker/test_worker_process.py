"""A worker process does what it is told, one thing after the other, and its death is survived."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from kwire.broker.pace import Pace
from kwire.broker.worker_process import WorkerDied, WorkerProcess
from storage.errors import DamagedLog, DiskFailure
from tests.support.node import in_loop, in_uvloop
from tests.support.worker_calls import (
    WAIT_SECONDS,
    block_until_killed,
    facts,
    print_something,
    raise_damage,
    raise_full_disk,
    unsendable,
)


async def written(path: Path) -> str:
    """What somebody writes into the file, once it is there."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.01)
    return path.read_text()


@in_loop
async def test_a_call_is_done_by_another_process_at_low_priority() -> None:
    worker = WorkerProcess()
    try:
        assert worker.starts == 0, "it is started when it is needed"
        pid, niceness, loaded = await worker.run(facts)
        assert pid != os.getpid()
        assert pid == worker.pid
        assert niceness >= min(os.nice(0) + 10, 19)
        assert loaded == []
        assert (await worker.run(facts))[0] == pid
        assert worker.starts == 1
    finally:
        await worker.close()


@in_uvloop
async def test_what_is_raised_there_is_raised_here() -> None:
    worker = WorkerProcess()
    try:
        with pytest.raises(DamagedLog, match="damaged at 7"):
            await worker.run(raise_damage, "7")
        with pytest.raises(DiskFailure) as caught:
            await worker.run(raise_full_disk)
        assert caught.value.error_number == 28
        with pytest.raises(RuntimeError, match="cannot be sent"):
            await worker.run(unsendable)
        assert await worker.run(print_something) == "answer"
        assert worker.starts == 1
    finally:
        await worker.close()


@in_loop
async def test_calls_wait_for_each_other() -> None:
    worker = WorkerProcess()
    try:
        assert await asyncio.gather(*(worker.run(max, number, 2) for number in range(5))) == [2, 2, 2, 3, 4]
        assert worker.starts == 1
    finally:
        await worker.close()


@in_loop
async def test_a_killed_worker_is_told_and_replaced(tmp_path: Path) -> None:
    worker = WorkerProcess()
    try:
        work = asyncio.ensure_future(worker.run(block_until_killed, str(tmp_path / "pid")))
        pid = int(await written(tmp_path / "pid"))
        assert pid == worker.pid
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="block_until_killed"):
            await work
        assert await worker.run(max, 1, 2) == 2
        assert (worker.starts, worker.deaths) == (2, 1)
    finally:
        await worker.close()


@in_loop
async def test_closing_ends_the_process_in_the_middle_of_its_work(tmp_path: Path) -> None:
    worker = WorkerProcess()
    work = asyncio.ensure_future(worker.run(block_until_killed, str(tmp_path / "pid")))
    pid = int(await written(tmp_path / "pid"))
    await worker.close()
    with pytest.raises(WorkerDied):
        await work
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(WorkerDied, match="closed"):
        await worker.run(max, 1, 2)
    await worker.close()


@in_loop
async def test_an_idle_worker_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.broker.worker_process.IDLE_SECONDS", 0.01)
    worker = WorkerProcess()
    try:
        await worker.run(max, 1, 2)
        async with asyncio.timeout(WAIT_SECONDS):
            while worker.pid is not None:
                await asyncio.sleep(0.01)
        assert await worker.run(max, 1, 2) == 2
        assert (worker.starts, worker.deaths) == (2, 0)
    finally:
        await worker.close()


@in_loop
async def test_a_worker_ends_when_its_server_is_gone(tmp_path: Path) -> None:
    worker = WorkerProcess()
    try:
        work = asyncio.ensure_future(worker.run(block_until_killed, str(tmp_path / "pid")))
        await written(tmp_path / "pid")
        process = worker._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()  # as the end of the server would
        with pytest.raises(WorkerDied):
            await work
        assert process.returncode == 0
    finally:
        await worker.close()


def test_a_pace_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    pace = Pace(1000)
    for _ in range(100):
        pace(100)
    assert 9.9 <= now <= 10.1
    now += 5.0  # time that was not used is no credit for later
    before = now
    for _ in range(10):
        pace(100)
    assert 0.9 <= now - before <= 1.1
