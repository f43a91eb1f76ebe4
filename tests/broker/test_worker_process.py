"""A worker process runs calls one after the other, and is restarted after it died."""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from kwire.broker.maintenance.disk_throttle import DiskThrottle
from kwire.concurrency import worker_process
from kwire.concurrency.worker import write_message
from kwire.concurrency.worker_process import LARGE_BYTES, WorkerDied, WorkerProcess
from storage.errors import DamagedLog, DiskFailure
from tests.support.node import in_loop, in_uvloop
from tests.support.worker_calls import (
    WAIT_SECONDS,
    block_until_killed,
    facts,
    kept_arguments,
    kinds_and_sizes,
    print_something,
    raise_damage,
    raise_full_disk,
    raise_with_argument,
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


@in_loop
async def test_large_arguments_are_not_copied_into_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled: list[int] = []

    def keep(target: IO[bytes], call: bytes, buffers: Sequence[bytes]) -> None:
        pickled.append(len(call))
        write_message(target, call, buffers)

    monkeypatch.setattr(worker_process, "write_message", keep)
    worker = WorkerProcess()
    try:
        large = bytes(4 * LARGE_BYTES)
        args = large, "text", large, b"small", bytes(LARGE_BYTES)
        assert await worker.run(kinds_and_sizes, *args) == [
            ("bytes", 4 * LARGE_BYTES),
            ("str", 4),
            ("bytes", 4 * LARGE_BYTES),
            ("bytes", 5),
            ("bytes", LARGE_BYTES),
        ]
        assert pickled[0] < 1000
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
        with pytest.raises(RuntimeError, match="cannot be pickled"):
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
    monkeypatch.setattr("kwire.concurrency.worker_process.IDLE_SECONDS", 0.01)
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
    pace = DiskThrottle(1000)
    for _ in range(100):
        pace(100)
    assert 9.9 <= now <= 10.1
    now += 5.0  # time that was not used is no credit for later
    before = now
    for _ in range(10):
        pace(100)
    assert 0.9 <= now - before <= 1.1


@in_loop
async def test_a_call_that_fails_keeps_its_arguments_in_neither_process() -> None:
    worker = WorkerProcess()
    data = bytes(LARGE_BYTES)
    references = sys.getrefcount(data)
    gc.disable()
    try:
        for _ in range(3):
            with suppress(ValueError):
                await worker.run(raise_with_argument, data)
        async with asyncio.timeout(WAIT_SECONDS):
            while sys.getrefcount(data) > references:  # the thread that made the call lets go of them, too
                await asyncio.sleep(0.001)
        assert await worker.run(kept_arguments) == 0
    finally:
        gc.enable()
        await worker.close()


@in_loop
async def test_a_worker_without_idle_time_ends_after_each_call() -> None:
    worker = WorkerProcess(idle_seconds=0)
    try:
        await worker.run(max, 1, 2)
        async with asyncio.timeout(5):
            while worker.pid is not None:
                await asyncio.sleep(0.01)
    finally:
        await worker.close()
