"""GET /healthz: the process answers. GET /readyz: logs loaded, listeners open, no shutdown begun."""

from aiohttp import web

from kwire.web.services import WebServices


async def alive(services: WebServices, request: web.Request) -> web.Response:
    return web.json_response({"status": "alive"})


async def ready(services: WebServices, request: web.Request) -> web.Response:
    if services.is_ready():
        return web.json_response({"status": "ready"})
    return web.json_response({"status": "not ready"}, status=503)
