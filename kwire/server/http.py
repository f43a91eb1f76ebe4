"""The HTTP port: aiohttp on the same event loop, serving `kwire/web/routes.py`."""

import asyncio
from functools import partial

from aiohttp import web

from kwire.config import Address, NetworkConfig
from kwire.descriptors import Descriptors
from kwire.server.http_connection import HttpConnection, HttpConnections
from kwire.web.body_reading import INTAKE, Intake
from kwire.web.door import door_of
from kwire.web.rooms.lines import STREAMS
from kwire.web.routes import ROUTES
from kwire.web.safety import Guard, is_loopback
from kwire.web.services import WebServices

SHUTDOWN_SECONDS = 2.0
# How long a connection may be without a request, or take to send the head of one: each counts among those allowed.
# Proxies in front keep theirs for a minute.
IDLE_SECONDS = 75.0


class HttpServer:
    def __init__(self, address: Address, services: WebServices, descriptors: Descriptors) -> None:
        self._address = address
        self._take_over = services.take_over
        config, network = services.config.web, services.config.network
        self._backlog = network.backlog
        self.memory = services.memory
        self._connections = HttpConnections(
            services.http_metrics,
            descriptors,
            config.connections_max,
            network.connections_per_ip_max,
            network.send_timeout_ms,
        )
        guard = Guard(config.origins, is_loopback(address.host))
        app = web.Application(client_max_size=config.body_bytes_max, middlewares=[door_of(guard, services.memory)])
        app[STREAMS] = set()
        app[INTAKE] = Intake.of(services.memory, config)
        app.on_shutdown.append(_end_streams)
        for route in ROUTES:
            handle = partial(route.handle, services)
            app.router.add_route(route.method, route.path, handle)
            # A stream has no length that one could ask for.
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
        self._server = await loop.create_server(
            self._connection, self._address.host or None, self._address.port, backlog=self._backlog
        )

    def reconfigure(self, network: NetworkConfig) -> None:
        self._connections.per_ip_max = network.connections_per_ip_max

    def _connection(self) -> asyncio.Protocol:
        handler = self._runner.server
        assert handler is not None
        return HttpConnection(self._connections, handler, loop=asyncio.get_running_loop(), **handler._kwargs)

    async def end_streams(self) -> None:
        """Let every stream say goodbye; requests are still answered."""
        await self._take_over.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        # aiohttp waits for its handlers, and those of streams end with their connections.
        await self._take_over.close()
        await self._runner.cleanup()
        self._connections.close()


async def _end_streams(app: web.Application) -> None:
    """Streams of lines have no end of their own that one could wait for."""
    now = asyncio.get_running_loop().time()
    streams = app[STREAMS]
    for until_stop in list(streams):
        until_stop.reschedule(now)
