"""The listeners of the Kafka port: which connections are accepted, and which the sweep closes."""

import asyncio
from pathlib import Path

import pytest

from kwire.config import Listener
from kwire.server.kafka import connection as kafka
from kwire.server.kafka import listener
from kwire.server.kafka.connection import KafkaConnection
from kwire.server.kafka.listener import KafkaListener, Sweep
from kwire.server.kafka.shared import Shared
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
        listeners = [KafkaListener(LISTENER, None, common), KafkaListener(OTHER_LISTENER, None, common)]
        greedy = [FakeClient(common, one, "192.0.2.1") for one in (*listeners, *listeners)]
        assert [one.transport.is_aborted for one in greedy] == [False, False, True, True]
        assert "max.connections.per.ip=2" in caplog.text
        assert not FakeClient(common, listeners[0], "192.0.2.2").transport.is_aborted
        for one in greedy:
            one.lose()
        assert not FakeClient(common, listeners[1], "192.0.2.1").transport.is_aborted


class Rounds:
    """Sweeps at times of the test's choice; connections see the same clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, common: Shared) -> None:
        self.now = 1000.0
        monkeypatch.setattr(listener, "perf_counter", lambda: self.now)
        monkeypatch.setattr(kafka, "perf_counter", lambda: self.now)
        self._sweep = Sweep(common)

    def run_after(self, seconds: float) -> None:
        self.now += seconds
        self._sweep.close()
        self._sweep._run()

    def close(self) -> None:
        self._sweep.close()


@in_loop
async def test_a_sweep_checks_many_connections_in_several_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "SWEPT_PER_CHUNK", 2)
    with QuietNode(tmp_path, "connections.max.idle.ms=5000") as node:
        common = shared(node)
        rounds = Rounds(monkeypatch, common)
        clients = [FakeClient(common) for _ in range(5)]
        rounds.now += 6
        rounds._sweep._run()
        assert sum(client.is_closed() for client in clients) == 2
        async with asyncio.timeout(10):
            while not all(client.is_closed() for client in clients):
                await asyncio.sleep(0)
        rounds.close()
        for client in clients:
            client.lose()


@in_loop
async def test_idle_connection_is_closed_and_a_busy_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with QuietNode(tmp_path, "connections.max.idle.ms=5000") as node:
        common = shared(node)
        rounds = Rounds(monkeypatch, common)
        idle, busy, waiting, unsent = (FakeClient(common) for _ in range(4))
        waiting.send(waiting_frame(1))
        unsent.transport.unsent_bytes = 1
        rounds.run_after(3)
        busy.send(answered_frame(1))
        rounds.run_after(1.9)
        assert not any(one.transport.is_closing() for one in (idle, busy, waiting, unsent))
        rounds.run_after(0.2)
        assert idle.is_closed()
        # An answer that is awaited or not yet taken keeps a connection alive.
        assert not any(one.transport.is_closing() for one in (busy, waiting, unsent))
        assert common.metrics.connections_idled == 1
        idle.lose()
        rounds.run_after(3)
        assert busy.is_closed()
        assert common.metrics.connections_failed == 0
        rounds.close()


@in_loop
async def test_idle_connections_may_stay_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with QuietNode(tmp_path, "connections.max.idle.ms=-1") as node:
        common = shared(node)
        rounds = Rounds(monkeypatch, common)
        client = FakeClient(common)
        rounds.run_after(1e9)
        assert not client.transport.is_closing()
        rounds.close()


@in_loop
async def test_connection_that_takes_no_answers_is_ended_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with QuietNode(tmp_path, "kwire.send.timeout.ms=5000") as node:
        common = shared(node)
        rounds = Rounds(monkeypatch, common)
        stuck, recovered = FakeClient(common), FakeClient(common)
        for one in (stuck, recovered):
            one.connection.pause_writing()
        rounds.run_after(4.9)
        assert not stuck.transport.is_closing()
        recovered.connection.resume_writing()
        rounds.run_after(0.2)
        assert stuck.transport.is_aborted
        assert not recovered.transport.is_closing()
        assert common.metrics.connections_failed == 1
        assert "no progress" in caplog.text
        rounds.close()


@in_loop
async def test_a_closing_connection_that_takes_no_answers_is_ended_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that ended its side of the connection and read nothing kept descriptor and memory for ever."""
    with QuietNode(tmp_path, "kwire.send.timeout.ms=5000") as node:
        common = shared(node)
        rounds = Rounds(monkeypatch, common)
        stuck, slow = FakeClient(common), FakeClient(common)
        for one in (stuck, slow):
            one.transport.unsent_bytes = 100
            one.connection.close()
        rounds.run_after(1)
        for _ in range(5):
            assert not stuck.transport.is_aborted
            slow.transport.unsent_bytes -= 1
            rounds.run_after(1.1)
        assert stuck.transport.is_aborted
        assert not slow.transport.is_aborted
        rounds.close()


@in_loop
async def test_starved_connection_reads_on_when_memory_is_free(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = shared(node)
    rounds = Rounds(monkeypatch, common)
    greedy, starved = FakeClient(common), FakeClient(common)
    large = (900_000).to_bytes(4, "big") + bytes(900_000)
    greedy.send_while_read(large[:700_000])
    starved.send_while_read(large)
    rounds.run_after(1)
    assert not starved.is_read()
    greedy.lose()
    rounds.run_after(1)
    assert starved.is_read()
    assert not starved.is_stuck()
    rounds.close()


@in_loop
async def test_connection_starved_for_too_long_is_ended(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds memory itself, and two that wait for each other's would wait for ever."""
    common = shared(node)
    rounds = Rounds(monkeypatch, common)
    clients = [FakeClient(common) for _ in range(2)]
    large = (900_000).to_bytes(4, "big") + bytes(900_000)
    for client in clients:
        client.send_while_read(large[:550_000])
    starved = [client for client in clients if client.is_stuck()]
    assert starved
    rounds.run_after(node.config.network.send_timeout_ms / 1000 + 1)
    assert all(client.transport.is_aborted for client in starved)
    rounds.close()


@in_loop
async def test_sweeps_come_again_until_they_are_closed(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "SWEEP_SECONDS", 0.001)
    common = shared(node)
    rounds: list[str] = []
    client = FakeClient(common)
    monkeypatch.setattr(KafkaConnection, "try_reading", lambda connection: rounds.append(connection.client_host))
    sweep = Sweep(common)
    async with asyncio.timeout(ROUND_TIMEOUT_S):
        while len(rounds) < 3:
            await asyncio.sleep(0.001)
    sweep.close()
    assert sweep._timer.cancelled()
    assert set(rounds) == {client.connection.client_host}


@in_loop
async def test_door_serves_a_port_of_the_machines_choice(node: QuietNode) -> None:
    opened = KafkaListener(Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0), None, shared(node))
    await opened.open()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", opened.port)
        port = opened.port
        assert port > 0
    finally:
        opened.close()
    writer.transport.abort()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)


@in_loop
async def test_slow_client_that_takes_its_answers_bit_by_bit_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with QuietNode(tmp_path, "kwire.send.timeout.ms=5000") as node:
        common = shared(node)
        rounds = Rounds(monkeypatch, common)
        slow = FakeClient(common)
        slow.transport.unsent_bytes = 100
        slow.connection.pause_writing()
        for left in range(99, 80, -1):
            slow.transport.unsent_bytes = left
            rounds.run_after(4)
            assert not slow.transport.is_aborted
        rounds.run_after(4)
        rounds.run_after(4)
        assert slow.transport.is_aborted
        rounds.close()
