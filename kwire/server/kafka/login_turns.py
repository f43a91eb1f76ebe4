"""Requests of clients that are not logged in, when the budget of a loop iteration is spent: networks take turns.

Thousands of such clients may send a step of a login at the same time. One chunk handles a few of them, so they delay
neither other requests nor the login of a client from another network.
"""

from time import perf_counter
from typing import TYPE_CHECKING

from kwire.access.hosts import network_of
from kwire.concurrency.chunking import schedule_chunk

if TYPE_CHECKING:
    from kwire.server.kafka.connection import KafkaConnection

# The time after which a chunk handles no further connection.
CHUNK_SECONDS = 0.0005


class LoginTurns:
    """The connections whose requests wait for a chunk. There are at most as many as connections."""

    __slots__ = ("_is_scheduled", "_waiting")

    def __init__(self) -> None:
        # By network. The next turn is that of the first network.
        self._waiting: dict[str, dict[KafkaConnection, None]] = {}
        self._is_scheduled = False

    def add(self, connection: "KafkaConnection") -> None:
        self._schedule()
        self._waiting.setdefault(network_of(connection.client_host), {})[connection] = None

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            schedule_chunk(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        deadline = perf_counter() + CHUNK_SECONDS
        waiting = self._waiting
        while waiting:
            network, connections = next(iter(waiting.items()))
            connection = next(iter(connections))
            del waiting[network], connections[connection]
            if connections:
                waiting[network] = connections
            connection.serve_deferred()
            if perf_counter() >= deadline:
                break
        if waiting:
            self._schedule()
