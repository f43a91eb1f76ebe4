"""The HTTP port. aiohttp serves the routes of `kwire/web/routes.py` in the same event loop as the Kafka port."""

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from kwire.config import Address, NetworkConfig
from kwire.descriptors import Descriptors
from kwire.server.http_connection import HttpConnection, HttpConnections
from kwire.web.requests.body_receiver import RECEIVE_SETTINGS, ReceiveSettings
from kwire.web.requests.middleware import request_middleware
from kwire.web.requests.origin_policy import OriginPolicy, is_loopback
from kwire.web.rooms.lines import STREAMS
from kwire.web.routes import bound_routes
from kwire.web.services import WebServices

if TYPE_CHECKING:
    from kwire.access.tls import TlsListener
    from kwire.server.tls.acceptor import TlsAcceptor

SHUTDOWN_SECONDS = 2.0
# The maximum time that a connection may be without a request, or may take to send the headers of a request. It is
# limited because the number of connections is limited. Proxies keep idle connections for a minute.
IDLE_SECONDS = 75.0


class HttpServer:
    """The HTTP server. With `tls` it serves https."""

    def __init__(
        self, address: Address, services: WebServices, descriptors: Descriptors, tls: "TlsListener | None" = None
    ) -> None:
        port = services.port
        self._tls = tls
        self._acceptor: TlsAcceptor | None = None
        self._address = address
        self._stream_connections = port.serve_stream
        self._body_checks = port.body_checks
        config, network = port.config.web, port.config.network
        self._backlog = network.backlog
        self.memory = port.memory
        self._connections = HttpConnections(
            port.http_metrics,
            descriptors,
            config.connections_max,
            network.connections_per_ip_max,
            network.send_timeout_ms,
        )
        policy = OriginPolicy(config.origins, is_loopback(address.host))
        middleware = request_middleware(policy, port.memory)
        app = web.Application(client_max_size=config.body_bytes_max, middlewares=[middleware])
        app[STREAMS] = set()
        app[RECEIVE_SETTINGS] = ReceiveSettings.of(port.memory, config)
        app.on_shutdown.append(_end_streams)
        for route, handle in bound_routes(services):
            app.router.add_route(route.method, route.path, handle)
            # HEAD is not supported for streams, because a stream has no length.
            if route.method == "GET" and not route.is_streaming:
                app.router.add_route("HEAD", route.path, handle)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, keepalive_timeout=IDLE_SECONDS
        )
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def open(self) -> None:
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        if self._tls is not None:
            from kwire.server.tls.acceptor import TlsAcceptor

            self._acceptor = TlsAcceptor(self._tls, self._connections, self._connection)
        factory = self._connection if self._acceptor is None else self._acceptor
        self._server = await loop.create_server(
            factory, self._address.host or None, self._address.port, backlog=self._backlog
        )

    def reconfigure(self, network: NetworkConfig) -> None:
        self._connections.per_ip_max = network.connections_per_ip_max

    def _connection(self) -> asyncio.Protocol:
        handler = self._runner.server
        assert handler is not None
        return HttpConnection(self._connections, handler, loop=asyncio.get_running_loop(), **handler._kwargs)

    async def end_streams(self) -> None:
        """End all streams cleanly. Other requests are still answered."""
        await self._stream_connections.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._acceptor is not None:
            self._acceptor.close()
        # aiohttp waits for its handlers. The handlers of streams end when their connections are closed.
        await self._stream_connections.close()
        await self._runner.cleanup()
        await self._body_checks.close()
        self._connections.close()


async def _end_streams(app: web.Application) -> None:
    """Stop the requests that stream lines, because they do not end by themselves."""
    now = asyncio.get_running_loop().time()
    streams = app[STREAMS]
    for until_stop in list(streams):
        until_stop.reschedule(now)
