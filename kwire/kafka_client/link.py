"""Link: the connection to one address for one purpose. It is opened on first use, and again after it was lost."""

import asyncio
from enum import Enum, auto
from typing import Any

from kwire.errors import KafkaError, as_value
from kwire.kafka_client.backoff import Backoff
from kwire.kafka_client.connection import IN_FLIGHT_MAX, Connection
from kwire.kafka_client.counters import ConnectionCounters
from kwire.kafka_client.errors import NotSent
from kwire.kafka_client.settings import Address, ClientSettings
from kwire.wire.schema import Api


class Purpose(Enum):
    """What a connection is for. A broker answers the requests of one connection in order, so a long poll or a large
    read would delay everything else on its connection."""

    CONTROL = auto()
    # Changes of topics by this process. A cluster may take long for them, and heartbeats must not wait for that.
    CHANGE = auto()
    PRODUCE = auto()
    FETCH = auto()
    READ = auto()
    # Requests of users. A broker closes the connection of a request that it cannot parse, and some take long.
    ADMIN = auto()


class Link:
    """A connection that comes back. After a failed attempt it stays down for a growing time."""

    def __init__(
        self, address: Address, settings: ClientSettings, backoff: Backoff, counters: ConnectionCounters
    ) -> None:
        self.address = address
        self._counters = counters
        self._settings = settings
        self._backoff = backoff
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._down_until = 0.0
        self._failure: KafkaError | None = None
        self._is_closed = False
        self._room = asyncio.Semaphore(IN_FLIGHT_MAX)

    @property
    def current(self) -> Connection | None:
        """The connection, if it is open."""
        connection = self._connection
        return connection if connection is not None and connection.is_open else None

    @property
    def pause_seconds(self) -> float:
        """How long no attempt to connect is made."""
        return max(0.0, self._down_until - asyncio.get_running_loop().time())

    async def connection(self) -> Connection:
        """Return the open connection, or open one. Raises NotSent, LoginRefused or NotSupported."""
        if (current := self.current) is not None:
            return current
        if self._is_closed:
            raise NotSent(f"{self.address}: the client is closed")
        opening = self._opening
        if opening is None:
            if self._failure is not None and self.pause_seconds:
                raise as_value(self._failure)
            opening = self._opening = asyncio.create_task(self._open())
            opening.add_done_callback(self._opened)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if opening.cancelled() and (caller is None or not caller.cancelling()):
                raise NotSent(f"{self.address}: the client is closed") from None
            raise

    async def request(self, api: Api, message: Any, *, version_max: int | None = None, wait_seconds: float = 0) -> Any:
        """Send a request, and return the response. Raises like `connection` and `Connection.send`."""
        async with self._room:
            connection = await self.connection()
            return await connection.send(api, message, version_max=version_max, wait_seconds=wait_seconds)

    def close(self) -> None:
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
        self.drop("the client was closed")

    def drop(self, reason: str) -> None:
        """Close the connection. The next request opens another one."""
        if self._connection is not None:
            self._connection.close(reason)
            self._connection = None

    async def _open(self) -> Connection:
        return await Connection.open(self.address, self._settings, self._counters)

    def _opened(self, opening: "asyncio.Task[Connection]") -> None:
        self._opening = None
        if opening.cancelled():
            return
        error = opening.exception()
        if error is None:
            self._connection = opening.result()
            self._failure = None
            self._backoff.reset()
            if self._is_closed:
                self.drop("the client was closed")
        elif isinstance(error, KafkaError):
            self._failure = error
            self._down_until = asyncio.get_running_loop().time() + self._backoff.next_seconds()
