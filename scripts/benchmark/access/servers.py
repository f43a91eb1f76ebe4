"""Servers with logins, ACLs or TLS: kwire with two users and an authorizer, and both products with a TLS listener."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmark.access.client_config import User, basic_authorization
from benchmark.processes import ChildFailed, run
from benchmark.servers import KWIRE_PROGRAM, LOOPBACK, ApacheKafka, Kwire, Launch, add_properties, free_ports

OPEN = "open"  # The name in samples of kwire without logins and ACLs.
ADMIN, CLIENT = User("bench-admin", "only-of-a-benchmark-1"), User("bench", "only-of-a-benchmark-2")
COMMAND_SECONDS_MAX = 60


@dataclass(frozen=True)
class Certificates:
    """The files of `kwire tls init`."""

    server: Path
    ca: Path

    @classmethod
    def make(cls, directory: Path) -> "Certificates":
        argv = [str(KWIRE_PROGRAM), "tls", "init", "--dir", str(directory), LOOPBACK, "localhost"]
        run("kwire tls init", argv, COMMAND_SECONDS_MAX)
        return cls(directory / "server.pem", directory / "ca.pem")

    @property
    def settings(self) -> dict[str, object]:
        """The settings of a server that shows this certificate and asks clients for none."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.server,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
        }


class OpenKwire(Kwire):
    """kwire without logins and ACLs, with a name of its own in samples."""

    name = OPEN
    title = "kwire without logins"


class ListeningKwire(Kwire):
    """kwire with the given security protocols. The port of the first one is the server's address."""

    def __init__(self, settings: Mapping[str, object], protocols: tuple[str, ...]) -> None:
        super().__init__(settings)
        self._protocols = protocols
        self.ports: dict[str, int] = {}

    def prepare(self, directory: Path) -> Launch:
        self.ports = dict(zip(self._protocols, free_ports(len(self._protocols)), strict=True))
        launch = super().prepare(directory)
        at = launch.argv.index("--kafka")
        listeners = ",".join(f"{protocol}://{LOOPBACK}:{port}" for protocol, port in self.ports.items())
        argv = [*launch.argv[:at], *launch.argv[at + 2 :], "--set", f"listeners={listeners}"]
        return replace(launch, argv=argv, kafka_port=self.ports[self._protocols[0]])


class GuardedKwire(ListeningKwire):
    """kwire with an authorizer and two users: ADMIN may do everything, CLIENT what ACLs allow."""

    metrics_headers = basic_authorization(ADMIN)

    def __init__(self, settings: Mapping[str, object], protocols: tuple[str, ...] = ("SASL_PLAINTEXT",)) -> None:
        guarded = {
            "kwire.authorizer": "acl",
            "super.users": f"User:{ADMIN.name}",
            "kwire.http.authentication": "basic",
        }
        super().__init__({**guarded, **settings}, protocols)

    def prepare(self, directory: Path) -> Launch:
        for user in (ADMIN, CLIENT):
            create_user(user, directory / "data")
        return super().prepare(directory)


class TlsKafka(ApacheKafka):
    """Apache Kafka with SSL instead of PLAINTEXT for its clients."""

    def prepare(self, directory: Path) -> Launch:
        launch = super().prepare(directory)
        properties = (directory / "server.properties").read_text().splitlines()
        listeners = dict(line.split("=", 1) for line in properties if "listeners=" in line)
        secured = {name: value.replace("PLAINTEXT://", "SSL://") for name, value in listeners.items()}
        protocols = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SSL:SSL"}
        add_properties(directory, {**secured, **protocols, "security.inter.broker.protocol": "SSL"})
        return launch


def create_user(user: User, data_dir: Path) -> None:
    """Create a user in the data directory of a server that does not run."""
    argv = [str(KWIRE_PROGRAM), "user", "create", user.name, "--data-dir", str(data_dir), "--password-stdin"]
    done = subprocess.run(argv, input=f"{user.password}\n", capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX)
    if done.returncode:
        raise ChildFailed(f"kwire user create: exit code {done.returncode}\n{done.stderr}")
