"""The server of `kwire.testing`: how fast it starts, what it keeps, and that it does not outlive its test process."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kwire.client import Client
from kwire.testing import KwireServer, ServerFailed
from tests.support.clients import produce_values
from tests.support.server import wait_until

START_SECONDS_MAX = 1.0
STARTS = 3


def test_a_server_starts_in_less_than_a_second() -> None:
    """Without the time for which the server waits for a processor, because other tests use them, too."""
    seconds = []
    for _ in range(STARTS):
        with KwireServer() as server:
            seconds.append((server.start_seconds, server.start_seconds - seconds_in_run_queue(server.pid)))
    starts = ", ".join(f"{whole:.2f} ({running:.2f})" for whole, running in seconds)
    print(f"a test server accepts connections after {starts} s (without waits for a processor)")
    assert min(running for _, running in seconds) < START_SECONDS_MAX


def seconds_in_run_queue(pid: int) -> float:
    """The time for which the main thread of a process was ready to run and had no processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def test_data_and_ports_survive_a_kill_and_faults_do_not(tmp_path: Path) -> None:
    with KwireServer(tmp_path) as server:
        server.create_topic("kept", 2, {"retention.ms": "1000000"})
        produce_values(server.bootstrap_server, "kept", [b"a", b"b"], partition=1)
        address = (server.bootstrap_server, server.http_url)
        server.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=None)
        server.restart(kill=True)
        assert (server.bootstrap_server, server.http_url) == address
        produce_values(server.bootstrap_server, "kept", [b"c"], partition=1)
        assert server.end_offsets("kept") == [0, 3]
        server.restart()
        assert server.end_offsets("kept") == [0, 3]
        with Client(server.http_url) as client:
            client.stream.publish("room", "said", "hello")
        server.delete_topic("kept")
        with pytest.raises(ServerFailed, match="kept"):
            server.end_offsets("kept")
    assert not server.is_running
    assert (tmp_path / "data").is_dir()


def test_a_temporary_directory_is_deleted() -> None:
    with KwireServer() as server:
        directory = server.data_dir.parent
        assert directory.is_dir()
    assert not directory.exists()


def test_a_wrong_setting_is_told_with_the_log(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match=r"(?s)has ended before it was ready.*num\.partitions"):
        KwireServer(tmp_path, {"num.partitions": "many"}).start()


def test_faults_of_a_stopped_server_are_refused(tmp_path: Path) -> None:
    with KwireServer(tmp_path) as server:
        server.stop()
        with pytest.raises(ServerFailed, match="the server is not running"):
            server.faults.clear()
        with pytest.raises(ServerFailed, match="was not started"):
            _ = server.pid


def test_a_server_stops_when_its_test_process_is_killed() -> None:
    program = """
        import time
        from kwire.testing import KwireServer
        server = KwireServer()
        server.start()
        print(server.pid, server.data_dir, flush=True)
        time.sleep(60)
        """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    ) as test_process:
        assert test_process.stdout is not None
        pid = int(test_process.stdout.readline().split()[0])
        os.kill(test_process.pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the server has stopped")


def test_packages_of_the_program_do_not_replace_those_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may have a package `storage` in the folder where its tests run."""
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "__init__.py").write_text("raise ImportError('of the program')")
    monkeypatch.chdir(tmp_path)
    with KwireServer() as server:
        assert server.is_running


def test_the_test_process_imports_nothing_of_the_server() -> None:
    program = """
        import json, sys
        import kwire.testing
        with kwire.testing.KwireServer() as server:
            server.create_topic("t")
        packages = ("kwire", "storage", "uvloop", "aiohttp")
        print(json.dumps([name for name in sys.modules if name.partition(".")[0] in packages]))
        """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    names = {"kwire", *(f"kwire.testing{one}" for one in ("", ".control", ".faults", ".ports", ".process", ".server"))}
    assert set(json.loads(said)) == names
