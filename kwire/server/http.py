"""The HTTP port: aiohttp on the same event loop, serving `kwire/web/routes.py`."""

import asyncio
from functools import partial
from typing import Any

from aiohttp import web

from kwire.config import Address
from kwire.descriptors import HTTP, Descriptors, descriptor_of
from kwire.server.http_connection import HttpConnection
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
        self._descriptors = descriptors
        self._take_over = services.take_over
        self._backlog = services.config.network.backlog
        self._connections_max = services.config.web.connections_max
        guard = Guard(services.config.web.origins, is_loopback(address.host))
        app = web.Application(client_max_size=services.config.web.body_bytes_max, middlewares=[door_of(guard)])
        app[STREAMS] = set()
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
            self._admit, self._address.host or None, self._address.port, backlog=self._backlog
        )

    def _admit(self) -> asyncio.Protocol:
        """For each connection: its protocol, as long as there is room for one more."""
        handler = self._runner.server
        if handler is None or len(handler._connections) >= self._connections_max:
            return _TurnedAway()
        return HttpConnection(self._may_stay, handler, loop=asyncio.get_running_loop(), **handler._kwargs)

    def _may_stay(self, transport: asyncio.BaseTransport) -> bool:
        return self._descriptors.admit(HTTP, descriptor_of(transport))

    async def end_streams(self) -> None:
        """Let every stream say goodbye; requests are still answered."""
        await self._take_over.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        # aiohttp waits for its handlers, and those of streams end with their connections.
        await self._take_over.close()
        await self._runner.cleanup()


class _TurnedAway(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: Any) -> None:
        transport.abort()


async def _end_streams(app: web.Application) -> None:
    """Streams of lines have no end of their own that one could wait for."""
    now = asyncio.get_running_loop().time()
    streams = app[STREAMS]
    for until_stop in list(streams):
        until_stop.reschedule(now)
