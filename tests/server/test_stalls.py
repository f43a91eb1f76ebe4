"""The stall probe: stalls of the event loop are counted, and only those."""

import asyncio
import os
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kwire.metrics import LoopMetrics
from kwire.server import stalls
from kwire.server.stalls import INTERVAL_SECONDS, STALL_SECONDS, StallProbe
from tests.support.node import in_loop, in_uvloop

# The bound of every wait. Other work on the machine does not hold up the loop for that long.
WAIT_S = 20.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)


async def check_blocking_callback_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # The sleep below uses no processor, so what a host takes from any of them meanwhile would be taken for its reason.
    monkeypatch.setattr(stalls, "_steal_by_processor", list)
    metrics = LoopMetrics()
    probe = StallProbe(metrics)
    try:
        # The fault itself: a callback that keeps everybody waiting.
        asyncio.get_running_loop().call_soon(time.sleep, 3 * STALL_SECONDS)
        await until(lambda: metrics.stalls > 0)
        assert 2 * STALL_SECONDS < metrics.stall_seconds_max < WAIT_S
    finally:
        probe.close()


@in_loop
async def test_callback_that_blocks_is_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    await check_blocking_callback_is_counted(monkeypatch)


@in_uvloop
async def test_callback_that_blocks_is_a_stall_on_uvloop_too(monkeypatch: pytest.MonkeyPatch) -> None:
    await check_blocking_callback_is_counted(monkeypatch)


class Machine:
    """Processors and a clock that the test moves: how late a tick is, and how long we waited for our turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, probe: StallProbe) -> None:
        self.now = probe._last
        self.waited = probe._waited
        self.ran = probe._ran
        self.stolen = probe._steal = [0.0, 0.0]
        clocks = SimpleNamespace(monotonic=lambda: self.now, thread_time=lambda: self.ran)
        monkeypatch.setattr(stalls, "time", clocks)
        monkeypatch.setattr(StallProbe, "_run_queue_wait", lambda _: self.waited)
        monkeypatch.setattr(stalls, "_steal_by_processor", lambda: self.stolen)
        self._probe = probe

    def tick(self, *, after: float, waited: float = 0.0, ran: float = 0.0, stolen: float = 0.0) -> None:
        self.now += after
        self.waited += waited
        self.ran += ran
        self.stolen = [self.stolen[0], self.stolen[1] + stolen]
        self._probe._timer.cancel()
        self._probe._tick()


@in_loop
async def test_time_without_a_processor_is_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = LoopMetrics()
    probe = StallProbe(metrics)
    machine = Machine(monkeypatch, probe)
    machine.tick(after=INTERVAL_SECONDS + 0.001)
    assert metrics.stalls == 0
    # Late by a second, all of it spent in the queue for a processor.
    machine.tick(after=INTERVAL_SECONDS + 1.0, waited=1.0)
    assert metrics.stalls == 0
    assert metrics.stall_seconds_max == pytest.approx(0.001, abs=1e-6)
    assert metrics.run_queue_wait_seconds_max == pytest.approx(1.0)
    # Late by a second, half of it our own.
    machine.tick(after=INTERVAL_SECONDS + 1.0, waited=0.5)
    assert metrics.stalls == 1
    assert metrics.stall_seconds_max == pytest.approx(0.5 + INTERVAL_SECONDS / 2)
    assert metrics.run_queue_wait_seconds == pytest.approx(1.5)
    machine.tick(after=INTERVAL_SECONDS / 2 + 0.9 * STALL_SECONDS)
    assert metrics.stalls == 1
    probe.close()


@in_loop
async def test_what_the_host_has_taken_is_counted_apart_but_not_while_we_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = LoopMetrics()
    probe = StallProbe(metrics)
    machine = Machine(monkeypatch, probe)
    machine.tick(after=INTERVAL_SECONDS + 0.1, stolen=0.1)
    assert metrics.stalls == 0
    assert metrics.run_queue_wait_seconds_max == pytest.approx(0.1)
    # The same theft is not counted twice: this one is our own.
    machine.tick(after=INTERVAL_SECONDS + 0.1)
    assert metrics.stalls == 1
    # It was another processor that the host took: we ran all the time.
    machine.tick(after=INTERVAL_SECONDS + 0.1, ran=0.1, stolen=0.1)
    assert metrics.stalls == 2
    assert metrics.run_queue_wait_seconds == pytest.approx(0.1)
    # What was taken long before the stall does not explain it.
    machine.tick(after=INTERVAL_SECONDS, stolen=0.1)
    for _ in range(stalls.STEAL_TICKS):
        machine.tick(after=INTERVAL_SECONDS)
    machine.tick(after=INTERVAL_SECONDS + 0.1)
    assert metrics.stalls == 3
    # What was taken at some time since the last look explains its share of it only.
    machine.tick(after=INTERVAL_SECONDS)
    machine.tick(after=INTERVAL_SECONDS)
    machine.tick(after=INTERVAL_SECONDS + 0.1, stolen=0.07)
    assert metrics.stalls == 4
    waited = 0.1 + 0.07 * (INTERVAL_SECONDS + 0.1) / (3 * INTERVAL_SECONDS + 0.1)
    assert metrics.run_queue_wait_seconds == pytest.approx(waited)
    # A counter that went back says nothing.
    machine.tick(after=INTERVAL_SECONDS + 0.1, stolen=-0.05)
    assert metrics.stalls == 5
    assert metrics.run_queue_wait_seconds == pytest.approx(waited)
    probe.close()


def test_the_steal_of_this_machine_can_be_read() -> None:
    assert len(stalls._steal_by_processor()) == os.cpu_count()


@in_loop
async def test_closed_watch_gives_its_descriptor_back() -> None:
    probe = StallProbe(LoopMetrics())
    probe.close()
    probe.close()
    assert probe._schedstat == -1
    assert probe._timer.cancelled()
