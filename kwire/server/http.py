"""The HTTP port: aiohttp on the same event loop, serving `kwire/web/routes.py`."""

import asyncio
from functools import partial

from aiohttp import web

from kwire.config import Address
from kwire.web.routes import ROUTES
from kwire.web.services import WebServices

BODY_BYTES_MAX = 1024 * 1024
SHUTDOWN_SECONDS = 2.0


class HttpServer:
    def __init__(self, address: Address, services: WebServices) -> None:
        self._address = address
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        for route in ROUTES:
            app.router.add_route(route.method, route.path, partial(route.handle, services))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def open(self) -> None:
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        handler = self._runner.server
        assert handler is not None
        self._server = await loop.create_server(handler, self._address.host or None, self._address.port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()
