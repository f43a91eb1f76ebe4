"""Starts a bridge over its own cluster of three Apache Kafkas.

The cluster is that of the tests (tests/support/apache_cluster): each node is a broker and a controller, and a topic has
three replicas, two of which must be in sync.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmark.servers import KWIRE_PROGRAM, LOOPBACK, Launch, Product, free_ports
from tests.support.apache_cluster import HEAP, ApacheCluster

BRIDGE = "bridge"  # The name in samples and options.


class Bridge(Product):
    """A bridge. Its only port is the HTTP port."""

    name = BRIDGE
    title = "a bridge"

    def __init__(self, settings: Mapping[str, object], upstream: str) -> None:
        super().__init__(settings)
        self.upstream = upstream

    def prepare(self, directory: Path) -> Launch:
        (port,) = free_ports(1)
        argv = [str(KWIRE_PROGRAM), "bridge", "--upstream", self.upstream, "--http", f"{LOOPBACK}:{port}"]
        argv += ["--data-dir", str(directory / "data")]
        for name, value in self._settings.items():
            argv += ["--set", f"{name}={value}"]
        return Launch(argv, port, port, prints_ready=True)


@contextmanager
def three_nodes(
    directory: Path, settings: Mapping[str, str] | None = None, *, heap: str = HEAP
) -> Iterator[ApacheCluster]:
    """Start a cluster, and stop it at the end. `settings` are added to Kafka's own on every node."""
    cluster = ApacheCluster(directory, settings, heap=heap)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()
