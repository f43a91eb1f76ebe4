"""Test servers: a real kwire process for tests of programs that use Kafka, with faults that a test injects.

`kwire.pytest_plugin` offers them as pytest fixtures. Other test frameworks use `KwireServer` directly:

    with KwireServer() as server:
        producer = KafkaProducer(bootstrap_servers=server.bootstrap_server)

This package is for the process of the tests. The modules of the server are imported only by `kwire.testing.serve`,
which is the program of the server process.
"""

from kwire.testing.faults import Fault, Faults
from kwire.testing.process import ServerFailed
from kwire.testing.server import KwireServer

__all__ = ["Fault", "Faults", "KwireServer", "ServerFailed"]
