"""The doors: who gets in, and who is shown out."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kwire.config import Listener
from kwire.server import listener
from kwire.server.kafka import Shared
from kwire.server.listener import Door, Sweep
from tests.server.fakes import LISTENER, FakeClient, Slow, answered_frame, shared_of, waiting_frame
from tests.support.node import QuietNode, in_loop

OTHER_LISTENER = Listener("OTHER", "PLAINTEXT", "127.0.0.1", 9093)
ROUND_TIMEOUT_S = 10.0


def shared(node: QuietNode) -> Shared:
    return shared_of(node.services, Slow().handlers())


@in_loop
async def test_one_connection_too_many_is_closed_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with QuietNode(tmp_path, "max.connections=2") as node:
        common = shared(node)
        first, second, third = (FakeClient(common, host=f"192.0.2.{number}") for number in range(3))
        assert [one.transport.is_aborted for one in (first, second, third)] == [False, False, True]
        assert "max.connections=2" in caplog.text
        metrics = common.metrics
        assert (metrics.connections, metrics.connections_accepted, metrics.connections_refused) == (2, 2, 1)
        # The end of the one that never got in frees nobody's place.
        third.lose()
        assert FakeClient(common).transport.is_aborted
        first.lose()
        assert not FakeClient(common).transport.is_aborted
        assert (metrics.connections, metrics.connections_accepted, metrics.connections_refused) == (2, 3, 2)


@in_loop
async def test_one_host_may_not_take_all_connections_through_whatever_door(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with QuietNode(tmp_path, "max.connections.per.ip=2") as node:
        common = shared(node)
        doors = [Door(LISTENER, None, common), Door(OTHER_LISTENER, None, common)]
        greedy = [FakeClient(common, door, "192.0.2.1") for door in (*doors, *doors)]
        assert [one.transport.is_aborted for one in greedy] == [False, False, True, True]
        assert "max.connections.per.ip=2" in caplog.text
        assert not FakeClient(common, doors[0], "192.0.2.2").transport.is_aborted
        for one in greedy:
            one.lose()
        assert not FakeClient(common, doors[1], "192.0.2.1").transport.is_aborted


class Rounds:
    """Sweeps that come quickly, and a way to wait until one has passed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, common: Shared) -> None:
        monkeypatch.setattr(listener, "SWEEP_SECONDS", 0.001)
        self._sweep = Sweep(common)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(ROUND_TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0.001)

    def close(self) -> None:
        self._sweep.close()


@in_loop
async def test_idle_connection_is_closed_and_a_busy_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with QuietNode(tmp_path, "connections.max.idle.ms=50") as node:
        common = shared(node)
        idle, busy, waiting, unsent = (FakeClient(common) for _ in range(4))
        waiting.send(waiting_frame(1))
        unsent.transport.unsent_bytes = 1
        rounds = Rounds(monkeypatch, common)

        def is_idle_closed() -> bool:
            busy.send(answered_frame(1))
            return idle.transport.is_closed

        await rounds.until(is_idle_closed)
        rounds.close()
        assert not any(one.transport.is_closing() for one in (busy, waiting, unsent))
        assert common.metrics.connections_idled >= 1
        assert common.metrics.connections_failed == 0


@in_loop
async def test_connection_that_takes_no_answers_is_ended_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with QuietNode(tmp_path, "kwire.send.timeout.ms=50") as node:
        common = shared(node)
        stuck, recovered = FakeClient(common), FakeClient(common)
        began = asyncio.get_running_loop().time()
        for one in (stuck, recovered):
            one.connection.pause_writing()
        recovered.connection.resume_writing()
        rounds = Rounds(monkeypatch, common)
        await rounds.until(lambda: stuck.transport.is_aborted)
        rounds.close()
        assert asyncio.get_running_loop().time() - began >= 0.045
        assert not recovered.transport.is_closing()
        assert common.metrics.connections_failed >= 1
        assert "makes no progress" in caplog.text


@in_loop
async def test_starved_connection_reads_on_when_memory_is_free(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = shared(node)
    greedy, starved = FakeClient(common), FakeClient(common)
    large = (900_000).to_bytes(4, "big") + bytes(900_000)
    greedy.send_while_read(large[:700_000])
    starved.send_while_read(large)
    assert not starved.transport.is_reading
    greedy.lose()
    rounds = Rounds(monkeypatch, common)
    await rounds.until(lambda: starved.transport.is_reading)
    rounds.close()
    assert not starved.transport.is_closing()


@in_loop
async def test_door_serves_a_port_of_the_machines_choice(node: QuietNode) -> None:
    door = Door(Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0), None, shared(node))
    await door.open()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", door.port)
        port = door.port
        assert port > 0
    finally:
        door.close()
    writer.transport.abort()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)
