"""GET /healthz: the process answers. GET /readyz: logs loaded, listeners open, no shutdown begun."""

import msgspec
from aiohttp import web

from kwire.web.route import JSON, Answer, Route
from kwire.web.services import WebServices


class Health(msgspec.Struct, kw_only=True):
    status: str


async def alive(services: WebServices, request: web.Request) -> web.Response:
    return web.json_response({"status": "alive"})


async def ready(services: WebServices, request: web.Request) -> web.Response:
    if services.is_ready():
        return web.json_response({"status": "ready"})
    return web.json_response({"status": "not ready"}, status=503)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/healthz", alive, summary="Does the process answer?", answers={200: Health}),
    Route(
        "GET",
        "/readyz",
        ready,
        summary="Is the node ready to serve?",
        answers={200: Health, 503: Answer("Starting or stopping.", {JSON: Health})},
    ),
)
