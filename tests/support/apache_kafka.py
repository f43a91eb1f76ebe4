"""A broker of Apache Kafka on loopback, for tests that compare kwire with it."""

import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kwire.testing.ports import unused_port

SCRIPTS = Path(__file__).resolve().parents[2] / "compat" / "apache_kafka"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
FORMAT_TIMEOUT_S = 600.0  # The first call fetches Kafka.
POLL_S = 0.05
HEAP = "1G"
# The cluster id of `format`.
CLUSTER_ID = "kwire4compat0loopback0"


class Membership(NamedTuple):
    """The place of a node in a cluster; `voters` names all its controllers, as controller.quorum.voters does."""

    node_id: int
    port: int
    controller_port: int
    voters: str


class ApacheKafkaProcess:
    """Started by `start`, ended by `stop`. It is alone, or the node of a cluster that `membership` names."""

    def __init__(
        self,
        directory: Path,
        membership: Membership | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        heap: str = HEAP,
    ) -> None:
        self._directory = directory
        self._heap = heap
        self._process: subprocess.Popen[bytes] | None = None
        if membership is None:
            self.port, self.controller_port, node = unused_port(), unused_port(), []
        else:
            self.port, self.controller_port = membership.port, membership.controller_port
            node = [str(membership.node_id), membership.voters]
        _run([str(SCRIPTS / "format"), str(directory), str(self.port), str(self.controller_port), *node])
        with (directory / "server.properties").open("a") as properties:
            properties.writelines(f"{name}={value}\n" for name, value in (settings or {}).items())

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, process_group: int | None = None) -> None:
        """Start the node, in a process group if one is named, and wait until it listens."""
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(SCRIPTS / "serve"), str(self._directory), self._heap],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=process_group,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._accepts():
            assert self._process.poll() is None, (self._directory / "server.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "Apache Kafka does not open its port"
            time.sleep(POLL_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End the process as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


class FurtherBroker(ApacheKafkaProcess):
    """A broker that joins the cluster of another process."""

    def __init__(self, directory: Path, first: ApacheKafkaProcess, node_id: int) -> None:
        self._directory = directory
        self._heap = HEAP
        self._process = None
        self.port, self.controller_port = unused_port(), first.controller_port
        properties = directory / "server.properties"
        properties.write_text(
            f"""process.roles=broker
node.id={node_id}
controller.quorum.bootstrap.servers=127.0.0.1:{first.controller_port}
listeners=PLAINTEXT://127.0.0.1:{self.port}
advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={directory / "data"}
"""
        )
        libs = _run([str(SCRIPTS / "fetch")]).strip().splitlines()[-1]
        tool = ["java", "-cp", f"{libs}/*", "kafka.tools.StorageTool", "format"]
        _run([*tool, "-t", CLUSTER_ID, "-c", str(properties), "--no-initial-controllers"])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout
