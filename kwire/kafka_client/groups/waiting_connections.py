"""WaitingConnections: connections for requests that a coordinator answers when other members of the group have acted.

A broker answers the requests of one connection in order. So two members of the same group, of which one waits for the
other, cannot share a connection.
"""

import asyncio
from typing import Any, Final

from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.connection import Connection
from kwire.kafka_client.errors import NotSent
from kwire.kafka_client.settings import Address
from kwire.wire.schema import Api

# A connection that was not used for this long is closed.
IDLE_SECONDS: Final = 10.0


class WaitingConnections:
    """Each request has a connection of its own while it waits. The callers bound their number."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._used: set[Connection] = set()
        self._idle: dict[Address, list[Connection]] = {}
        self._timers: dict[Connection, asyncio.TimerHandle] = {}
        self._is_closed = False

    async def request(self, node: int, api: Api, message: Any, wait_seconds: float) -> Any:
        """Send a request to a broker, and return the response. Raises KafkaError."""
        address = self._cluster.metadata.brokers.get(node)
        if address is None:
            raise NotSent(f"the address of broker {node} is not known")
        connection = self._take(address)
        if connection is None:
            connection = await Connection.open(address, self._cluster.settings, self._cluster.counters)
        if self._is_closed:
            connection.close("the client was closed")
        self._used.add(connection)
        try:
            response = await connection.send(api, message, wait_seconds=wait_seconds)
        except BaseException:
            # The response of a request that was given up must not be taken for that of the next one.
            connection.close()
            raise
        finally:
            self._used.discard(connection)
        self._keep(address, connection)
        return response

    def close(self) -> None:
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        for connection in (*self._used, *self._timers):
            connection.close("the client was closed")
        self._timers.clear()
        self._idle.clear()

    def _take(self, address: Address) -> Connection | None:
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            self._timers.pop(connection).cancel()
            if connection.is_open:
                return connection
        return None

    def _keep(self, address: Address, connection: Connection) -> None:
        if self._is_closed:
            connection.close("the client was closed")
            return
        self._idle.setdefault(address, []).append(connection)
        self._timers[connection] = asyncio.get_running_loop().call_later(
            IDLE_SECONDS, self._close_idle, address, connection
        )

    def _close_idle(self, address: Address, connection: Connection) -> None:
        del self._timers[connection]
        idle = self._idle[address]
        idle.remove(connection)
        if not idle:
            del self._idle[address]
        connection.close("the connection was idle")
