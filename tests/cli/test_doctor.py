"""kwire doctor and kwire cluster: every finding is shown by a server, or a data directory, that has the problem."""

import asyncio
import json
import socket
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from kwire.clock import SystemClock
from kwire.node import Node
from kwire.testing.ports import unused_port
from kwire.web.admin import node as node_module
from storage.batch.record_batch import check_batch
from tests.support.batches import make_batch
from tests.support.certificates import Authority, store
from tests.support.cli import Done, run_here, run_program
from tests.support.node import QuietNode, in_loop, running_node
from tests.support.partition_log import log_of
from tests.support.server import KwireProcess, wait_until
from tests.support.small_disk import SmallDisk, SmallDiskProcess

HOUR_MS = 3_600_000
DESCRIPTORS = 200
DISK_BYTES = 32 * 1024 * 1024
# Too little for a disk reserve.
FREE_BYTES = 6 * 1024 * 1024


def addresses(node: Node) -> list[str]:
    assert node.http is not None
    kafka = f"127.0.0.1:{node.kafka_listeners[0].port}"
    return ["--bootstrap-server", kafka, "--http", f"http://127.0.0.1:{node.http.port}"]


async def doctor(node: Node, *arguments: str) -> tuple[Done, dict[str, list[dict[str, Any]]]]:
    """Run the installed program. Returns the findings by check."""
    done = await asyncio.to_thread(run_program, "doctor", *addresses(node), *arguments, "-o", "json")
    found: dict[str, list[dict[str, Any]]] = {}
    for one in json.loads(done.out)["findings"]:
        found.setdefault(one["check"], []).append(one)
    return done, found


def only(found: dict[str, list[dict[str, Any]]], check: str, result: str, *words: str) -> None:
    """One finding of this check has this result, names the thing and a remedy."""
    matching = [one for one in found[check] if one["result"] == result]
    assert matching, found[check]
    for word in words:
        assert word in matching[0]["text"], matching[0]
    assert bool(matching[0]["remedy"]) is (result != "ok")


def started(tmp_path: Path, *settings: str) -> AbstractAsyncContextManager[Node]:
    return running_node(tmp_path / "data", *settings)


@in_loop
async def test_a_healthy_server_has_no_findings(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        done, found = await doctor(node)
        assert done.code == 0, done.out
        assert {one["result"] for some in found.values() for one in some} == {"ok"}
        only(found, "clock", "ok", "(±")
        only(found, "version", "ok")
        text = await asyncio.to_thread(run_program, "doctor", *addresses(node))
        assert text.code == 0
        assert "found nothing wrong" in text.out
        http = addresses(node)[2:]
        info = await asyncio.to_thread(run_program, "cluster", "info", *http)
        assert info.code == 0, info.errors
        for word in ("cluster id", "PLAINTEXT", "disk", "uptime", "ready"):
            assert word in info.out
        facts = json.loads((await asyncio.to_thread(run_program, "cluster", "info", *http, "-o", "json")).out)
        assert facts["listeners"][0]["port"] == node.kafka_listeners[0].port
        health = await asyncio.to_thread(run_program, "cluster", "health", *http)
        assert (health.code, health.out) == (0, "healthy\n")
        # The directory is in use, so only closed segments are read.
        _, found = await doctor(node, "--data-dir", str(tmp_path / "data"))
        assert found["data directory"][0]["result"] == "skipped"
        assert any("are sound" in one["text"] for one in found["logs"])


@pytest.mark.parametrize("host", ["no-such-host.invalid", "127.0.0.1"])
def test_a_wrong_advertised_listener_is_found(tmp_path: Path, host: str) -> None:
    port = unused_port()

    @in_loop
    async def check() -> None:
        async with started(tmp_path, f"advertised.listeners=PLAINTEXT://{host}:{port}") as node:
            done, found = await doctor(node)
            assert done.code == 1
            only(found, "advertised listener", "problem", f"{host}:{port}")
            assert "advertised.listeners" in found["advertised listener"][0]["remedy"]

    check()


def test_ports_that_do_not_answer_are_found() -> None:
    http = f"http://127.0.0.1:{unused_port()}"
    done = run_here("doctor", "--bootstrap-server", f"127.0.0.1:{unused_port()}", "--http", http)
    assert done.code == 1
    assert done.out.count("problem") == 2
    assert "what to do: start the server" in done.out
    assert run_here("cluster", "health", "--http", http).code == 2
    assert run_here("cluster", "info", "--http", http).code == 2


@in_loop
async def test_an_http_server_of_another_kind_is_found(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        kafka = addresses(node)[1]
        done = await asyncio.to_thread(
            run_program, "doctor", "--bootstrap-server", kafka, "--http", f"http://{kafka}", "-o", "json"
        )
        assert done.code == 1
        assert "HTTP port" in done.out


@pytest.mark.parametrize(("shift_ms", "result"), [(90_000, "warning"), (-2 * HOUR_MS, "problem")])
def test_clocks_that_differ_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift_ms: int, result: str
) -> None:
    now_ms = SystemClock.now_ms
    # The server runs in this process, the program in another one.
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: now_ms(self) + shift_ms)

    @in_loop
    async def check() -> None:
        async with started(tmp_path) as node:
            done, found = await doctor(node)
            assert done.code == 1
            only(found, "clock", result, "ahead of" if shift_ms > 0 else "behind")

    check()


