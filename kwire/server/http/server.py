"""The HTTP port. aiohttp serves the routes of `kwire/web/routes.py` in the same event loop as the Kafka port.

If `kwire.http.monitoring.listener` is set, a second listener serves only health checks and metrics, and the HTTP port
does not serve these.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kwire.access.quotas.kinds import QuotaKind
from kwire.config import Address, Config
from kwire.descriptors import Descriptors
from kwire.server.accept_queue import AcceptQueue
from kwire.server.bind_errors import naming_listener
from kwire.server.http.connection import HttpConnection, HttpConnections
from kwire.server.periodic import PeriodicCalls
from kwire.web.needs import PUBLIC
from kwire.web.requests.body_receiver import RECEIVE_SETTINGS, ReceiveSettings
from kwire.web.requests.middleware import Guard, guard_of, request_middleware
from kwire.web.requests.origin_policy import OriginPolicy, is_loopback
from kwire.web.requests.quotas import quota_refusal, with_quotas
from kwire.web.rooms.line_streams import STREAMS, LineStream, LineStreams
from kwire.web.routes import MONITORING_ROUTES, BoundHandle, Route
from kwire.web.services import AccessServices, PortServices

if TYPE_CHECKING:
    from kwire.access.tls import TlsListener
    from kwire.server.tls.acceptor import TlsAcceptor

SHUTDOWN_SECONDS = 2.0
# The maximum time that a connection may be without a request, or may take to send the headers of a request. It is
# limited because the number of connections is limited. Proxies keep idle connections for a minute.
IDLE_SECONDS = 75.0
# The maximum number of connections of the listener for health checks and metrics.
MONITORING_CONNECTIONS_MAX = 100
# The options that configure the addresses, for errors.
HTTP_OPTION = "--http or kwire.http.listener"
MONITORING_OPTION = "kwire.http.monitoring.listener"
# Health checks and metrics, of a server or a bridge.
MONITORING_PATHS = frozenset(route.path for route in MONITORING_ROUTES)
# The time after which a stream of lines notices that rights were taken away.
ACCESS_CHECK_SECONDS = 1.0


class HttpListener:
    """An address on which some of the routes are served. `option` configures it. With `tls` it serves https."""

    def __init__(
        self,
        address: Address,
        port: PortServices,
        descriptors: Descriptors,
        routes: Iterable[tuple[Route[Any], BoundHandle]],
        guard: Guard | None,
        connections_max: int,
        option: str,
        tls: "TlsListener | None" = None,
    ) -> None:
        self._option = option
        self._tls = tls
        self._acceptor: TlsAcceptor | None = None
        self._address = address
        config, network = port.config.web, port.config.network
        self._backlog = network.backlog
        self.connections = HttpConnections(
            port.http_metrics, descriptors, connections_max, network.connections_per_ip_max, network.send_timeout_ms
        )
        policy = OriginPolicy(config.origins, is_loopback(address.host), config.hosts)
        middleware = request_middleware(policy, port.memory, port.http_metrics, guard)
        app = web.Application(client_max_size=config.body_bytes_max, middlewares=[middleware])
        line_streams = app[STREAMS] = LineStreams()
        self._line_checks = PeriodicCalls(line_streams.members, LineStream.check, ACCESS_CHECK_SECONDS)
        line_streams.on_add = self._line_checks.start
        app[RECEIVE_SETTINGS] = ReceiveSettings.of(port.memory, config)
        app.on_shutdown.append(_end_streams)
        for route, handle in routes:
            if route.needs != PUBLIC and route.path not in MONITORING_PATHS:
                # Health checks and metrics are never refused.
                kinds = (QuotaKind.REQUEST,) if route.charges is None else (route.charges, QuotaKind.REQUEST)
                handle = with_quotas(handle, kinds, port.quotas, route.refuse_quota or quota_refusal)
            # HEAD is not supported for streams, because a stream has no length.
            methods = ("GET", "HEAD") if route.method == "GET" and not route.is_streaming else (route.method,)
            for method in methods:
                added = app.router.add_route(method, route.path, handle)
                port.http_metrics.add_route(added, method, route.path, is_streaming=route.is_streaming)
                if guard is not None:
                    guard.add(added, route)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, keepalive_timeout=IDLE_SECONDS
        )
        self._accept_queue: AcceptQueue | None = None

    @property
    def port(self) -> int:
        assert self._accept_queue is not None
        return self._accept_queue.port

    async def open(self) -> None:
        await self._runner.setup()
        if self._tls is not None:
            from kwire.server.tls.acceptor import TlsAcceptor

            self._acceptor = TlsAcceptor(self._tls, self.connections, self._connection)
        self._accept_queue = AcceptQueue(
            self._connection if self._acceptor is None else self._acceptor,
            self.connections.admit_descriptor,
            self.connections.warn,
        )
        with naming_listener(f"HTTP {self._address}", self._option):
            await self._accept_queue.listen(self._address.host or None, self._address.port, self._backlog)

    def _connection(self) -> asyncio.Protocol:
        handler = self._runner.server
        assert handler is not None
        return HttpConnection(self.connections, handler, loop=asyncio.get_running_loop(), **handler._kwargs)

    def stop_accepting(self) -> None:
        if self._accept_queue is not None:
            self._accept_queue.close()
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
        self,
        address: Address,
        port: PortServices,
        access: AccessServices,
        bound_routes: Iterable[tuple[Route[Any], BoundHandle]],
        descriptors: Descriptors,
        tls: "TlsListener | None" = None,
    ) -> None:
        self._stream_connections = port.serve_stream
        self._body_checks = port.body_checks
        self.memory = port.memory
        routes = list(bound_routes)
        monitoring = port.config.http_monitoring
        self._monitoring: HttpListener | None = None
        if monitoring is not None:
            separate = [one for one in routes if one[0].path in MONITORING_PATHS]
            routes = [one for one in routes if one[0].path not in MONITORING_PATHS]
            self._monitoring = HttpListener(
                monitoring, port, descriptors, separate, None, MONITORING_CONNECTIONS_MAX, MONITORING_OPTION
            )
        guard = guard_of(access.authorizer, access.authenticator, access.audit, access.key_usage)
        self._main = HttpListener(
            address, port, descriptors, routes, guard, port.config.web.connections_max, HTTP_OPTION, tls
        )

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

    @property
    def connection_count(self) -> int:
        return sum(listener.connections.count for listener in self._listeners())

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
