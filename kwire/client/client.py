"""The client for asyncio programs."""

import ssl
from base64 import b64encode
from collections.abc import Mapping
from types import TracebackType
from typing import Self

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
        self._session = aiohttp.ClientSession(
            headers={**(headers or {}), **({} if user is None else _credentials(user, password))},
            trust_env=False,
            connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, ssl=True if ssl_context is None else ssl_context),
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _credentials(user: str, password: str) -> Mapping[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}
