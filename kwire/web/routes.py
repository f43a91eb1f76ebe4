"""Every path the HTTP port answers."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web

from kwire.web import groups, health, metrics
from kwire.web.services import WebServices


class Route(NamedTuple):
    method: str
    path: str
    handle: Callable[[WebServices, web.Request], Awaitable[web.StreamResponse]]


ROUTES: tuple[Route, ...] = (
    Route("GET", "/healthz", health.alive),
    Route("GET", "/readyz", health.ready),
    Route("GET", "/metrics", metrics.scrape),
    Route("GET", "/api/v1/groups", groups.list_groups),
    Route("GET", "/api/v1/groups/{group}", groups.describe_group),
)
