"""A real `kwire bridge` process over a cluster, started, watched, stopped and killed by a test."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.server import HOST, KwireProcess, kwire_command


class BridgeProcess(KwireProcess):
    """The bridge that is installed, as a user starts it. `upstream` is the address of the cluster."""

    def __init__(
        self,
        directory: Path,
        upstream: str,
        *,
        settings: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        super().__init__(directory, kafka_port=None, settings=settings, data_dir=data_dir, arguments=arguments)
        self.upstream = upstream

    @property
    def bootstrap(self) -> str:
        """The address of Kafka clients: they use the cluster."""
        return self.upstream

    def command(self) -> list[str]:
        command = [str(kwire_command()), "bridge", "--upstream", self.upstream, "--data-dir", str(self.data_dir)]
        command += ["--http", f"{HOST}:{self.http_port}"]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command + self.arguments