@in_loop
async def test_versions_that_differ_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "__version__", "99.1.0")
    async with started(tmp_path) as node:
        done, found = await doctor(node)
        assert done.code == 1
        only(found, "version", "warning", "99.1.0")


class LimitedProcess(KwireProcess):
    """A server that may open DESCRIPTORS files."""

    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", *super().command()]


def test_low_limits_on_open_files_are_found(tmp_path: Path) -> None:
    process = LimitedProcess(tmp_path)
    process.start()
    try:
        process.ready()
        low = doctor_of(process)
        only(low, "open files", "warning", f"{DESCRIPTORS} descriptors allow only")
        with ExitStack() as connections:
            for _ in range(DESCRIPTORS):
                connections.enter_context(socket.create_connection(process.kafka_address, 5))
        refusing = doctor_of(process)
        only(refusing, "open files", "problem", "connections were refused")
    finally:
        process.kill()


def doctor_of(process: KwireProcess) -> dict[str, list[dict[str, Any]]]:
    def ask() -> Any:
        done = run_program("doctor", "--bootstrap-server", process.bootstrap, "--http", process.http_url, "-o", "json")
        findings = json.loads(done.out)["findings"]
        # Connections that were just closed may still count.
        return (
            findings if not any(one["check"].endswith("port") and one["result"] != "ok" for one in findings) else None
        )

    found: dict[str, list[dict[str, Any]]] = {}
    for one in wait_until(ask, "both ports answer"):
        found.setdefault(one["check"], []).append(one)
    return found


@pytest.mark.needs_tmpfs
def test_a_full_disk_is_found_and_no_backup_is_made_of_it(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk", DISK_BYTES)
    process = SmallDiskProcess(tmp_path, disk)
    try:
        disk.put_ballast(DISK_BYTES - FREE_BYTES)
        process.start()
        process.ready()
        only(doctor_of(process), "disk", "problem", "the disk is full")
        assert run_program("cluster", "health", "--http", process.http_url).code == 1
        backup = run_program("backup", "create", tmp_path / "backup", "--http", process.http_url)
        assert backup.code == 1
        assert "no free space" in backup.errors
        assert not (tmp_path / "backup").exists()
    finally:
        process.kill()
        disk.close()


@in_loop
async def test_a_certificate_that_expires_soon_is_found(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    path = store(tmp_path / "server.pem", authority.issue("127.0.0.1", valid_days=5))
    port = unused_port()
    settings = (
        f"listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:{port}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={path}",
    )
    async with running_node(tmp_path / "data", *settings, kafka=None) as node:
        done, found = await doctor(node)
        assert done.code == 1
        only(found, "certificate", "warning", "SSL", "expires in 4 days")


@in_loop
async def test_damage_that_the_server_knows_is_found(tmp_path: Path) -> None:
    with QuietNode(tmp_path / "data") as quiet:
        partition = await quiet.create_partition("orders")
        for _ in range(20):
            batch = make_batch(1, value=b"x" * 100, timestamp_ms=0)
            partition.append(batch, check_batch(batch))
        path = Path(log_of(partition).directory, "00000000000000000000.log")
        log_of(partition).close(is_clean=False)
    (tmp_path / "data" / "clean_shutdown").unlink(missing_ok=True)
    (tmp_path / "data" / "written").unlink(missing_ok=True)
    data = bytearray(path.read_bytes())
    data[len(data.rstrip(b"\0")) // 2] ^= 1
    path.write_bytes(data)
    stopped = run_here("doctor", "--data-dir", tmp_path / "data")
    assert stopped.code == 1
    assert "damaged places" in stopped.out
    assert "kwire log verify" in stopped.out
    async with started(tmp_path) as node:
        done, found = await doctor(node)
        assert done.code == 1
        only(found, "logs", "problem", "orders-0")
        health = await asyncio.to_thread(run_program, "cluster", "health", *addresses(node)[2:])
        assert health.code == 1
        assert health.out.startswith("not healthy\n")


@in_loop
async def test_a_server_that_is_not_ready_is_found(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        node._is_ready = False
        try:
            done, found = await doctor(node)
        finally:
            node._is_ready = True
        assert done.code == 1
        only(found, "ready", "problem")


def test_directories_of_other_programs_and_releases_are_found(tmp_path: Path) -> None:
    kafka = tmp_path / "kafka"
    kafka.mkdir()
    (kafka / "meta.properties").write_text("version=1\n")
    assert "Apache Kafka" in run_here("doctor", "--data-dir", kafka).out
    missing = run_here("doctor", "--data-dir", tmp_path / "nothing")
    assert missing.code == 1
    assert "is not a directory" in missing.out
    with QuietNode(tmp_path / "old"):
        pass
    # QuietNode, as releases before the second copy, has one journal.
    old = run_here("doctor", "--data-dir", tmp_path / "old")
    assert old.code == 1
    assert "one copy of the catalogue" in old.out
    (tmp_path / "old" / "metastore.mirror").write_bytes((tmp_path / "old" / "metastore.journal").read_bytes())
    assert run_here("doctor", "--data-dir", tmp_path / "old").code == 0
