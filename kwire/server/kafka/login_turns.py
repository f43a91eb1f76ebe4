"""Requests of clients that are not logged in, which wait for a later loop iteration: networks take turns.

Thousands of such clients may send a step of a login at the same time. When the budget of the loop iteration is spent,
they wait here, and a few of them are handled in each iteration. Clients of addresses that have failed too often always
wait, and get a turn every few milliseconds. So they delay neither other requests nor the logins of other clients. The
newest connection of a network is next, because many of those that wait for long are abandoned.
"""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from kwire.access.hosts import network_of

if TYPE_CHECKING:
    from kwire.server.kafka.connection import KafkaConnection

# The time after which a turn handles no further connection, and the maximum number of connections of a turn. The time
# is also the part of a loop iteration's budget in which requests of these clients are handled without waiting. It is
# short, because libuv accepts one connection per iteration, so that new connections wait for many iterations.
TURN_SECONDS = 0.00025
CONNECTIONS_PER_TURN = 10
# The time between two turns of clients whose addresses have failed too often.
SUSPECT_TURN_INTERVAL_SECONDS = 0.005


class LoginTurns:
    """The connections whose requests wait. There are at most as many as connections."""

    __slots__ = ("_is_scheduled", "_schedule", "_waiting")

    def __init__(self, schedule: Callable[[Callable[[], None]], object]) -> None:
        """`schedule` calls a function in a later loop iteration."""
        self._schedule = schedule
        self._is_scheduled = False
        # By network. The next turn is that of the first network.
        self._waiting: dict[str, dict[KafkaConnection, None]] = {}

    def add(self, connection: "KafkaConnection") -> None:
        self._waiting.setdefault(network_of(connection.client_host), {})[connection] = None
        self._schedule_turn()

    def discard(self, connection: "KafkaConnection") -> None:
        """Forget a connection that was closed. The newest are next, so its turn may not come for a long time."""
        network = network_of(connection.client_host)
        connections = self._waiting.get(network)
        if connections is not None and connection in connections:
            del connections[connection]
            if not connections:
                del self._waiting[network]

    def _schedule_turn(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._schedule(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        deadline = perf_counter() + TURN_SECONDS
        waiting = self._waiting
        for _ in range(CONNECTIONS_PER_TURN):
            if not waiting:
                return
            network, connections = next(iter(waiting.items()))
            connection = next(reversed(connections))
            del waiting[network], connections[connection]
            if connections:
                waiting[network] = connections
            connection.serve_deferred()
            if perf_counter() >= deadline:
                break
        if waiting:
            self._schedule_turn()
