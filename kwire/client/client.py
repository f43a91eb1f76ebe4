"""The client for asyncio programs."""

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import aiohttp

from kwire.client.backoff import DELAY_S_MAX, DELAY_S_MIN, Backoff
from kwire.client.event_store import EventStore
from kwire.client.http import Http
from kwire.client.rooms import Rooms
from kwire.client.stream import Stream
from kwire.client.websocket import WebSocketConnection

DEFAULT_URL = "http://127.0.0.1:8082"
TIMEOUT_S = 30.0
# Each event store subscription and each WebSocket uses one connection. The remaining connections are for HTTP calls.
CONNECTIONS_MAX = 1_200
# The end of a TLS connection is answered by the server. A server that does not answer is not waited for longer.
CLOSE_TIMEOUT_S = 2.0
CLOSE_POLL_S = 0.002


class OpenSockets:
    """The sockets of a session.

    `aiohttp.ClientSession.close` does not wait until the transports of TLS connections are closed, and a program that
    then ends its event loop would leave them open.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def create(self, address: tuple[Any, ...]) -> socket.socket:
        """Create a socket for a new connection: the `socket_factory` of a connector."""
        self._sockets = [*self._open(), socket.socket(*address[:3])]
        return self._sockets[-1]

    async def wait_until_closed(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Wait until the event loop has closed all sockets. After the timeout, end their connections."""
        await self._wait(timeout_s)
        for one in self._open():
            with suppress(OSError):  # the server has ended the connection at this moment
                one.shutdown(socket.SHUT_RDWR)
        await self._wait(timeout_s)

    async def _wait(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self._open() and loop.time() < deadline:
            await asyncio.sleep(CLOSE_POLL_S)

    def _open(self) -> list[socket.socket]:
        return [one for one in self._sockets if one.fileno() >= 0]


class AsyncClient:
    """The client, used as `async with AsyncClient(url) as client:`. Create and use it in one running event loop."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        timeout_s: float = TIMEOUT_S,
        retry_delay_s_min: float = DELAY_S_MIN,
        retry_delay_s_max: float = DELAY_S_MAX,
        headers: Mapping[str, str] | None = None,
        user: str | None = None,
        password: str = "",
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """`timeout_s` limits every call, including the wait for a connection.

        `user` and `password` are the credentials for a server with `kwire.http.authentication=basic`, or the id and the
        secret of an API key. For https, `ssl_context` has the trusted certificates (default: the system's) and a client
        certificate.

        After a lost connection, a subscription tries to reconnect until it is closed.
        """
        url = url.rstrip("/")
        # The client connects directly to the server. `trust_env=False` ignores proxy settings of the environment.
        self._sockets = OpenSockets()
        self._session = aiohttp.ClientSession(
            headers={**(headers or {}), **({} if user is None else _credentials(user, password))},
            trust_env=False,
            connector=aiohttp.TCPConnector(
                limit=CONNECTIONS_MAX,
                ssl=True if ssl_context is None else ssl_context,
                socket_factory=self._sockets.create,
            ),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        http = Http(self._session, url, timeout_s)

        def new_backoff() -> Backoff:
            return Backoff(retry_delay_s_min, retry_delay_s_max)

        def new_connection() -> WebSocketConnection:
            return WebSocketConnection(self._session, url + "/ws", new_backoff())

        self.stream = Stream(new_connection, http, timeout_s)
        self.rooms = Rooms(http)
        self.events = EventStore(self._session, url, http, new_backoff, timeout_s)

    async def close(self) -> None:
        await self.events.close()
        await self.stream.close()
        await self._session.close()
        await self._sockets.wait_until_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _credentials(user: str, password: str) -> Mapping[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}
