"""The HTTP port. aiohttp serves the routes of `kwire/web/routes.py` in the same event loop as the Kafka port.

If `kwire.http.monitoring.listener` is set, a second listener serves only health checks and metrics, and the HTTP port
does not serve these.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kwire.config import Address, Config
from kwire.descriptors import Descriptors
from kwire.server.http_connection import HttpConnection, HttpConnections
from kwire.server.periodic import PeriodicCalls
from kwire.web.requests.body_receiver import RECEIVE_SETTINGS, ReceiveSettings
from kwire.web.requests.middleware import Guard, guard_of, request_middleware
from kwire.web.requests.origin_policy import OriginPolicy, is_loopback
from kwire.web.requests.quotas import charged, quota_refusal
from kwire.web.rooms.line_streams import STREAMS, LineStream, LineStreams
from kwire.web.routes import MONITORING_ROUTES, BoundHandle, Route, bound_routes
from kwire.web.services import WebServices

if TYPE_CHECKING:
    from kwire.access.tls import TlsListener
    from kwire.server.tls.acceptor import TlsAcceptor

SHUTDOWN_SECONDS = 2.0
# The maximum time that a connection may be without a request, or may take to send the headers of a request. It is
# limited because the number of connections is limited. Proxies keep idle connections for a minute.
IDLE_SECONDS = 75.0
# The maximum number of connections of the listener for health checks and metrics.
MONITORING_CONNECTIONS_MAX = 100
# The time after which a stream of lines notices that rights were taken away.
ACCESS_CHECK_SECONDS = 1.0


class HttpListener:
    """An address on which some of the routes are served. With `tls` it serves https."""

    def __init__(
        self,
        address: Address,
        services: WebServices,
        descriptors: Descriptors,
        routes: Iterable[tuple[Route[Any], BoundHandle]],
        guard: Guard | None,
        connections_max: int,
        tls: "TlsListener | None" = None,
    ) -> None:
        port = services.port
        self._tls = tls
        self._acceptor: TlsAcceptor | None = None
        self._address = address
        config, network = port.config.web, port.config.network
        self._backlog = network.backlog
        self.connections = HttpConnections(
            port.http_metrics, descriptors, connections_max, network.connections_per_ip_max, network.send_timeout_ms
        )
        policy = OriginPolicy(config.origins, is_loopback(address.host), config.hosts)
        middleware = request_middleware(policy, port.memory, guard)
        app = web.Application(client_max_size=config.body_bytes_max, middlewares=[middleware])
        line_streams = app[STREAMS] = LineStreams()
        self._line_checks = PeriodicCalls(line_streams.members, LineStream.check, ACCESS_CHECK_SECONDS)
        line_streams.on_add = self._line_checks.start
        app[RECEIVE_SETTINGS] = ReceiveSettings.of(port.memory, config)
        app.on_shutdown.append(_end_streams)
        for route, handle in routes:
            # HEAD is not supported for streams, because a stream has no length.
            if route.charges is not None:
                handle = charged(handle, route.charges, services.quotas, route.refuse_quota or quota_refusal)
            methods = ("GET", "HEAD") if route.method == "GET" and not route.is_streaming else (route.method,)
            for method in methods:
                added = app.router.add_route(method, route.path, handle)
                if guard is not None:
                    guard.add(added, route)
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

            self._acceptor = TlsAcceptor(self._tls, self.connections, self._connection)
        factory = self._connection if self._acceptor is None else self._acceptor
        self._server = await loop.create_server(
            factory, self._address.host or None, self._address.port, backlog=self._backlog
        )

    def _connection(self) -> asyncio.Protocol:
        handler = self._runner.server
        assert handler is not None
        return HttpConnection(self.connections, handler, loop=asyncio.get_running_loop(), **handler._kwargs)

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._acceptor is not None:
            self._acceptor.close()

    async def close(self) -> None:
        await self._runner.cleanup()
        self._line_checks.close()
        self.connections.close()


class HttpServer:
    """The HTTP server: the HTTP port, and possibly a separate listener for health checks and metrics.

    With `tls` the HTTP port serves https. The separate listener has no TLS.
    """

    def __init__(
        self, address: Address, services: WebServices, descriptors: Descriptors, tls: "TlsListener | None" = None
    ) -> None:
        port, access = services.port, services.access
        self._stream_connections = port.serve_stream
        self._body_checks = port.body_checks
        self.memory = port.memory
        routes = [(route, handle) for route, handle in bound_routes(services)]
        monitoring = port.config.http_monitoring
        self._monitoring: HttpListener | None = None
        if monitoring is not None:
            separate = [one for one in routes if one[0] in MONITORING_ROUTES]
            routes = [one for one in routes if one[0] not in MONITORING_ROUTES]
            self._monitoring = HttpListener(
                monitoring, services, descriptors, separate, None, MONITORING_CONNECTIONS_MAX
            )
        guard = guard_of(access.authorizer, access.authenticator, access.audit)
        self._main = HttpListener(address, services, descriptors, routes, guard, port.config.web.connections_max, tls)

    @property
    def port(self) -> int:
        return self._main.port

    @property
    def monitoring_port(self) -> int | None:
        return None if self._monitoring is None else self._monitoring.port

    async def open(self) -> None:
        await self._main.open()
        if self._monitoring is not None:
            await self._monitoring.open()

    def reconfigure(self, config: Config) -> None:
        for listener in self._listeners():
            listener.connections.per_ip_max = config.network.connections_per_ip_max
            listener.connections.per_ip_overrides = config.connections.per_ip_overrides

    async def end_streams(self) -> None:
        """End all streams cleanly. Other requests are still answered."""
        await self._stream_connections.close()

    async def close(self) -> None:
        for listener in self._listeners():
            listener.stop_accepting()
        # aiohttp waits for its handlers. The handlers of streams end when their connections are closed.
        await self._stream_connections.close()
        for listener in self._listeners():
            await listener.close()
        await self._body_checks.close()

    def _listeners(self) -> list[HttpListener]:
        return [self._main] if self._monitoring is None else [self._main, self._monitoring]


async def _end_streams(app: web.Application) -> None:
    """Stop the requests that stream lines, because they do not end by themselves."""
    app[STREAMS].stop(asyncio.get_running_loop().time())
