"""GET /healthz shows whether the process is alive. GET /readyz shows whether the node is ready: the logs are loaded,
the listeners are open and the node is not stopping."""

from collections.abc import Callable
from typing import Protocol

import msgspec
from aiohttp import web

from kwire.web.needs import PUBLIC
from kwire.web.route import JSON, Answer, Route


class Readiness(Protocol):
    """The services of a server or a bridge."""

    @property
    def is_ready(self) -> Callable[[], bool]: ...


class Health(msgspec.Struct, kw_only=True):
    status: str


async def alive(services: Readiness, request: web.Request) -> web.Response:
    return web.json_response({"status": "alive"})


async def ready(services: Readiness, request: web.Request) -> web.Response:
    if services.is_ready():
        return web.json_response({"status": "ready"})
    return web.json_response({"status": "not ready"}, status=503)


ROUTES: tuple[Route[Readiness], ...] = (
    Route("GET", "/healthz", alive, summary="Whether the process is alive", answers={200: Health}, needs=PUBLIC),
    Route(
        "GET",
        "/readyz",
        ready,
        summary="Whether the node is ready to serve requests",
        answers={200: Health, 503: Answer("Starting or stopping.", {JSON: Health})},
        needs=PUBLIC,
    ),
)
